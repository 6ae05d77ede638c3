//! Hashes the kernels' sources: plans are bound to the kernel set they were measured with. Those of a processor and those of a GPU have
//! hashes of their own; so has what lays weights out for a processor, which kept weights are bound to.

use std::{
    fs,
    path::{Path, PathBuf},
};

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

fn hash(mut files: Vec<PathBuf>) -> String {
    files.sort();
    let mut hasher = blake3::Hasher::new();
    for file in &files {
        let text = fs::read(file).expect("the sources are readable");
        hasher.update(file.to_string_lossy().as_bytes());
        hasher.update(&(text.len() as u64).to_le_bytes());
        hasher.update(&text);
    }
    hasher.finalize().to_hex()[..16].to_owned()
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
    println!("cargo::rustc-env=YGG_PACKED_LAYOUT={}", hash(layouts.cloned().collect()));
    let (cuda, cpu) = files.into_iter().partition(|file| has(file, &["cuda", "cuda.rs"]));
    println!("cargo::rustc-env=YGG_KERNEL_SET={}", hash(cpu));
    println!("cargo::rustc-env=YGG_CUDA_KERNEL_SET={}", hash(cuda));
}
