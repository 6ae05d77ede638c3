//! The integration tests: one program, one module per intent.

#[path = "../architecture.rs"]
mod architecture;
mod calibration;
#[cfg(feature = "cli")]
mod command_line;
#[cfg(feature = "cli")]
mod fetch;
#[cfg(feature = "cli")]
mod program;
