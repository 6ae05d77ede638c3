//! Templates: trees of one shape for all steps, whose nodes are filled by the rank of candidates.
//!
//! The law, which [`Template::check`] verifies: node 0 is the root, whose parent is given as 0 and whose rank is 0;
//! nodes stand in the order of their levels, so parents never fall and come before their children; children of one
//! parent stand in the order of their ranks, which differ.

use std::ops::Range;

use serde::{Deserialize, Serialize};

#[cfg(all(test, feature = "planner"))]
mod tests;

/// The shape of a tree: node `i` is the `ranks[i]`-th best candidate, from 0 on, of node `parents[i]`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Template {
    pub(super) parents: Vec<u32>,
    pub(super) ranks: Vec<u16>,
}

/// One level of a template below the root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Level {
    /// Its nodes.
    pub nodes: Range<usize>,
    /// How many nodes of the level above have children here.
    pub parents: usize,
}

/// A broken law of a [`Template`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("template, node {node}: expected {expected}, found {found}")]
pub struct TemplateError {
    /// The node.
    pub node: usize,
    /// The rule.
    pub expected: &'static str,
    /// What breaks it.
    pub found: String,
}

impl Template {
    /// Number of nodes, the root included.
    pub fn nodes(&self) -> usize {
        self.parents.len()
    }

    /// The parent of a node; the root's is 0.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn parent(&self, node: usize) -> usize {
        self.parents[node] as usize
    }

    /// The rank of a node among its parent's candidates, from 0 on; the root's is 0.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn rank(&self, node: usize) -> usize {
        usize::from(self.ranks[node])
    }

    /// The children of a node, in the order of their ranks.
    pub fn children(&self, node: usize) -> Range<usize> {
        let below = |most: usize| 1 + self.parents[1..].partition_point(|parent| (*parent as usize) < most);
        below(node)..below(node + 1)
    }

    /// The child of a node that has this rank.
    pub fn child(&self, node: usize, rank: usize) -> Option<usize> {
        self.children(node).find(|child| self.rank(*child) == rank)
    }

    /// The levels below the root, in order.
    pub fn levels(&self) -> Vec<Level> {
        let mut levels: Vec<Level> = Vec::new();
        let mut above = 0..1;
        while above.end < self.nodes() {
            let nodes = above.end..self.children(above.end - 1).end;
            let parents = above.filter(|node| !self.children(*node).is_empty()).count();
            above = nodes.clone();
            levels.push(Level { nodes, parents });
        }
        levels
    }

    /// How many candidates of a node it takes to fill the tree.
    pub fn candidates(&self) -> usize {
        self.ranks[1..].iter().max().map_or(0, |rank| usize::from(*rank) + 1)
    }

    /// Checks the law, of a template that comes from outside.
    ///
    /// # Errors
    /// The first breach.
    pub fn check(&self) -> Result<(), TemplateError> {
        let Template { parents, ranks } = self;
        let error = |node, expected, found: String| Err(TemplateError { node, expected, found });
        if parents.is_empty() || parents.len() != ranks.len() {
            let found = format!("{} parents and {} ranks", parents.len(), ranks.len());
            return error(0, "a parent and a rank for each node, the root's at least", found);
        }
        if (parents[0], ranks[0]) != (0, 0) {
            return error(0, "a root with parent 0 and rank 0", format!("{}, {}", parents[0], ranks[0]));
        }
        for node in 1..parents.len() {
            let (parent, before) = (parents[node], parents[node - 1]);
            if parent as usize >= node || parent < before {
                return error(
                    node,
                    "a parent before it, not before the parent of the node before",
                    parent.to_string(),
                );
            }
            if node > 1 && parent == before && ranks[node] <= ranks[node - 1] {
                return error(node, "a higher rank than its sibling's before it", ranks[node].to_string());
            }
        }
        Ok(())
    }
}
