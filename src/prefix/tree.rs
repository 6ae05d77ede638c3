//! The blocks of one level, and which of them goes first.
//!
//! Laws: a block is here only together with the one before it, so that what is here of a text is a beginning of it.
//! Blocks leave from the ends of texts. Among those ends the one of the least *worth* goes first: the clock at its last
//! use plus what computing it costs; the clock goes on to the worth of what left (GreedyDual, Young 1994,
//! <https://doi.org/10.1007/BF01189993>). So what was used last stays longer, and what costs more stays longer still.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::key::{BlockKey, Link};

/// Tokens before a token after which attending to them costs about as much as its products with the weights: 4,096 in
/// models of some hundred million parameters, more in larger ones. It decides the order of leaving alone.
const ATTENTION_WEIGHS_AS_MUCH: u64 = 4096;

/// Worth of a block, then the number of its last use: of equals the one that was not used for longest goes first.
type Worth = (u64, u64);

#[derive(Debug)]
struct Node<V> {
    parent: BlockKey,
    number: u32,
    /// Blocks here that follow it.
    children: usize,
    worth: Worth,
    tokens: Arc<[u32]>,
    value: V,
}

/// The blocks of one level with what the level keeps of each.
#[derive(Debug)]
pub(super) struct Tree<V> {
    nodes: BTreeMap<BlockKey, Node<V>>,
    /// Blocks that nothing here follows.
    ends: BTreeSet<(Worth, BlockKey)>,
    clock: u64,
    uses: u64,
}

impl<V> Tree<V> {
    pub(super) fn new() -> Self {
        Self { nodes: BTreeMap::new(), ends: BTreeSet::new(), clock: 0, uses: 0 }
    }

    /// What is kept of a block, if it is here with these very tokens.
    pub(super) fn get(&self, link: &Link<'_>) -> Option<&V> {
        let node = self.nodes.get(&link.key)?;
        (*node.tokens == *link.tokens && node.parent == link.parent).then_some(&node.value)
    }

    /// Whether a block can be added: the one before it is here, and it is not.
    pub(super) fn has_place_for(&self, link: &Link<'_>) -> bool {
        (link.number == 0 || self.nodes.contains_key(&link.parent)) && !self.nodes.contains_key(&link.key)
    }

    /// Notes that a block was used, if it is here.
    pub(super) fn touch(&mut self, key: &BlockKey) {
        self.uses += 1;
        let (clock, uses) = (self.clock, self.uses);
        let Some(node) = self.nodes.get_mut(key) else { return };
        let now = worth(clock, uses, node);
        let before = std::mem::replace(&mut node.worth, now);
        if node.children == 0 {
            self.ends.remove(&(before, *key));
            self.ends.insert((now, *key));
        }
    }

    /// Adds a block, as just used.
    ///
    /// # Panics
    /// If it [has no place](Self::has_place_for).
    pub(super) fn insert(&mut self, link: &Link<'_>, tokens: Arc<[u32]>, value: V) {
        assert!(self.has_place_for(link), "a block after one that is here");
        // A first block follows none, whatever its text had before it.
        if link.number > 0
            && let Some(before) = self.nodes.get_mut(&link.parent)
        {
            before.children += 1;
            self.ends.remove(&(before.worth, link.parent));
        }
        let (parent, number) = (link.parent, link.number);
        let node = Node { parent, number, children: 0, worth: (0, 0), tokens, value };
        self.nodes.insert(link.key, node);
        self.ends.insert(((0, 0), link.key));
        self.touch(&link.key);
    }

    /// Takes the end of the least worth among those that may go.
    pub(super) fn take_cheapest(&mut self, may_go: impl Fn(&BlockKey, &V) -> bool) -> Option<V> {
        let may_go = |(_, key): &&(Worth, BlockKey)| may_go(key, &self.nodes[key].value);
        let (worth, key) = *self.ends.iter().find(may_go)?;
        self.clock = self.clock.max(worth.0);
        self.remove(&key)
    }

    /// Takes a block with all that follow it; nothing if it is not here.
    pub(super) fn take_with_followers(&mut self, key: &BlockKey) -> Vec<V> {
        let mut taken = vec![*key];
        let mut next = 0;
        while next < taken.len() {
            let parent = taken[next];
            let follows = |node: &Node<V>| node.number > 0 && node.parent == parent;
            taken.extend(self.nodes.iter().filter(|(_, node)| follows(node)).map(|(key, _)| *key));
            next += 1;
        }
        taken.iter().rev().filter_map(|key| self.remove(key)).collect()
    }

    /// Removes a block that nothing here follows.
    fn remove(&mut self, key: &BlockKey) -> Option<V> {
        let node = self.nodes.remove(key)?;
        self.ends.remove(&(node.worth, *key));
        if node.number > 0
            && let Some(before) = self.nodes.get_mut(&node.parent)
        {
            before.children -= 1;
            if before.children == 0 {
                self.ends.insert((before.worth, node.parent));
            }
        }
        Some(node.value)
    }
}

/// The worth of a block that is used now: in tokens without attention, times [`ATTENTION_WEIGHS_AS_MUCH`].
fn worth<V>(clock: u64, uses: u64, node: &Node<V>) -> Worth {
    let tokens = node.tokens.len() as u64;
    (clock + tokens * (ATTENTION_WEIGHS_AS_MUCH + u64::from(node.number) * tokens), uses)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prefix::{Binding, KeptText, Owner, key::chain};

    fn text(seed: u32, blocks: u32) -> Vec<u32> {
        (0..4 * blocks).map(|place| seed * 1000 + place).collect()
    }

    fn links(tokens: &[u32]) -> Vec<Link<'_>> {
        let text = KeptText { owner: Owner::default(), lead: &[], tokens };
        chain(&Binding::new("test", ["a"]), &text, 4)
    }

    fn add(tree: &mut Tree<u32>, tokens: &[u32], values: u32) {
        for link in links(tokens) {
            if tree.has_place_for(&link) {
                tree.insert(&link, link.tokens.into(), values + link.number);
            }
        }
    }

    #[test]
    fn ends_leave_first_and_of_them_the_one_not_used_for_longest() {
        let mut tree = Tree::new();
        let (first, second) = (text(1, 3), text(2, 3));
        add(&mut tree, &first, 10);
        add(&mut tree, &second, 20);
        links(&first).iter().for_each(|link| tree.touch(&link.key));
        let mut left = Vec::new();
        while let Some(value) = tree.take_cheapest(|_, _| true) {
            left.push(value);
        }
        assert_eq!(left, [22, 21, 20, 12, 11, 10]);
        assert!(tree.ends.is_empty() && tree.nodes.is_empty());
    }

    #[test]
    fn a_block_without_the_one_before_it_has_no_place_and_leaves_with_it() {
        let mut tree = Tree::new();
        let tokens = text(3, 4);
        let links = links(&tokens);
        assert!(!tree.has_place_for(&links[1]));
        add(&mut tree, &tokens, 0);
        assert_eq!((tree.get(&links[3]), tree.nodes.len()), (Some(&3), 4));
        let mut gone = tree.take_with_followers(&links[1].key);
        gone.sort_unstable();
        assert_eq!((gone, tree.nodes.len()), (vec![1, 2, 3], 1));
        assert_eq!(tree.take_cheapest(|_, value| *value != 0), None, "it may not go");
        assert_eq!(tree.take_cheapest(|_, _| true), Some(0));
    }

    /// A text that begins after a lead may have the key of another text's first block before it.
    #[test]
    fn first_blocks_follow_none_and_leave_alone() {
        let mut tree = Tree::new();
        let tokens = text(6, 2);
        let (lead, last) = tokens.split_at(4);
        let text = KeptText { owner: Owner::default(), lead, tokens: last };
        let after = chain(&Binding::new("test", ["a"]), &text, 4)[0];
        let first = links(lead)[0];
        assert_eq!((after.parent, after.number, first.number), (first.key, 0, 0));
        tree.insert(&after, after.tokens.into(), 1);
        tree.insert(&first, first.tokens.into(), 0);
        assert_eq!(tree.take_with_followers(&first.key), [0]);
        tree.insert(&first, first.tokens.into(), 0);
        let mut left: Vec<u32> = std::iter::from_fn(|| tree.take_cheapest(|_, _| true)).collect();
        left.sort_unstable();
        assert_eq!((left, tree.ends.len()), (vec![0, 1], 0));
    }

    #[test]
    fn a_block_of_other_tokens_is_not_found_even_under_its_key() {
        let mut tree = Tree::new();
        let (tokens, others) = (text(4, 1), text(5, 1));
        add(&mut tree, &tokens, 7);
        let link = links(&tokens)[0];
        assert_eq!(tree.get(&link), Some(&7));
        assert_eq!(tree.get(&Link { tokens: &others, ..link }), None);
    }
}
