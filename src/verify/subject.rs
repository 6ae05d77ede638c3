//! What is verified, and with what.

use std::sync::Arc;

use crate::{
    engine::{Loaded, Options},
    measure::CalibrationPrompt,
    runtime::{ExecutableSet, Pinning, RuntimeError, Session, SessionOptions},
    sample::Sampler,
};

use super::Extent;

/// How [`verify`](super::verify) goes about it.
#[derive(Clone, Debug)]
pub struct VerifyOptions {
    /// How engines would be opened: plan, corpus store, drafter model, pinning. Model, drafter and context are not read, nor is
    /// whether a plan is forced: one that does not fit is reported, and its drafters are checked all the same.
    pub engine: Options,
    /// What answers are compared on; kinds are taken in turn.
    pub prompts: Vec<CalibrationPrompt>,
    /// How much is tried.
    pub extent: Extent,
}

/// Draws a token of a row `[V]` at a position.
pub(super) type Draw<'a> = &'a dyn Fn(&mut Sampler, &[f32], u64) -> u32;

/// What is checked. Tests plant faults in its parts.
#[derive(Clone)]
pub(super) struct Subject<'a> {
    /// The model with the widths that serve it.
    pub(super) loaded: Arc<Loaded>,
    /// A small model on the same device, whose logits tie.
    pub(super) tied: Arc<ExecutableSet>,
    pub(super) draw: Draw<'a>,
}

/// Longest sequence that rows and caches are checked with, in tokens.
const CHECKED_CONTEXT: usize = 320;

/// Scratch slots beyond those of the widest forward, for rows to be spread over.
pub(super) const SPARE_SLOTS: usize = 16;

impl Subject<'_> {
    /// Longest sequence of the sessions that are checked.
    pub(super) fn context(&self) -> usize {
        self.loaded.set().model_context().min(CHECKED_CONTEXT)
    }

    /// Rows of the widest planned forward.
    pub(super) fn widest(&self) -> usize {
        *self.loaded.set().widths().last().expect("width 1 is always planned")
    }

    /// A session for any rows of the widest forward.
    pub(super) fn session(&self, threads: usize, pinning: Pinning) -> Result<Session, RuntimeError> {
        let options = SessionOptions {
            context: self.context(),
            tree_nodes: self.widest() + SPARE_SLOTS,
            threads,
            pinning,
        };
        Session::open(Arc::clone(self.loaded.set()), &options)
    }
}

/// Logits to the last bit: equality tells -0 from 0 and knows NaN.
pub(super) fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|x| x.to_bits()).collect()
}
