//! The sampler: see `fuzz/src/sampling.rs`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = yggc_fuzz::sampling::check(bytes);
});
