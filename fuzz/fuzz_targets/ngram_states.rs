//! Saved n-grams: see `fuzz/src/ngram_states.rs`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = yggc_fuzz::ngram_states::check(bytes);
});
