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

/// `cargo binstall` fills its templates in; the names are those that `.ci/release` gives.
#[test]
fn binstall_finds_the_archives_of_a_release() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest = fs::read_to_string(root.join("Cargo.toml")).expect("it is there");
    let metadata = manifest.split_once("[package.metadata.binstall]\n").expect("a section").1;
    let value = |key: &str| {
        let line = metadata.lines().find(|line| line.starts_with(&format!("{key} = "))).expect("a key");
        let template = line.split('"').nth(1).expect("a text");
        let filled = [
            ("{ repo }", env!("CARGO_PKG_REPOSITORY")),
            ("{ name }", "yggc"),
            ("{ version }", "1.2.3"),
            ("{ target }", "T"),
            ("{ bin }", "yggc"),
        ];
        filled.iter().fold(template.to_owned(), |text, (key, value)| text.replace(key, value))
    };
    let installer = fs::read_to_string(root.join("packaging/install.sh")).expect("it is there");
    let releases = installer.lines().find_map(|line| line.strip_prefix("releases=")).expect("an address");
    assert_eq!(value("pkg-url"), format!("{releases}/download/v1.2.3/yggc-1.2.3-T.tar.gz"));
    assert_eq!((value("bin-dir"), value("pkg-fmt")), ("yggc-1.2.3-T/yggc".to_owned(), "tgz".to_owned()));
    let release = fs::read_to_string(root.join(".ci/release")).expect("it is there");
    assert!(release.contains("name=yggc-$version-$triple\n") && release.contains(">\"$out/$1.tar.gz\""));
}
