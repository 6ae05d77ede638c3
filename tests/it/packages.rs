//! What is published: every package stays small and has what building needs, and nothing else.

use std::{fs, path::Path, process::Command};

/// Bytes of a package before it is compressed, to about a quarter: a registry takes 10 MB.
const MOST_BYTES: u64 = 6_000_000;

/// The files of a package, by cargo.
fn files(folder: &Path) -> Vec<String> {
    let mut cargo = Command::new(env!("CARGO"));
    let listed = cargo.current_dir(folder).args(["package", "--list", "--allow-dirty", "--offline"]).output();
    let listed = listed.expect("cargo starts");
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    String::from_utf8(listed.stdout).expect("UTF-8").lines().map(str::to_owned).collect()
}

#[test]
fn packages_are_small_and_have_their_licence() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (folder, needed) in [
        (".", &["build.rs", "src/main.rs", "README.md", "plans/calibration/prompts.jsonl"][..]),
        ("kernels", &["build.rs", "src/lib.rs", "cuda/kernels.cu"]),
        ("profiler", &["src/lib.rs", "distill/__main__.py"]),
    ] {
        let folder = root.join(folder);
        let files = files(&folder);
        for file in needed.iter().chain(&["Cargo.toml", "LICENSE"]) {
            assert!(files.iter().any(|found| found == file), "{}: no {file}", folder.display());
        }
        let strays: Vec<_> = files
            .iter()
            .filter(|file| ["benches/results", "fuzz", "tests/it"].iter().any(|f| file.starts_with(f)))
            .collect();
        assert!(strays.is_empty(), "{}: {strays:?}", folder.display());
        // Cargo makes some by itself, which are not there yet.
        let size = |file: &String| fs::metadata(folder.join(file)).map_or(0, |found| found.len());
        let bytes: u64 = files.iter().map(size).sum();
        assert!(bytes > 100_000 && bytes < MOST_BYTES, "{}: {bytes} bytes", folder.display());
    }
}
