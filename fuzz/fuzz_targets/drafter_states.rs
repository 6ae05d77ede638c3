//! Kept states of drafters: see `fuzz/src/drafter_states.rs`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = yggc_fuzz::drafter_states::check(bytes);
});
