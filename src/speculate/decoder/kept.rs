//! Prefixes that a store keeps: what a request takes of them before its prefill, and gives when it ends.

use std::sync::Arc;

use crate::{
    prefix::{Owner, Served, Shelf},
    runtime::BLOCK_TOKENS,
    speculate::SpeculateError,
};

use super::{Decoder, Reuse};

impl Decoder {
    /// Makes `prompt` the text. The cache keeps what it has of it, if that was of the same owner, and gets what the
    /// owner has on the shelf; no step goes on before the rest is run.
    ///
    /// # Errors
    /// [`SpeculateError::Runtime`] if the device fails.
    pub(super) fn take(
        &mut self,
        prompt: &[u32],
        owner: Owner,
        reuse: Reuse,
        prefixes: Option<&Arc<Shelf>>,
    ) -> Result<(), SpeculateError> {
        let known = match reuse {
            Reuse::Prefix if owner == self.sequence.owner => self.known_prefix(prompt),
            Reuse::Prefix | Reuse::Nothing => 0,
        };
        self.session.truncate(known);
        self.sequence.restart(prompt, owner);
        if let (Reuse::Prefix, Some(shelf)) = (reuse, prefixes) {
            self.sequence.stats.served = self.load_kept(shelf)?;
        }
        self.sequence.stats.reused = self.session.committed() as u64;
        Ok(())
    }

    /// Tokens of a prompt whose keys and values the cache has; the last one is run in any case, for its logits.
    fn known_prefix(&self, prompt: &[u32]) -> usize {
        if !self.sequence.is_cache_known {
            return 0;
        }
        let cached = self.sequence.history.iter().take(self.session.committed());
        let shared = cached.zip(prompt).take_while(|(cached, wanted)| cached == wanted).count();
        self.session.resume_point(shared.min(prompt.len() - 1))
    }

    /// Loads the blocks of the prompt, now the history, that its owner has on a shelf, after those that the cache has
    /// already. Nothing where the cache has as much.
    ///
    /// # Errors
    /// [`SpeculateError::Runtime`] if the device fails.
    fn load_kept(&mut self, shelf: &Arc<Shelf>) -> Result<Served, SpeculateError> {
        let Self { session, sequence, .. } = self;
        let whole = (sequence.history.len() - 1) / BLOCK_TOKENS;
        let found = shelf.find(&sequence.owner, &sequence.history[..whole * BLOCK_TOKENS]);
        if found.blocks() * BLOCK_TOKENS <= session.committed() {
            return Ok(Served::default());
        }
        // Of a block that the cache has in part all is loaded: the bits are the same.
        let first = session.whole_blocks();
        session.truncate(first * BLOCK_TOKENS);
        Ok(found.load(first, |bytes| session.load_block(bytes))?)
    }

    /// Keeps the whole blocks of the text on a shelf, for the owner of the request.
    ///
    /// # Errors
    /// [`SpeculateError::Runtime`] if the device has failed.
    pub fn keep_prefix(&mut self, shelf: &Shelf) -> Result<(), SpeculateError> {
        let Self { session, sequence, .. } = self;
        if !sequence.is_cache_known {
            return Ok(());
        }
        let whole = session.whole_blocks().min(sequence.history.len() / BLOCK_TOKENS);
        let text = &sequence.history[..whole * BLOCK_TOKENS];
        Ok(shelf.keep(&sequence.owner, text, |block, bytes| session.save_block(block, bytes))?)
    }
}
