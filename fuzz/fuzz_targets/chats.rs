//! Chat templates and messages: see `fuzz/src/chats.rs`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = yggc_fuzz::chats::check(bytes);
});
