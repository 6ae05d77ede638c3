//! Masks of a drafted tree's nodes, computed while a device verifies them. The walk finds there what it would compute
//! itself.

use crate::{
    grammar::{Mask, Matcher},
    tree::{NodeId, TokenTree},
};

/// Most nodes besides the root whose masks are computed during a forward.
const MOST_NODES: usize = 8;

/// The masks of one step's verified rows, in buffers reserved once.
#[derive(Debug)]
pub(super) struct NodeMasks {
    /// By row; `None` where it was not computed.
    masks: Vec<Option<Mask>>,
    /// Rows, the likeliest first.
    order: Vec<usize>,
    /// The root and the nodes after it that the grammar has accepted, and those that it should.
    path: Vec<NodeId>,
    wanted: Vec<NodeId>,
}

impl NodeMasks {
    /// Room for trees of `nodes` nodes.
    pub(super) fn with_capacity(nodes: usize) -> Self {
        Self {
            masks: Vec::with_capacity(nodes),
            order: Vec::with_capacity(nodes),
            path: Vec::with_capacity(nodes),
            wanted: Vec::with_capacity(nodes),
        }
    }

    /// Computes the mask of the root, then those of the likeliest of `rows` as long as their forward `is_running`. The
    /// grammar ends where it was, after the root.
    pub(super) fn prepare(
        &mut self,
        grammar: &mut Matcher,
        tree: &TokenTree,
        rows: &[NodeId],
        is_running: impl Fn() -> bool,
    ) {
        let Self { masks, order, path, .. } = self;
        masks.clear();
        masks.resize_with(rows.len(), || None);
        if grammar.is_complete() {
            return;
        }
        // A fault of the root is found again where its token is drawn.
        let Ok(of_root) = grammar.take_mask() else { return };
        masks[0] = Some(of_root);
        order.clear();
        order.extend((1..rows.len()).filter(|row| tree.value(rows[*row]) > 0.0));
        let value = |row: usize| tree.value(rows[row]);
        order.sort_unstable_by(|a, b| value(*b).total_cmp(&value(*a)).then(a.cmp(b)));
        path.clear();
        path.push(NodeId::ROOT);
        for place in 0..self.order.len().min(MOST_NODES) {
            if grammar.is_slow() || !is_running() {
                break;
            }
            let row = self.order[place];
            if self.go_to(grammar, tree, rows[row]).is_none() {
                break;
            }
            if grammar.is_complete() {
                continue;
            }
            let Ok(mask) = grammar.take_mask() else { break };
            self.masks[row] = Some(mask);
        }
        // What was stuck within the tree is not stuck at the root; a fault there is found again as above.
        let _ = grammar.rollback(self.path.len() - 1);
    }

    /// Lets the grammar go from the node where it is to another; `None` if it cannot.
    fn go_to(&mut self, grammar: &mut Matcher, tree: &TokenTree, node: NodeId) -> Option<()> {
        let Self { path, wanted, .. } = self;
        tree.path(node, wanted);
        let shared = path.iter().zip(&*wanted).take_while(|(here, there)| here == there).count();
        grammar.rollback(path.len() - shared).ok()?;
        path.truncate(shared);
        for node in &wanted[shared..] {
            if grammar.is_complete() {
                return None;
            }
            grammar.accept(tree.token(*node)).ok()?;
            path.push(*node);
        }
        Some(())
    }

    /// The mask after a row's node, if it was computed.
    pub(super) fn take(&mut self, row: usize) -> Option<Mask> {
        self.masks.get_mut(row)?.take()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::{
        grammar::{
            Constraint,
            tests::{ROWS, tokens},
        },
        tree::Source,
    };

    /// A tree of `(parent, text of the token, value)`, in order of ids from 1.
    fn tree(id: impl Fn(&str) -> u32, nodes: &[(usize, &str, f32)]) -> TokenTree {
        let mut tree = TokenTree::with_capacity(nodes.len() + 1);
        tree.reset(0);
        for (parent, text, value) in nodes {
            let inserted = tree.insert(NodeId::from_index(*parent), id(text), *value, 0, Source::new(0));
            assert!(inserted.node().is_some());
        }
        tree
    }

    /// By node, the ids that the mask after it allows, if it was computed while `polls` said that the forward runs; and
    /// the grammar at the end.
    fn prepared(start: &Matcher, tree: &TokenTree, polls: usize) -> (Vec<Option<Vec<u32>>>, Matcher) {
        let rows: Vec<NodeId> = tree.nodes().collect();
        let mut grammar = start.clone();
        let mut masks = NodeMasks::with_capacity(rows.len());
        let left = Cell::new(polls);
        masks.prepare(&mut grammar, tree, &rows, || left.replace(left.get().saturating_sub(1)) > 0);
        let ids = |mask: Mask| (0..ROWS as u32).filter(|id| mask.allows(*id)).collect();
        ((0..rows.len()).map(|row| masks.take(row).map(ids)).collect(), grammar)
    }

    /// The same by accepting the path to the node.
    fn expected(start: &Matcher, tree: &TokenTree, node: usize) -> Vec<u32> {
        let (mut grammar, mut path) = (start.clone(), Vec::new());
        tree.path(NodeId::from_index(node), &mut path);
        path[1..].iter().for_each(|node| grammar.accept(tree.token(*node)).unwrap());
        let mask = grammar.mask().unwrap();
        (0..ROWS as u32).filter(|id| mask.allows(*id)).collect()
    }

    #[test]
    fn masks_are_those_of_the_path_and_the_grammar_stays_at_the_root() {
        let (tokenizer, grammar) = tokens();
        let start = grammar.matcher(&Constraint::Regex("(a|b)(n[0-9]|na[x-z]{2}|c)".to_owned())).unwrap();
        let nodes = [
            (0, "a", 0.6),
            (0, "b", 0.3),
            (1, "n", 0.5),
            (1, "na", 0.1),
            (2, "n", 0.2),
            // The answer is complete with it, so there is no mask after it.
            (1, "c", 0.4),
            // Not verified for its worth.
            (2, "na", 0.0),
            (4, "y", 0.05),
        ];
        let tree = tree(|text| tokenizer.encode_continuation(text)[0], &nodes);
        let (all, mut after) = prepared(&start, &tree, usize::MAX);
        for (node, found) in all.iter().enumerate() {
            let has_none = node == 6 || node == 7;
            let expected = (!has_none).then(|| expected(&start, &tree, node));
            assert_eq!(found, &expected, "after node {node}");
        }
        assert_eq!(after.tokens(), 0);
        let here = after.mask().unwrap();
        assert!((0..ROWS as u32).all(|id| here.allows(id) == all[0].as_ref().unwrap().contains(&id)));
        // The likeliest come first: 1, 3, 6 and 2.
        let (some, _) = prepared(&start, &tree, 4);
        let computed = |all: &[Option<Vec<u32>>]| -> Vec<usize> {
            all.iter().enumerate().filter_map(|(node, mask)| mask.as_ref().map(|_| node)).collect()
        };
        assert_eq!(computed(&some), [0, 1, 2, 3]);
        assert_eq!(computed(&prepared(&start, &tree, 0).0), [0]);
    }

    #[test]
    fn no_more_masks_are_computed_than_is_stated_and_a_fault_in_the_tree_is_not_the_answers() {
        let (tokenizer, grammar) = tokens();
        let id = |text: &str| tokenizer.encode_continuation(text)[0];
        let start = grammar.matcher(&Constraint::Regex("[a-z]{1,30}".to_owned())).unwrap();
        let chain: Vec<_> = (0..12).map(|node| (node, "k", 0.9)).collect();
        let (all, after) = prepared(&start, &tree(id, &chain), usize::MAX);
        assert_eq!(all.iter().flatten().count(), MOST_NODES + 1);
        assert_eq!(after.tokens(), 0);
        // `K` may not follow: nobody has looked whether it fits.
        let (all, mut after) = prepared(&start, &tree(id, &[(0, "k", 0.9), (1, "K", 0.8)]), usize::MAX);
        assert_eq!(all.iter().flatten().count(), 2);
        assert_eq!((after.tokens(), after.is_slow()), (0, false));
        assert_eq!(after.mask().unwrap().count(), start.clone().mask().unwrap().count());
    }
}
