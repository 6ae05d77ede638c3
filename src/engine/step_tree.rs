//! The tree of a step: what was drafted, by whom, and what of it was accepted.

use crate::{plan::DrafterId, speculate::Decoder, tree::NodeId};

/// A drafted token that a step verified. Plain data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepNode {
    /// Token id.
    pub token: u32,
    /// The place of its parent among the nodes; `None` for the root.
    pub parent: Option<usize>,
    /// Who proposed it; nobody the root.
    pub proposers: Vec<DrafterId>,
}

/// The verified tree of one step. Plain data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepTree {
    /// The verified nodes, the root first and every parent before its children. The root is the last token before the
    /// step.
    pub nodes: Vec<StepNode>,
    /// For each token that the step emitted, the node that drafted it: an accepted one. `None` for the verifier's own.
    pub emitted: Vec<Option<usize>>,
}

impl StepTree {
    /// That of the decoder's last step.
    pub(super) fn of(decoder: &Decoder) -> Self {
        let (tree, rows) = (decoder.tree(), decoder.rows());
        let place = |node: NodeId| rows.binary_search(&node).ok();
        let node = |node: &NodeId| StepNode {
            token: tree.token(*node),
            parent: tree.parent(*node).and_then(place),
            proposers: decoder.proposers(*node).collect(),
        };
        let mut accepted = tree.follow(decoder.emitted().iter().copied()).map_while(place).fuse();
        let emitted = decoder.emitted().iter().map(|_| accepted.next());
        Self { emitted: emitted.collect(), nodes: rows.iter().map(node).collect() }
    }
}
