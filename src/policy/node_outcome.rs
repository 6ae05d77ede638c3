//! Outcomes of drafted nodes, verified or not: what the tokens of a step show of each.
use crate::tree::TokenTree;

/// What the tokens of a step show of a drafted node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeOutcome {
    /// The text went through it.
    Accepted,
    /// The text went on otherwise, there or before.
    Rejected,
    /// The step ended above it.
    Unknown,
}

/// The outcomes of all nodes of `tree` by id, where the text goes on with `emitted` after the root, which is accepted.
pub fn node_outcomes(tree: &TokenTree, emitted: &[u32], outcomes: &mut Vec<NodeOutcome>) {
    outcomes.clear();
    for node in tree.nodes() {
        let Some(parent) = tree.parent(node) else {
            outcomes.push(NodeOutcome::Accepted);
            continue;
        };
        outcomes.push(match (outcomes[parent.index()], emitted.get(tree.depth(parent) as usize)) {
            (NodeOutcome::Accepted, Some(token)) if *token == tree.token(node) => NodeOutcome::Accepted,
            (NodeOutcome::Accepted, Some(_)) | (NodeOutcome::Rejected, _) => NodeOutcome::Rejected,
            (NodeOutcome::Accepted, None) | (NodeOutcome::Unknown, _) => NodeOutcome::Unknown,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::{NodeId, Source};

    #[test]
    fn the_text_tells_of_every_node_but_those_behind_its_end() {
        // 1 > 2 > 3 and 1 > 4, 5 > 2.
        let mut tree = TokenTree::with_capacity(7);
        tree.reset(0);
        for (parent, token) in [(0, 1), (1, 2), (2, 3), (1, 4), (0, 5), (5, 2)] {
            let _added = tree.insert(NodeId::from_index(parent), token, 0.5, 0, Source::NONE);
        }
        let outcomes = |emitted: &[u32]| {
            let mut all = vec![NodeOutcome::Unknown; 3];
            node_outcomes(&tree, emitted, &mut all);
            let sign = |outcome: &NodeOutcome| match outcome {
                NodeOutcome::Accepted => '+',
                NodeOutcome::Rejected => '-',
                NodeOutcome::Unknown => '?',
            };
            all.iter().map(sign).collect::<String>()
        };
        assert_eq!(outcomes(&[1, 2, 3, 9]), "++++---");
        assert_eq!(outcomes(&[1, 2]), "+++?---");
        assert_eq!(outcomes(&[1]), "++???--");
        assert_eq!(outcomes(&[7]), "+------");
        assert_eq!(outcomes(&[]), "+??????");
    }
}
