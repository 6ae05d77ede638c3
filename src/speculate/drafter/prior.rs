//! The prior: continues the sequence by what the model usually offers after its last one to three tokens.
//!
//! A corpus store holds tables of the model's own mean distributions ([`Offer`](crate::speculate::corpus::Offer)), of
//! the corpus and so of no request: it speaks from the first step on, where a text that repeats nothing leaves drafters
//! that copy silent. The tree is the best-first tree over those distributions, of the longest known context at every
//! node. Tables of n-grams under a text's own are the "context-independent" half of Ou et al.
//! (<https://arxiv.org/abs/2404.08698>); here they are weighed by the verifier.
//!
//! The proposal is a pure function of the committed tokens and the store, so the planner replays this very drafter.

use std::path::Path;

use crate::{
    plan::{DrafterId, PriorSettings, ProposalLimits, ReplayDrafter},
    sample::{Candidate, Coupling},
    speculate::{
        CorpusStore, SpeculateError, StepShape,
        corpus::{PRIOR_OFFERS, PRIOR_TOKENS},
    },
    tree::{Frontier, NodeId, Source, TokenTree},
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

/// The prior drafter: without a model, over a mapped store.
#[derive(Clone, Debug)]
pub struct Prior {
    store: CorpusStore,
    limits: ProposalLimits,
    frontier: Frontier,
    /// Nodes that the frontier was reserved for.
    reserved: u32,
    candidates: Vec<Candidate>,
    grown: Vec<NodeId>,
}

impl Prior {
    /// Proposals within [`StepShape::limits`]. Reserves all of its memory.
    pub fn new(store: CorpusStore, shape: &StepShape) -> Self {
        let limits = shape.limits();
        Self {
            store,
            limits,
            frontier: Frontier::with_capacity(limits.nodes as usize, PRIOR_OFFERS),
            reserved: limits.nodes,
            candidates: Vec::with_capacity(PRIOR_OFFERS),
            grown: Vec::with_capacity(1),
        }
    }

    fn of(settings: &PriorSettings, shape: &StepShape) -> Result<Self, SpeculateError> {
        let PriorSettings { store } = settings;
        Ok(Self::new(CorpusStore::open_expecting(Path::new(&store.path), &store.digest)?, shape))
    }

    /// Offers the likeliest continuations, `most` at most, of a node of the tree.
    fn expand(
        &mut self,
        tree: &TokenTree,
        node: NodeId,
        last: &[u32],
        most: usize,
        noise: Option<(&Coupling, usize)>,
    ) {
        let Some((_, offer)) = self.store.prior(last) else { return };
        let Self { store, frontier, candidates, .. } = self;
        candidates.clear();
        candidates.extend(offer.candidates().filter(|candidate| candidate.token < store.vocabulary()));
        if let Some((coupling, place)) = noise {
            win(coupling, place, candidates);
        }
        let least = LEAST_VALUE.ln() - frontier.score(tree, node);
        let worthy = candidates.iter().take(most).filter(|candidate| candidate.log_prob >= least);
        frontier.expand(tree, node, worthy.map(|candidate| (candidate.token, candidate.log_prob)));
    }
}

/// Makes of log-probabilities at temperature 1 how likely each token wins under the noise of a place, and orders by it.
/// What the table leaves out is as one token with the rest of the probability and noise that is not known.
fn win(coupling: &Coupling, place: usize, candidates: &mut [Candidate]) {
    let rest = 1.0 - candidates.iter().map(|candidate| candidate.log_prob.exp()).sum::<f32>();
    let tempered = |log_prob: f32| (log_prob / coupling.temperature()).exp();
    // Of many tokens that share it, none has more than its part, so a temperature below 1 takes all the more from it.
    let mut all = tempered(rest.max(f32::MIN_POSITIVE).ln()) * Coupling::UNKNOWN_ODDS;
    for candidate in &mut *candidates {
        candidate.log_prob = tempered(candidate.log_prob) * coupling.odds(place, candidate.token);
        all += candidate.log_prob;
    }
    for candidate in &mut *candidates {
        candidate.log_prob = (candidate.log_prob / all).ln();
    }
    candidates.sort_unstable_by(|a, b| b.log_prob.total_cmp(&a.log_prob).then(a.token.cmp(&b.token)));
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
        let most = (limits.width as usize).min(PRIOR_OFFERS);
        if limits.nodes > self.reserved {
            // Replays propose in shapes that they were not made for.
            self.frontier = Frontier::with_capacity(limits.nodes as usize, PRIOR_OFFERS);
            self.reserved = limits.nodes;
        }
        self.frontier.clear();
        let (mut last, mut node) = ([0; PRIOR_TOKENS], NodeId::ROOT);
        loop {
            let depth = tree.depth(node);
            if depth < limits.depth {
                let path = std::iter::successors(Some(node), |node| tree.parent(*node));
                let path = path.take_while(|node| *node != NodeId::ROOT).map(|node| tree.token(node));
                let known = context(&mut last, path, history);
                let noise = coupling.map(|coupling| (coupling, history.len() + depth as usize));
                self.expand(tree, node, known, most, noise);
            }
            if tree.len() >= limits.nodes as usize {
                return;
            }
            self.frontier.grow(tree, 1, SOURCE, &mut self.grown);
            let Some(grown) = self.grown.first() else { return };
            node = *grown;
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
