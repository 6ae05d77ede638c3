//! Chat templates by size: see `fuzz/src/templates.rs`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = yggc_fuzz::templates::check(bytes);
});
