//! The subject of a verification: model, plan and sessions.

use std::sync::Arc;

use crate::{
    engine::{Loaded, Options},
    measure::CalibrationPrompt,
    runtime::{ExecutableSet, Pinning, RuntimeError, Session, SessionOptions},
    sample::Sampler,
};

use super::Extent;

/// Settings of [`verify`](super::verify).
#[derive(Clone, Debug)]
pub struct VerifyOptions {
    /// How engines would be opened: plan, corpus store, drafter model, pinning. Model, drafter, context and `force` are
    /// not read: a plan that does not fit is reported, and its drafters are checked anyway.
    pub engine: Options,
    /// Prompts whose answers are compared; kinds take turns.
    pub prompts: Vec<CalibrationPrompt>,
    /// Number of cases.
    pub extent: Extent,
    /// Names of the properties to check, of [`property_names`](super::property_names); `None` for all.
    pub only: Option<Vec<&'static str>>,
}

/// Draws a token of a row `[V]` at a position.
pub(super) type Draw<'a> = &'a dyn Fn(&mut Sampler, &[f32], u64) -> u32;

/// The parts that checks use. Tests plant faults in them.
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

/// Logits as bits, so that equality distinguishes -0 from 0 and holds for NaN.
pub(super) fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|x| x.to_bits()).collect()
}
