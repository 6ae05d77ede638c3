//! Stop strings: see `fuzz/src/stop_strings.rs`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = yggc_fuzz::stop_strings::check(bytes);
});
