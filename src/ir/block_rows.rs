//! Rows that a drafter forwards together to propose several tokens at once.

use super::Graph;

/// A block: the text's last token, the root, and mask tokens at the places after it. All of its rows see one another
/// and the text before them (DFlash, <https://arxiv.org/abs/2602.06036>).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRows {
    /// Rows of a block, the root's among them.
    pub size: usize,
    /// What stands at the places that are drafted.
    pub mask_token: u32,
    /// The row whose logits are for the token after the root, 0 or 1: rows are for the tokens after them, or for those
    /// in their own places. Of the rows before it logits mean nothing.
    pub first: usize,
}

impl BlockRows {
    /// Tokens that a block proposes, one after the other.
    pub const fn depth(&self) -> usize {
        self.size - self.first
    }
}

impl Graph {
    /// Declares that the graph's forwards of nodes are of blocks.
    pub fn set_block_rows(&mut self, rows: BlockRows) {
        self.block_rows = Some(rows);
    }

    /// The rows of a block, of a graph whose forwards of nodes are of such.
    pub fn block_rows(&self) -> Option<BlockRows> {
        self.block_rows
    }
}
