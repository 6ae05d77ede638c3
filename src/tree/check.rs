//! Checks the law of a token tree; for tests and debug assertions, not for the decode loop.

use super::{NodeId, TokenTree};

/// A broken law of a [`TokenTree`]. Only a bug in this room can cause one.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum TreeError {
    /// More nodes than were reserved.
    #[error("tree: expected at most {capacity} nodes, found {found}; report this as a bug")]
    OverCapacity {
        /// Reserved nodes.
        capacity: usize,
        /// Nodes in the tree.
        found: usize,
    },
    /// The root has a parent or a value other than 1.
    #[error(
        "root: expected no parent and value 1, found parent {parent:?} and value {value}; report this as a bug"
    )]
    Root {
        /// The root's parent.
        parent: Option<NodeId>,
        /// The root's value.
        value: f32,
    },
    /// A node whose parent is missing or does not come before it.
    #[error("node {node}: expected a parent with a smaller id, found {found:?}; report this as a bug")]
    Parent {
        /// The node.
        node: NodeId,
        /// Its parent.
        found: Option<NodeId>,
    },
    /// A depth that does not follow from the parent's.
    #[error("node {node}: expected depth {expected}, found {found}; report this as a bug")]
    Depth {
        /// The node.
        node: NodeId,
        /// The parent's depth plus one, or 0 for the root.
        expected: u32,
        /// The depth stored.
        found: u32,
    },
    /// A value that is negative or NaN.
    #[error("node {node}: expected a value of at least 0, found {found}; report this as a bug")]
    Value {
        /// The node.
        node: NodeId,
        /// Its value.
        found: f32,
    },
    /// A list of children that misses, repeats, misplaces or disorders a node.
    #[error(
        "node {node}: expected it once among its parent's children, in insertion order; report this as a bug"
    )]
    Children {
        /// The child.
        node: NodeId,
    },
    /// A pinned node whose parent is not, or a pinned root.
    #[error("node {node}: expected pins on all nodes above a pinned one but the root; report this as a bug")]
    Pin {
        /// The node.
        node: NodeId,
    },
    /// Two children of one node with the same token.
    #[error(
        "node {node}: expected children with different tokens, found token {token} twice; report this as a bug"
    )]
    DuplicateToken {
        /// The parent.
        node: NodeId,
        /// The token.
        token: u32,
    },
}

impl TokenTree {
    /// Checks the whole law of the tree.
    ///
    /// # Errors
    /// The first broken law: the capacity, then each node by itself, then each list of children.
    pub fn check(&self) -> Result<(), TreeError> {
        if self.len() > self.capacity() {
            return Err(TreeError::OverCapacity { capacity: self.capacity(), found: self.len() });
        }
        for node in self.nodes() {
            self.check_node(node)?;
            let parent = self.parent(node).filter(|parent| *parent != NodeId::ROOT);
            if self.is_pinned(node) && (node == NodeId::ROOT || parent.is_some_and(|p| !self.is_pinned(p))) {
                return Err(TreeError::Pin { node });
            }
        }
        for node in self.nodes() {
            self.check_children(node)?;
        }
        Ok(())
    }

    fn check_node(&self, node: NodeId) -> Result<(), TreeError> {
        let parent = self.parent(node);
        let expected = if node == NodeId::ROOT {
            let value = self.value(node);
            if parent.is_some() || value != 1.0 {
                return Err(TreeError::Root { parent, value });
            }
            0
        } else {
            let parent = parent.filter(|p| *p < node).ok_or(TreeError::Parent { node, found: parent })?;
            if self.children(parent).take(self.len()).filter(|c| *c == node).count() != 1 {
                return Err(TreeError::Children { node });
            }
            self.depth(parent) + 1
        };
        let found = self.depth(node);
        if found != expected {
            return Err(TreeError::Depth { node, expected, found });
        }
        let found = self.value(node);
        if found.is_nan() || found < 0.0 {
            return Err(TreeError::Value { node, found });
        }
        Ok(())
    }

    fn check_children(&self, node: NodeId) -> Result<(), TreeError> {
        let mut previous = node;
        for child in self.children(node) {
            // Ascending ids also prove that the list has no cycle.
            if child <= previous || self.parent(child) != Some(node) {
                return Err(TreeError::Children { node: child });
            }
            previous = child;
        }
        for child in self.children(node) {
            let token = self.token(child);
            if self.child(node, token) != Some(child) {
                return Err(TreeError::DuplicateToken { node, token });
            }
        }
        Ok(())
    }
}
