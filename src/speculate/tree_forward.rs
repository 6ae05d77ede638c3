//! A forward over nodes of a tree, by verifier and drafters alike.

use crate::{
    runtime::{Forward, RuntimeError, Session},
    tree::{NodeId, TokenTree, tail_slots},
};

/// A forward with a row for each of `nodes`, ready to run. The scratch offset of a node is its id, so a pruned tree
/// leaves gaps and the rows of drafters that share the cache are rewritten in place.
pub(super) fn tree_forward<'s>(
    session: &'s mut Session,
    tree: &TokenTree,
    nodes: &[NodeId],
) -> Result<Forward<'s>, RuntimeError> {
    let mut forward = session.forward(nodes.len())?;
    for node in nodes {
        forward
            .push(tree.token(*node), tree.depth(*node), node.get(), |tail| tail_slots(tree, *node, 0, tail));
    }
    Ok(forward)
}
