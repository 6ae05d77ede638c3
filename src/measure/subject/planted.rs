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
    pub(super) siblings: Arc<Siblings>,
}

/// Tokens for the children of one node: those of a text, each once, then others where these are too few. What a forward
/// takes depends on its tokens where they choose experts.
#[derive(Debug)]
pub(super) struct Siblings {
    tokens: Vec<u32>,
    /// The first of them.
    first: AtomicUsize,
}

impl Siblings {
    /// For as many children as are asked for, as far as there are tokens.
    pub(super) fn new(text: &[u32], count: usize, vocabulary: u32) -> Self {
        let mut known = BTreeSet::new();
        let mut tokens: Vec<u32> = text.iter().copied().filter(|token| known.insert(*token)).collect();
        let missing = count.saturating_sub(tokens.len());
        tokens.extend((0..vocabulary).filter(|token| !known.contains(token)).take(missing));
        Self { tokens, first: AtomicUsize::new(0) }
    }

    /// Goes on by one token of the text, which is the root of what comes next: as a forward of a text does, which finds
    /// some of its experts in memory and others not.
    pub(super) fn move_on(&self) -> u32 {
        self.tokens[self.first.fetch_add(1, Ordering::Relaxed) % self.tokens.len()]
    }

    /// The tokens, again and again.
    pub(super) fn tokens(&self) -> impl Iterator<Item = u32> {
        let first = self.first.load(Ordering::Relaxed) % self.tokens.len().max(1);
        self.tokens.iter().copied().cycle().skip(first)
    }
}

impl Drafter for Planted {
    fn propose(&mut self, tree: &mut TokenTree, _budget: Budget<'_>) -> Result<(), SpeculateError> {
        for token in self.siblings.tokens().take(self.nodes.load(Ordering::Relaxed)) {
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

/// A forward of a root and its children.
pub(super) fn planted<'s>(
    session: &'s mut Session,
    width: usize,
    root: u32,
    siblings: &Siblings,
) -> Result<Forward<'s>, Error> {
    // A drafter model may know other tokens that nothing uses.
    let known = u32::try_from(session.set().vocabulary()).expect("token ids are 32 bits");
    // A vocabulary may be smaller than a forward is wide.
    let tokens = iter::once(root).chain(siblings.tokens());
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
        let siblings = Siblings::new;
        assert_eq!(siblings(&[5, 5, 7, 5, 9], 2, 10).tokens, [5, 7, 9]);
        assert_eq!(siblings(&[5, 5, 7], 5, 10).tokens, [5, 7, 0, 1, 2]);
        assert_eq!(siblings(&[1], 9, 3).tokens, [1, 0, 2], "all that there are");
        let moving = siblings(&[5, 7, 9], 3, 10);
        let then = |moving: &Siblings| moving.tokens().take(4).collect::<Vec<_>>();
        assert_eq!(then(&moving), [5, 7, 9, 5]);
        assert_eq!([moving.move_on(), moving.move_on()], [5, 7]);
        assert_eq!(then(&moving), [9, 5, 7, 9]);
        assert_eq!(siblings(&[], 0, 3).tokens().next(), None);
    }
}
