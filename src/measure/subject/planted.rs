//! What is measured instead of what requests bring: planted trees, and trees and probabilities as drafters make them.

use std::{
    collections::BTreeSet,
    iter,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
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
    pub(super) siblings: Arc<[u32]>,
}

/// Tokens for as many children of one node as are asked for: those of a text, each once, then others. What a forward
/// takes depends on its tokens where they choose experts.
pub(super) fn siblings(text: &[u32], count: usize, vocabulary: u32) -> Arc<[u32]> {
    let mut known = BTreeSet::new();
    text.iter().copied().chain(0..vocabulary).filter(|token| known.insert(*token)).take(count).collect()
}

impl Drafter for Planted {
    fn propose(&mut self, tree: &mut TokenTree, _budget: Budget<'_>) -> Result<(), SpeculateError> {
        for token in self.siblings.iter().take(self.nodes.load(Ordering::Relaxed)) {
            let _added = tree.insert(NodeId::ROOT, *token, 0.5, 0, Source::NONE);
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

/// A forward of a root and its children.
pub(super) fn planted<'s>(
    session: &'s mut Session,
    width: usize,
    root: u32,
    siblings: &[u32],
) -> Result<Forward<'s>, Error> {
    // A drafter model may know other tokens that nothing uses.
    let known = u32::try_from(session.set().vocabulary()).expect("token ids are 32 bits");
    // A vocabulary may be smaller than a forward is wide.
    let tokens = iter::once(root).chain(siblings.iter().copied().cycle());
    let mut forward = session.forward(width)?;
    for (row, token) in (0..u32::try_from(width).expect("widths are small")).zip(tokens) {
        forward.push(token.min(known - 1), u32::from(row > 0), row, |tail| {
            let len = 1 + usize::from(row > 0);
            tail[0] = 0;
            tail[len - 1] = row;
            len
        });
    }
    Ok(forward)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn siblings_are_the_tokens_of_a_text_each_once_then_others() {
        assert_eq!(siblings(&[5, 5, 7, 5, 9], 2, 10)[..], [5, 7]);
        assert_eq!(siblings(&[5, 5, 7], 5, 10)[..], [5, 7, 0, 1, 2]);
        assert_eq!(siblings(&[1], 9, 3)[..], [1, 0, 2], "all that there are");
    }
}
