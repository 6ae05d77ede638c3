//! The integration tests: one program, one module per intent.

#[path = "../architecture.rs"]
mod architecture;
mod backends;
mod calibration;
#[cfg(feature = "cli")]
mod command_line;
#[cfg(feature = "cli")]
mod fetch;
mod kv_cache;
mod lossless;
#[cfg(feature = "cli")]
mod program;
mod refusals;
mod row_invariance;
mod tiny_model;
