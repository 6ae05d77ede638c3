//! Feeds bytes to both model containers: GGUF files, and folders in the form that `check_bytes` documents.
//!
//! A seed for each: write a synthetic model with `SyntheticSpec::write_gguf` into `fuzz/corpus/model_containers/`, and
//! `config.json`, a zero byte and `model.safetensors` of a `SyntheticSpec::write_folder`, concatenated.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = yggc::model::check_bytes(bytes);
});
