//! How a decoder keeps a schedule: what it has to have for one, and which steps under one that walks on the device are the host's.

use crate::plan::{RowRule, Schedule};

use super::{Decoder, DraftsAhead, SpeculateError, policy::Policing};

impl Decoder {
    /// The same decoder, with steps that go as `schedule` says. Trees and tokens are the same under every schedule.
    ///
    /// # Errors
    /// [`SpeculateError::Schedule`] if the drafter cannot keep it or depths are told, [`SpeculateError::Device`] if the device does
    /// not offer it, [`SpeculateError::Shape`] if the session has no room for the heads.
    pub fn with_schedule(mut self, schedule: Schedule) -> Result<Self, SpeculateError> {
        let found = self.shape.scratch_rows(schedule);
        if found > self.session.tree_nodes() {
            let expected = format!("at most {}, for which the session was opened", self.session.tree_nodes());
            return Err(SpeculateError::Shape { what: "rows of tree and heads", expected, found });
        }
        self.schedule = schedule;
        let unkept = |expected, found| SpeculateError::Schedule { schedule, expected, found };
        let no_model = || unkept("a drafter that runs a model", "none");
        if self.depth.is_some() {
            self.check_told()?;
        }
        if schedule.drafts_ahead() && self.ahead().is_none() {
            return Err(unkept("a drafter that runs a model and reads no hidden rows", "none"));
        }
        if schedule.drafts_in_one_launch() {
            let drafter = self.drafter.as_mut().and_then(|drafter| drafter.in_one_launch());
            let drafter = drafter.ok_or_else(no_model)?;
            if !drafter.prepare(&mut self.session, &self.shape)? {
                return Err(SpeculateError::Device { schedule, expected: "grows trees" });
            }
        }
        if schedule.walks_on_device() {
            if self.lessons.is_some() {
                let learns = "one that does";
                return Err(unkept("a drafter that learns nothing of the verified rows", learns));
            }
            if !self.session.prepare_verifications(self.shape.verify_width)? {
                return Err(SpeculateError::Device { schedule, expected: "walks through trees" });
            }
        }
        self.check_rows()?;
        if schedule.prunes_on_device() {
            self.prepare_whole_steps()?;
        }
        Ok(self)
    }

    /// Checks that a device which chooses the rows by itself is told no other choice.
    pub(super) fn check_rows(&self) -> Result<(), SpeculateError> {
        let schedule = self.schedule;
        let rule = self.policy.as_ref().map_or(RowRule::Widest, Policing::rule);
        if schedule.prunes_on_device() && rule != RowRule::Widest {
            let (expected, found) = ("steps that verify all rows of their shape", "ones that choose theirs");
            return Err(SpeculateError::Schedule { schedule, expected, found });
        }
        Ok(())
    }

    /// Checks that steps can be told how deep to draft: by the hidden row of the verifier that gave the root.
    pub(super) fn check_told(&self) -> Result<(), SpeculateError> {
        let schedule = self.schedule;
        if schedule.drafts_ahead() || schedule.walks_on_device() {
            let (expected, found) = ("steps of a fixed depth", "ones that are told theirs by a hidden row");
            return Err(SpeculateError::Schedule { schedule, expected, found });
        }
        Ok(())
    }

    /// The drafter, if heads are drafted ahead.
    pub(super) fn ahead(&mut self) -> Option<&mut dyn DraftsAhead> {
        if self.schedule.drafts_ahead() { self.drafter.as_mut()?.ahead() } else { None }
    }

    /// Whether the device walks through the trees of the current request.
    pub(super) fn is_walked_on_device(&self) -> bool {
        self.schedule.walks_on_device() && self.host_walk_reason().is_none()
    }

    /// Why the host walks through the trees of the current request, although the schedule leaves that to the device: by rule, what
    /// the host says itself, or reads of the verified rows, it verifies. `None` where the schedule is another.
    pub fn host_walk_reason(&self) -> Option<&'static str> {
        if !self.schedule.walks_on_device() {
            return None;
        }
        if !self.speaker.wants_drawn_only() {
            return Some("the request adjusts logits or reports log-probabilities");
        }
        (!self.speaker.wants_best_only()).then_some("the request samples")
    }
}
