//! The C interface: opaque handles, options that grow without breaking callers, status codes and error texts.
//!
//! Everything that C sees is declared in `ygg.h` beside this file, which is made of these sources. The room is a package of its own, so
//! that nothing but its users links a shared library: `cargo rustc --release -p ygg-c --crate-type cdylib` makes `libygg.so`. It reaches
//! `yggc` through its public paths only.
//!
//! Invariants: no panic crosses the border, it becomes a status; whatever a pointer can be seen to be wrong in (null, not aligned, a size
//! that no version had) is refused before it is followed; an engine that is answering refuses a second request; text of an error is kept
//! for the thread that got its status.

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
