//! Tree attention: which rows a row sees, as slots for the kernels and as a dense mask for inspection and tests.

use std::fmt;

use super::{NodeId, TokenTree};

/// Writes the slots that the row of `node` attends to behind the committed prefix: root first, `node` itself last.
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

/// The ancestor mask of a whole tree as bits `[N, N]`: node n sees its ancestors and itself.
///
/// For tests and inspection; the decode loop uses [`tail_slots`]. Prints as one line per row, `#` for what the row
/// sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AncestorMask {
    nodes: usize,
    words_per_row: usize,
    bits: Vec<u64>,
}

impl AncestorMask {
    /// The mask of `tree`.
    pub fn new(tree: &TokenTree) -> Self {
        let nodes = tree.len();
        let words_per_row = nodes.div_ceil(64);
        let mut bits = vec![0_u64; nodes * words_per_row];
        for node in tree.nodes() {
            let (above, rows) = bits.split_at_mut(node.index() * words_per_row);
            let row = &mut rows[..words_per_row];
            if let Some(parent) = tree.parent(node) {
                row.copy_from_slice(&above[parent.index() * words_per_row..][..words_per_row]);
            }
            row[node.index() / 64] |= 1 << (node.index() % 64);
        }
        Self { nodes, words_per_row, bits }
    }

    /// Number of rows and columns.
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// Whether the row of `row` attends to `column`.
    ///
    /// # Panics
    /// If one of them is not in the tree.
    pub fn sees(&self, row: NodeId, column: NodeId) -> bool {
        assert!(column.index() < self.nodes, "column {column} is not in a tree of {} nodes", self.nodes);
        self.row(row)[column.index() / 64] >> (column.index() % 64) & 1 == 1
    }

    /// The bits of one row, `[N / 64]` words, column 0 in the lowest bit of the first.
    pub fn row(&self, row: NodeId) -> &[u64] {
        &self.bits[row.index() * self.words_per_row..][..self.words_per_row]
    }
}

impl fmt::Display for AncestorMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for row in (0..self.nodes).map(NodeId::from_index) {
            for column in (0..self.nodes).map(NodeId::from_index) {
                f.write_str(if self.sees(row, column) { "#" } else { "." })?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
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

    #[test]
    fn mask_of_a_small_tree_prints_its_rows() {
        let mask = AncestorMask::new(&tree_of(&[0, 0, 1, 2]));
        assert_eq!(mask.to_string(), "#....\n##...\n#.#..\n##.#.\n#.#.#\n");
    }

    proptest! {
        #[test]
        fn mask_and_slots_agree_with_the_walk_to_the_root(parents in prop::collection::vec(0..200_usize, 0..150),
                                                          first in 0..5000_u32) {
            let tree = tree_of(&parents);
            let mask = AncestorMask::new(&tree);
            let mut slots = vec![u32::MAX; tree.len() + 1];
            let mut path = Vec::new();
            for row in tree.nodes() {
                tree.path(row, &mut path);
                for column in tree.nodes() {
                    prop_assert_eq!(mask.sees(row, column), path.contains(&column));
                }
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
