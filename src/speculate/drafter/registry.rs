//! From the settings of a drafter to the drafter: every kind makes its own, in its own file.

use crate::{
    plan::{DrafterKind, DrafterSettings, GrowthChoice, PlainDecoding, ReplayDrafter, with_settings},
    runtime::Session,
    speculate::{SpeculateError, StepShape},
};

use super::Drafter;

/// What a drafter is made for.
pub(super) struct MakeContext<'a> {
    /// How its trees grow, where it runs a model.
    pub(super) growth: &'a GrowthChoice,
    pub(super) shape: &'a StepShape,
    pub(super) session: &'a Session,
}

/// Settings that a drafter can be made of.
pub(super) trait MakeDrafter: DrafterSettings {
    /// The drafter; `None` for plain decoding.
    fn make(&self, context: &MakeContext<'_>) -> Result<Option<Box<dyn Drafter>>, SpeculateError>;

    /// The drafter for replays, where its proposals follow from the text.
    fn replay(&self) -> Result<Option<Replay>, SpeculateError> {
        Ok(None)
    }
}

impl MakeDrafter for PlainDecoding {
    fn make(&self, _: &MakeContext<'_>) -> Result<Option<Box<dyn Drafter>>, SpeculateError> {
        Ok(None)
    }
}

/// A drafter whose proposals the planner replays along recorded requests, with the shapes that are worth trying.
#[derive(Debug)]
pub struct Replay {
    /// The drafter. Limits come with every proposal.
    pub drafter: Box<dyn ReplayDrafter>,
    /// Depths to try.
    pub depths: &'static [u32],
    /// Numbers of continuations to try.
    pub widths: &'static [u32],
}

/// Makes a drafter as its settings say, with equally growing trees, over a session whose executables have its trimmed
/// head and its drafter model if it needs them ([`Loaded::with_drafters`](crate::engine::Loaded::with_drafters)). A
/// self-tuning drafter is made as the fixed one that it starts as. `None` for plain decoding.
///
/// # Errors
/// [`SpeculateError`] when the session or the model lacks what the drafter needs, or its corpus store is missing or not
/// the one named.
pub fn make_drafter(
    kind: &DrafterKind,
    shape: &StepShape,
    session: &Session,
) -> Result<Option<Box<dyn Drafter>>, SpeculateError> {
    make_growing_drafter(kind, &GrowthChoice::Equal, shape, session)
}

/// Like [`make_drafter`], with trees that grow as `growth` says where the drafter runs a model.
///
/// # Errors
/// As `make_drafter`, and where a template does not fit the shape.
pub fn make_growing_drafter(
    kind: &DrafterKind,
    growth: &GrowthChoice,
    shape: &StepShape,
    session: &Session,
) -> Result<Option<Box<dyn Drafter>>, SpeculateError> {
    let context = MakeContext { growth, shape, session };
    with_settings!(kind, settings => settings.make(&context))
}

/// The drafter of a kind for replays; `None` where its proposals do not follow from the text alone.
///
/// # Errors
/// As [`make_drafter`].
pub fn make_replay(kind: &DrafterKind) -> Result<Option<Replay>, SpeculateError> {
    with_settings!(kind, settings => settings.replay())
}
