//! How a model drafter's tree grows: equally, or as a template says. Both take candidates of forwarded nodes and give the nodes
//! to forward next.

use crate::tree::{Filling, Frontier, NodeId, Source, TokenTree};

/// The growth of one tree after another, in storage reserved once.
#[derive(Debug)]
pub(super) enum Growth {
    /// The `width` best candidates wherever they attach.
    Equal { frontier: Frontier, width: usize },
    /// A tree of one shape, whose candidates are taken by rank.
    Static(Filling),
}

impl Growth {
    /// Forgets everything; due whenever the tree is reset.
    pub(super) fn restart(&mut self) {
        match self {
            Growth::Equal { frontier, width: _ } => frontier.clear(),
            Growth::Static(filling) => filling.restart(),
        }
    }

    /// Offers the children `(token, log_prob)` of `node`, most probable first.
    pub(super) fn expand(
        &mut self,
        tree: &mut TokenTree,
        node: NodeId,
        candidates: impl IntoIterator<Item = (u32, f32)>,
        source: Source,
    ) {
        match self {
            Growth::Equal { frontier, width: _ } => frontier.expand(tree, node, candidates),
            Growth::Static(filling) => filling.expand(tree, node, candidates, source),
        }
    }

    /// Ends one growth: replaces `rows` by the nodes that the next one would forward, in the order of their ids.
    pub(super) fn grow(&mut self, tree: &mut TokenTree, source: Source, rows: &mut Vec<NodeId>) {
        match self {
            Growth::Equal { frontier, width } => frontier.grow(tree, *width, source, rows),
            Growth::Static(filling) => filling.grown(rows),
        }
    }
}
