//! Recorded steps as they were: whose they are, their trees, and how far the verifier went along them.
use ygg_profiler::{StepTrace, Trace};

use crate::tree::{NodeId, Source, TokenTree};

/// The steps of every prompt of `traces`, with the place of the prompt among all.
pub(in crate::planner) fn recorded_prompts<'t>(
    traces: &[&'t Trace],
) -> impl Iterator<Item = (usize, &'t [StepTrace])> {
    traces.iter().flat_map(|trace| &trace.prompts).map(|prompt| &prompt.steps[..]).enumerate()
}

/// The tree of a step, whose nodes have the numbers that they are recorded by and claim nothing.
///
/// # Panics
/// If it has no root.
pub fn recorded_tree(step: &StepTrace) -> TokenTree {
    let mut tree = TokenTree::with_capacity(step.tokens.len());
    tree.reset(step.tokens[0]);
    for (parent, token) in step.parents.iter().zip(&step.tokens).skip(1) {
        let _added = tree.insert(NodeId::from_index(*parent as usize), *token, 0.0, 0, Source::NONE);
    }
    tree
}

/// How many of a step's drafted tokens were accepted, and for how many of the `depth` of its trace that is known: all,
/// unless the request ended inside the draft.
pub fn recorded_outcome(step: &StepTrace, depth: u32) -> (u32, u32) {
    let accepted = recorded_tree(step).follow(step.verified.iter().copied()).count();
    let is_cut = accepted == step.verified.len();
    let accepted = u32::try_from(accepted).expect("recorded trees are small");
    (accepted, if is_cut { accepted } else { depth })
}
