//! Single CUDA kernels and the driver's refusals, on the emulated device: `kernels/cuda/emu/checks.cpp`, in every order
//! of blocks and threads.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::OnceLock,
};

use crate::{
    bad_input::refused,
    emulated_cuda::{
        ARCH, LATE, ONCE, ORDER, OVERLAPPING, SHIFT, emulation, exact_model, kernels, lines_with, on_cuda,
        passes, tests_in,
    },
    program::success,
    tiny_commands::json,
};

/// The order in which the blocks of a launch run; `apart`: as if all at once.
pub(crate) const BLOCKS: &str = "YGG_EMULATION_BLOCKS";
/// `apart`: captures with kernels that may begin early are refused.
const CAPTURES: &str = "YGG_EMULATION_CAPTURES";

const PRODUCTS: &str = "products";
pub(crate) const QUICK: [&str; 11] = [
    "fragments_saturate",
    "shared_memory_is_asked_for",
    "attention_of_a_long_context",
    "product",
    PRODUCTS,
    "prepared_rows",
    "draws",
    "attention",
    "attention_of_rows",
    "attention_of_trees",
    "states",
];

/// The program of the checks, in the folder of the emulation that it uses.
fn checks() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let program = emulation().join("checks");
        let mut command = Command::new("g++");
        command.args(["-std=c++20", "-O2", "-Wall", "-Wextra", "-Werror"]);
        command
            .arg(kernels().join("emu/checks.cpp"))
            .arg("-L")
            .arg(emulation())
            .args(["-l:libcuda.so.1", "-o"]);
        let told = command.arg(&program).output().expect("g++ was found");
        assert!(told.status.success(), "g++ refuses the checks:\n{}", String::from_utf8_lossy(&told.stderr));
        program
    })
}

pub(crate) fn told(names: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(checks());
    command.env("LD_LIBRARY_PATH", emulation()).envs(environment.iter().copied()).args(names);
    command.output().expect("the checks start")
}

fn hold(names: &[&str], environment: &[(&str, &str)]) {
    let told = told(names, environment);
    let [said, complained] = [&told.stdout, &told.stderr].map(|text| String::from_utf8_lossy(text));
    let count = said.lines().filter(|line| line.ends_with(": ok")).count();
    assert!(told.status.success() && count == names.len(), "with {environment:?}:\n{said}\n{complained}");
}

#[test]
fn kernels_are_what_loops_say() {
    hold(&QUICK, &[]);
}

/// No block reads what another one of its launch writes, or writes there too.
#[test]
fn blocks_do_not_see_each_other() {
    let kernels = [
        "fragments_saturate",
        "product",
        "prepared_rows",
        "draws",
        "attention_of_rows",
        "attention_of_trees",
        "states",
    ];
    hold(&kernels, &[(BLOCKS, "apart")]);
    passes(&[ONCE], &[(BLOCKS, "apart")]);
}

#[test]
fn kernels_do_not_depend_on_the_order_of_blocks() {
    hold(&QUICK[3..], &[(BLOCKS, "reversed")]);
    hold(&QUICK[3..], &[(BLOCKS, "5"), (ORDER, "reversed")]);
}

#[test]
fn early_kernels_come_behind_kernels() {
    hold(&["no_early_kernel_after_a_copy"], &[OVERLAPPING]);
}

#[test]
fn products_of_the_longest_rows_are_what_loops_say() {
    hold(&["products_of_long_rows"], &[]);
}

/// A kernel that writes before it has waited is caught, also where it would write what is there already.
#[test]
fn a_write_before_the_wait_is_caught() {
    let waits = lines_with(" wait_for_kernels_before();");
    let place = waits.iter().find(|place| place.starts_with("candidates.cuh")).expect("candidates wait");
    let told = tests_in(emulation(), &[ONCE], &[(LATE, place), OVERLAPPING]);
    let complained = String::from_utf8_lossy(&told.stderr);
    assert!(!told.status.success() && complained.contains("written before"), "{complained}");
}

/// Every launch of a program leaves a line with what it asked for; that no kernel asks for much more than it has to is
/// in the checks.
#[test]
fn traffic_is_told_of_every_launch() {
    let lines = exact_model().with_extension("traffic.txt");
    // What an earlier run left.
    let _absent = std::fs::remove_file(&lines);
    let path = lines.to_str().expect("a path in UTF-8");
    let mut command = on_cuda("run", exact_model(), &[("YGG_EMULATION_TRAFFIC", path)]);
    json(command.args(["-p", "one", "--raw", "--no-spec", "-n", "3", "--json"]));
    let told = std::fs::read_to_string(&lines).expect("lines are there");
    let bytes = |name: &str, field: usize| -> u64 {
        let of = told.lines().filter(|line| line.starts_with(&format!("{name} ")));
        of.map(|line| line.split(' ').nth(field).and_then(|n| n.parse::<u64>().ok()).expect("a number")).sum()
    };
    for name in ["ygg_attention_f16_d64", "ygg_attention_join", "ygg_prepare"] {
        assert!(bytes(name, 4) > 0, "{name}: {told}");
    }
}

/// The checks see a fault in what only a second trip of the loop over inputs does.
#[test]
fn a_fault_of_the_second_trip_is_noticed() {
    let second = lines_with("index(t) + OF_TRIP");
    let [place] = &second[..] else { panic!("one line loads the tiles of later trips: {second:?}") };
    let told = told(&[PRODUCTS], &[(SHIFT, place)]);
    let said = String::from_utf8_lossy(&told.stdout);
    assert_eq!(told.status.code(), Some(1), "{said}");
    for (layout, columns) in [("bf16", 2112), ("nibbles", 4224), ("bytes_wide", 2112)] {
        let complaint = |line: &&str| line.contains(&format!("{layout} of {columns} inputs: bits depend"));
        assert!(said.lines().any(|line| complaint(&line)), "{layout}, {columns} inputs: {said}");
    }
}

/// Where kernels overlap, how to switch it off, and what becomes of captures that a driver refuses with it: the same
/// tokens.
#[test]
fn kernels_overlap_where_they_can_and_may() {
    let prompts = exact_model().with_extension("overlap.jsonl");
    std::fs::write(&prompts, "{\"category\":\"x\",\"prompt\":\"one and one\"}\n").expect("writable");
    let bench = |environment: &[(&str, &str)], more: &[&str]| {
        let mut command = on_cuda("bench", exact_model(), environment);
        command.args(["--prompts"]).arg(&prompts).args([
            "--arms",
            "ar",
            "-n",
            "6",
            "--repetitions",
            "1",
            "--json",
        ]);
        json(command.args(more))["kernels_overlap"].clone()
    };
    assert_eq!(bench(&[(ARCH, "80")], &[]), false);
    assert_eq!(bench(&[OVERLAPPING], &[]), true);
    assert_eq!(bench(&[OVERLAPPING], &["--no-overlap"]), false);
    assert_eq!(bench(&[OVERLAPPING, (CAPTURES, "apart")], &[]), false, "a refused capture is made again");
    let answer = |environment: &[(&str, &str)], more: &[&str]| {
        let mut command = on_cuda("run", exact_model(), environment);
        let asked = ["-p", "one and one and one", "--raw", "--no-spec", "-n", "12", "--json"];
        success(&command.args(asked).args(more).output().expect("yggc starts"));
        json(&mut command)["token_ids"].clone()
    };
    let expected = answer(&[OVERLAPPING], &[]);
    assert_eq!(expected, answer(&[OVERLAPPING, (CAPTURES, "apart")], &[]));
    assert_eq!(expected, answer(&[OVERLAPPING], &["--no-overlap"]));
    let on_cpu =
        crate::tiny_commands::on_machine("run", exact_model()).args(["-p", "x", "--no-overlap"]).output();
    assert_eq!(on_cpu.expect("yggc starts").status.code(), Some(2));
    refused(on_cuda("run", exact_model(), &[(ARCH, "75")]).args(["-p", "x", "--no-spec"]), 4, &["7.5"]);
}

/// Bits of whole forwards, too, are the same in every order of blocks.
#[test]
fn scores_do_not_depend_on_the_order_of_blocks() {
    let text = exact_model().with_extension("blocks.txt");
    std::fs::write(&text, "one and one and one and two and one and three").expect("writable");
    let score = |order: &str| {
        let mut command = on_cuda("score", exact_model(), &[(BLOCKS, order), OVERLAPPING]);
        json(command.arg("--text-file").arg(&text).arg("--json"))
    };
    let expected = score("forwards");
    assert_eq!(expected, score("reversed"));
    assert_eq!(expected, score("11"));
}
