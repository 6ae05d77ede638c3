//! Compiles the CUDA kernels where there is a toolkit: `CUDA_HOME` names its folder. Without it the binary compiles
//! them through NVRTC on the machine where they run.

#![allow(clippy::disallowed_methods, reason = "cargo speaks to build scripts through the environment")]

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Where `ygg-kernels` has the sources of the CUDA kernels, as its build script says.
const KERNELS: &str = "DEP_YGG_KERNELS_CUDA";
/// An architecture of intermediate code, and of the code that it becomes.
type Architecture = (&'static str, &'static str);
/// Architectures that get code of their own; newer ones compile the intermediate code when they load it. Two versions
/// of that are made and serve all: kernels overlap from the second one on.
const ARCHITECTURES: [Architecture; 7] = [
    ("compute_80", "sm_80"),
    ("compute_80", "sm_86"),
    ("compute_80", "sm_89"),
    ("compute_90", "sm_90a"),
    ("compute_90", "sm_100"),
    ("compute_90", "sm_120"),
    ("compute_90", "compute_90"),
];
/// Those of machines whose processor is an ARM: Jetson Orin (87) and Thor (110), which do not run the code of a card of
/// their generation; Grace with Hopper (90) or Blackwell (100), Spark (121), and cards in servers. Code for 80 serves
/// 86.
const ARCHITECTURES_ON_ARM: [Architecture; 8] = [
    ("compute_80", "sm_80"),
    ("compute_80", "sm_87"),
    ("compute_80", "sm_89"),
    ("compute_90", "sm_90a"),
    ("compute_90", "sm_100"),
    ("compute_90", "sm_110"),
    ("compute_90", "sm_121"),
    ("compute_90", "compute_90"),
];

fn main() {
    let kernels = PathBuf::from(env::var_os(KERNELS).expect("ygg-kernels says where its sources are"));
    println!("cargo::rerun-if-changed={}", kernels.display());
    println!("cargo::rerun-if-env-changed=CUDA_HOME");
    if env::var_os("CARGO_FEATURE_CUDA").is_none() {
        return;
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo names a folder")).join("kernels.fatbin");
    match env::var_os("CUDA_HOME") {
        Some(home) => compile(Path::new(&home), &kernels, &out),
        None => fs::write(&out, []).expect("cargo's folder can be written"),
    }
}

fn compile(home: &Path, kernels: &Path, out: &Path) {
    let nvcc = home.join("bin/nvcc");
    let mut command = Command::new(&nvcc);
    command.args([
        "-std=c++17",
        "-O3",
        "-fatbin",
        "--threads",
        "0",
        "-Xptxas",
        "-v",
        "-Werror",
        "all-warnings",
    ]);
    let is_arm = env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|machine| machine == "aarch64");
    for (virtual_arch, code) in if is_arm { &ARCHITECTURES_ON_ARM[..] } else { &ARCHITECTURES } {
        command.arg(format!("-gencode=arch={virtual_arch},code={code}"));
    }
    command.arg(kernels.join("kernels.cu")).arg("-o").arg(out);
    let told = command.output().unwrap_or_else(|error| {
        panic!(
            "CUDA_HOME is {}, but {} does not run: {error}; unset it to build without compiled kernels",
            home.display(),
            nvcc.display()
        )
    });
    let words = String::from_utf8_lossy(&told.stderr);
    assert!(told.status.success(), "nvcc refuses the kernels:\n{words}");
    // A kernel that keeps registers in memory is several times as slow, and nothing else would say so.
    let spilled: Vec<&str> = words
        .lines()
        .filter(|line| line.contains("spill") && !line.contains("0 bytes spill stores, 0 bytes spill loads"))
        .collect();
    assert!(spilled.is_empty(), "kernels spill registers:\n{}\n{words}", spilled.join("\n"));
}
