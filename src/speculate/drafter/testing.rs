//! What the tests of several drafters share.

use crate::{
    plan::ReplayDrafter,
    sample::Coupling,
    speculate::StepShape,
    tree::{NodeId, TokenTree},
};

/// A shape of trees that are all copied: no candidates of a model are asked for.
pub(super) fn shape(depth: usize, draft_width: usize, verify_width: usize) -> StepShape {
    StepShape { depth, draft_width, verify_width, top_k: 0, draft_temperature: 1.0 }
}

/// What a drafter proposes behind a history.
pub(super) fn proposed(
    drafter: &mut dyn ReplayDrafter,
    history: &[u32],
    shape: &StepShape,
    coupling: Option<&Coupling>,
) -> TokenTree {
    let mut tree = TokenTree::with_capacity(shape.tree_nodes());
    tree.reset(*history.last().unwrap());
    drafter.propose(history, &shape.limits(), coupling, &mut tree);
    tree.check().unwrap();
    tree
}

/// The tokens from the root's child down to a node.
pub(super) fn path(tree: &TokenTree, node: NodeId) -> Vec<u32> {
    let mut path = Vec::new();
    tree.path(node, &mut path);
    path.iter().skip(1).map(|node| tree.token(*node)).collect()
}

/// The paths down to all nodes but the root, in their order.
pub(super) fn paths(tree: &TokenTree) -> Vec<Vec<u32>> {
    tree.nodes().skip(1).map(|node| path(tree, node)).collect()
}
