//! The decoder: a session, the bands by which it is stepped, and one request's sequence at a time.

use std::iter;

use crate::{
    plan::{ContextRange, DrafterId, SubPlan, check_temperatures},
    policy::GuardTerms,
    runtime::Session,
    storage::SealError,
    tree::{NodeId, TokenTree},
};

use self::step::StepStorage;
use super::{
    BandSteps, Drafter, DrafterState, LogProbs, SpeculateError, Speculation, Stats, StepShape,
    band::BandState, sequence::Sequence,
};

mod begin;
mod forced;
mod kept;
mod reading;
mod step;
mod verification;

pub use begin::{Begin, Reuse};
pub use kept::{KeptPrefixes, Shelves};
pub use reading::{ReadBranches, Reading};
pub use step::StepReport;

/// One request at a time over one session. Invariant between steps: all tokens of the history but the last are
/// committed.
#[derive(Debug)]
pub struct Decoder {
    session: Session,
    /// Ascending in temperature; one at least.
    bands: Vec<BandState>,
    /// The place of the band that the current request goes by.
    current: usize,
    sequence: Sequence,
    step: StepStorage,
}

impl Decoder {
    /// A decoder that steps requests of each temperature as one of `bands` says, which ascend in temperature from 0.
    /// Tokens are the same whatever they say.
    ///
    /// # Errors
    /// [`SpeculateError::Plan`] for temperatures that do not ascend, a sub-plan that contradicts itself, and one
    /// without its drafter or depth network; [`SpeculateError::Shape`] if the session has no executable for a verify
    /// width or no room for a tree and its heads, or a depth network is for a model of another width;
    /// [`SpeculateError::Schedule`] and [`SpeculateError::Device`] if a drafter or the device cannot keep a schedule.
    pub fn new(mut session: Session, bands: Vec<BandSteps>) -> Result<Self, SpeculateError> {
        check_temperatures(bands.iter().map(|steps| steps.temperature))?;
        let bands = bands.into_iter().map(|steps| BandState::open(steps, &mut session));
        let bands = bands.collect::<Result<Vec<_>, _>>()?;
        let sequence = Sequence::new(session.set(), session.context())?;
        let nodes = bands.iter().map(|band| band.shape.tree_nodes()).max().unwrap_or(1);
        Ok(Self { session, bands, current: 0, sequence, step: StepStorage::with_capacity(nodes) })
    }

    /// Continues from `history` as if all of it but the last token were committed, whatever the cache holds: for
    /// measuring latency at a context length.
    ///
    /// # Panics
    /// If the history is empty or longer than the context.
    pub fn assume_history(&mut self, history: &[u32]) {
        assert!((1..=self.session.context()).contains(&history.len()), "a history within the context");
        let Self { session, bands, current, sequence, .. } = self;
        sequence.history.clear();
        sequence.history.extend_from_slice(history);
        session.assume_committed(history.len() - 1);
        (sequence.is_cache_known, sequence.is_started) = (false, true);
        sequence.speculation = Speculation::AsOpened;
        bands[*current].restart();
        if let Some(ahead) = bands[*current].ahead() {
            ahead.forget_heads();
        }
    }

    /// Prompt and output so far.
    pub fn history(&self) -> &[u32] {
        &self.sequence.history
    }

    /// The place of the band that the current request goes by.
    pub fn band(&self) -> usize {
        self.current
    }

    /// The temperature of the band that the current request goes by.
    pub fn temperature(&self) -> f32 {
        self.bands[self.current].steps.temperature
    }

    /// What the current request is stepped by.
    pub fn sub_plan(&self) -> &SubPlan {
        &self.bands[self.current].steps.sub_plan
    }

    /// The range of contexts that its last step was in.
    pub fn range(&self) -> &ContextRange {
        self.bands[self.current].range()
    }

    /// What it must gain in that range to go on drafting, if it is guarded.
    pub fn guard_terms(&self) -> Option<GuardTerms> {
        self.bands[self.current].guard_terms()
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
        DrafterId::ALL.into_iter().filter(move |drafter| sources.contains(drafter.source()))
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

    /// What drafters learned: one state for each kind that keeps any, of the band at work before others.
    pub fn drafter_states(&mut self) -> Vec<DrafterState> {
        let mut states: Vec<DrafterState> = Vec::new();
        for state in self.drafters().filter_map(|drafter| drafter.state()) {
            if states.iter().all(|other| other.drafter() != state.drafter()) {
                states.push(state);
            }
        }
        states
    }

    /// Has the drafters of all bands go on from states of their kinds.
    ///
    /// # Errors
    /// [`SpeculateError::KeptState`] if no drafter is of a state's kind, or one of that kind refuses it.
    pub fn restore_drafters(&mut self, states: &[DrafterState]) -> Result<(), SpeculateError> {
        let vocabulary = self.session.set().vocabulary();
        for state in states {
            let mut taken = false;
            for drafter in self.drafters() {
                taken |= drafter.restore(state, vocabulary)?;
            }
            if !taken {
                let expected = format!("drafter `{}`, whose state it is, to draft", state.drafter().name());
                let found = format!("`{}`", self.sub_plan().drafter.name());
                return Err(SealError::new(expected, found).into());
            }
        }
        Ok(())
    }

    /// The drafters of all bands, that of the band at work first.
    fn drafters(&mut self) -> impl Iterator<Item = &mut Box<dyn Drafter>> {
        let (before, rest) = self.bands.split_at_mut(self.current);
        let (current, behind) = rest.split_first_mut().expect("the band at work is one of them");
        let bands = iter::once(current).chain(before).chain(behind);
        bands.filter_map(|band| band.steps.drafter.as_mut())
    }

    /// Why the host walks through the trees of the current request although the schedule leaves that to the device:
    /// requests whose tokens the host must draw or report fall back to host-driven steps. `None` where the device
    /// walks, or the schedule is another.
    pub fn host_walk_reason(&self) -> Option<&'static str> {
        self.bands[self.current].host_walk_reason(&self.sequence.sampler)
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
        &self.bands[self.current].shape
    }

    /// The session.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Overwrites what lies after the committed keys and values with finite noise. Output must not change: a test of
    /// the law.
    pub fn poison_scratch(&mut self, seed: u64) {
        self.session.poison_scratch(seed);
    }

    /// The session, for measuring. What it holds afterwards serves no later request.
    pub fn session_mut(&mut self) -> &mut Session {
        self.sequence.is_cache_known = false;
        &mut self.session
    }
}
