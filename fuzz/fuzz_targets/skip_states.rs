//! States of the search for a skip set: see `fuzz/src/skip_states.rs`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = yggc_fuzz::skip_states::check(bytes);
});
