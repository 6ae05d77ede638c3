//! Bodies of HTTP requests: see `src/serve/check.rs`. The service is the program's, so it is compiled in here.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../src/serve/mod.rs"]
#[allow(dead_code, reason = "only what reads bodies is run")]
mod serve;

fuzz_target!(|bytes: &[u8]| {
    let _ = serve::check_body(bytes);
});
