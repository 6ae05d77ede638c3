//! Acceptance: how many drafted tokens a step keeps, by depth and by the drafter's rank.
use std::iter;

use ygg_profiler::{Expansion, Trace};

use crate::{planner::replay::recorded::recorded_tree, tree::NodeId};

/// How often each number of drafted tokens was accepted, and how many tokens the steps emitted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AcceptedLengths {
    /// Steps by accepted length.
    steps_by_length: Vec<u64>,
    emitted: u64,
}

impl AcceptedLengths {
    /// Counts one step that accepted `length` drafted tokens and emitted them and a bonus token, but `most` at most:
    /// the last step of a request is cut after an end token or at a limit.
    pub fn record(&mut self, length: usize, most: usize) {
        if self.steps_by_length.len() <= length {
            self.steps_by_length.resize(length + 1, 0);
        }
        self.steps_by_length[length] += 1;
        self.emitted += (length + 1).min(most) as u64;
    }

    /// Steps counted.
    pub fn steps(&self) -> u64 {
        self.steps_by_length.iter().sum()
    }

    /// Average accepted length: tokens per step, bonus token included. NaN before the first step.
    pub fn aal(&self) -> f64 {
        self.emitted as f64 / self.steps() as f64
    }

    /// Share of steps that accepted at least d drafted tokens, for d = 1 up to the longest seen.
    pub fn by_depth(&self) -> Vec<f64> {
        let all = self.steps() as f64;
        let mut at_least: Vec<f64> = self
            .steps_by_length
            .iter()
            .skip(1)
            .rev()
            .scan(0, |sum, steps| {
                *sum += steps;
                Some(*sum as f64 / all)
            })
            .collect();
        at_least.reverse();
        at_least
    }
}

/// Share of the nodes walked by the verifier, among those the drafter expanded, where the verifier's token was the
/// drafter's r-th candidate, for r = 1 to the largest `top_k`. Empty without steps.
pub fn acceptance_by_rank(traces: &[&Trace]) -> Vec<f64> {
    let ranks = traces.iter().map(|trace| trace.top_k as usize).max().unwrap_or(0);
    let mut hits = vec![0u64; ranks];
    let mut walked = 0u64;
    for step in traces.iter().flat_map(|trace| trace.steps()) {
        let tree = recorded_tree(step);
        let nodes = iter::once(NodeId::ROOT).chain(tree.follow(step.verified.iter().copied()));
        for (node, token) in nodes.zip(&step.verified) {
            let Some(Expansion { candidates, .. }) = step.expanded.iter().find(|e| e.node == node.get())
            else {
                break;
            };
            walked += 1;
            if let Some(rank) = candidates.iter().position(|c| c.token == *token) {
                hits[rank] += 1;
            }
        }
    }
    if walked == 0 {
        return Vec::new();
    }
    hits.into_iter().map(|hits| hits as f64 / walked as f64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_give_their_mean_and_tail() {
        let mut lengths = AcceptedLengths::default();
        for length in [0, 3, 1, 0] {
            lengths.record(length, usize::MAX);
        }
        assert_eq!((lengths.steps(), lengths.aal()), (4, 2.0));
        assert_eq!(lengths.by_depth(), [0.5, 0.25, 0.25]);
        lengths.record(3, 2);
        assert_eq!((lengths.steps(), lengths.aal()), (5, 2.0));
        assert_eq!(lengths.by_depth(), [0.6, 0.4, 0.4]);
        assert!(AcceptedLengths::default().aal().is_nan());
        assert!(AcceptedLengths::default().by_depth().is_empty());
    }
}
