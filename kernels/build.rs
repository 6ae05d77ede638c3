//! Hashes the kernels' sources, and how those of a processor are compiled: plans are bound to the kernel set they were
//! measured with. Those of a processor and those of a GPU have hashes of their own; so has what lays weights out for a
//! processor, which kept weights are bound to.

#![allow(clippy::disallowed_methods, reason = "cargo speaks to build scripts through the environment")]

mod kernel_set;

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use kernel_set::{Source, kernel_set};

/// What Cargo says of the compiler's settings that decide how fast kernels are.
const SETTINGS: [&str; 3] = ["OPT_LEVEL", "TARGET", "CARGO_CFG_TARGET_FEATURE"];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the sources are readable") {
        let path = entry.expect("the sources are readable").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path
            .extension()
            .is_some_and(|e| ["rs", "cu", "cuh", "h"].iter().any(|of_kernels| e == *of_kernels))
        {
            found.push(path);
        }
    }
}

fn has(file: &Path, names: &[&str]) -> bool {
    file.components().any(|part| names.iter().any(|name| part.as_os_str() == *name))
}

fn read(mut files: Vec<PathBuf>) -> Vec<Source> {
    files.sort();
    let source = |file: PathBuf| {
        let text = fs::read(&file).expect("the sources are readable");
        (file.to_string_lossy().into_owned(), text)
    };
    files.into_iter().map(source).collect()
}

fn settings() -> Vec<String> {
    let setting = |name| env::var(name).unwrap_or_default();
    SETTINGS.map(|name| format!("{name}={}", setting(name))).to_vec()
}

fn main() {
    // For the build script of the crate that compiles them.
    let folder = std::path::absolute("cuda").expect("cargo runs this in a folder");
    println!("cargo::metadata=cuda={}", folder.display());
    let mut files = Vec::new();
    for folder in ["src", "cuda"] {
        println!("cargo::rerun-if-changed={folder}");
        sources(Path::new(folder), &mut files);
    }
    // The emulation is for tests.
    files.retain(|file| !has(file, &["tests", "tests.rs", "emu"]));
    let layouts = files.iter().filter(|file| has(file, &["packing", "packing.rs"]) && !has(file, &["cuda"]));
    println!("cargo::rustc-env=YGG_PACKED_LAYOUT={}", kernel_set(&read(layouts.cloned().collect()), &[]));
    let (cuda, cpu) = files.into_iter().partition(|file| has(file, &["cuda", "cuda.rs"]));
    println!("cargo::rustc-env=YGG_KERNEL_SET={}", kernel_set(&read(cpu), &settings()));
    // Another compiler makes these.
    println!("cargo::rustc-env=YGG_CUDA_KERNEL_SET={}", kernel_set(&read(cuda), &[]));
}
