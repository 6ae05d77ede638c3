//! Prefixes that a store keeps: what a request takes of them before its prefill, and gives when it ends.

use std::sync::Arc;

use crate::{
    plan::DrafterFile,
    prefix::{KeptText, Owner, Served, Shelf},
    runtime::{BLOCK_TOKENS, RuntimeError, Session},
    speculate::{SpeculateError, drafter::OwnCache, offered::OFFERED_BLOCK_BYTES, sequence::Sequence},
};

use super::{Decoder, Reuse};

/// Where the prefixes of a decoder are kept.
#[derive(Clone, Debug)]
pub struct KeptPrefixes {
    /// What its session saves, and what the verifier offered there.
    pub own: Arc<Shelf>,
    /// By band, what the session of its drafter saves, if it has one of its own.
    pub of_drafters: Vec<Option<Arc<Shelf>>>,
}

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
        prefixes: Option<&KeptPrefixes>,
    ) -> Result<(), SpeculateError> {
        if owner != self.sequence.owner {
            self.change_owner();
        }
        let known = match reuse {
            Reuse::Prefix => self.known_prefix(prompt),
            Reuse::Nothing => 0,
        };
        self.session.truncate(known);
        self.sequence.restart(prompt, known, owner);
        if let (Reuse::Prefix, Some(prefixes)) = (reuse, prefixes) {
            self.sequence.stats.served = self.load_kept(&prefixes.own)?;
        }
        self.sequence.stats.reused = self.session.committed() as u64;
        Ok(())
    }

    /// Tokens of a prompt whose keys and values the cache has; the last one is run in any case, for its logits.
    fn known_prefix(&mut self, prompt: &[u32]) -> usize {
        if !self.sequence.is_cache_known {
            return 0;
        }
        let cached = self.sequence.history.iter().take(self.session.committed());
        self.session.resume_point(shared(cached, prompt).min(prompt.len() - 1))
    }

    /// Has another owner's requests begin, which find nothing of the texts before, in no drafter either: the time of an
    /// answer would tell.
    fn change_owner(&mut self) {
        self.session.truncate(0);
        for drafter in self.drafters() {
            drafter.forget_texts();
            if let Some(mut cache) = drafter.own_cache() {
                cache.keep_only(0);
            }
        }
    }

    /// Loads the blocks of the prompt, now the history, that its owner has on a shelf, after those that the cache has
    /// already. Nothing where the cache has as much.
    ///
    /// # Errors
    /// [`SpeculateError::Runtime`] if the device fails.
    fn load_kept(&mut self, shelf: &Arc<Shelf>) -> Result<Served, SpeculateError> {
        let Self { session, sequence, .. } = self;
        let Sequence { history, offered, owner, .. } = sequence;
        // The last token is run in any case.
        let tokens = &history[..history.len() - 1];
        let vocabulary = session.set().vocabulary();
        let served = load(session, shelf, &KeptText { owner: *owner, lead: &[], tokens }, |block, bytes| {
            offered.load(block, bytes, vocabulary);
        })?;
        shelf.count(&served);
        Ok(served)
    }

    /// The tokens of the text whose keys and values the cache has, if the text is of this owner.
    pub fn cached_text(&self, owner: Owner) -> &[u32] {
        let Self { session, sequence, .. } = self;
        let is_theirs = sequence.is_cache_known && sequence.owner == owner;
        let known = if is_theirs { session.committed().min(sequence.history.len()) } else { 0 };
        &sequence.history[..known]
    }

    /// Keeps the whole blocks of the text, for the owner of the request, and what the drafter at work has of it.
    ///
    /// # Errors
    /// [`SpeculateError::Runtime`] if the device has failed.
    pub fn keep_prefix(&mut self, prefixes: &KeptPrefixes) -> Result<(), SpeculateError> {
        let Self { session, bands, current, sequence, .. } = self;
        if !sequence.is_cache_known {
            return Ok(());
        }
        let KeptPrefixes { own, of_drafters } = prefixes;
        let Sequence { history, offered, owner, .. } = &*sequence;
        keep(session, own, &KeptText { owner: *owner, lead: &[], tokens: history }, |block, bytes| {
            offered.save(block, bytes);
        })?;
        let drafter = bands[*current].steps.drafter.as_mut();
        if let (Some(shelf), Some(mut cache)) =
            (&of_drafters[*current], drafter.and_then(|drafter| drafter.own_cache()))
        {
            cache.keep(shelf, sequence.owner, &sequence.history)?;
        }
        Ok(())
    }

    /// Bytes of a block of [`KeptPrefixes::own`]: what the session saves, then what the verifier offered.
    pub fn block_bytes(&self) -> usize {
        self.session.block_bytes() + OFFERED_BLOCK_BYTES
    }

    /// The drafter models of the sub-plans, by band.
    pub fn draft_models(&self) -> impl Iterator<Item = Option<&DrafterFile>> {
        self.bands.iter().map(|band| band.steps.sub_plan.drafter.draft_model())
    }

    /// The sessions that drafters have of their own, by band.
    pub fn own_sessions(&mut self) -> Vec<Option<&Session>> {
        let own = self.bands.iter_mut().map(|band| {
            let cache = band.steps.drafter.as_mut()?.own_cache()?;
            Some(&*cache.session)
        });
        own.collect()
    }
}

/// How many tokens two texts begin with alike.
fn shared<'t>(one: impl IntoIterator<Item = &'t u32>, other: &[u32]) -> usize {
    one.into_iter().zip(other).take_while(|(one, other)| one == other).count()
}

/// Loads what a shelf has of a text into a session that has a beginning of it, if that is more. What blocks have after
/// what the session saved is handed to `load_rest` with their numbers.
fn load(
    session: &mut Session,
    shelf: &Arc<Shelf>,
    text: &KeptText<'_>,
    mut load_rest: impl FnMut(usize, &[u8]),
) -> Result<Served, RuntimeError> {
    let found = shelf.find(text);
    if found.blocks() * BLOCK_TOKENS <= session.committed() {
        return Ok(Served::default());
    }
    // Of a block that the cache has in part all is loaded: the bits are the same.
    let first = session.whole_blocks();
    session.truncate(first * BLOCK_TOKENS);
    let of_session = session.block_bytes();
    found.load(first, |bytes| {
        let (of_session, rest) = bytes.split_at(of_session);
        load_rest(session.whole_blocks(), rest);
        session.load_block(of_session)
    })
}

/// Keeps the whole blocks of a session's text on a shelf; `save_rest` writes what blocks have in addition.
fn keep(
    session: &mut Session,
    shelf: &Shelf,
    text: &KeptText<'_>,
    save_rest: impl Fn(usize, &mut [u8]),
) -> Result<(), RuntimeError> {
    let whole = session.whole_blocks().min(text.tokens.len() / BLOCK_TOKENS);
    let text = KeptText { tokens: &text.tokens[..whole * BLOCK_TOKENS], ..*text };
    let of_session = session.block_bytes();
    shelf.keep(&text, |block, bytes| {
        let (of_session, rest) = bytes.split_at_mut(of_session);
        save_rest(block, rest);
        session.save_block(block, of_session)
    })
}

impl OwnCache<'_> {
    /// Forgets what is after the first `len` tokens of the text, at least.
    fn keep_only(&mut self, len: usize) {
        let Self { session, text, skipped } = self;
        // Less, where rows cannot follow what is left.
        let kept = session.resume_point(session.committed().min(len.saturating_sub(*skipped)));
        text.truncate(len.min(kept + *skipped));
        session.truncate(kept);
    }

    /// Loads what a shelf has of the text before the last token of `history`, unless the drafter cannot hold all.
    pub(super) fn load(
        &mut self,
        shelf: &Arc<Shelf>,
        owner: Owner,
        history: &[u32],
    ) -> Result<Served, RuntimeError> {
        let before = &history[..history.len() - 1];
        let split = before.split_at_checked(self.skipped);
        let Some((lead, tokens)) = split.filter(|(_, tokens)| tokens.len() <= self.session.context()) else {
            return Ok(Served::default());
        };
        self.keep_only(shared(&*self.text, before));
        let served = load(self.session, shelf, &KeptText { owner, lead, tokens }, |_, _| ());
        // Of what it had a part may have gone, too.
        let known = self.session.committed();
        self.text.clear();
        if known > 0 {
            self.text.extend_from_slice(&before[..self.skipped + known]);
        }
        served
    }

    /// Keeps what it has of `history`.
    fn keep(&mut self, shelf: &Shelf, owner: Owner, history: &[u32]) -> Result<(), RuntimeError> {
        let known = &history[..shared(&*self.text, history)];
        match known.split_at_checked(self.skipped) {
            Some((lead, tokens)) => keep(self.session, shelf, &KeptText { owner, lead, tokens }, |_, _| ()),
            None => Ok(()),
        }
    }
}
