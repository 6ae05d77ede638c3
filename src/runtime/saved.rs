//! Blocks of committed tokens saved from a session and loaded into another, with everything that rows after them read.
//!
//! A block is [`BLOCK_TOKENS`] tokens at a multiple of so many positions. By row invariance its bytes are the same
//! whichever forwards computed it, so a session that loads a block goes on exactly as one that ran its tokens.

use crate::backend::{CUT_SLOTS, MOVED_SLOTS};

use super::{ExecutableSet, RuntimeError, Session, session::slot_number};

/// Tokens of a block. As many as the widest forward of a prefill has rows: what a text has after its last whole block
/// takes one forward. Fewer would save nothing, more would leave more to be run.
pub const BLOCK_TOKENS: usize = 64;

const _: () = assert!(BLOCK_TOKENS.is_multiple_of(MOVED_SLOTS));

impl Session {
    /// Bytes of a block.
    pub fn block_bytes(&self) -> usize {
        let of_hidden = self.hidden.as_ref().map_or(0, |hidden| hidden.bytes_of(BLOCK_TOKENS));
        self.cache_block_bytes + of_hidden
    }

    /// How many blocks can be saved: those whose tokens are committed, with hidden rows where these are kept; where rows
    /// have a state, those up to the last end of a block that a state is [kept](Self::state_end) of.
    pub fn whole_blocks(&mut self) -> usize {
        if self.set.has_states() {
            return self.state_end().unwrap_or(0) / BLOCK_TOKENS;
        }
        self.known() / BLOCK_TOKENS
    }

    /// Committed tokens, with hidden rows where these are kept.
    fn known(&self) -> usize {
        self.committed.min(self.hidden.as_ref().map_or(usize::MAX, |hidden| hidden.known()))
    }

    /// Where rows have a state: the last end of a block, in tokens, that a state is kept of. It lags by a forward, which
    /// brings the states to the tokens that were committed before it.
    pub fn state_end(&mut self) -> Option<usize> {
        let end = self.replay.slots().state_end();
        end.filter(|end| *end <= self.known())
    }

    /// Bytes of a state at the end of a block, which [`save_state`](Self::save_state) gives; 0 where rows have none.
    pub fn state_bytes(&self) -> usize {
        self.state_bytes
    }

    /// Copies the state at [`state_end`](Self::state_end) to `bytes`, of [`state_bytes`](Self::state_bytes).
    ///
    /// # Errors
    /// [`RuntimeError::DeviceFailed`]; the bytes mean nothing then.
    ///
    /// # Panics
    /// If there is no such state, or another number of bytes.
    pub fn save_state(&mut self, bytes: &mut [u8]) -> Result<(), RuntimeError> {
        let end = self.state_end().expect("a state at the end of a block");
        self.replay.slots().read_state(end, bytes);
        self.check_device()
    }

    /// Takes what [`save_state`](Self::save_state) made of the state after the committed tokens, whole blocks of them:
    /// no text can be cut to fewer, but for none.
    ///
    /// # Errors
    /// [`RuntimeError::DeviceFailed`].
    ///
    /// # Panics
    /// If no whole number of blocks is committed, or there is another number of bytes.
    pub fn load_state(&mut self, bytes: &[u8]) -> Result<(), RuntimeError> {
        let end = self.committed;
        assert!(end > 0 && end.is_multiple_of(BLOCK_TOKENS), "a state after {end} tokens");
        self.replay.slots().write_state(end, bytes);
        self.check_device()
    }

    /// Copies the block of number `block` to `bytes`, of [`block_bytes`](Self::block_bytes).
    ///
    /// # Errors
    /// [`RuntimeError::DeviceFailed`]; the bytes mean nothing then.
    ///
    /// # Panics
    /// If it is not [whole](Self::whole_blocks), or there is another number of bytes.
    pub fn save_block(&mut self, block: usize, bytes: &mut [u8]) -> Result<(), RuntimeError> {
        assert!(block < self.whole_blocks(), "block {block} of {}", self.whole_blocks());
        let first = block * BLOCK_TOKENS;
        let (of_cache, of_hidden) = bytes.split_at_mut(self.cache_block_bytes);
        self.replay.slots().read_slots(slot_number(first)..slot_number(first + BLOCK_TOKENS), of_cache);
        match &self.hidden {
            Some(hidden) => hidden.save(first, of_hidden),
            None => assert!(of_hidden.is_empty(), "{} bytes too many", of_hidden.len()),
        }
        self.check_device()
    }

    /// Commits the block that follows the committed tokens, from what [`save_block`](Self::save_block) made of it in a
    /// session of the same model, kernels, format and kept layers. Where rows have a state, none may follow before that
    /// at the end of the last block is [loaded](Self::load_state).
    ///
    /// # Errors
    /// [`RuntimeError::DeviceFailed`]; nothing is committed then.
    ///
    /// # Panics
    /// If no whole number of blocks is committed, the block exceeds the context, or there is another number of bytes.
    pub fn load_block(&mut self, bytes: &[u8]) -> Result<(), RuntimeError> {
        let first = self.committed;
        assert!(first.is_multiple_of(BLOCK_TOKENS), "a block after {first} tokens");
        let end = first + BLOCK_TOKENS;
        assert!(end <= self.layout.context, "a block to {end} in a context of {}", self.layout.context);
        self.begun = None;
        let (of_cache, of_hidden) = bytes.split_at(self.cache_block_bytes);
        self.replay.slots().write_slots(slot_number(first)..slot_number(end), of_cache);
        self.check_device()?;
        match &mut self.hidden {
            Some(hidden) => hidden.load(first, of_hidden),
            None => assert!(of_hidden.is_empty(), "{} bytes too many", of_hidden.len()),
        }
        self.committed = end;
        self.loaded = end;
        Ok(())
    }

    /// The longest beginning of at most `len` committed tokens that rows can follow: of what convolutions keep, a
    /// loaded block has what rows after its end read, so that a text cannot be continued within it; and where rows have
    /// a state, a text can be cut by [`most_cut`](Self::most_cut) tokens or a few more, or begun again.
    pub fn resume_point(&mut self, len: usize) -> usize {
        let is_inside = len < self.loaded && self.set.has_convolutions();
        let len = if is_inside { len / BLOCK_TOKENS * BLOCK_TOKENS } else { len };
        if len == self.committed { len } else { self.replay.slots().resume_point(len) }
    }

    /// How many tokens can be committed and cut off again in any case; none where there is no limit.
    pub fn most_cut(&self) -> Option<usize> {
        self.set.has_states().then_some(CUT_SLOTS)
    }
}

impl ExecutableSet {
    /// Whether the model's layers keep what convolutions read.
    pub(super) fn has_convolutions(&self) -> bool {
        self.graph.kv().conv.layers > 0
    }

    /// Whether rows have a state, which comes from that of the row before.
    pub fn has_states(&self) -> bool {
        self.graph.kv().states.layers > 0
    }

    /// What the bytes of blocks depend on in addition to the model's contents and the kernels' numeric class, in a
    /// session of a context: the angles of rotations, which may depend on it, and the shape and format of the cache
    /// with the layers whose rows are kept.
    pub fn block_terms(&self, context: usize) -> String {
        let ropes = self.executables.programs()[crate::ir::ProgramId::FIRST].ropes.iter();
        let angles: Vec<(Vec<u32>, u32, String)> = ropes
            .map(|rope| {
                let bits = rope.inv_freq_within(context).iter().map(|angle| angle.to_bits()).collect();
                (bits, rope.magnitude.to_bits(), format!("{:?} {}", rope.pairing, rope.head_dim))
            })
            .collect();
        let Self { device, .. } = self;
        format!("{:?} {device:?} {BLOCK_TOKENS} {:?} {angles:?}", self.graph.kv(), self.kept_layers())
    }
}
