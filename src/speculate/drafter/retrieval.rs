//! Retrieval: continues the sequence as texts of a corpus store went on after its last tokens.
//!
//! The longest suffix of the history that the store has is looked up, and the tree of its most frequent continuations
//! is proposed (REST, <https://arxiv.org/abs/2311.08252>: matches of 16 down to 2 tokens, continuations of 10). Where
//! it is set so, prompt lookup proposes first and the store only fills up (SPECTRA, ACL 2025, "internal" before
//! "external" guesses).
//!
//! The proposal is a pure function of the committed tokens and the store, so the planner replays this very drafter.

use std::{cmp::Reverse, collections::BinaryHeap, path::Path};

use crate::{
    plan::{DrafterId, ProposalLimits, ReplayDrafter, RetrievalSettings},
    sample::Coupling,
    speculate::{
        CorpusStore, SpeculateError, StepShape,
        corpus::{LONGEST_MATCH, Match, Occurrences},
    },
    tree::{NodeId, Source, TokenTree},
};

use super::{
    Budget, Drafter, Lookup, propose_by_history,
    registry::{MakeContext, MakeDrafter, Replay},
};

/// The drafter's mark.
const SOURCE: Source = DrafterId::Retrieval.source();
/// Tokens along a proposed path at most.
const DEEPEST: u32 = 10;
/// Continuations of one node at most, however wide the shape.
const MOST_CHILDREN: usize = 16;

/// A continuation that is not in the tree yet. Ordered by frequency; of equals the shallower, then the lower token.
#[derive(Clone, Copy, Debug)]
struct Open {
    parent: NodeId,
    token: u32,
    depth: u32,
    value: f32,
    occurrences: Occurrences,
}

impl Open {
    fn key(&self) -> (usize, Reverse<u32>, Reverse<Occurrences>) {
        (self.occurrences.count(), Reverse(self.depth), Reverse(self.occurrences))
    }
}

impl PartialEq for Open {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
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
        self.key().cmp(&other.key())
    }
}

/// The retrieval drafter: without a model, over a mapped store.
#[derive(Clone, Debug)]
pub struct Retrieval {
    store: CorpusStore,
    longest: usize,
    shortest: usize,
    /// Proposes first.
    lookup: Option<Lookup>,
    limits: ProposalLimits,
    frontier: BinaryHeap<Open>,
    /// With how much weighs for each.
    children: Vec<(u32, Occurrences, f32)>,
}

impl Retrieval {
    /// The drafter of these settings; the store must be the one that they name.
    fn of(settings: &RetrievalSettings, shape: &StepShape) -> Result<Self, SpeculateError> {
        let RetrievalSettings { store, longest_match, shortest_match, lookup_match } = settings;
        let store = CorpusStore::open_expecting(Path::new(&store.path), &store.digest)?;
        let retrieval = Self::new(store, *longest_match as usize, *shortest_match as usize, shape)?;
        Ok(match lookup_match {
            Some((longest, shortest)) => {
                retrieval.after_lookup(Lookup::new(*longest as usize, *shortest as usize, shape)?)
            }
            None => retrieval,
        })
    }

    /// Matches of `shortest..=longest` tokens, and proposals within [`StepShape::limits`].
    ///
    /// # Errors
    /// [`SpeculateError::Shape`] if there are no match lengths, or they exceed [`LONGEST_MATCH`].
    pub fn new(
        store: CorpusStore,
        longest: usize,
        shortest: usize,
        shape: &StepShape,
    ) -> Result<Self, SpeculateError> {
        let refuse = |what, expected: String, found| Err(SpeculateError::Shape { what, expected, found });
        if longest > LONGEST_MATCH {
            return refuse("longest match", format!("{LONGEST_MATCH} or less"), longest);
        }
        if shortest == 0 || longest < shortest {
            return refuse("shortest match", format!("1 or more and at most {longest}"), shortest);
        }
        // Every node that is grown opens at most this many, and the last match begins with as many.
        let children = shape.draft_width.min(MOST_CHILDREN);
        let frontier = BinaryHeap::with_capacity((shape.verify_width + 1) * children);
        let children = Vec::with_capacity(children + 1);
        Ok(Self { store, longest, shortest, lookup: None, limits: shape.limits(), frontier, children })
    }

    /// The same with a lookup that proposes first.
    #[must_use]
    pub fn after_lookup(self, lookup: Lookup) -> Self {
        Self { lookup: Some(lookup), ..self }
    }

    /// Opens the most frequent continuations of a node that is in the tree, or those that likeliest win under the
    /// noise.
    fn open(
        &mut self,
        (parent, depth, value): (NodeId, u32, f32),
        found: &Match,
        most: usize,
        noise: Option<(&Coupling, usize)>,
    ) {
        let Match { length, occurrences } = *found;
        self.children.clear();
        let children = &mut self.children;
        let mut all = 0.0;
        self.store.continuations(occurrences, length + depth as usize, |token, occurrences| {
            let odds = noise.map_or(1.0, |(coupling, place)| coupling.odds(place, token));
            let weight = occurrences.count() as f32 * odds;
            all += weight;
            let place = children.partition_point(|(_, _, other)| *other >= weight);
            if place < most {
                children.insert(place, (token, occurrences, weight));
                children.truncate(most);
            }
        });
        if noise.is_none() {
            // Occurrences at the ends of documents go on in no way.
            all = occurrences.count() as f32;
        }
        let keep = 1.0 - 1.0 / (1.0 + length as f32);
        self.frontier.extend(self.children.iter().map(|(token, occurrences, weight)| Open {
            parent,
            token: *token,
            depth: depth + 1,
            value: value * keep * (weight / all),
            occurrences: *occurrences,
        }));
    }
}

impl MakeDrafter for RetrievalSettings {
    fn make(&self, context: &MakeContext<'_>) -> Result<Option<Box<dyn Drafter>>, SpeculateError> {
        let drafter = Retrieval::of(self, context.shape)?;
        drafter.store.expect_vocabulary(context.session.set().vocabulary())?;
        Ok(Some(Box::new(drafter)))
    }

    fn replay(&self) -> Result<Option<Replay>, SpeculateError> {
        let drafter = Box::new(Retrieval::of(self, &StepShape::PLAIN)?);
        Ok(Some(Replay { drafter, depths: &[1, 2, 3, 5, 7, DEEPEST], widths: &[1, 2, 4, 8] }))
    }
}

impl ReplayDrafter for Retrieval {
    /// The most frequent continuations of the longest match, `limits.width` of a node, `limits.depth` and 10 tokens
    /// deep at most, until the tree has `limits.nodes` nodes. A node's value is the share of the match's occurrences
    /// that go on so, and falls with depth, faster for shorter matches: it ranks nodes for pruning and claims no
    /// probability.
    fn propose(
        &mut self,
        history: &[u32],
        limits: &ProposalLimits,
        coupling: Option<&Coupling>,
        tree: &mut TokenTree,
    ) {
        if let Some(lookup) = &mut self.lookup {
            ReplayDrafter::propose(lookup, history, limits, coupling, tree);
        }
        let noise = |depth: u32| coupling.map(|coupling| (coupling, history.len() + depth as usize));
        let Some(found) = self.store.longest_match(history, self.longest, self.shortest) else { return };
        let (depth, most) = (limits.depth.min(DEEPEST), (limits.width as usize).min(MOST_CHILDREN));
        self.frontier.clear();
        if depth > 0 {
            self.open((NodeId::ROOT, 0, 1.0), &found, most, noise(0));
        }
        while let Some(best) = self.frontier.pop() {
            let Open { parent, token, depth: at, value, occurrences } = best;
            let Some(node) = tree.insert_within(limits.nodes as usize, parent, token, value, 0, SOURCE)
            else {
                return;
            };
            if at < depth {
                self.open((node, at, value), &Match { occurrences, ..found }, most, noise(at));
            }
        }
    }
}

impl Drafter for Retrieval {
    fn propose(&mut self, tree: &mut TokenTree, budget: Budget<'_>) -> Result<(), SpeculateError> {
        propose_by_history(self.limits, self, tree, budget);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
