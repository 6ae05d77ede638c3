//! Ways of stepping, one for each temperature that a plan was searched for, and how each keeps its schedule.
//!
//! A plan may draft otherwise for requests that accept less, and one decoder serves them all. All ways are made when the decoder is;
//! a request goes by one of them, chosen when it begins. They share the session and the storage of steps, which are as large as the
//! largest of them needs. As a request grows, its way goes through ranges of contexts, each with a depth and rows of its own.

use crate::{
    plan::{DepthCosts, DepthNetwork, RowRule, Schedule, nearest},
    runtime::{GrownVerification, Session},
    sample::Sampling,
};

use super::{
    AheadDrafter, Drafter, Policy, SpeculateError, StepRange, StepShape,
    depth::DepthPolicy,
    policy::{DepthOfStep, PolicyState},
    range::Range,
    row_sampler::RowSampler,
    sequence::Sequence,
    stats::{Lap, StepStage},
    step_outcome::VerifiedCandidates,
};

/// How requests of one temperature are stepped.
#[derive(Debug)]
pub(super) struct Way {
    /// Requests go by the way whose temperature is nearest to theirs.
    temperature: f32,
    pub(super) drafter: Option<Box<dyn Drafter>>,
    /// As large as its largest range needs.
    pub(super) shape: StepShape,
    pub(super) schedule: Schedule,
    /// Ascending from 0 committed tokens; one at least.
    ranges: Vec<Range>,
    /// The place of the range that the request is in.
    at: usize,
    /// By depths from 1: how the device verifies the trees that it has grown by itself.
    pub(super) grown: Vec<GrownVerification>,
    pub(super) verified: Option<VerifiedCandidates>,
}

impl Way {
    /// Steps of `shape` under the plain schedule; without a drafter, or with depth 0, they decode plainly.
    ///
    /// # Errors
    /// [`SpeculateError::Shape`] if the session has no executable for the verify width or no room for the tree.
    pub(super) fn new(
        temperature: f32,
        drafter: Option<Box<dyn Drafter>>,
        shape: StepShape,
        session: &Session,
    ) -> Result<Self, SpeculateError> {
        shape.check(session)?;
        let verified = VerifiedCandidates::of(drafter.as_deref(), &shape)?;
        Ok(Self {
            temperature,
            drafter,
            ranges: vec![Range::new(StepRange::whole(&shape))],
            at: 0,
            shape,
            schedule: Schedule::Plain,
            grown: Vec::new(),
            verified,
        })
    }

    /// As [`Decoder::with_range`](super::Decoder::with_range).
    pub(super) fn push_range(&mut self, steps: StepRange, session: &Session) -> Result<(), SpeculateError> {
        let before = self.newest().steps.from;
        assert!(steps.from > before, "ranges ascend: {} after {before}", steps.from);
        if self.schedule != Schedule::Plain {
            let (expected, found) = ("context ranges added before the schedule", "one added after it");
            return Err(SpeculateError::Schedule { schedule: self.schedule, expected, found });
        }
        let own = StepShape { depth: steps.depth, verify_width: steps.verify_width, ..self.shape };
        own.check(session)?;
        let StepShape { depth, verify_width, .. } = self.shape;
        let (depth, verify_width) = (depth.max(own.depth), verify_width.max(own.verify_width));
        let shape = StepShape { depth, verify_width, ..self.shape };
        self.verified = VerifiedCandidates::of(self.drafter.as_deref(), &shape)?;
        self.shape = shape;
        self.ranges.push(Range::new(steps));
        Ok(())
    }

    fn newest(&mut self) -> &mut Range {
        self.ranges.last_mut().expect("a way has a range")
    }

    /// Another request begins.
    pub(super) fn restart(&mut self) {
        self.at = 0;
        self.ranges.iter_mut().filter_map(|range| range.policy.as_mut()).for_each(PolicyState::restart);
    }

    /// Goes to the range of a step after `committed` tokens, with what the policy of the last one knows. Allocates nothing.
    pub(super) fn enter(&mut self, committed: usize) {
        let to = self.ranges.partition_point(|range| range.steps.from <= committed) - 1;
        if to == self.at {
            return;
        }
        let [before, range] =
            self.ranges.get_disjoint_mut([self.at, to]).expect("two places among the ranges");
        if let (Some(policy), Some(before)) = (&mut range.policy, &before.policy) {
            policy.go_on_from(before);
        }
        self.at = to;
    }

    /// The place of the range that the request is in.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// The range that the request is in.
    pub(super) fn range(&self) -> &Range {
        &self.ranges[self.at]
    }

    /// As [`range`](Self::range).
    pub(super) fn range_mut(&mut self) -> &mut Range {
        &mut self.ranges[self.at]
    }

    /// As [`Decoder::with_policy`](super::Decoder::with_policy).
    pub(super) fn set_policy(&mut self, policy: Policy) -> Result<(), SpeculateError> {
        self.newest().set_policy(policy)?;
        self.check_rows()
    }

    /// As [`Decoder::with_depths`](super::Decoder::with_depths).
    pub(super) fn set_depths(
        &mut self,
        costs: DepthCosts,
        network: DepthNetwork,
        session: &Session,
    ) -> Result<(), SpeculateError> {
        self.check_predicted_depth()?;
        let range = self.newest();
        range.depth = Some(DepthPolicy::new(costs, network, range.steps.depth, session)?);
        Ok(())
    }

    /// As [`Decoder::with_schedule`](super::Decoder::with_schedule).
    pub(super) fn set_schedule(
        &mut self,
        schedule: Schedule,
        session: &mut Session,
    ) -> Result<(), SpeculateError> {
        let found = self.shape.scratch_rows(schedule);
        if found > session.tree_nodes() {
            let expected = format!("at most {}, for which the session was opened", session.tree_nodes());
            return Err(SpeculateError::Shape { what: "rows of tree and heads", expected, found });
        }
        self.schedule = schedule;
        let unkept = |expected, found| SpeculateError::Schedule { schedule, expected, found };
        if self.ranges.iter().any(|range| range.depth.is_some()) {
            self.check_predicted_depth()?;
        }
        if schedule.drafts_ahead() && self.ahead().is_none() {
            return Err(unkept("a drafter that runs a model and reads no hidden rows", "none"));
        }
        if schedule.drafts_in_one_launch() {
            let drafter = self.drafter.as_mut().and_then(|drafter| drafter.in_one_launch());
            let drafter = drafter.ok_or_else(|| unkept("a drafter that runs a model", "none"))?;
            if !drafter.prepare(session, &self.shape)? {
                return Err(SpeculateError::Device { schedule, expected: "grows trees" });
            }
        }
        if schedule.walks_on_device() {
            if self.verified.is_some() {
                let learns = "one that does";
                return Err(unkept("a drafter that learns nothing of the verified rows", learns));
            }
            if !session.prepare_verifications(self.shape.verify_width)? {
                return Err(SpeculateError::Device { schedule, expected: "walks through trees" });
            }
        }
        self.check_rows()?;
        if schedule.prunes_on_device() {
            self.prepare_grown(session)?;
        }
        Ok(())
    }

    /// Makes ready to verify the trees that the device grows, of every depth that steps may draft.
    fn prepare_grown(&mut self, session: &mut Session) -> Result<(), SpeculateError> {
        let Self { drafter, shape, grown, .. } = self;
        let drafter = drafter.as_mut().and_then(|drafter| drafter.in_one_launch());
        let tree = drafter.expect("a phase was prepared").growing(session);
        let nodes = (1..=shape.depth).map(|depth| depth * shape.draft_width + 1);
        let prepared =
            nodes.map(|nodes| session.prepare_grown_verification(shape.verify_width.min(nodes), &tree));
        *grown = prepared.collect::<Result<Vec<GrownVerification>, _>>()?;
        Ok(())
    }

    /// Checks that no rule chooses rows where the device chooses them.
    fn check_rows(&self) -> Result<(), SpeculateError> {
        let schedule = self.schedule;
        let chooses = |range: &Range| {
            let rule = range.policy.as_ref().map_or(RowRule::Widest, PolicyState::rule);
            rule != RowRule::Widest || range.steps.verify_width != self.shape.verify_width
        };
        if schedule.prunes_on_device() && self.ranges.iter().any(chooses) {
            let (expected, found) = ("steps that verify all rows of their shape", "ones that choose theirs");
            return Err(SpeculateError::Schedule { schedule, expected, found });
        }
        Ok(())
    }

    /// Checks that a step's depth can be predicted: from the verifier's hidden row that gave the root.
    fn check_predicted_depth(&self) -> Result<(), SpeculateError> {
        let schedule = self.schedule;
        if schedule.drafts_ahead() || schedule.walks_on_device() {
            let (expected, found) =
                ("steps of a fixed depth", "ones whose depth is predicted from a hidden row");
            return Err(SpeculateError::Schedule { schedule, expected, found });
        }
        Ok(())
    }

    /// The drafter, if heads are drafted ahead.
    pub(super) fn ahead(&mut self) -> Option<&mut dyn AheadDrafter> {
        if self.schedule.drafts_ahead() { self.drafter.as_mut()?.ahead() } else { None }
    }

    /// Whether the device walks through the trees of a request whose tokens `sampler` draws.
    pub(super) fn walks_on_device(&self, sampler: &RowSampler) -> bool {
        self.schedule.walks_on_device() && self.host_walk_reason(sampler).is_none()
    }

    /// As [`Decoder::host_walk_reason`](super::Decoder::host_walk_reason).
    pub(super) fn host_walk_reason(&self, sampler: &RowSampler) -> Option<&'static str> {
        if !self.schedule.walks_on_device() {
            return None;
        }
        if sampler.is_constrained() {
            return Some("the request has a grammar");
        }
        if !sampler.wants_drawn_only() {
            return Some("the request adjusts logits or reports log-probabilities");
        }
        (!sampler.wants_best_only()).then_some("the request samples")
    }

    /// How deep the next step drafts, `most` at most if it drafts at all.
    pub(super) fn choose_depth(
        &mut self,
        session: &Session,
        sequence: &mut Sequence,
        most: usize,
    ) -> DepthOfStep {
        let Range { steps, policy, depth } = self.range_mut();
        let may_draft = sequence.drafts() && !sequence.sampler.is_slow();
        let drafts = steps.drafts && may_draft && policy.as_ref().is_none_or(PolicyState::drafts);
        let allowed = if drafts { steps.depth.min(most) } else { 0 };
        let (Some(network), 1..) = (depth, allowed) else {
            return DepthOfStep { allowed, chosen: allowed, saved_us: 0.0 };
        };
        let mut lap = Lap::start();
        let cost = network.choose(session, sequence.last_output, sequence.last(), allowed);
        sequence.stats.add_time(StepStage::Predict, lap.next());
        DepthOfStep { allowed, chosen: cost.depth as usize, saved_us: cost.saved_us }
    }
}

/// The place of the way that a request goes by, of ways that ascend in temperature.
pub(super) fn way_for(ways: &[Way], sampling: &Sampling) -> usize {
    nearest(ways.iter().map(|way| way.temperature), planned_temperature(sampling))
}

/// Adds a way after the others.
///
/// # Panics
/// If its temperature is not above theirs.
pub(super) fn push(ways: &mut Vec<Way>, way: Way) {
    let (last, temperature) = (ways.last().map_or(f32::NEG_INFINITY, |way| way.temperature), way.temperature);
    assert!(temperature > last, "ways ascend in temperature: {temperature} after {last}");
    ways.push(way);
}

/// The temperature that a request's way of stepping is chosen by: its own, whatever its filters leave, but 0 if they leave the
/// best token alone.
fn planned_temperature(sampling: &Sampling) -> f32 {
    if sampling.is_greedy() || sampling.top_k == 1 { 0.0 } else { sampling.temperature }
}
