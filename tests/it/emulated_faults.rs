//! Tests of the tests of CUDA kernels: a fault in any barrier, wait or index of the kernels must fail one of them.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use crate::{
    emulated_cuda::{
        ARCH, CANDIDATES, COPIES, FAMILIES, FORGETS, GROWTH, LATE, LONG, NOISY, ONCE, ORDER, OVERLAPPING,
        OWN_CACHE, SHIFT, STREAMED_ONCE, UNFUSED, WALK, WHOLE, WITHOUT, emulation, lines_with, tests_in,
    },
    emulated_kernels::{BLOCKS, QUICK, told},
};

/// What the tests would not notice is not tested: kernels with a fault in one of these lines must fail one of them, in
/// one of the orders of threads. Faults are tried side by side.
fn every_fault_is_noticed(fault: &str, places: &[String], arch: &str, orders: &[&str]) {
    let next = AtomicUsize::new(0);
    let unnoticed = Mutex::new(Vec::new());
    let checks_pass = |place: &str, order: &str| {
        told(&QUICK, &[(fault, place), (ARCH, arch), (ORDER, order)]).status.success()
    };
    let passes_with = |tests: &[&str], place: &str, order: &str| {
        tests_in(emulation(), tests, &[(fault, place), (ARCH, arch), (ORDER, order)]).status.success()
    };
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(place) = places.get(next.fetch_add(1, Ordering::Relaxed)) {
                    // The quickest first; growth and walks are tests of their own. Some ops are of a few families
                    // alone.
                    let tests: &[&[&str]] = match place.split_once(':') {
                        Some(("growth.cuh", _)) => &[&[GROWTH], &[OWN_CACHE]],
                        Some(("pruning.cuh", _)) => &[&[WHOLE]],
                        Some(("walk.cuh" | "race.cuh", _)) => &[&[WALK]],
                        Some(("noise.cuh", _)) => &[&[NOISY]],
                        _ => &[&[ONCE], &[LONG], &[UNFUSED], &[CANDIDATES], &[FAMILIES]],
                    };
                    let is_noticed =
                        |tests: &[&str]| orders.iter().any(|order| !passes_with(tests, place, order));
                    let by_checks = orders.iter().any(|order| !checks_pass(place, order));
                    if !by_checks && !tests.iter().copied().any(is_noticed) {
                        unnoticed.lock().expect("no thread panics").push(place.clone());
                    }
                }
            });
        }
    });
    let unnoticed = unnoticed.into_inner().expect("no thread panicked");
    assert!(unnoticed.is_empty(), "no test fails with {fault} at {unnoticed:?}");
}

#[test]
#[ignore = "takes long: .ci/full runs it"]
fn every_barrier_is_missed() {
    let waits = [lines_with(" barrier();"), lines_with(" wait_for_copies<")].concat();
    every_fault_is_noticed(WITHOUT, &waits, "80", &["reversed", "greedy", "1"]);
}

#[test]
#[ignore = "takes long: .ci/full runs it"]
fn every_index_matters() {
    every_fault_is_noticed(SHIFT, &lines_with("index("), "80", &["forwards"]);
}

/// Kernels that go on without what they wait for; and one that does not wait at all, which the emulation itself
/// refuses.
#[test]
#[ignore = "takes long: .ci/full runs it"]
fn every_wait_for_other_kernels_is_missed() {
    let waits = lines_with(" wait_for_kernels_before();");
    every_fault_is_noticed(LATE, &waits, OVERLAPPING.1, &["forwards"]);
    every_fault_is_noticed(WITHOUT, &waits[..1], OVERLAPPING.1, &["forwards"]);
}

/// Kernels that do not wait for the copy of a streamed matrix, and copies that do not wait for the kernels that read
/// what they overwrite.
#[test]
fn waits_that_streamed_weights_lack_are_missed() {
    let (bits, unjoined) = ("on cuda within", "error 904");
    for (copies, forgotten, complaint) in [
        // The copy is there when the next one has been waited for; the last would be nobody's.
        ("late", "joins:5", bits),
        ("late", "joins:15", unjoined),
        ("early", "forks:1", bits),
    ] {
        let told = tests_in(emulation(), &[STREAMED_ONCE], &[(COPIES, copies), (FORGETS, forgotten)]);
        let said = String::from_utf8_lossy(&told.stdout);
        assert!(!told.status.success() && said.contains(complaint), "{copies} without {forgotten}: {said}");
    }
}

/// Two faults of each kind that a first hour on a GPU would show: each is seen by a check of single kernels, which says
/// what is wrong.
#[test]
fn planted_faults_are_caught() {
    let line = |word: &str| {
        let found = lines_with(word);
        let [place] = &found[..] else { panic!("one line has {word}: {found:?}") };
        place.clone()
    };
    let apart = (BLOCKS, "apart");
    let race = "two blocks of a launch write the same byte";
    let overflow = "reaches for memory that it was not given";
    let (product, attention) = ("product", "attention");
    for (check, fault, place, more, complaint) in [
        // Blocks that leave a piece of work, or begin a row, before the last of the block before.
        (product, SHIFT, line("here.pair) * index(OF_RESULT)") + "+-1", apart, race),
        (product, SHIFT, line("index<u32>(YGG_TILE_W)") + "+-1", apart, race),
        // Activations, and keys, that are read while they are still being copied.
        (
            product,
            WITHOUT,
            line("wait_for_copies<STAGES - 2>()"),
            (ORDER, "forwards"),
            "bits depend on the width",
        ),
        (attention, WITHOUT, line("wait_for_copies<IS_TOGETHER "), (ORDER, "forwards"), "is off by"),
        // The wrong inputs of a tile of weights, and of activations.
        (product, SHIFT, line("Format::fragment(a[k], from, index("), (ORDER, "forwards"), "is off by"),
        (
            product,
            SHIFT,
            line("stage[(n * 2 + index(half)) * WARP]"),
            (ORDER, "forwards"),
            "bits depend on the width",
        ),
        // Beyond what halves hold, and after the last weight.
        (
            "fragments_saturate",
            SHIFT,
            line("index(2047u)"),
            (ORDER, "forwards"),
            "are not the largest of them",
        ),
        (
            product,
            SHIFT,
            line("index(static_cast<u64>(GATED ? tile : tile + m) * tiles_k + t)") + "+100000",
            (ORDER, "forwards"),
            overflow,
        ),
    ] {
        let told = told(&[check], &[(fault, &place), more]);
        let said =
            [told.stdout, told.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        assert!(!told.status.success() && said.contains(complaint), "{fault} at {place}: {said}");
    }
}
