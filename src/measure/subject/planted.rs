//! What is measured instead of what requests bring: planted trees, and trees and probabilities as drafters make them.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use crate::{
    engine::Error,
    planner::JudgedNode,
    runtime::{Forward, Session},
    speculate::{Budget, Drafter, SpeculateError},
    tree::{NodeId, Source, TokenTree},
};

/// A drafter that puts any asked number of children under the root, for verify forwards of any width.
#[derive(Debug)]
pub(super) struct Planted {
    pub(super) nodes: Arc<AtomicUsize>,
    pub(super) vocabulary: u32,
}

impl Drafter for Planted {
    fn propose(&mut self, tree: &mut TokenTree, _budget: Budget<'_>) -> Result<(), SpeculateError> {
        let nodes = u32::try_from(self.nodes.load(Ordering::Relaxed)).expect("widths are small");
        for token in 0..nodes.min(self.vocabulary) {
            let _added = tree.insert(NodeId::ROOT, token, 0.5, 0, Source::NONE);
        }
        Ok(())
    }
}

/// Nodes at many depths that are accepted as often as their score says: their calibration has as many knots as any.
pub(super) fn ladder() -> Vec<JudgedNode> {
    let node = |depth, i: u16| JudgedNode {
        prompt: 0,
        score: f32::from(i) / 512.0,
        depth,
        accepted: i * 29 % 512 < i,
    };
    (1..=8).flat_map(|depth| (0..512).map(move |i| node(depth, i))).collect()
}

/// A tree of `nodes` nodes of many depths and values, as drafters make them.
pub(super) fn bushy_tree(nodes: usize) -> TokenTree {
    let mut tree = TokenTree::with_capacity(nodes);
    tree.reset(0);
    for node in 1..nodes {
        let parent = NodeId::from_index((node - 1) / 2);
        // A stride coprime to the modulus gives values in no order.
        let value = tree.value(parent) * (node * 29 % 64 + 1) as f32 / 65.0;
        let token = u32::try_from(node).expect("trees are small");
        let _added = tree.insert(parent, token, value, 0, Source::NONE);
    }
    tree
}

/// A forward of a root and its children, with tokens by their rows.
pub(super) fn planted(
    session: &mut Session,
    width: usize,
    token: impl Fn(u32) -> u32,
) -> Result<Forward<'_>, Error> {
    let mut forward = session.forward(width)?;
    for row in 0..u32::try_from(width).expect("widths are small") {
        forward.push(token(row), u32::from(row > 0), row, |tail| {
            let len = 1 + usize::from(row > 0);
            tail[0] = 0;
            tail[len - 1] = row;
            len
        });
    }
    Ok(forward)
}
