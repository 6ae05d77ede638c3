//! Model containers: see `fuzz/src/containers.rs`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = yggc_fuzz::containers::check(bytes);
});
