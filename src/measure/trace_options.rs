//! What is recorded of requests and drafters, and in which sessions.

use std::time::Duration;

use ygg_profiler::DrafterName;

use crate::{
    engine::{Error, Loaded, tune},
    plan::{ChosenTuning, DrafterKind},
    runtime::{Pinning, Session, SessionOptions},
    speculate::StepShape,
};

use super::calibration::CalibrationPrompt;

/// What is recorded.
#[derive(Clone, Copy, Debug)]
pub(super) struct TraceOptions<'a> {
    /// Growths and nodes per growth of the recorded trees.
    pub(super) shape: StepShape,
    /// Most tokens per prompt.
    pub(super) tokens: usize,
    /// Prompts that count for more than long answers: where the time would be over before so many, as the first one
    /// tells, answers have half as many tokens. With 0 they never have.
    pub(super) fewest_prompts: u32,
    /// Temperature of the requests.
    pub(super) temperature: f32,
    /// No prompt but the first is begun after this time, and no token but the first of an answer. The first is read in
    /// twice the time, or not at all.
    pub(super) budget: Duration,
    /// No answer is drafted along that begins after so many recorded steps of a drafter.
    pub(super) most_steps: usize,
    /// What drafts while prompts are answered, if something does.
    pub(super) answered_with: Option<Answering<'a>>,
    /// Whether what depth networks see before steps is kept.
    pub(super) keeps_features: bool,
    pub(super) tunings: &'a [ChosenTuning],
    pub(super) prompts: &'a [&'a CalibrationPrompt],
    pub(super) pinning: Pinning,
}

impl TraceOptions<'_> {
    /// A session for trees of `shape` by `drafter` in texts of at most `context` tokens, its linears tuned.
    pub(super) fn session(
        &self,
        loaded: &Loaded,
        context: usize,
        shape: &StepShape,
        drafter: Option<&DrafterKind>,
    ) -> Result<Session, Error> {
        let session_options = SessionOptions {
            context,
            tree_nodes: shape.tree_nodes(),
            threads: loaded.threads(),
            pinning: self.pinning,
        };
        let mut session = loaded.session(&session_options, drafter)?;
        tune(&mut session, self.tunings)?;
        Ok(session)
    }
}

/// A drafter that drafts while prompts are answered, and whose trees are recorded meanwhile.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answering<'a> {
    pub(super) name: &'a DrafterName,
    pub(super) kind: &'a DrafterKind,
    /// Rows of a tree that its steps verify: with 1 it drafts at every place of an answer.
    pub(super) rows: usize,
}

impl Answering<'_> {
    /// Whether its steps verify more than their root.
    pub(super) fn verifies_trees(&self) -> bool {
        self.rows > 1
    }
}
