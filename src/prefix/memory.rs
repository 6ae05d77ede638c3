//! The level in memory: blocks up to a limit of bytes.

use std::sync::Arc;

use super::{
    key::{BlockKey, Link},
    tree::Tree,
};

/// A block with its bytes.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) key: BlockKey,
    pub(super) parent: BlockKey,
    pub(super) number: u32,
    pub(super) tokens: Arc<[u32]>,
    pub(super) bytes: Vec<u8>,
}

impl Block {
    pub(super) fn new(link: &Link<'_>, bytes: Vec<u8>) -> Self {
        let Link { key, parent, number, tokens } = *link;
        Self { key, parent, number, tokens: tokens.into(), bytes }
    }

    pub(super) fn link(&self) -> Link<'_> {
        Link { key: self.key, parent: self.parent, number: self.number, tokens: &self.tokens }
    }
}

/// Bytes of a block beside its payload and tokens: keys, numbers and its nodes in the trees.
const BESIDE: u64 = 512;

/// Bytes of memory that a block with a payload of so many bytes takes.
pub(super) fn bytes_of(block_tokens: usize, payload: usize) -> u64 {
    (payload + block_tokens * size_of::<u32>()) as u64 + BESIDE
}

/// What making room came to.
#[derive(Debug)]
pub(super) struct Room {
    pub(super) fits: bool,
    /// The buffer of a block that left, if it is of the size that was asked for.
    pub(super) freed: Option<Vec<u8>>,
    /// How many blocks left.
    pub(super) left: usize,
}

/// Blocks in memory. Invariant: `bytes` is what they take, and never above `limit`.
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) tree: Tree<Arc<Block>>,
    bytes: u64,
    limit: u64,
}

impl Memory {
    pub(super) fn new(limit: u64) -> Self {
        Self { tree: Tree::new(), bytes: 0, limit }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Makes room for a block of a text: others leave, but none of that text, and none that is being written or served.
    pub(super) fn make_room(&mut self, block_tokens: usize, payload: usize, text: &[Link<'_>]) -> Room {
        let needed = bytes_of(block_tokens, payload);
        let mut room = Room { fits: needed <= self.limit, freed: None, left: 0 };
        while room.fits && self.bytes + needed > self.limit {
            let may_go = |key: &BlockKey, block: &Arc<Block>| {
                Arc::strong_count(block) == 1 && text.iter().all(|link| link.key != *key)
            };
            match self.tree.take_cheapest(may_go) {
                Some(block) => {
                    self.bytes -= bytes_of(block.tokens.len(), block.bytes.len());
                    room.left += 1;
                    let bytes = Arc::into_inner(block).map(|block| block.bytes);
                    room.freed = bytes.filter(|bytes| bytes.len() == payload);
                }
                None => room.fits = false,
            }
        }
        room
    }

    /// Adds a block if there is room and the one before it is here; whether it is here now.
    pub(super) fn insert(&mut self, block: &Arc<Block>) -> bool {
        let link = block.link();
        let bytes = bytes_of(block.tokens.len(), block.bytes.len());
        if !self.tree.has_place_for(&link) {
            return self.tree.get(&link).is_some();
        }
        if self.bytes + bytes > self.limit {
            return false;
        }
        self.bytes += bytes;
        self.tree.insert(&link, Arc::clone(&block.tokens), Arc::clone(block));
        true
    }
}
