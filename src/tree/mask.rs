//! Tree attention: which rows a row sees, as slots for the kernels.

use super::{NodeId, TokenTree};

/// Writes the slots that the row of `node` attends to after the committed prefix: root first, `node` itself last.
/// Returns how many were written, `depth + 1`.
///
/// The slot of a node is `first_slot + id`, whatever subset of the tree is forwarded: a pruned tree has gaps.
///
/// # Panics
/// If `out` is shorter than `depth + 1`.
pub fn tail_slots(tree: &TokenTree, node: NodeId, first_slot: u32, out: &mut [u32]) -> usize {
    let len = tree.depth(node) as usize + 1;
    assert!(len <= out.len(), "node {node} attends to {len} tree slots, found room for {}", out.len());
    out[len - 1] = first_slot + node.get();
    for (slot, ancestor) in out[..len - 1].iter_mut().rev().zip(tree.ancestors(node)) {
        *slot = first_slot + ancestor.get();
    }
    len
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Source;
    use proptest::prelude::*;

    fn tree_of(parents: &[usize]) -> TokenTree {
        let mut tree = TokenTree::with_capacity(parents.len() + 1);
        tree.reset(0);
        for (i, &p) in parents.iter().enumerate() {
            let node = tree.insert(NodeId::from_index(p % (i + 1)), i as u32 + 1, 0.5, 0, Source::new(0));
            assert_eq!(node.node(), Some(NodeId::from_index(i + 1)));
        }
        tree
    }

    proptest! {
        #[test]
        fn slots_agree_with_the_walk_to_the_root(parents in prop::collection::vec(0..200_usize, 0..150),
                                                 first in 0..5000_u32) {
            let tree = tree_of(&parents);
            let mut slots = vec![u32::MAX; tree.len() + 1];
            let mut path = Vec::new();
            for row in tree.nodes() {
                tree.path(row, &mut path);
                slots.fill(u32::MAX);
                let len = tail_slots(&tree, row, first, &mut slots);
                let expected: Vec<u32> = path.iter().map(|n| first + n.get()).collect();
                prop_assert_eq!(&slots[..len], &expected[..]);
                prop_assert_eq!(slots[len], u32::MAX);
            }
        }
    }

    #[test]
    #[should_panic(expected = "attends to 2 tree slots, found room for 1")]
    fn too_few_slots_are_refused() {
        tail_slots(&tree_of(&[0]), NodeId::from_index(1), 0, &mut [0]);
    }
}
