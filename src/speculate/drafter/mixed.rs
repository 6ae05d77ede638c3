//! Several drafters in one tree: those without a model propose first, then the one that runs a model, unless a copy is
//! nearly certain; the rows of the step go to the nodes that are worth most ([`SharedTree`]).

use crate::{
    plan::{GrowthChoice, Mixture, ProposalLimits, ReplayDrafter},
    policy::SharedTree,
    runtime::Session,
    sample::{Candidate, Coupling},
    speculate::{SpeculateError, StepOutcome, StepShape, StepStage, stats::Lap},
    tree::{NodeId, TokenTree},
};

use super::{
    Budget, Drafter, DrafterState, OwnCache,
    registry::{MakeContext, MakeDrafter, Replay, make_growing_drafter, make_replay},
};

/// Drafters that share a tree.
#[derive(Debug)]
pub struct Mixed {
    /// Those that run no model.
    copies: Vec<Box<dyn Drafter>>,
    model: Option<BesideCopies>,
    /// The proposals, the model's last.
    shared: SharedTree,
    limits: ProposalLimits,
}

/// A drafter that runs a model, and when a mixture runs it.
#[derive(Debug)]
pub struct BesideCopies {
    /// The drafter, made for trees of `shape`.
    pub drafter: Box<dyn Drafter>,
    /// The shape of its own trees; their depth is at most the mixture's.
    pub shape: StepShape,
    /// How probable it must be that the text follows a copy as deep as these trees for a step to do without the
    /// drafter. Above 1 none does.
    pub certain: f32,
}

impl Mixed {
    /// A mixture of drafters without a model that were each made for `shape`. Of nodes worth the same, those of earlier
    /// drafters come first.
    ///
    /// # Errors
    /// [`SpeculateError::Shape`] if there are fewer than two.
    pub fn new(parts: Vec<Box<dyn Drafter>>, shape: &StepShape) -> Result<Self, SpeculateError> {
        Self::of(parts, None, 2, shape)
    }

    /// A mixture of drafters without a model and one with a model, which comes last.
    ///
    /// # Errors
    /// [`SpeculateError::Shape`] if there is no drafter without a model.
    pub fn with_model(
        copies: Vec<Box<dyn Drafter>>,
        model: BesideCopies,
        shape: &StepShape,
    ) -> Result<Self, SpeculateError> {
        Self::of(copies, Some(model), 1, shape)
    }

    fn of(
        copies: Vec<Box<dyn Drafter>>,
        model: Option<BesideCopies>,
        fewest: usize,
        shape: &StepShape,
    ) -> Result<Self, SpeculateError> {
        if copies.len() < fewest {
            let expected = format!("{fewest} or more without a model");
            return Err(SpeculateError::Shape {
                what: "drafters of a mixture",
                expected,
                found: copies.len(),
            });
        }
        let limits = shape.limits();
        let of_copies = copies.iter().map(|_| limits.nodes as usize);
        let of_model = model.as_ref().map(|model| model.shape.tree_nodes());
        let shared = SharedTree::with_capacities(of_copies.chain(of_model));
        Ok(Self { copies, model, shared, limits })
    }

    /// All drafters.
    fn drafters(&mut self) -> impl Iterator<Item = &mut Box<dyn Drafter>> {
        let model = self.model.as_mut().map(|model| &mut model.drafter);
        self.copies.iter_mut().chain(model)
    }
}

/// The drafters of `mixture` that run no model, for steps of `shape`.
fn copies(mixture: &Mixture, context: &MakeContext<'_>) -> Result<Vec<Box<dyn Drafter>>, SpeculateError> {
    let MakeContext { growth, shape, session } = *context;
    // Beside a model as many continuations as replays take.
    let draft_width = if mixture.model().is_some() { Mixture::COPIES as usize } else { shape.draft_width };
    let shape = StepShape { draft_width, ..*shape };
    let copies = mixture.copies();
    let drafters = copies.iter().map(|part| make_growing_drafter(part, growth, &shape, session));
    drafters.filter_map(Result::transpose).collect()
}

/// What a mixture with a model proposes by its copies alone, in steps of `shape`, for measuring what that takes; `None`
/// of other mixtures.
///
/// # Errors
/// As of the copying drafters.
pub fn make_copies(
    mixture: &Mixture,
    shape: &StepShape,
    session: &Session,
) -> Result<Option<Box<dyn Drafter>>, SpeculateError> {
    if mixture.model().is_none() {
        return Ok(None);
    }
    let context = MakeContext { growth: &GrowthChoice::Equal, shape, session };
    Ok(Some(Box::new(Mixed::of(copies(mixture, &context)?, None, 1, shape)?)))
}

impl MakeDrafter for Mixture {
    fn make(&self, context: &MakeContext<'_>) -> Result<Option<Box<dyn Drafter>>, SpeculateError> {
        let MakeContext { growth, shape, session } = *context;
        let copies = copies(self, context)?;
        let Some(model) = self.model() else { return Ok(Some(Box::new(Mixed::new(copies, shape)?))) };
        let own = shape.of_model(&self.clone().into());
        let drafter = make_growing_drafter(&model.kind(), growth, &own, session)?;
        let drafter = drafter.expect("a drafter that runs a model");
        let model = BesideCopies { drafter, shape: own, certain: model.certain_percent as f32 / 100.0 };
        Ok(Some(Box::new(Mixed::with_model(copies, model, shape)?)))
    }

    /// The copies beside a model, for the planner to merge with recorded trees of that.
    fn replay(&self) -> Result<Option<Replay>, SpeculateError> {
        if self.model().is_none() {
            return Ok(None);
        }
        let copies = self.copies();
        let replays = copies.iter().map(make_replay).filter_map(Result::transpose);
        let parts = replays.map(|replay| Ok(replay?.drafter)).collect::<Result<Vec<_>, SpeculateError>>()?;
        // Deeper than any model's tree that was worth it: where a text repeats itself, copies go on.
        Ok(Some(Replay {
            drafter: Box::new(Copies { parts }),
            depths: &[7, 11, 15],
            widths: &[Mixture::COPIES],
        }))
    }
}

impl Drafter for Mixed {
    fn propose(&mut self, tree: &mut TokenTree, budget: Budget<'_>) -> Result<(), SpeculateError> {
        // Parts propose as they were recorded, however many rows the step verifies: the best of all are verified.
        let Budget { session, history, depth, rows: _, coupling, stats, observer: _ } = budget;
        let rows = self.limits.nodes as usize;
        let Self { copies, model, shared, .. } = self;
        shared.begin_step(tree.token(NodeId::ROOT));
        for (part, drafter) in copies.iter_mut().enumerate() {
            let (session, stats) = (&mut *session, &mut *stats);
            let budget = Budget { session, history, depth, rows, coupling, stats, observer: None };
            drafter.propose(shared.proposal(part), budget)?;
        }
        if let Some(BesideCopies { drafter, shape, certain }) = model {
            let mut lap = Lap::start();
            let depth = depth.min(shape.depth);
            let is_certain = shared.followed_to(u32::try_from(depth).unwrap_or(u32::MAX)) >= *certain;
            stats.add_time(StepStage::Draft, lap.next());
            if is_certain {
                stats.models_left_out += 1;
            } else {
                let (session, stats) = (&mut *session, &mut *stats);
                let budget = Budget { session, history, depth, rows, coupling, stats, observer: None };
                drafter.propose(shared.proposal(copies.len()), budget)?;
            }
        }
        let mut lap = Lap::start();
        shared.merge(rows, tree);
        stats.add_time(StepStage::Draft, lap.next());
        Ok(())
    }

    /// As many as the part that learns from most, and at least one: trust needs the outcome of every step.
    fn candidates_to_learn(&self) -> usize {
        let drafters = self.copies.iter().chain(self.model.as_ref().map(|model| &model.drafter));
        drafters.map(|drafter| drafter.candidates_to_learn()).max().unwrap_or(0).max(1)
    }

    /// Of the first part that keeps any: parts are of different kinds, and one of them keeps what it learned.
    fn state(&self) -> Option<DrafterState> {
        self.copies.iter().find_map(|drafter| drafter.state())
    }

    fn restore(&mut self, state: &DrafterState, vocabulary: usize) -> Result<bool, SpeculateError> {
        let mut taken = false;
        for drafter in self.drafters() {
            taken |= drafter.restore(state, vocabulary)?;
        }
        Ok(taken)
    }

    fn begin(&mut self, history: &[u32]) {
        self.shared.forget_proposals();
        self.drafters().for_each(|drafter| drafter.begin(history));
    }

    fn prefill(&mut self, history: &[u32], session: &Session) -> Result<(), SpeculateError> {
        self.drafters().try_for_each(|drafter| drafter.prefill(history, session))
    }

    fn own_cache(&mut self) -> Option<OwnCache<'_>> {
        self.drafters().find_map(|drafter| drafter.own_cache())
    }

    fn recall(&mut self, token: u32, offered: &[Candidate]) {
        self.drafters().for_each(|drafter| drafter.recall(token, offered));
    }

    fn forget_texts(&mut self) {
        self.drafters().for_each(|drafter| drafter.forget_texts());
    }

    fn learn(&mut self, outcome: &StepOutcome<'_>) {
        self.shared.learn(&outcome.history[outcome.history.len() - outcome.emitted..]);
        for drafter in self.drafters().filter(|drafter| drafter.candidates_to_learn() > 0) {
            drafter.learn(outcome);
        }
    }
}

/// Copying drafters of a mixture with a model, each of which is replayed by itself.
#[derive(Debug)]
struct Copies {
    parts: Vec<Box<dyn ReplayDrafter>>,
}

impl ReplayDrafter for Copies {
    fn forget(&mut self) {
        self.parts.iter_mut().for_each(|part| part.forget());
    }

    fn begin(&mut self, history: &[u32]) {
        self.parts.iter_mut().for_each(|part| part.begin(history));
    }

    fn propose(
        &mut self,
        history: &[u32],
        limits: &ProposalLimits,
        coupling: Option<&Coupling>,
        tree: &mut TokenTree,
    ) {
        self.parts.iter_mut().for_each(|part| part.propose(history, limits, coupling, tree));
    }

    fn parts(&mut self) -> &mut [Box<dyn ReplayDrafter>] {
        &mut self.parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Silent;

    impl Drafter for Silent {
        fn propose(&mut self, _tree: &mut TokenTree, _budget: Budget<'_>) -> Result<(), SpeculateError> {
            Ok(())
        }
    }

    #[test]
    fn one_drafter_is_no_mixture() {
        let shape = StepShape { depth: 1, draft_width: 1, verify_width: 2, top_k: 0, draft_temperature: 1.0 };
        let silent = || Box::new(Silent) as Box<dyn Drafter>;
        for parts in [vec![], vec![silent()]] {
            assert!(matches!(Mixed::new(parts, &shape), Err(SpeculateError::Shape { .. })));
        }
        let model = || BesideCopies { drafter: silent(), shape, certain: 0.5 };
        assert!(Mixed::with_model(vec![], model(), &shape).is_err());
        assert!(Mixed::with_model(vec![silent()], model(), &shape).is_ok());
    }
}
