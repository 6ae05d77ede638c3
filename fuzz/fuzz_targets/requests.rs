//! Requests to an engine: see `fuzz/src/requests.rs`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = yggc_fuzz::requests::check(bytes);
});
