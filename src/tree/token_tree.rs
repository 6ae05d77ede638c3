//! `TokenTree`: the drafted tokens of one step as a structure of arrays of fixed capacity.
//!
//! The law, which [`TokenTree::check`] verifies:
//!
//! 1. Before the first [`TokenTree::reset`] the tree is empty; after it, node 0 is the root, has depth 0 and value 1.
//! 2. Ids are dense and in insertion order, so a parent's id is smaller than its children's.
//! 3. A node's depth is its parent's plus one.
//! 4. The children of a node carry different tokens and are listed in insertion order.
//! 5. Values are not negative and not NaN. They need *not* fall along a path: pruning takes care of that.
//! 6. The ancestors of a pinned node are pinned, but for the root, which never is.
//! 7. The length never exceeds the capacity given at creation, and no array is ever reallocated.

use std::fmt;

#[cfg(test)]
mod tests;

const NONE: u32 = u32::MAX;

/// A node of one [`TokenTree`]: its place in insertion order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(u32);

impl NodeId {
    /// The root: the last committed token, or the bonus token of the previous step.
    pub const ROOT: Self = Self(0);

    /// The node inserted as number `index`, the root being 0.
    ///
    /// # Panics
    /// If `index` does not fit 32 bits.
    #[inline]
    pub fn from_index(index: usize) -> Self {
        Self(u32::try_from(index).expect("a tree has fewer than 2^32 nodes"))
    }

    /// The place in insertion order, for indexing the caller's own arrays.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The same as a row or slot offset.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "n{}", self.0)
    }
}

/// The proposers of a node: a set of up to 16 indices, whose meaning is the caller's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Source(u16);

impl Source {
    /// The empty set: the root's source.
    pub const NONE: Self = Self(0);

    /// The set of the one proposer `index`.
    ///
    /// # Panics
    /// If `index` is 16 or more.
    pub const fn new(index: u8) -> Self {
        assert!(index < 16, "a source index is 0..=15");
        Self(1 << index)
    }

    /// The union of both sets.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether every proposer of `other` is in `self`.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// What [`TokenTree::insert`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Insert {
    /// A new node was added.
    Added(NodeId),
    /// The parent already had a child with this token; value, rank and sources were merged into it.
    Merged(NodeId),
    /// The tree is at capacity and nothing changed.
    Full,
}

impl Insert {
    /// The node that now carries the token, if there is one.
    pub const fn node(self) -> Option<NodeId> {
        match self {
            Self::Added(node) | Self::Merged(node) => Some(node),
            Self::Full => None,
        }
    }
}

/// The tokens drafted in one step, as a tree below the last committed token.
///
/// Plain data: see the law at the top of the file. All methods that take a [`NodeId`] panic if the node is not in
/// this tree.
#[derive(Clone, Debug)]
pub struct TokenTree {
    capacity: usize,
    tokens: Vec<u32>,
    parents: Vec<u32>,
    depths: Vec<u32>,
    values: Vec<f32>,
    ranks: Vec<u16>,
    sources: Vec<Source>,
    pins: Vec<bool>,
    /// Pinned nodes.
    pinned: usize,
    first_children: Vec<u32>,
    next_siblings: Vec<u32>,
}

impl TokenTree {
    /// An empty tree with room for `nodes` nodes, the root included.
    ///
    /// # Panics
    /// If `nodes` is 0 or does not fit 32 bits.
    pub fn with_capacity(nodes: usize) -> Self {
        assert!(
            nodes > 0 && nodes < NONE as usize,
            "a tree holds at least its root and fewer than 2^32 - 1 nodes"
        );
        Self {
            capacity: nodes,
            tokens: Vec::with_capacity(nodes),
            parents: Vec::with_capacity(nodes),
            depths: Vec::with_capacity(nodes),
            values: Vec::with_capacity(nodes),
            ranks: Vec::with_capacity(nodes),
            sources: Vec::with_capacity(nodes),
            pins: Vec::with_capacity(nodes),
            pinned: 0,
            first_children: Vec::with_capacity(nodes),
            next_siblings: Vec::with_capacity(nodes),
        }
    }

    /// Drops all nodes and starts again from a root that carries `token`.
    pub fn reset(&mut self, token: u32) {
        let Self {
            capacity: _,
            tokens,
            parents,
            depths,
            values,
            ranks,
            sources,
            pins,
            pinned,
            first_children,
            next_siblings,
        } = self;
        tokens.clear();
        parents.clear();
        depths.clear();
        values.clear();
        ranks.clear();
        sources.clear();
        pins.clear();
        *pinned = 0;
        first_children.clear();
        next_siblings.clear();
        self.push(token, NONE, 0, 1.0, 0, Source::NONE);
    }

    /// Adds the child `token` under `parent`, or merges into the child that already carries it.
    ///
    /// `value` is the probability that the whole path down to this node is accepted, as far as the proposer knows;
    /// `rank` is the place of the token among the proposer's candidates at `parent`, best first. A merge keeps the
    /// larger value, the smaller rank and the union of the sources, so that the order of proposers does not matter.
    ///
    /// # Panics
    /// If `parent` is not in the tree, or `value` is negative or NaN.
    pub fn insert(&mut self, parent: NodeId, token: u32, value: f32, rank: u16, source: Source) -> Insert {
        assert!(parent.index() < self.len(), "parent {parent} is not in a tree of {} nodes", self.len());
        assert_value(value);
        let mut last = NONE;
        let mut next = self.first_children[parent.index()];
        while next != NONE {
            let i = next as usize;
            if self.tokens[i] == token {
                self.values[i] = self.values[i].max(value);
                self.ranks[i] = self.ranks[i].min(rank);
                self.sources[i] = self.sources[i].union(source);
                return Insert::Merged(NodeId(next));
            }
            last = next;
            next = self.next_siblings[i];
        }
        if self.is_full() {
            return Insert::Full;
        }
        let node = self.push(token, parent.0, self.depths[parent.index()] + 1, value, rank, source);
        match last {
            NONE => self.first_children[parent.index()] = node.0,
            last => self.next_siblings[last as usize] = node.0,
        }
        Insert::Added(node)
    }

    /// Replaces the value of a node, for a caller that calibrates a drafter's scores.
    ///
    /// # Panics
    /// If `node` is the root, whose value is 1 by law, or `value` is negative or NaN.
    pub fn set_value(&mut self, node: NodeId, value: f32) {
        assert_ne!(node, NodeId::ROOT, "the value of the root is 1");
        assert_value(value);
        self.values[node.index()] = value;
    }

    /// Pins a node and its ancestors: they are verified whatever their values, for drafters that learn from their rows.
    ///
    /// # Panics
    /// If `node` is not in the tree.
    pub fn pin(&mut self, node: NodeId) {
        let mut next = node;
        while next != NodeId::ROOT && !self.pins[next.index()] {
            self.pins[next.index()] = true;
            self.pinned += 1;
            next = NodeId(self.parents[next.index()]);
        }
    }

    /// Whether a node is pinned.
    #[inline]
    pub fn is_pinned(&self, node: NodeId) -> bool {
        self.pins[node.index()]
    }

    /// Pinned nodes.
    #[inline]
    pub fn pinned(&self) -> usize {
        self.pinned
    }

    /// Number of nodes, the root included; 0 only before the first [`Self::reset`].
    #[inline]
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether the tree has no root yet.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// The most nodes the tree can hold.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Whether the next new node would be refused.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.len() == self.capacity
    }

    /// All nodes in insertion order: parents before children.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = NodeId> + DoubleEndedIterator + use<> {
        (0..self.tokens.len() as u32).map(NodeId)
    }

    /// The token a node carries.
    #[inline]
    pub fn token(&self, node: NodeId) -> u32 {
        self.tokens[node.index()]
    }

    /// The parent; `None` for the root.
    #[inline]
    pub fn parent(&self, node: NodeId) -> Option<NodeId> {
        some(self.parents[node.index()])
    }

    /// Distance from the root.
    #[inline]
    pub fn depth(&self, node: NodeId) -> u32 {
        self.depths[node.index()]
    }

    /// The probability that the path down to this node is accepted.
    #[inline]
    pub fn value(&self, node: NodeId) -> f32 {
        self.values[node.index()]
    }

    /// The best place the token had among a proposer's candidates at its parent, 0 being the most probable.
    #[inline]
    pub fn rank(&self, node: NodeId) -> u16 {
        self.ranks[node.index()]
    }

    /// The proposers of the node.
    #[inline]
    pub fn sources(&self, node: NodeId) -> Source {
        self.sources[node.index()]
    }

    /// The children in insertion order.
    #[inline]
    pub fn children(&self, node: NodeId) -> Children<'_> {
        Children { tree: self, next: self.first_children[node.index()] }
    }

    /// The child of `node` that carries `token`.
    pub fn child(&self, node: NodeId, token: u32) -> Option<NodeId> {
        self.children(node).find(|&c| self.token(c) == token)
    }

    /// The drafted nodes along a text that goes on after the root with `tokens`: of each node the child that carries
    /// the next token, until none does. A node is given before the token after it is asked for, which may therefore
    /// depend on it.
    pub fn follow(&self, tokens: impl IntoIterator<Item = u32>) -> impl Iterator<Item = NodeId> {
        let walk = tokens.into_iter().scan(NodeId::ROOT, |at, token| {
            *at = self.child(*at, token)?;
            Some(*at)
        });
        walk.fuse()
    }

    /// The proper ancestors, from the parent up to the root.
    #[inline]
    pub fn ancestors(&self, node: NodeId) -> Ancestors<'_> {
        Ancestors { tree: self, next: self.parents[node.index()] }
    }

    /// Replaces `out` by the nodes from the root down to and including `node`: `depth + 1` of them.
    pub fn path(&self, node: NodeId, out: &mut Vec<NodeId>) {
        out.clear();
        out.push(node);
        out.extend(self.ancestors(node));
        out.reverse();
    }

    /// As [`insert`](Self::insert), in a tree that may have `most` nodes: the child, or `None` if it would be new and
    /// one too many.
    pub fn insert_within(
        &mut self,
        most: usize,
        parent: NodeId,
        token: u32,
        value: f32,
        rank: u16,
        source: Source,
    ) -> Option<NodeId> {
        if self.len() >= most && self.child(parent, token).is_none() {
            return None;
        }
        self.insert(parent, token, value, rank, source).node()
    }

    fn push(&mut self, token: u32, parent: u32, depth: u32, value: f32, rank: u16, source: Source) -> NodeId {
        let node = NodeId(self.tokens.len() as u32);
        self.tokens.push(token);
        self.parents.push(parent);
        self.depths.push(depth);
        self.values.push(value);
        self.ranks.push(rank);
        self.sources.push(source);
        self.pins.push(false);
        self.first_children.push(NONE);
        self.next_siblings.push(NONE);
        node
    }
}

fn some(link: u32) -> Option<NodeId> {
    (link != NONE).then_some(NodeId(link))
}

fn assert_value(value: f32) {
    assert!(value >= 0.0, "a node's value is a probability, not {value}");
}

/// The children of a node in insertion order; made by [`TokenTree::children`].
#[derive(Clone, Debug)]
pub struct Children<'t> {
    tree: &'t TokenTree,
    next: u32,
}

impl Iterator for Children<'_> {
    type Item = NodeId;

    #[inline]
    fn next(&mut self) -> Option<NodeId> {
        let node = some(self.next)?;
        self.next = self.tree.next_siblings[node.index()];
        Some(node)
    }
}

/// The proper ancestors of a node, nearest first; made by [`TokenTree::ancestors`].
#[derive(Clone, Debug)]
pub struct Ancestors<'t> {
    tree: &'t TokenTree,
    next: u32,
}

impl Iterator for Ancestors<'_> {
    type Item = NodeId;

    #[inline]
    fn next(&mut self) -> Option<NodeId> {
        let node = some(self.next)?;
        self.next = self.tree.parents[node.index()];
        Some(node)
    }
}
