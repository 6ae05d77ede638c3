//! How requests of one temperature are stepped: what a plan says of them, which never changes, and what changes from
//! step to step.
//!
//! A plan may draft otherwise for requests that accept less, and one decoder serves them all. A request goes by one
//! band, chosen when it begins. Bands share the session and the storage of steps, which are as large as the largest of
//! them needs. As a request grows, it goes through the context ranges of its band.

use crate::{
    plan::{ContextRange, DepthChoice, DepthNetwork, DepthRule, PlanError, Shape, SubPlan, nearest},
    policy::{DepthScratch, GuardTerms, RowScratch, reach_probabilities},
    runtime::{GrownVerification, Session},
    sample::Sampling,
    tree::TokenTree,
};

use super::{
    AheadDrafter, Drafter, SpeculateError, StepShape, StepStage, depth_features,
    policy::{DepthOfStep, GuardCounts, PolicyState, StepDone},
    row_sampler::RowSampler,
    sequence::Sequence,
    stats::Lap,
    step_outcome::VerifiedCandidates,
};

/// How requests of one temperature are stepped, for [`Decoder::new`](super::Decoder::new).
#[derive(Debug)]
pub struct BandSteps {
    /// Requests go by the band whose temperature is nearest to theirs; that of the first is 0.
    pub temperature: f32,
    /// What a plan says of the steps, but for the drafter.
    pub sub_plan: SubPlan,
    /// The drafter, made for the [largest shape](StepShape::of) of the sub-plan; `None` where nothing is drafted.
    pub drafter: Option<Box<dyn Drafter>>,
    /// What predicts depths, if steps choose theirs.
    pub network: Option<DepthNetwork>,
    /// Whether a request stops drafting while that does not pay.
    pub is_guarded: bool,
    /// Whether the times of steps correct their planned costs; without that a history decides all.
    pub is_corrected: bool,
}

impl BandSteps {
    /// Steps without a plan, for requests of every temperature: all of one shape, none guarded.
    ///
    /// # Panics
    /// If a number of the shape exceeds 32 bits.
    pub fn unplanned(drafter: Option<Box<dyn Drafter>>, shape: &StepShape) -> Self {
        let number = |n: usize| u32::try_from(n).expect("shapes are small");
        let StepShape { depth, draft_width, verify_width, top_k, draft_temperature } = *shape;
        let (depth, draft_width, verify_width) = (number(depth), number(draft_width), number(verify_width));
        let sub_plan = SubPlan {
            top_k: number(top_k),
            draft_temperature,
            ..SubPlan::unpriced(Shape { depth, draft_width, verify_width })
        };
        Self { temperature: 0.0, sub_plan, drafter, network: None, is_guarded: false, is_corrected: false }
    }

    /// Plain decoding of requests of every temperature.
    pub fn plain() -> Self {
        Self::unplanned(None, &StepShape::PLAIN)
    }

    /// Checks everything that needs no device.
    fn check(&self, session: &Session) -> Result<(), SpeculateError> {
        let Self { temperature: _, sub_plan, drafter, network, is_guarded: _, is_corrected: _ } = self;
        sub_plan.check()?;
        let SubPlan { schedule, ranges, .. } = sub_plan;
        ranges.iter().try_for_each(|range| StepShape::in_range(sub_plan, range).check(session))?;
        let invalid = |what, expected: &str, found: String| {
            Err(PlanError::Invalid { what, expected: expected.to_owned(), found }.into())
        };
        let shape = StepShape::of(sub_plan);
        if drafter.is_none() && shape.depth > 0 {
            return invalid("drafter", "one for steps that draft", format!("none for Dd {}", shape.depth));
        }
        let predicts = sub_plan.depth_rule() == DepthRule::Predicted;
        if predicts != network.is_some() {
            let found = format!("{} for {}", usize::from(!predicts), sub_plan.name);
            return invalid("depth network", "one where steps choose their depth, else none", found);
        }
        let inputs = 2 * session.set().model_width();
        if let Some(found) = network.as_ref().map(DepthNetwork::inputs).filter(|found| *found != inputs) {
            let expected = format!("{inputs}, two rows of the model's width");
            return Err(SpeculateError::Shape { what: "inputs of the depth network", expected, found });
        }
        let found = shape.scratch_rows(*schedule);
        if found > session.tree_nodes() {
            let expected = format!("at most {}, for which the session was opened", session.tree_nodes());
            return Err(SpeculateError::Shape { what: "rows of tree and heads", expected, found });
        }
        Ok(())
    }
}

/// A band at work.
#[derive(Debug)]
pub(super) struct BandState {
    pub(super) steps: BandSteps,
    /// As large as its largest range needs.
    pub(super) shape: StepShape,
    /// The place of the range that the request is in.
    at: usize,
    policy: PolicyState,
    depths: DepthScratch,
    /// By depths from 1: how the device verifies the trees that it has grown by itself.
    pub(super) grown: Vec<GrownVerification>,
    pub(super) verified: Option<VerifiedCandidates>,
}

impl BandState {
    /// Checks the steps, and makes the session ready for them.
    pub(super) fn open(steps: BandSteps, session: &mut Session) -> Result<Self, SpeculateError> {
        steps.check(session)?;
        let BandSteps { sub_plan, drafter, network, is_guarded, is_corrected, .. } = &steps;
        let shape = StepShape::of(sub_plan);
        let policy = PolicyState::new(*is_guarded, *is_corrected, sub_plan.first());
        let depths = DepthScratch::with_inputs(network.as_ref().map_or(0, DepthNetwork::inputs));
        let learned = drafter.as_ref().map_or(0, |drafter| drafter.candidates_to_learn());
        let verified = VerifiedCandidates::of(learned, &shape)?;
        let mut band = Self { steps, shape, at: 0, policy, depths, grown: Vec::new(), verified };
        band.prepare(session)?;
        Ok(band)
    }

    /// Makes ready for the schedule what the device does by itself.
    fn prepare(&mut self, session: &mut Session) -> Result<(), SpeculateError> {
        let schedule = self.steps.sub_plan.schedule;
        let unkept = |expected, found| SpeculateError::Schedule { schedule, expected, found };
        if schedule.drafts_ahead() && self.ahead().is_none() {
            return Err(unkept("a drafter that runs a model and reads no hidden rows", "none"));
        }
        let Self { steps: BandSteps { drafter, .. }, shape, grown, verified, .. } = self;
        let mut phase = drafter.as_mut().and_then(|drafter| drafter.in_one_launch());
        if schedule.drafts_in_one_launch() {
            let drafter = phase.as_mut().ok_or_else(|| unkept("a drafter that runs a model", "none"))?;
            if !drafter.prepare(session, shape)? {
                return Err(SpeculateError::Device { schedule, expected: "grows trees" });
            }
        }
        if schedule.walks_on_device() {
            if verified.is_some() {
                let learns = "one that does";
                return Err(unkept("a drafter that learns nothing of the verified rows", learns));
            }
            if !session.prepare_verifications(shape.verify_width)? {
                return Err(SpeculateError::Device { schedule, expected: "walks through trees" });
            }
        }
        if schedule.prunes_on_device() {
            let tree = phase.expect("a phase was prepared").growing(session);
            // Of every depth that steps may draft.
            let nodes = (1..=shape.depth).map(|depth| depth * shape.draft_width + 1);
            let prepared =
                nodes.map(|nodes| session.prepare_grown_verification(shape.verify_width.min(nodes), &tree));
            *grown = prepared.collect::<Result<Vec<GrownVerification>, _>>()?;
        }
        Ok(())
    }

    /// Another request begins.
    pub(super) fn restart(&mut self) {
        self.policy.restart();
        self.enter(0);
    }

    /// Goes to the range of a step after `committed` tokens. Allocates nothing.
    pub(super) fn enter(&mut self, committed: usize) {
        let ranges = &self.steps.sub_plan.ranges;
        let to = ranges.partition_point(|range| range.from as usize <= committed) - 1;
        if to != self.at {
            self.policy.enter(&ranges[to]);
            self.at = to;
        }
    }

    /// The range that the request is in.
    pub(super) fn range(&self) -> &ContextRange {
        &self.steps.sub_plan.ranges[self.at]
    }

    /// What the request must gain in this range to go on drafting, if it is guarded.
    pub(super) fn guard_terms(&self) -> Option<GuardTerms> {
        let BandSteps { sub_plan, is_guarded, .. } = &self.steps;
        is_guarded.then(|| GuardTerms::new(&self.range().predicted, sub_plan.guard))
    }

    /// The drafter, if heads are drafted ahead.
    pub(super) fn ahead(&mut self) -> Option<&mut dyn AheadDrafter> {
        let BandSteps { sub_plan, drafter, .. } = &mut self.steps;
        if sub_plan.schedule.drafts_ahead() { drafter.as_mut()?.ahead() } else { None }
    }

    /// Whether the device walks through the trees of a request whose tokens `sampler` draws: it knows logits and noise
    /// alone.
    pub(super) fn walks_on_device(&self, sampler: &RowSampler) -> bool {
        self.steps.sub_plan.schedule.walks_on_device() && self.host_walk_reason(sampler).is_none()
    }

    /// As [`Decoder::host_walk_reason`](super::Decoder::host_walk_reason).
    pub(super) fn host_walk_reason(&self, sampler: &RowSampler) -> Option<&'static str> {
        if !self.steps.sub_plan.schedule.walks_on_device() {
            return None;
        }
        if sampler.is_constrained() {
            return Some("the request has a grammar");
        }
        if !sampler.wants_drawn_only() {
            return Some("the request adjusts logits or reports log-probabilities");
        }
        let is_filtered = sampler.coupling().is_some_and(|coupling| !coupling.admits_all());
        is_filtered.then_some("the request filters the tokens that it draws from")
    }

    /// How deep the next step drafts, `most` at most if it drafts at all.
    pub(super) fn choose_depth(
        &mut self,
        session: &Session,
        sequence: &mut Sequence,
        most: usize,
    ) -> DepthOfStep {
        let Self { steps: BandSteps { sub_plan, network, .. }, at, policy, depths, .. } = self;
        let ContextRange { drafts, depth, depth_choice, .. } = &sub_plan.ranges[*at];
        let may_draft = sequence.drafts() && !sequence.sampler.is_slow();
        let drafts = *drafts && may_draft && policy.drafts();
        let allowed = if drafts { (*depth as usize).min(most) } else { 0 };
        let (DepthChoice::Predicted(costs), Some(network), 1..) = (depth_choice, network, allowed) else {
            return DepthOfStep { allowed, chosen: allowed, saved_us: 0.0 };
        };
        let mut lap = Lap::start();
        depth_features(session, sequence.last_output, sequence.last(), depths.features_mut());
        let predicted = reach_probabilities(network, depths);
        let cost = costs.choose(predicted, u32::try_from(allowed).expect("shapes are small"));
        sequence.stats.add_time(StepStage::Predict, lap.next());
        DepthOfStep { allowed, chosen: cost.depth as usize, saved_us: cost.saved_us }
    }

    /// Most rows of `tree` to verify.
    pub(super) fn rows(&self, tree: &mut TokenTree, scratch: &mut RowScratch) -> usize {
        self.policy.rows(self.range(), tree, scratch) as usize
    }

    /// Takes note of a step.
    pub(super) fn stepped(&mut self, step: StepDone, counts: &mut GuardCounts) {
        let Self { steps: BandSteps { sub_plan, .. }, at, policy, .. } = self;
        policy.stepped((&sub_plan.ranges[*at], sub_plan.guard), step, counts);
    }
}

/// The place of the band that a request goes by: of its own temperature, whatever its filters leave, but of 0 if they
/// leave the best token alone.
pub(super) fn band_for(bands: &[BandState], sampling: &Sampling) -> usize {
    let is_best_only = sampling.is_greedy() || sampling.top_k == 1;
    let temperature = if is_best_only { 0.0 } else { sampling.temperature };
    nearest(bands.iter().map(|band| band.steps.temperature), temperature)
}
