//! Prompt lookup: continues the sequence as it went on after earlier occurrences of its last tokens.
//!
//! The proposal is a pure function of the committed tokens, so the planner replays this very drafter without any model.

use crate::{
    plan::{DrafterId, LookupSettings, ProposalLimits, ReplayDrafter},
    sample::Coupling,
    speculate::{SpeculateError, StepShape},
    tree::{NodeId, Source, TokenTree},
};

use super::{
    Budget, Drafter, propose_by_history,
    ranking::chance,
    registry::{MakeContext, MakeDrafter, Replay},
};

/// The drafter's mark.
const SOURCE: Source = DrafterId::Lookup.source();

/// An earlier occurrence: the continuation starts at `next` and `length` tokens before it match.
#[derive(Clone, Copy, Debug)]
struct Match {
    length: usize,
    next: usize,
}

/// The lookup drafter: pure, without a model.
#[derive(Clone, Debug)]
pub struct Lookup {
    longest: usize,
    shortest: usize,
    limits: ProposalLimits,
    matches: Vec<Match>,
}

impl Lookup {
    /// Matches of `shortest..=longest` tokens, and proposals within [`StepShape::limits`].
    ///
    /// # Errors
    /// [`SpeculateError::Shape`] if the match lengths are empty.
    pub fn new(longest: usize, shortest: usize, shape: &StepShape) -> Result<Self, SpeculateError> {
        if shortest == 0 || longest < shortest {
            let expected = format!("1 or more and at most {longest}");
            return Err(SpeculateError::Shape { what: "shortest match", expected, found: shortest });
        }
        let matches = Vec::with_capacity(shape.draft_width + 1);
        Ok(Self { longest, shortest, limits: shape.limits(), matches })
    }

    fn of(settings: &LookupSettings, shape: &StepShape) -> Result<Self, SpeculateError> {
        Self::new(settings.longest_match as usize, settings.shortest_match as usize, shape)
    }

    /// Finds the best `most` matches: longer ones first, later ones before earlier ones.
    ///
    /// Looks back from the end until it has found as many of the longest as it may: `history.len() * longest`
    /// comparisons at most, no index and no allocation.
    fn find(&mut self, history: &[u32], most: usize) {
        self.matches.clear();
        let end = history.len();
        for next in (1..end).rev() {
            if history[next - 1] != history[end - 1] {
                continue;
            }
            if self.matches.len() >= most && self.matches.last().is_none_or(|m| m.length == self.longest) {
                return;
            }
            let longest = self.longest.min(next);
            let length = (0..longest).take_while(|i| history[next - 1 - i] == history[end - 1 - i]).count();
            if length < self.shortest {
                continue;
            }
            let place = self.matches.partition_point(|m| m.length >= length);
            if place < most {
                self.matches.insert(place, Match { length, next });
                self.matches.truncate(most);
            }
        }
    }
}

impl MakeDrafter for LookupSettings {
    fn make(&self, context: &MakeContext<'_>) -> Result<Option<Box<dyn Drafter>>, SpeculateError> {
        Ok(Some(Box::new(Lookup::of(self, context.shape)?)))
    }

    fn replay(&self) -> Result<Option<Replay>, SpeculateError> {
        let drafter = Box::new(Lookup::of(self, &StepShape::PLAIN)?);
        Ok(Some(Replay { drafter, depths: &[1, 2, 3, 5, 7, 11, 15], widths: &[1, 2, 3] }))
    }
}

impl ReplayDrafter for Lookup {
    /// At most `limits.width` continuations of at most `limits.depth` tokens, the best match first, cut where the tree
    /// has `limits.nodes` nodes; continuations share prefixes. The value of a node falls with depth, faster for shorter
    /// matches: it ranks nodes for pruning and claims no probability.
    fn propose(
        &mut self,
        history: &[u32],
        limits: &ProposalLimits,
        coupling: Option<&Coupling>,
        tree: &mut TokenTree,
    ) {
        let ProposalLimits { depth, width, nodes } = *limits;
        let (depth, nodes) = (depth as usize, nodes as usize);
        self.find(history, width as usize);
        for Match { length, next } in &self.matches {
            let keep = 1.0 - 1.0 / (1.0 + *length as f32);
            let mut node = NodeId::ROOT;
            let mut value = 1.0;
            for (token, place) in history[*next..history.len().min(next + depth)].iter().zip(history.len()..)
            {
                value *= chance(coupling, place, *token, keep);
                let Some(child) = tree.insert_within(nodes, node, *token, value, 0, SOURCE) else { break };
                node = child;
            }
        }
    }
}

impl Drafter for Lookup {
    fn propose(&mut self, tree: &mut TokenTree, budget: Budget<'_>) -> Result<(), SpeculateError> {
        propose_by_history(self.limits, self, tree, budget);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::testing::{proposed, shape},
        *,
    };

    fn propose(history: &[u32], shape: &StepShape) -> TokenTree {
        proposed(&mut Lookup::new(3, 1, shape).unwrap(), history, shape, None)
    }

    fn tokens(tree: &TokenTree) -> Vec<u32> {
        tree.nodes().skip(1).map(|n| tree.token(n)).collect()
    }

    #[test]
    fn continues_after_the_longest_and_then_latest_match() {
        let history = [1, 2, 3, 7, 8, 9, 2, 3, 5, 5, 1, 2, 3];
        assert_eq!(tokens(&propose(&history, &shape(3, 1, 8))), [7, 8, 9]);
        let two = propose(&history, &shape(2, 2, 8));
        assert_eq!(tokens(&two), [7, 8, 5, 5]);
        assert_eq!(two.parent(NodeId::from_index(3)), Some(NodeId::ROOT));
    }

    #[test]
    fn proposes_nothing_without_a_match_and_never_more_than_can_be_verified() {
        assert_eq!(propose(&[1, 2, 3], &shape(4, 4, 8)).len(), 1);
        assert_eq!(propose(&[5, 5, 5, 5, 5, 5], &shape(9, 4, 4)).len(), 4);
        assert_eq!(propose(&[4], &shape(4, 1, 4)).len(), 1);
    }

    #[test]
    fn empty_match_lengths_are_refused() {
        assert!(Lookup::new(2, 3, &shape(1, 1, 1)).is_err());
        assert!(Lookup::new(2, 0, &shape(1, 1, 1)).is_err());
    }
}
