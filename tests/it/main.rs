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
mod block;
mod block_plans;
#[cfg(feature = "cli")]
mod c_interface;
#[cfg(all(feature = "cli", unix))]
mod cache;
mod calibration;
mod candidates;
#[cfg(feature = "cli")]
mod chat;
#[cfg(feature = "cli")]
mod choose;
#[cfg(feature = "cli")]
mod command_line;
mod committed_plans;
mod context_ranges;
#[cfg(feature = "cli")]
mod corpus;
mod coupling;
#[cfg(feature = "cuda")]
mod cuda_bindings;
#[cfg(feature = "cli")]
mod default_model;
#[cfg(feature = "cli")]
mod default_model_lossless;
mod device_draws;
mod device_walk;
#[cfg(feature = "cli")]
mod distill;
#[cfg(feature = "cli")]
mod doctor;
#[cfg(feature = "cli")]
mod documentation;
#[cfg(all(feature = "serve", unix))]
mod documented_walk;
mod draft_commands;
mod draft_models;
mod draft_plans;
mod eager;
mod eagle3;
#[cfg(feature = "cuda")]
mod emulated_block;
mod emulated_cuda;
mod emulated_faults;
mod emulated_kernels;
mod experts;
#[cfg(feature = "cli")]
mod failing_device;
mod families;
mod faults;
#[cfg(feature = "cli")]
mod fetch;
#[cfg(feature = "cli")]
mod first_streamed_use;
mod first_use;
mod fuzzing;
mod gpu_check;
mod grammar_masks;
mod guard;
mod hidden_state_forward;
#[cfg(feature = "cli")]
mod hub;
#[cfg(feature = "cli")]
mod inflate;
mod inspect;
mod install;
mod kept_states;
#[cfg(all(feature = "cli", unix))]
mod kept_weights;
mod kernel_bench;
mod kv_cache;
mod learned_prefixes;
mod lossless;
mod memory_plans;
mod mixed_models;
mod mtp;
mod one_launch;
mod packages;
#[cfg(feature = "cli")]
mod plan_files;
mod plan_fit;
#[cfg(feature = "cli")]
mod plan_reports;
#[cfg(unix)]
mod prefix_store;
mod prefixes;
#[cfg(feature = "cli")]
mod program;
mod published_heads;
mod python;
#[cfg(feature = "cli")]
mod reference;
#[cfg(all(feature = "serve", unix))]
mod refine;
mod refusals;
mod replays;
#[cfg(feature = "cli")]
mod requests;
mod retrieval;
mod row_invariance;
mod schedules;
mod schema_suite;
#[cfg(feature = "serve")]
mod serve;
mod sessions;
mod shared_keys;
mod skip_search;
mod small_floats;
mod split_models;
mod states;
mod streaming;
#[cfg(feature = "cli")]
mod structured;
mod substitutes;
#[cfg(feature = "cli")]
mod temperatures;
#[cfg(feature = "cli")]
mod tiny_commands;
mod tiny_model;
mod tiny_profiles;
mod trimming;
mod tunings;
#[cfg(feature = "cli")]
mod verify;
mod whole_step;
#[cfg(feature = "cli")]
mod xml;
