//! Drafters: whatever proposes tokens, under one trait.

mod block;
mod caterpillar;
mod growth;
mod heads;
mod layer_skip;
mod lookup;
mod mixed;
mod model;
mod ngram;
mod prior;
mod ranking;
mod recycling;
mod registry;
mod retrieval;
mod self_drafter;
mod state;
mod substitute;
mod suffix;
mod swift;
#[cfg(test)]
mod testing;
mod text_parts;

pub use block::BlockDrafter;
pub use lookup::Lookup;
pub use mixed::{BesideCopies, Mixed, make_copies};
pub use model::ModelDrafter;
pub use ngram::{Ngram, NgramState};
pub use prior::Prior;
pub(super) use ranking::noise_of;
pub use recycling::Recycling;
pub use registry::{Replay, make_drafter, make_growing_drafter, make_replay};
pub use retrieval::Retrieval;
pub use self_drafter::SelfDrafter;
pub use state::DrafterState;
pub use suffix::Suffix;
pub use swift::{DraftGrowth, Swift};

use crate::{
    plan::{ProposalLimits, ReplayDrafter},
    runtime::{GrowingTree, Session},
    sample::{Candidate, Coupling},
    tree::{NodeId, TokenTree},
};

use super::{SpeculateError, Stats, StepOutcome, StepShape, StepStage, stats::Lap};

/// What a drafter may use for one proposal.
#[derive(Debug)]
pub struct Budget<'a> {
    /// The verifier's session: drafters that share its cache write scratch slots only.
    pub session: &'a mut Session,
    /// The sequence so far; the last token is the tree's root and is not yet in the cache.
    pub history: &'a [u32],
    /// Deepest useful node.
    pub depth: usize,
    /// Most rows that the step verifies, root included.
    pub rows: usize,
    /// The noise that decides the request's tokens, if any does.
    pub coupling: Option<Coupling>,
    /// Where the drafter's times go.
    pub stats: &'a mut Stats,
    /// Sees the candidates of each expanded node.
    pub observer: Option<&'a mut dyn TraceObserver>,
}

/// Sees the candidates of a model drafter, for recording traces.
pub trait TraceObserver: std::fmt::Debug {
    /// `node` was forwarded and these are its best continuations, most probable first.
    fn expanded(&mut self, node: NodeId, candidates: &[Candidate]);
}

/// Proposes continuations into a tree whose root is set.
pub trait Drafter: std::fmt::Debug + Send {
    /// Adds nodes to the tree, within its capacity and the budget's depth. None is a proposal too.
    ///
    /// # Errors
    /// [`SpeculateError`] when the session refuses a forward.
    fn propose(&mut self, tree: &mut TokenTree, budget: Budget<'_>) -> Result<(), SpeculateError>;

    /// Number of candidates of every verified row that it learns from; 0 if it learns nothing. Constant.
    fn candidates_to_learn(&self) -> usize {
        0
    }

    /// Another request begins: `history` is its prompt and its first token. It may keep what it learned from earlier
    /// requests.
    fn begin(&mut self, _history: &[u32]) {}

    /// The request's prompt is in the verifier's cache: brings a cache of its own as far, as a part of the prefill.
    ///
    /// # Errors
    /// [`SpeculateError`] when its session refuses.
    fn prefill(&mut self, _history: &[u32], _session: &Session) -> Result<(), SpeculateError> {
        Ok(())
    }

    /// Its cache of the text, if it has one of its own, with no more than the text in it.
    fn own_cache(&mut self) -> Option<OwnCache<'_>> {
        None
    }

    /// Takes note of a finished step, whether it drafted or not, if it [learns](Self::candidates_to_learn). Allocates
    /// nothing.
    fn learn(&mut self, _outcome: &StepOutcome<'_>) {}

    /// After [`begin`](Self::begin): what the verifier offered after a token of the prompt, the most probable first,
    /// when an earlier request had it verified.
    fn recall(&mut self, _token: u32, _offered: &[Candidate]) {}

    /// Forgets all texts: requests of another owner begin. What is no text may stay: which layers pay to be skipped,
    /// how far the parts of a mixture are trusted.
    fn forget_texts(&mut self) {}

    /// What it learned that a later process can go on from, if it keeps anything.
    fn state(&self) -> Option<DrafterState> {
        None
    }

    /// Goes on from a state that a drafter kept over this model, of `vocabulary` tokens, if the state is of its kind;
    /// whether it is. A state of another kind, or one that is refused, changes nothing.
    ///
    /// # Errors
    /// [`SpeculateError::KeptState`] if the state is of its kind, but unlawful or of other settings.
    fn restore(&mut self, _state: &DrafterState, _vocabulary: usize) -> Result<bool, SpeculateError> {
        Ok(false)
    }

    /// Itself, if it can draft the head of a step before the step's root is known: a drafter that runs a model of
    /// tokens alone.
    fn ahead(&mut self) -> Option<&mut dyn AheadDrafter> {
        None
    }

    /// Itself, if the device can run all of its draft phase: a drafter that runs a model and whose trees grow equally.
    fn in_one_launch(&mut self) -> Option<&mut dyn OneLaunchDrafter> {
        None
    }
}

/// A drafter's cache of the text.
#[derive(Debug)]
pub struct OwnCache<'d> {
    /// Its session, in which the rows of the text are committed.
    pub session: &'d mut Session,
    /// The text, with what is before the first token that has a row.
    pub text: &'d mut Vec<u32>,
    /// How many tokens that is.
    pub skipped: usize,
}

/// The proposal of a drafter that needs no session, within `limits` and the budget's depth and rows; counts its time.
fn propose_by_history(
    limits: ProposalLimits,
    drafter: &mut dyn ReplayDrafter,
    tree: &mut TokenTree,
    budget: Budget<'_>,
) {
    let mut lap = Lap::start();
    let at_most = |limit: u32, most: usize| limit.min(u32::try_from(most).unwrap_or(u32::MAX));
    let (depth, nodes) = (at_most(limits.depth, budget.depth), at_most(limits.nodes, budget.rows));
    let limits = ProposalLimits { depth, nodes, ..limits };
    drafter.propose(budget.history, &limits, budget.coupling.as_ref(), tree);
    budget.stats.add_time(StepStage::Draft, lap.next());
}

/// A proposal whose tree the device grows by itself; counts its times.
fn propose_in_one_launch(
    drafter: &mut dyn OneLaunchDrafter,
    tree: &mut TokenTree,
    budget: Budget<'_>,
) -> Result<(), SpeculateError> {
    let Budget { session, history, depth, rows, coupling, stats, observer: _ } = budget;
    let mut lap = Lap::start();
    if drafter.begin(Budget { session, history, depth, rows, coupling, stats, observer: None })? {
        drafter.plant(tree, session);
    }
    stats.add_time(StepStage::Draft, lap.next());
    Ok(())
}

/// The verified rows of a step, before acceptance.
#[derive(Clone, Copy, Debug)]
pub struct Verified<'a> {
    /// The drafted tree.
    pub tree: &'a TokenTree,
    /// The verified nodes, ascending.
    pub rows: &'a [NodeId],
    /// The verifier's token after each of them.
    pub verifier_tokens: &'a [u32],
    /// The noise that decides the request's tokens, if any does.
    pub coupling: Option<Coupling>,
    /// Most tokens that this step and those after it may emit.
    pub tokens_left: usize,
}

/// A drafter whose whole draft phase, forwards and growths, the device runs in one launch.
pub trait OneLaunchDrafter: std::fmt::Debug {
    /// Makes ready for trees of `shape`; from then on proposals that nobody observes, of requests without filters, are
    /// grown by the device, and are the same trees. Whether the device can.
    ///
    /// # Errors
    /// [`SpeculateError`] when memory or a width is refused.
    fn prepare(&mut self, session: &mut Session, shape: &StepShape) -> Result<bool, SpeculateError>;

    /// Where the device grows the trees.
    ///
    /// # Panics
    /// If it was not prepared.
    fn growing(&mut self, session: &mut Session) -> GrowingTree;

    /// Begins the growth of the tree that [`Drafter::propose`] would add to, without waiting for it; whether there is
    /// one.
    ///
    /// # Errors
    /// [`SpeculateError`] when the session refuses a forward.
    ///
    /// # Panics
    /// If it was not prepared, the depth is 0, or filters leave the ranking to the host.
    fn begin(&mut self, budget: Budget<'_>) -> Result<bool, SpeculateError>;

    /// Waits for the growth, and adds its nodes to the tree of its root.
    fn plant(&mut self, tree: &mut TokenTree, session: &mut Session);
}

/// A drafter that drafts the heads of the next step before this step is finished.
pub trait AheadDrafter: std::fmt::Debug {
    /// Begins to forward the nodes in `rows`, which are about to be verified, that it has not: heads attend to the keys
    /// and values of all rows above them. A drafter in the verifier's cache has them of the verification.
    ///
    /// # Errors
    /// [`SpeculateError`] when its session refuses a forward.
    fn draft_tail(&mut self, _tree: &TokenTree, _rows: &[NodeId]) -> Result<(), SpeculateError> {
        Ok(())
    }

    /// Begins to draft the heads of all roots that the next step may have. They are written to scratch after the tree.
    /// Until one is kept the session runs no other forward.
    ///
    /// # Errors
    /// [`SpeculateError`] when the session refuses a forward.
    fn draft_heads(&mut self, verified: &Verified<'_>, session: &mut Session) -> Result<(), SpeculateError>;

    /// Keeps, for the next proposal, the head of the verified row after which the next root stands, the last token of
    /// `history`; the path to it is committed in the verifier's session. Waits for it.
    fn keep_head(&mut self, row: usize, history: &[u32], session: &mut Session);

    /// Drops all heads: another sequence begins.
    fn forget_heads(&mut self);
}
