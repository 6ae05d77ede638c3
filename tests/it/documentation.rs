//! README and documents: links and paths that lead somewhere, a README of the agreed size with the two commands that
//! scripts call.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Folders whose files documents name by their path from the repository's root.
const FOLDERS: &[&str] = &[
    "src/",
    "kernels/",
    "profiler/",
    "plans/",
    "tests/",
    "benches/",
    "fuzz/",
    "docs/",
    "packaging/",
    ".ci/",
];

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The Markdown files that are written by hand.
fn documents() -> Vec<(PathBuf, String)> {
    let listed = fs::read_dir(repository().join("docs")).expect("docs/ can be listed");
    let docs = listed.map(|entry| entry.expect("docs/ can be listed").path());
    let docs = docs.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let others = [
        "README.md",
        "benches/README.md",
        "benches/peers/README.md",
        "benches/results/README.md",
        "fuzz/README.md",
    ];
    let mut files: Vec<PathBuf> = docs.chain(others.map(|name| repository().join(name))).collect();
    files.sort();
    let read = |file: PathBuf| {
        let text = fs::read_to_string(&file).expect("documents are UTF-8");
        (file, text)
    };
    files.into_iter().map(read).collect()
}

/// Targets of links, without anchors.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let targets = text.split("](").skip(1).filter_map(|tail| tail.split_once(')'));
    targets
        .map(|(target, _)| target.split('#').next().unwrap_or_default())
        .filter(|target| !target.is_empty())
}

/// Paths of the repository that stand in code spans; patterns (`*`, `NAME`) are no paths.
fn paths(text: &str) -> impl Iterator<Item = &str> {
    let spans = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    let words =
        spans.flat_map(str::split_whitespace).filter(|word| FOLDERS.iter().any(|f| word.starts_with(f)));
    words.filter(|word| !word.contains(['*', '{']) && !word.contains("NAME"))
}

#[test]
fn links_and_paths_lead_somewhere() {
    let mut wrong = Vec::new();
    let mut seen = 0;
    for (file, text) in documents() {
        let folder = file.parent().expect("documents are in folders");
        let local = links(&text).filter(|target| !target.contains("://"));
        let named =
            local.map(|target| folder.join(target)).chain(paths(&text).map(|path| repository().join(path)));
        for path in named {
            seen += 1;
            if !path.exists() {
                wrong.push(format!("{}: {}", file.display(), path.display()));
            }
        }
    }
    assert!(seen > 50, "{seen} links and paths were found");
    assert!(wrong.is_empty(), "documents name what is not there:\n{}", wrong.join("\n"));
}

#[test]
fn links_and_paths_are_found() {
    let text = "See [a](b.md#c), [d](https://e.f), [g](#h), `src/lib.rs`, `benches/x.py OUT`, `src/*.rs`.";
    assert_eq!(links(text).collect::<Vec<_>>(), ["b.md", "https://e.f"]);
    assert_eq!(paths(text).collect::<Vec<_>>(), ["src/lib.rs", "benches/x.py"]);
}

#[test]
fn the_readme_is_short_and_has_the_commands_that_scripts_call() {
    let readme = fs::read_to_string(repository().join("README.md")).expect("there is one");
    assert!(readme.len() <= 10_000, "README.md has {} bytes: move details to docs/", readme.len());
    let gates = fs::read_to_string(repository().join(".ci/run")).expect("there is one");
    for command in ["cargo run --release -- run -p \"Why is the sky blue?\"", "cargo test --workspace"] {
        assert!(readme.lines().any(|line| line == command), "README.md has lost the line `{command}`");
    }
    assert!(gates.contains("cargo test --workspace"), ".ci/run does not run the tests as README.md does");
}
