//! Plan files: see `fuzz/src/plans.rs`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = yggc_fuzz::plans::check(bytes);
});
