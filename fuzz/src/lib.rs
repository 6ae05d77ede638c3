//! Fuzz targets: one function for each kind of untrusted input, called by libFuzzer and by `cargo test`.
//!
//! A target takes bytes and returns whether they were accepted. It must not panic on any bytes, and it checks the
//! invariants of accepted ones. Targets use the public API of the library. The target of HTTP bodies is in
//! `src/serve/check.rs`, since the service is not part of the library. The tests run all targets from the seeds
//! (`tests/it/fuzzing.rs`).

pub mod chats;
pub mod constraints;
pub mod containers;
pub mod drafter_states;
mod in_file;
pub mod mutation;
pub mod plans;
pub mod prefixes;
pub mod profiles;
pub mod requests;
pub mod sampling;
mod sealed;
mod size;
pub mod sizes;
pub mod stop_strings;
pub mod stores;
pub mod templates;
mod tiny;
