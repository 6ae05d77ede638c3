//! Checks the law of a token tree; for tests and debug assertions, not for the decode loop.

use super::{NodeId, TokenTree};

/// A broken law of a [`TokenTree`]. Only a bug in this room can cause one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("tree, node {node}: expected {expected}, found {found}; report this as a bug")]
pub struct TreeError {
    /// The node that breaks it.
    pub node: NodeId,
    /// The law.
    pub expected: String,
    /// What breaks it.
    pub found: String,
}

impl TokenTree {
    /// Checks the whole law of the tree.
    ///
    /// # Errors
    /// The first broken law: the capacity, then each node by itself, then each list of children.
    pub fn check(&self) -> Result<(), TreeError> {
        let (most, found) = (self.capacity(), self.len());
        expect(found <= most, NodeId::ROOT, || (format!("a tree of {most} nodes"), found.to_string()))?;
        for node in self.nodes() {
            self.check_node(node)?;
            let parent = self.parent(node).filter(|parent| *parent != NodeId::ROOT);
            let is_held = node != NodeId::ROOT && parent.is_none_or(|parent| self.is_pinned(parent));
            let law =
                || ("pins on all nodes above a pinned one but the root".to_owned(), "others".to_owned());
            expect(!self.is_pinned(node) || is_held, node, law)?;
        }
        self.nodes().try_for_each(|node| self.check_children(node))
    }

    fn check_node(&self, node: NodeId) -> Result<(), TreeError> {
        let (parent, value, depth) = (self.parent(node), self.value(node), self.depth(node));
        if node == NodeId::ROOT {
            let found = || format!("parent {parent:?}, value {value}, depth {depth}");
            let is_root = (parent, value, depth) == (None, 1.0, 0);
            return expect(is_root, node, || ("no parent, value 1, depth 0".to_owned(), found()));
        }
        let above = parent.filter(|parent| *parent < node);
        expect(above.is_some(), node, || ("a parent before it".to_owned(), format!("{parent:?}")))?;
        let above = above.expect("it was checked");
        let times = self.children(above).take(self.len()).filter(|child| *child == node).count();
        expect(times == 1, node, || ("it once among its parent's children".to_owned(), times.to_string()))?;
        let expected = self.depth(above) + 1;
        expect(depth == expected, node, || (format!("depth {expected}"), depth.to_string()))?;
        expect(value >= 0.0, node, || ("a value of at least 0".to_owned(), value.to_string()))
    }

    fn check_children(&self, node: NodeId) -> Result<(), TreeError> {
        let mut previous = node;
        for child in self.children(node) {
            // Ascending ids also prove that the list has no cycle.
            let is_next = child > previous && self.parent(child) == Some(node);
            let law =
                || (format!("it after {previous} among the children of {node}"), "another order".to_owned());
            expect(is_next, child, law)?;
            previous = child;
        }
        for child in self.children(node) {
            let token = self.token(child);
            let law = || ("children with different tokens".to_owned(), format!("token {token} twice"));
            expect(self.child(node, token) == Some(child), node, law)?;
        }
        Ok(())
    }
}

/// `words` are what was expected and what was found.
fn expect(holds: bool, node: NodeId, words: impl FnOnce() -> (String, String)) -> Result<(), TreeError> {
    if holds {
        return Ok(());
    }
    let (expected, found) = words();
    Err(TreeError { node, expected, found })
}
