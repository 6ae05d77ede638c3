//! Confident growth: a chain with siblings, as many at each place as the drafter is unsure there.
//!
//! SWIFT's acceleration phase (<https://arxiv.org/abs/2410.06916>, section 4.2; the numbers are its code's): drafting
//! ends early where the most probable token is not probable enough, and of every step the verifier is shown more
//! candidates the less sure the drafter was. What exceeds the planned rows is pruned as of any tree.

use crate::{
    runtime::{Choice, ExecutableSet, SkipSet},
    sample::Candidate,
    speculate::{SpeculateError, StepShape, StepStage, stats::Lap, tree_forward::tree_forward},
    tree::{NodeId, Source, TokenTree},
};

use super::{Budget, ranking::Ranking};

/// The drafter's mark in [`Source`]: that of other layer skips.
const SOURCE: Source = super::layer_skip::SOURCE;
/// Most tokens of a chain, N_D.
const MOST_DRAFTED: usize = 25;
/// Drafting ends after a token that was less probable, epsilon.
const SURE: f32 = 0.8;
/// Up to this probability of the best candidate, so many candidates are verified.
const CANDIDATES: [(f32, usize); 4] = [(0.5, 10), (0.8, 5), (0.95, 3), (1.0, 1)];

/// How many candidates of a place are verified, the best among them, if its probability is `best`.
fn candidates_at(best: f32) -> usize {
    CANDIDATES.iter().find(|(most, _)| best <= *most).map_or(1, |(_, count)| *count)
}

/// Grows caterpillar trees.
#[derive(Debug)]
pub(super) struct Caterpillar {
    choice: Choice,
    candidates: Vec<Candidate>,
    /// Rows of each forward of the last proposal.
    forwards: Vec<u32>,
}

impl Caterpillar {
    pub(super) fn new(shape: &StepShape) -> Self {
        let most = CANDIDATES[0].1;
        Self {
            choice: Choice { k: most, temperature: Some(shape.draft_temperature) },
            candidates: Vec::with_capacity(ExecutableSet::MOST_CANDIDATES),
            forwards: Vec::with_capacity(shape.depth.min(MOST_DRAFTED)),
        }
    }

    /// Rows of each forward of the last proposal.
    pub(super) fn forwards(&self) -> &[u32] {
        &self.forwards
    }

    /// Drafts a chain of at most `budget.depth` tokens with forwards that leave out `skip`. The tree keeps room for the
    /// rest of the chain before it takes siblings.
    pub(super) fn propose(
        &mut self,
        tree: &mut TokenTree,
        budget: Budget<'_>,
        skip: &SkipSet,
    ) -> Result<(), SpeculateError> {
        let Budget { session, history, depth, rows: _, coupling, stats, mut observer } = budget;
        let ranking = Ranking::new(self.choice, coupling, session);
        self.forwards.clear();
        let mut lap = Lap::start();
        let depth = depth.min(MOST_DRAFTED);
        let mut tip = NodeId::ROOT;
        for drafted in 0..depth {
            let (forward, choice) = ranking.asked(tree_forward(session, tree, &[tip])?, 0);
            let choices = forward.choose(choice, Some(skip));
            stats.add_time(StepStage::Draft, lap.next());
            self.forwards.push(1);
            self.candidates.clear();
            let offered = choices.row(0);
            self.candidates.extend(offered.iter().map(|(token, log_prob)| Candidate { token, log_prob }));
            ranking.rank(history.len() + drafted, &mut self.candidates);
            if let Some(observer) = observer.as_deref_mut() {
                observer.expanded(tip, &self.candidates);
            }
            let best = self.candidates.first().map_or(0.0, |candidate| candidate.log_prob.exp());
            let reserved = depth - drafted - 1;
            let (above, mut next) = (tree.value(tip), None);
            for (rank, candidate) in self.candidates.iter().take(candidates_at(best)).enumerate() {
                if rank > 0 && tree.len() + reserved >= tree.capacity() {
                    break;
                }
                let value = (above * candidate.log_prob.exp()).min(1.0);
                let rank = u16::try_from(rank).expect("few candidates");
                let node = tree.insert(tip, candidate.token, value, rank, SOURCE).node();
                next = next.or(node);
            }
            stats.add_time(StepStage::Grow, lap.next());
            match next {
                Some(node) if best >= SURE => tip = node,
                Some(_) | None => break,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_less_sure_the_more_candidates() {
        let counts = [0.1, 0.5, 0.51, 0.8, 0.81, 0.95, 0.96, 1.0, 1.01].map(candidates_at);
        assert_eq!(counts, [10, 10, 5, 5, 3, 3, 1, 1, 1]);
    }
}
