//! The Python package by its own tests, with the native module that cargo built into the same folder.

use std::{fs, path::Path, process::Command};

use crate::{
    program::success,
    tiny_commands::{drafting_plan, model},
};

/// A folder with the package as a wheel has it, but for the program.
fn package(folder: &Path) {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/python/yggc");
    let tests = std::env::current_exe().expect("the tests run from a file");
    let library = tests.with_file_name("lib_native.so");
    assert!(library.exists(), "no lib_native.so beside {}", tests.display());
    fs::create_dir(folder.join("yggc")).expect("a new folder");
    for name in ["__init__.py", "__main__.py"] {
        fs::copy(sources.join(name), folder.join("yggc").join(name)).expect("a copy");
    }
    fs::copy(library, folder.join("yggc/_native.abi3.so")).expect("a copy");
}

/// Runs a file of the package's tests, once `asked` says what else it is told.
fn passes(tests: &str, asked: impl FnOnce(&mut Command)) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    package(folder.path());
    let mut command = Command::new("python3");
    command.arg("-B").arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/python/tests").join(tests));
    command.env("PYTHONPATH", folder.path()).env("YGG_TEST_MODEL", model());
    asked(&mut command);
    success(&command.output().expect("python3 starts"));
}

#[test]
fn the_package_passes_its_own_tests() {
    passes("test_yggc.py", |command| {
        command.env("YGG_TEST_PLAN", drafting_plan());
        command.env("YGG_TEST_OPTIONS", r#"{"isa": "portable", "threads": 1}"#);
        command.env("YGG_TEST_PROGRAM", env!("CARGO_BIN_EXE_yggc"));
    });
}

#[test]
fn an_answer_goes_on_when_its_replica_dies() {
    passes("replicas.py", |_| {});
}
