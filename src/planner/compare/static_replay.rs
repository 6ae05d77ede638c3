//! Replaying recorded steps with trees that are the same at every step: acceptance of every template off one trace.
//!
//! What such a tree accepts depends on the verifier's path alone: each of its tokens must be a child of the template by
//! its rank among the drafter's candidates. So a step is the ranks along that path, as far as candidates were recorded.
//! Where a template goes on and the record does not, a node is missing; a template that misses too many is refused.
use std::collections::BTreeMap;

use ygg_profiler::{Candidate, StepTrace, Trace};

use crate::planner::{
    MOST_MISSING, Tally,
    replay::{
        recorded::{recorded_prompts, recorded_tree},
        tree_replay::StepPlace,
    },
};
use crate::tree::{NodeId, Template};

/// The ranks of the verifier's tokens in every recorded step.
#[derive(Debug, Clone)]
pub(in crate::planner) struct StaticReplay {
    steps: Vec<RankedPath>,
}

/// One recorded step.
#[derive(Debug, Clone)]
struct RankedPath {
    /// Place of its prompt, and the committed tokens before it.
    prompt: usize,
    context: u32,
    /// The rank, from 0 on, of each of the verifier's tokens among its parent's candidates.
    ranks: Vec<usize>,
    end: PathEnd,
    /// The verifier's tokens.
    said: usize,
}

/// Why a path of ranks ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PathEnd {
    /// The next token is none of the candidates.
    Rejected,
    /// The candidates of the last node, or the verifier's token after it, were not recorded.
    Unrecorded,
    /// The request ended there.
    Cut,
}

impl StaticReplay {
    /// Reads every step of `traces`, all of one drafter, with `top_k` candidates a node.
    pub(in crate::planner) fn new(traces: &[&Trace], top_k: u32) -> Self {
        let steps =
            recorded_prompts(traces).flat_map(|(prompt, steps)| steps.iter().map(move |step| (prompt, step)));
        let path = |(prompt, step)| RankedPath::new(prompt, step, top_k as usize);
        Self { steps: steps.map(path).collect() }
    }

    /// What the steps of a template accepted and emitted, or the share of missing nodes among those that were forwarded
    /// on the verifier's path, if it is above [`MOST_MISSING`].
    ///
    /// # Errors
    /// That share.
    pub(in crate::planner) fn tally(&self, template: &Template) -> Result<Tally<()>, f64> {
        let (mut forwarded, mut missing) = (0u64, 0u64);
        let (mut tally, mut place) = (Tally::default(), StepPlace::default());
        for RankedPath { prompt, context, ranks, end, said } in &self.steps {
            if !place.is_at(*prompt, *context) {
                continue;
            }
            let (mut node, mut length) = (0, 0);
            let mut steps = ranks.iter();
            loop {
                if template.children(node).is_empty() {
                    break;
                }
                forwarded += 1;
                let Some(rank) = steps.next() else {
                    missing += u64::from(*end == PathEnd::Unrecorded);
                    break;
                };
                let Some(child) = template.child(node, *rank) else { break };
                (node, length) = (child, length + 1);
            }
            let most = if *end == PathEnd::Cut { *said } else { usize::MAX };
            tally.record(*prompt, length, most, ());
            place.step(*context, length);
        }
        let missing = missing as f64 / forwarded.max(1) as f64;
        if missing > MOST_MISSING { Err(missing) } else { Ok(tally) }
    }
}

impl RankedPath {
    fn new(prompt: usize, step: &StepTrace, top_k: usize) -> Self {
        let candidates: BTreeMap<u32, &[Candidate]> =
            step.expanded.iter().map(|expansion| (expansion.node, expansion.candidates.as_slice())).collect();
        let tree = recorded_tree(step);
        let mut below = tree.follow(step.verified.iter().copied());
        let mut ranks = Vec::new();
        let mut node = NodeId::ROOT;
        let mut end = PathEnd::Cut;
        for token in &step.verified {
            let Some(known) = candidates.get(&node.get()) else {
                end = PathEnd::Unrecorded;
                break;
            };
            let Some(rank) = known.iter().take(top_k).position(|candidate| candidate.token == *token) else {
                end = PathEnd::Rejected;
                break;
            };
            ranks.push(rank);
            let Some(child) = below.next() else {
                end = PathEnd::Unrecorded;
                break;
            };
            node = child;
        }
        Self { prompt, context: step.context, ranks, end, said: step.verified.len() }
    }
}
