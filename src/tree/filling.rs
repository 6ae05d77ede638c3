//! Filling a template step by step: its nodes become nodes of a token tree as their parents' candidates come in.

use super::{Insert, NodeId, Source, Template, TokenTree};

/// A template and what of it is in a tree. All storage is reserved at creation.
#[derive(Clone, Debug)]
pub struct Filling {
    template: Template,
    /// Nodes of the tree, ascending, with their places in the template.
    placed: Vec<(NodeId, usize)>,
    /// How many of `placed` the growths before the current one added.
    earlier: usize,
}

impl Filling {
    /// A filling of nothing but roots.
    pub fn new(template: Template) -> Self {
        let placed = Vec::with_capacity(template.nodes());
        let mut filling = Self { template, placed, earlier: 1 };
        filling.restart();
        filling
    }

    /// Forgets all nodes but the root; due whenever the tree is reset.
    pub fn restart(&mut self) {
        self.placed.clear();
        self.placed.push((NodeId::ROOT, 0));
        self.earlier = 1;
    }

    /// Adds the children that the template gives `node`, whose candidates `(token, log_prob)` come most probable first.
    /// A child whose rank no candidate has is left out, and all below it; so is what a full tree refuses. A child's
    /// value is the probability of its path.
    pub fn expand(
        &mut self,
        tree: &mut TokenTree,
        node: NodeId,
        candidates: impl IntoIterator<Item = (u32, f32)>,
        source: Source,
    ) {
        let Ok(found) = self.placed.binary_search_by_key(&node, |(node, _)| *node) else { return };
        let mut children = self.template.children(self.placed[found].1);
        let mut child = children.next();
        for (rank, (token, log_prob)) in (0u16..).zip(candidates) {
            let Some(place) = child else { return };
            if self.template.rank(place) != usize::from(rank) {
                continue;
            }
            child = children.next();
            if log_prob.is_nan() {
                continue;
            }
            let value = (tree.value(node) * log_prob.exp()).min(1.0);
            // A token that the node has a child for already is in the tree, with another rank's subtree below it.
            if let Insert::Added(added) = tree.insert(node, token, value, rank, source) {
                self.placed.push((added, place));
            }
        }
    }

    /// Ends a growth: replaces `out` by the nodes it added that have children in the template.
    pub fn grown(&mut self, out: &mut Vec<NodeId>) {
        out.clear();
        let has_children = |(_, place): &&(NodeId, usize)| !self.template.children(*place).is_empty();
        out.extend(self.placed[self.earlier..].iter().filter(has_children).map(|(node, _)| *node));
        self.earlier = self.placed.len();
    }
}
