//! Parts of streamed forwards by themselves: what reading takes, and what is computed without it.

use std::time::{Duration, Instant};

use crate::{
    engine::Error,
    runtime::{Choice, DraftVariant, SkipSet},
};

use super::{StepSubject, planted::planted};

impl StepSubject {
    /// Whether the parts of forwards can be measured: weights are streamed, and a substitute makes forwards that stream
    /// none.
    pub(super) fn measures_parts(&self) -> bool {
        self.streams() && self.substitute().is_some()
    }

    /// Reading all streamed weights.
    pub(super) fn reading(&mut self, context: usize) -> Result<Duration, Error> {
        self.part(None, |_| true, 1, context)
    }

    /// A forward of the groups that are whole in memory.
    pub(super) fn resident(&mut self, width: usize, context: usize) -> Result<Duration, Error> {
        let streamed = self.decoder.session().set().graph().streamed_groups();
        self.part(self.substitute(), |group| streamed.contains(&group), width, context)
    }

    /// A forward of no group.
    pub(super) fn ends(&mut self, width: usize, context: usize) -> Result<Duration, Error> {
        self.part(self.substitute(), |_| true, width, context)
    }

    /// A substitute with the whole head.
    fn substitute(&self) -> Option<DraftVariant> {
        let is_one = |kind: &crate::plan::DrafterFacts<'_>| {
            kind.substitute_bits.is_some() && kind.head_tokens.is_none()
        };
        let found = self.drafters.iter().find(|measured| is_one(&measured.kind.facts()))?;
        found.draft.as_ref()?.variant
    }

    #[allow(clippy::disallowed_methods, reason = "measuring is what this room is for")]
    fn part(
        &mut self,
        variant: Option<DraftVariant>,
        is_skipped: impl Fn(u32) -> bool,
        width: usize,
        context: usize,
    ) -> Result<Duration, Error> {
        let root = self.history[context];
        let session = self.decoder.session_mut();
        let mut skip = SkipSet::none(session.set().groups());
        skip.assign(is_skipped);
        session.assume_committed(context);
        let forward = planted(session, width, root, &self.siblings)?;
        let start = Instant::now();
        forward.choose_of(variant, Choice::ARGMAX, Some(&skip));
        Ok(start.elapsed())
    }
}
