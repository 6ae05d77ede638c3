//! The C interface: opaque handles, options that grow without breaking callers, status codes and error texts.
//!
//! `ygg.h` in this folder declares everything that C sees, and is generated from these sources. The room is a package
//! of its own, so that only its users build a shared library: `cargo rustc --release -p ygg-c --crate-type cdylib`
//! makes `libygg.so`. It uses only the public API of `yggc`.
//!
//! Invariants: no panic crosses the border, it becomes a status; a pointer that is visibly wrong (null, misaligned, a
//! size that no version had) is refused before it is followed; an engine that is answering refuses a second request;
//! the text of an error is kept for the thread that got its status.

mod cancel;
mod engine;
mod generate;
#[cfg(test)]
mod header;
mod options;
mod pointers;
mod report;
mod request;
mod status;

pub use cancel::{Cancel, ygg_cancel_free, ygg_cancel_new, ygg_cancel_now};
pub use engine::{EngineHandle, ygg_engine_close, ygg_engine_open};
pub use generate::{NO_TOKEN, OnToken, Token, ygg_generate};
pub use options::OpenOptions;
pub use report::{FinishReason, RequestReport};
pub use request::{ChatMessage, GenerateRequest};
pub use status::{Status, ygg_last_error, ygg_version};
