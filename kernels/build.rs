//! Hashes the kernels' sources: plans are bound to the kernel set they were measured with.

use std::{
    fs,
    path::{Path, PathBuf},
};

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the sources are readable") {
        let path = entry.expect("the sources are readable").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

fn main() {
    println!("cargo::rerun-if-changed=src");
    let mut files = Vec::new();
    sources(Path::new("src"), &mut files);
    files.retain(|f| !f.components().any(|c| c.as_os_str() == "tests" || c.as_os_str() == "tests.rs"));
    files.sort();
    let mut hasher = blake3::Hasher::new();
    for file in &files {
        let text = fs::read(file).expect("the sources are readable");
        hasher.update(file.to_string_lossy().as_bytes());
        hasher.update(&(text.len() as u64).to_le_bytes());
        hasher.update(&text);
    }
    println!("cargo::rustc-env=YGG_KERNEL_SET={}", &hasher.finalize().to_hex()[..16]);
}
