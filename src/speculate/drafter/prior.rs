//! The prior: continues the sequence by what the model usually offers after its last one to three tokens.
//!
//! A corpus store holds tables of the model's own mean distributions ([`Offer`](crate::speculate::corpus::Offer)), of
//! the corpus and so of no request: it speaks from the first step on, where a text that repeats nothing leaves drafters
//! that copy silent. The tree is the best-first tree over those distributions, of the longest known context at every
//! node. Tables of n-grams under a text's own are the "context-independent" half of Ou et al.
//! (<https://arxiv.org/abs/2404.08698>); here they are weighed by the verifier.
//!
//! The proposal is a pure function of the committed tokens and the store, so the planner replays this very drafter.

use std::{cmp::Reverse, collections::BinaryHeap, path::Path};

use crate::{
    plan::{DrafterId, PriorSettings, ProposalLimits, ReplayDrafter},
    sample::{Candidate, Coupling},
    speculate::{
        CorpusStore, SpeculateError, StepShape,
        corpus::{PRIOR_OFFERS, PRIOR_TOKENS},
    },
    tree::{NodeId, Source, TokenTree},
};

use super::{
    Budget, Drafter, propose_by_history,
    registry::{MakeContext, MakeDrafter, Replay},
};

/// The drafter's mark.
const SOURCE: Source = DrafterId::Prior.source();
/// Least probability of a path that is proposed: a row costs a hundredth of a step at best, so what is less likely
/// never pays.
const LEAST_VALUE: f32 = 0.01;

/// A continuation that is not in the tree yet.
#[derive(Clone, Copy, Debug)]
struct Open {
    parent: NodeId,
    token: u32,
    depth: u32,
    value: f32,
    rank: u16,
}

impl Open {
    /// The most probable first; of equals the shallower, then the one whose parent came earlier, then the lower token.
    fn order(&self, other: &Self) -> std::cmp::Ordering {
        let rest = |open: &Self| Reverse((open.depth, open.parent, open.token));
        self.value.total_cmp(&other.value).then_with(|| rest(self).cmp(&rest(other)))
    }
}

impl PartialEq for Open {
    fn eq(&self, other: &Self) -> bool {
        self.order(other).is_eq()
    }
}

impl Eq for Open {}

impl PartialOrd for Open {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Open {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.order(other)
    }
}

/// The prior drafter: without a model, over a mapped store.
#[derive(Clone, Debug)]
pub struct Prior {
    store: CorpusStore,
    limits: ProposalLimits,
    frontier: BinaryHeap<Open>,
    children: Vec<Candidate>,
}

impl Prior {
    /// Proposals within [`StepShape::limits`]. Reserves all of its memory.
    pub fn new(store: CorpusStore, shape: &StepShape) -> Self {
        let limits = shape.limits();
        // Every node that is grown opens at most this many.
        let children = shape.draft_width.min(PRIOR_OFFERS);
        let frontier = BinaryHeap::with_capacity((shape.verify_width + 1) * children);
        Self { store, limits, frontier, children: Vec::with_capacity(PRIOR_OFFERS) }
    }

    fn of(settings: &PriorSettings, shape: &StepShape) -> Result<Self, SpeculateError> {
        let PriorSettings { store } = settings;
        Ok(Self::new(CorpusStore::open_expecting(Path::new(&store.path), &store.digest)?, shape))
    }

    /// Opens the likeliest continuations, `most` at most, of a node that is in the tree and whose path is worth
    /// `value`.
    fn open(
        &mut self,
        (parent, depth, value): (NodeId, u32, f32),
        last: &[u32],
        most: usize,
        noise: Option<(&Coupling, usize)>,
    ) {
        let Some((_, offer)) = self.store.prior(last) else { return };
        let Self { store, frontier, children, .. } = self;
        let known = |candidate: &Candidate| candidate.token < store.vocabulary() && candidate.log_prob <= 0.0;
        children.clear();
        children.extend(offer.candidates().filter(known));
        if let Some((coupling, place)) = noise {
            win(coupling, place, children);
        }
        let opened = children.iter().take(most).zip(0..).map(|(candidate, rank)| Open {
            parent,
            token: candidate.token,
            depth: depth + 1,
            value: value * candidate.log_prob.exp(),
            rank,
        });
        frontier.extend(opened.filter(|open| open.value >= LEAST_VALUE));
    }
}

/// Makes of log-probabilities at temperature 1 how likely each token wins under the noise of a place, and orders by it.
/// What the table leaves out is as one token with the rest of the probability and noise that is not known.
fn win(coupling: &Coupling, place: usize, children: &mut [Candidate]) {
    let rest = 1.0 - children.iter().map(|child| child.log_prob.exp()).sum::<f32>();
    let tempered = |log_prob: f32| (log_prob / coupling.temperature()).exp();
    // Of many tokens that share it, none has more than its part, so a temperature below 1 takes all the more from it.
    let mut all = tempered(rest.max(f32::MIN_POSITIVE).ln()) * Coupling::UNKNOWN_ODDS;
    for child in &mut *children {
        child.log_prob = tempered(child.log_prob) * coupling.odds(place, child.token);
        all += child.log_prob;
    }
    for child in &mut *children {
        child.log_prob = (child.log_prob / all).ln();
    }
    children.sort_unstable_by(|a, b| b.log_prob.total_cmp(&a.log_prob).then(a.token.cmp(&b.token)));
}

impl MakeDrafter for PriorSettings {
    fn make(&self, context: &MakeContext<'_>) -> Result<Option<Box<dyn Drafter>>, SpeculateError> {
        let drafter = Prior::of(self, context.shape)?;
        drafter.store.expect_vocabulary(context.session.set().vocabulary())?;
        Ok(Some(Box::new(drafter)))
    }

    fn replay(&self) -> Result<Option<Replay>, SpeculateError> {
        let drafter = Box::new(Prior::of(self, &StepShape::PLAIN)?);
        Ok(Some(Replay { drafter, depths: &[1, 2, 3, 4, 6], widths: &[1, 2, 4, 8] }))
    }
}

impl ReplayDrafter for Prior {
    /// The likeliest paths, `limits.width` continuations of a node and `limits.depth` tokens deep at most, until the
    /// tree has `limits.nodes` nodes. A node's value is the probability of its path by the tables.
    fn propose(
        &mut self,
        history: &[u32],
        limits: &ProposalLimits,
        coupling: Option<&Coupling>,
        tree: &mut TokenTree,
    ) {
        let noise = |depth: u32| coupling.map(|coupling| (coupling, history.len() + depth as usize));
        let most = (limits.width as usize).min(PRIOR_OFFERS);
        let mut last = [0; PRIOR_TOKENS];
        self.frontier.clear();
        if limits.depth > 0 {
            let known = context(&mut last, std::iter::empty(), history);
            self.open((NodeId::ROOT, 0, 1.0), known, most, noise(0));
        }
        while let Some(Open { parent, token, depth, value, rank }) = self.frontier.pop() {
            let Some(node) = tree.insert_within(limits.nodes as usize, parent, token, value, rank, SOURCE)
            else {
                return;
            };
            if depth < limits.depth {
                let above = tree.ancestors(node).take_while(|above| *above != NodeId::ROOT);
                let path = std::iter::once(node).chain(above).map(|node| tree.token(node));
                let known = context(&mut last, path, history);
                self.open((node, depth, value), known, most, noise(depth));
            }
        }
    }
}

/// The last tokens of a history and a path, which comes last token first, into `last`, the very last first.
fn context<'a>(
    last: &'a mut [u32; PRIOR_TOKENS],
    path: impl Iterator<Item = u32>,
    history: &[u32],
) -> &'a [u32] {
    let tokens = path.chain(history.iter().rev().copied());
    let mut known = 0;
    for (place, token) in last.iter_mut().zip(tokens) {
        *place = token;
        known += 1;
    }
    &last[..known]
}

impl Drafter for Prior {
    fn propose(&mut self, tree: &mut TokenTree, budget: Budget<'_>) -> Result<(), SpeculateError> {
        propose_by_history(self.limits, self, tree, budget);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
