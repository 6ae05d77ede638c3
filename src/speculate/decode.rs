//! The decoder: a session, the ways of stepping it, and one request's sequence at a time.

use std::iter;

use crate::{
    plan::{DepthCosts, DepthNetwork, DrafterId, Schedule},
    policy::SkipSearch,
    runtime::Session,
    tree::{NodeId, TokenTree},
};

use super::{
    Drafter, LogProbs, Ngram, Policy, SpeculateError, Speculation, Stats, StepRange, StepShape,
    drafter::source_of,
    sequence::Sequence,
    step::StepStorage,
    way::{self, Way},
};

/// One request at a time over one session. Invariant between steps: all tokens of the history but the last are
/// committed.
#[derive(Debug)]
pub struct Decoder {
    pub(super) session: Session,
    /// Ascending in temperature; one at least.
    pub(super) ways: Vec<Way>,
    /// The place of the way that the current request goes by.
    pub(super) current: usize,
    pub(super) sequence: Sequence,
    pub(super) step: StepStorage,
}

impl Decoder {
    /// A decoder that steps with `shape`; without a drafter, or with depth 0, it decodes plainly.
    ///
    /// # Errors
    /// [`SpeculateError::Shape`] if the session has no executable for the verify width or no room for the tree.
    pub fn new(
        session: Session,
        drafter: Option<Box<dyn Drafter>>,
        shape: StepShape,
    ) -> Result<Self, SpeculateError> {
        let ways = vec![Way::new(0.0, drafter, shape, &session)?];
        let sequence = Sequence::new(session.set(), session.context())?;
        let step = StepStorage::with_capacity(shape.tree_nodes());
        Ok(Self { session, ways, current: 0, sequence, step })
    }

    /// The same decoder, with another way of stepping: for requests whose temperature is nearer to `temperature` than to that
    /// of any way it has, the first of which is for 0. Ranges, schedule, policy and depths that are set from here on are this way's.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    ///
    /// # Panics
    /// If the temperature is not above that of the way before.
    pub fn with_way(
        mut self,
        temperature: f32,
        drafter: Option<Box<dyn Drafter>>,
        shape: StepShape,
    ) -> Result<Self, SpeculateError> {
        way::push(&mut self.ways, Way::new(temperature, drafter, shape, &self.session)?);
        self.current = self.ways.len() - 1;
        let nodes = shape.tree_nodes().max(self.step.tree.capacity());
        self.step = StepStorage::with_capacity(nodes);
        Ok(self)
    }

    /// The same decoder, with other steps of the same way at longer contexts: policy and depths that are set from here on are this
    /// range's. The drafter has to be made for the largest depth and verify width of all ranges, whose nodes may be more than the shape's;
    /// a schedule is set after them. Tokens are the same in every range.
    ///
    /// # Errors
    /// [`SpeculateError::Shape`] as [`new`](Self::new), [`SpeculateError::Schedule`] if a schedule is set.
    ///
    /// # Panics
    /// If it does not begin after the range before.
    pub fn with_range(mut self, range: StepRange) -> Result<Self, SpeculateError> {
        let way = &mut self.ways[self.current];
        way.push_range(range, &self.session)?;
        let nodes = way.shape.tree_nodes().max(self.step.tree.capacity());
        self.step = StepStorage::with_capacity(nodes);
        Ok(self)
    }

    /// The same decoder, with steps that go as `schedule` says. Trees and tokens are the same under every schedule.
    ///
    /// # Errors
    /// [`SpeculateError::Schedule`] if the drafter cannot keep it or depths are predicted, [`SpeculateError::Device`] if the device does
    /// not offer it, [`SpeculateError::Shape`] if the session has no room for the heads.
    pub fn with_schedule(mut self, schedule: Schedule) -> Result<Self, SpeculateError> {
        self.ways[self.current].set_schedule(schedule, &mut self.session)?;
        Ok(self)
    }

    /// The same decoder, with steps that verify as many rows as the policy chooses instead of all that the shape allows, and
    /// with requests that stop drafting while it does not pay, if the policy has a guard.
    ///
    /// # Errors
    /// [`SpeculateError::Shape`] if the widest choice is not the shape's verify width, [`SpeculateError::Schedule`] if rows are chosen while
    /// the device prunes.
    pub fn with_policy(mut self, policy: Policy) -> Result<Self, SpeculateError> {
        self.ways[self.current].set_policy(policy)?;
        Ok(self)
    }

    /// The same decoder, with steps that choose their depth by the predictions of `network` and by `costs`.
    ///
    /// # Errors
    /// [`SpeculateError::Shape`] if the network is for a model of another width, or the deepest choice is not the shape's,
    /// [`SpeculateError::Schedule`] if heads are drafted ahead, which overwrites what the network would see, or the device
    /// walks, which leaves none of it.
    pub fn with_depths(mut self, costs: DepthCosts, network: DepthNetwork) -> Result<Self, SpeculateError> {
        self.ways[self.current].set_depths(costs, network, &self.session)?;
        Ok(self)
    }

    /// Continues from `history` as if all of it but the last token were committed, whatever the cache holds: for
    /// measuring latency at a context length.
    ///
    /// # Panics
    /// If the history is empty or longer than the context.
    pub fn assume_history(&mut self, history: &[u32]) {
        assert!((1..=self.session.context()).contains(&history.len()), "a history within the context");
        let Self { session, ways, current, sequence, .. } = self;
        sequence.history.clear();
        sequence.history.extend_from_slice(history);
        session.assume_committed(history.len() - 1);
        (sequence.is_cache_known, sequence.is_started) = (false, true);
        sequence.speculation = Speculation::AsOpened;
        ways[*current].restart();
        if let Some(ahead) = ways[*current].ahead() {
            ahead.forget_heads();
        }
    }

    /// Prompt and output so far.
    pub fn history(&self) -> &[u32] {
        &self.sequence.history
    }

    /// The place of the way that the current request goes by: 0 for the first, 1 for the first that was added.
    pub fn way(&self) -> usize {
        self.current
    }

    /// The place of the range of contexts that its last step was in, from 0.
    pub fn range(&self) -> usize {
        self.ways[self.current].at()
    }

    /// Whether the current request drafts.
    pub fn speculation(&self) -> Speculation {
        self.sequence.speculation
    }

    /// The tree of the last step.
    pub fn tree(&self) -> &TokenTree {
        &self.step.tree
    }

    /// The nodes of the tree that the last step verified, ascending.
    pub fn rows(&self) -> &[NodeId] {
        &self.step.rows
    }

    /// The drafters that proposed a node of the tree.
    pub fn proposers(&self, node: NodeId) -> impl Iterator<Item = DrafterId> {
        let sources = self.step.tree.sources(node);
        DrafterId::ALL.into_iter().filter(move |drafter| sources.contains(source_of(*drafter)))
    }

    /// Tokens the last step emitted.
    pub fn emitted(&self) -> &[u32] {
        &self.step.walk.emitted
    }

    /// Whether a constrained answer is whole: no step follows.
    pub fn is_complete(&self) -> bool {
        self.sequence.sampler.is_complete()
    }

    /// Log-probabilities of the [emitted](Self::emitted) tokens, or of the first one before any step.
    pub fn log_probs(&self) -> &LogProbs {
        self.sequence.sampler.log_probs()
    }

    /// The searches of drafters for the sub-layers that they leave out, that of the way at work first.
    pub fn skip_searches(&mut self) -> impl Iterator<Item = &mut SkipSearch> {
        self.drafters().filter_map(|drafter| drafter.skip_search())
    }

    /// The n-gram dictionaries of drafters, those of the way at work first.
    pub fn ngrams(&mut self) -> impl Iterator<Item = &mut Ngram> {
        self.drafters().filter_map(|drafter| drafter.ngrams())
    }

    /// The drafters of all ways, that of the way at work first.
    fn drafters(&mut self) -> impl Iterator<Item = &mut Box<dyn Drafter>> {
        let (before, rest) = self.ways.split_at_mut(self.current);
        let (current, behind) = rest.split_first_mut().expect("the way at work is one of them");
        let ways = iter::once(current).chain(before).chain(behind);
        ways.filter_map(|way| way.drafter.as_mut())
    }

    /// Why the host walks through the trees of the current request although the schedule leaves that to the device: requests whose
    /// tokens the host must draw or report fall back to host-driven steps. `None` where the device walks, or the schedule is another.
    pub fn host_walk_reason(&self) -> Option<&'static str> {
        self.ways[self.current].host_walk_reason(&self.sequence.sampler)
    }

    /// Whether the request's grammar takes so long to follow that its steps draft no more.
    pub fn has_slow_grammar(&self) -> bool {
        self.sequence.sampler.is_slow()
    }

    /// What a depth network sees before the next step, `[2 D]`.
    ///
    /// # Panics
    /// If nothing was started, or the session has served something else since.
    pub fn depth_features(&self) -> Vec<f32> {
        let mut features = vec![0.0; 2 * self.session.set().model_width()];
        let Sequence { last_output, .. } = self.sequence;
        super::depth_features(&self.session, last_output, self.sequence.last(), &mut features);
        features
    }

    /// Counters of the current request.
    pub fn stats(&self) -> &Stats {
        &self.sequence.stats
    }

    /// The shape of its steps, of its largest range.
    pub fn shape(&self) -> &StepShape {
        &self.ways[self.current].shape
    }

    /// The session.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Overwrites what lies after the committed keys and values with finite noise. Output must not change: a test of the law.
    pub fn poison_scratch(&mut self, seed: u64) {
        self.session.poison_scratch(seed);
    }

    /// The session, for measuring. What it holds afterwards serves no later request.
    pub fn session_mut(&mut self) -> &mut Session {
        self.sequence.is_cache_known = false;
        &mut self.session
    }
}
