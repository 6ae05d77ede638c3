//! Files of kept prefixes: see `fuzz/src/prefixes.rs`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = yggc_fuzz::prefixes::check(bytes);
});
