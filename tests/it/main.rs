//! The integration tests: one program, one module per intent.

#[cfg(feature = "cli")]
mod answers;
#[path = "../architecture.rs"]
mod architecture;
mod backends;
#[cfg(feature = "cli")]
mod bad_input;
#[cfg(feature = "cli")]
mod bench;
mod calibration;
mod candidates;
#[cfg(feature = "cli")]
mod command_line;
mod committed_plans;
#[cfg(feature = "cli")]
mod corpus;
#[cfg(feature = "cli")]
mod default_model;
#[cfg(feature = "cli")]
mod default_model_lossless;
#[cfg(feature = "cli")]
mod distill;
mod eager;
#[cfg(feature = "cuda")]
mod emulated_cuda;
#[cfg(feature = "cli")]
mod fetch;
#[cfg(feature = "cli")]
mod first_use;
mod guard;
#[cfg(feature = "cli")]
mod inspect;
mod kept_states;
mod kernel_bench;
mod kv_cache;
mod lossless;
#[cfg(feature = "cli")]
mod plan_files;
#[cfg(feature = "cli")]
mod plan_reports;
#[cfg(feature = "cli")]
mod program;
#[cfg(feature = "cli")]
mod reference;
mod refusals;
mod replays;
mod retrieval;
mod row_invariance;
mod schedules;
mod skip_search;
#[cfg(feature = "cli")]
mod temperatures;
#[cfg(feature = "cli")]
mod tiny_commands;
mod tiny_model;
mod tiny_profiles;
mod trimming;
mod tunings;
#[cfg(feature = "cli")]
mod xml;
