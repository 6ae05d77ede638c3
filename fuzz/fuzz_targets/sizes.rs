//! Constraints made large by a few bytes: see `fuzz/src/sizes.rs`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = yggc_fuzz::sizes::check(bytes);
});
