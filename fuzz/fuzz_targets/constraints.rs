//! Constraints of answers: see `fuzz/src/constraints.rs`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = yggc_fuzz::constraints::check(bytes);
});
