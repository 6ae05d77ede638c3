//! What is fuzzed: one function for each kind of untrusted input, which libFuzzer and `cargo test` call alike.
//!
//! A target takes bytes and says whether they were accepted. Whatever they are, it must not panic; and where they were
//! accepted, it checks what must hold then. Targets see the library from outside, so fuzzing widens no API; the target of HTTP
//! bodies is beside what it calls, in `src/serve/check.rs`. The tests run them from the seeds (`tests/it/fuzzing.rs`).

pub mod chats;
pub mod containers;
mod in_file;
pub mod mutation;
pub mod ngram_states;
pub mod plans;
pub mod profiles;
pub mod requests;
pub mod sampling;
mod sealed;
pub mod skip_states;
pub mod stop_strings;
pub mod stores;
mod tiny;
