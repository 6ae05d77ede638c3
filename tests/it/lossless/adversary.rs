//! A drafter that knows how plain decoding goes on and proposes anything but what is usual.

use yggc::{
    speculate::{Budget, Drafter, SpeculateError},
    tree::{NodeId, Source, TokenTree},
};

use crate::tiny_model::Dice;

/// A drafter that knows how plain decoding goes on and proposes anything but what is usual.
#[derive(Debug)]
pub(super) struct Adversary {
    /// Prompt and plain output.
    pub(super) truth: Vec<u32>,
    pub(super) vocabulary: usize,
    pub(super) dice: Dice,
}

impl Adversary {
    /// The token that truly follows a node, if the node is on the true path.
    fn next(&self, tree: &TokenTree, node: NodeId, history: usize) -> Option<u32> {
        let mut path = Vec::new();
        tree.path(node, &mut path);
        let on_truth =
            path.iter().enumerate().all(|(i, n)| self.truth.get(history - 1 + i) == Some(&tree.token(*n)));
        self.truth.get(history + path.len() - 1).copied().filter(|_| on_truth)
    }

    /// A node to grow from, and the chance of a hundred that its child is the true one.
    fn place(&mut self, style: usize, tree: &TokenTree) -> (NodeId, usize) {
        let newest = NodeId::from_index(tree.len() - 1);
        match style {
            // One deep chain, true for a while.
            0 => (newest, 90),
            // A star.
            1 => (NodeId::ROOT, 20),
            // A brush: chains that start anywhere.
            2 if self.dice.chance(70) => (newest, 60),
            _ => (NodeId::from_index(self.dice.below(tree.len())), 50),
        }
    }
}

impl Drafter for Adversary {
    fn propose(&mut self, tree: &mut TokenTree, budget: Budget<'_>) -> Result<(), SpeculateError> {
        let history = budget.history.len();
        assert_eq!(budget.history, &self.truth[..history], "the history is no longer plain decoding's");
        let style = self.dice.below(5);
        let attempts = if style == 4 { 0 } else { self.dice.within(1, 2 * tree.capacity()) };
        for attempt in 0..attempts {
            let (parent, percent) = self.place(style, tree);
            if tree.depth(parent) as usize == budget.depth {
                continue;
            }
            let token = match self.next(tree, parent, history) {
                Some(token) if self.dice.chance(percent) => token,
                _ => self.dice.below(self.vocabulary) as u32,
            };
            let value = self.dice.below(1000) as f32 / 1000.0;
            let first = tree.insert(parent, token, value, attempt as u16, Source::new(3)).node();
            let again = tree.insert(parent, token, value / 2.0, 0, Source::new(4)).node();
            assert_eq!(first, again, "a duplicate is merged");
        }
        budget.session.poison_scratch(self.dice.bits());
        Ok(())
    }
}
