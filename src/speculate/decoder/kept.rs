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
    pub own: Shelves,
    /// By band, what the session of its drafter saves, if it has one of its own.
    pub of_drafters: Vec<Option<Shelves>>,
}

/// Where what a session saves is kept.
#[derive(Clone, Debug)]
pub struct Shelves {
    /// Its blocks.
    pub blocks: Arc<Shelf>,
    /// Where rows have a state: its states at ends of blocks, of [`Session::state_bytes`] each. One is far larger than
    /// a block, so they are kept at the ends of few, and blocks are of use as far as one of these.
    pub states: Option<Arc<Shelf>>,
}

/// States that are kept while a prompt is read, when its rows pass by the ends of the blocks.
#[derive(Debug)]
pub(super) struct OnTheWay<'p> {
    shelves: Option<&'p Shelves>,
    text: RunText<'p>,
    /// After how many blocks: as many as an earlier text begins with alike, and all of the prompt, for a request that
    /// asks the same again. What is kept at the end of the request is of the prompt with its answer.
    ends: [usize; 2],
}

impl OnTheWay<'_> {
    /// Keeps the state that the session has, if it is one of these.
    ///
    /// # Errors
    /// [`RuntimeError`] if the device has failed.
    pub(super) fn note(&self, session: &mut Session) -> Result<(), RuntimeError> {
        let Self { shelves, text, ends } = self;
        shelves.map_or(Ok(()), |shelves| shelves.keep_state(session, text, ends))
    }
}

impl Decoder {
    /// Makes `prompt` the text. The cache keeps what it has of it, if that was of the same owner, and gets what the
    /// owner has on the shelf; no step goes on before the rest is run. Gives what is to be kept meanwhile.
    ///
    /// # Errors
    /// [`SpeculateError::Runtime`] if the device fails.
    pub(super) fn take<'p>(
        &mut self,
        prompt: &'p [u32],
        owner: Owner,
        reuse: Reuse,
        prefixes: Option<&'p KeptPrefixes>,
    ) -> Result<OnTheWay<'p>, SpeculateError> {
        if owner != self.sequence.owner {
            self.change_owner();
        }
        let known = match reuse {
            Reuse::Prefix => self.known_prefix(prompt),
            Reuse::Nothing => 0,
        };
        self.session.truncate(known);
        self.sequence.restart(prompt, known, owner);
        let shelves = prefixes.map(|prefixes| &prefixes.own).filter(|_| reuse == Reuse::Prefix);
        let mut ends = [0, (prompt.len() - 1) / BLOCK_TOKENS];
        if let Some(shelves) = shelves {
            let Loaded { served, blocks } = self.load_kept(shelves)?;
            self.sequence.stats.served = served;
            ends[0] = blocks;
        }
        self.sequence.stats.reused = self.session.committed() as u64;
        Ok(OnTheWay { shelves, text: RunText { owner, all: prompt, skipped: 0 }, ends })
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
    fn load_kept(&mut self, shelves: &Shelves) -> Result<Loaded, SpeculateError> {
        let Self { session, sequence, .. } = self;
        let Sequence { history, offered, owner, .. } = sequence;
        // The last token is run in any case.
        let tokens = &history[..history.len() - 1];
        let vocabulary = session.set().vocabulary();
        let text = RunText { owner: *owner, all: tokens, skipped: 0 };
        let loaded = shelves.load(session, &text, |block, bytes| offered.load(block, bytes, vocabulary))?;
        shelves.blocks.count(&loaded.served);
        Ok(loaded)
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
        let text = RunText { owner: *owner, all: history, skipped: 0 };
        own.keep(session, &text, |block, bytes| offered.save(block, bytes))?;
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

/// A text of which a session runs what is after the first `skipped` tokens.
#[derive(Clone, Copy, Debug)]
struct RunText<'t> {
    owner: Owner,
    all: &'t [u32],
    skipped: usize,
}

impl<'t> RunText<'t> {
    /// What its blocks are kept under.
    fn blocks(&self) -> KeptText<'t> {
        let (lead, tokens) = self.all.split_at(self.skipped);
        KeptText { owner: self.owner, lead, tokens }
    }

    /// What the state at the end of so many blocks is kept under, by itself: as a text of one block, the last of them.
    fn last_of(&self, blocks: usize) -> KeptText<'t> {
        let (all, _) = self.all.split_at(self.skipped + blocks * BLOCK_TOKENS);
        let (lead, tokens) = all.split_at(all.len() - BLOCK_TOKENS);
        KeptText { owner: self.owner, lead, tokens }
    }
}

/// What a session was given of what is kept.
struct Loaded {
    served: Served,
    /// Blocks of the text that are kept, whether they were of use or not.
    blocks: usize,
}

impl Shelves {
    /// Loads what is kept of a text into a session that has a beginning of it, if that is more. What blocks have after
    /// what the session saved is handed to `load_rest` with their numbers.
    fn load(
        &self,
        session: &mut Session,
        text: &RunText<'_>,
        mut load_rest: impl FnMut(usize, &[u8]),
    ) -> Result<Loaded, RuntimeError> {
        let mut found = self.blocks.find(&text.blocks());
        let kept = found.blocks();
        let loaded = |served| Loaded { served, blocks: kept };
        let mut state = Vec::new();
        if self.states.is_some() {
            let known = session.committed() / BLOCK_TOKENS;
            let latest =
                (known + 1..=found.blocks()).rev().find(|blocks| self.read_state(text, *blocks, &mut state));
            found = found.of_first(latest.unwrap_or(0));
        }
        let blocks = found.blocks();
        if blocks * BLOCK_TOKENS <= session.committed() {
            return Ok(loaded(Served::default()));
        }
        // Of a block that the cache has in part all is loaded: the bits are the same.
        let first = session.whole_blocks();
        session.truncate(first * BLOCK_TOKENS);
        let of_session = session.block_bytes();
        let served = found.load(first, |bytes| {
            let (of_session, rest) = bytes.split_at(of_session);
            load_rest(session.committed() / BLOCK_TOKENS, rest);
            session.load_block(of_session)
        })?;
        if self.states.is_none() {
            return Ok(loaded(served));
        }
        if session.committed() < blocks * BLOCK_TOKENS {
            // One of them was damaged, and no state is known before it but that of the cache.
            session.truncate(first * BLOCK_TOKENS);
            return Ok(loaded(Served::default()));
        }
        session.load_state(&state)?;
        Ok(loaded(served))
    }

    /// Reads the state at the end of so many blocks of a text into `state`; whether it is there and whole.
    fn read_state(&self, text: &RunText<'_>, blocks: usize, state: &mut Vec<u8>) -> bool {
        let Some(states) = &self.states else { return false };
        let text = text.last_of(blocks);
        states.touch(&text);
        let take = |bytes: &[u8]| {
            state.clear();
            state.extend_from_slice(bytes);
            Ok::<(), std::convert::Infallible>(())
        };
        let Ok(served) = states.find(&text).load(0, take);
        served != Served::default()
    }

    /// Keeps the whole blocks of a session's text; `save_rest` writes what blocks have in addition.
    fn keep(
        &self,
        session: &mut Session,
        text: &RunText<'_>,
        save_rest: impl Fn(usize, &mut [u8]),
    ) -> Result<(), RuntimeError> {
        let whole = session.whole_blocks().min((text.all.len() - text.skipped) / BLOCK_TOKENS);
        if whole == 0 {
            return Ok(());
        }
        let blocks = text.blocks();
        let blocks = KeptText { tokens: &blocks.tokens[..whole * BLOCK_TOKENS], ..blocks };
        let of_session = session.block_bytes();
        self.blocks.keep(&blocks, |block, bytes| {
            let (of_session, rest) = bytes.split_at_mut(of_session);
            save_rest(block, rest);
            session.save_block(block, of_session)
        })?;
        self.keep_state(session, text, &[whole])
    }

    /// Keeps the state that the session has, if it is at the end of as many blocks of the text as one of `ends` says.
    fn keep_state(
        &self,
        session: &mut Session,
        text: &RunText<'_>,
        ends: &[usize],
    ) -> Result<(), RuntimeError> {
        let Some(states) = &self.states else { return Ok(()) };
        let Some(end) = session.state_end().map(|end| end / BLOCK_TOKENS) else { return Ok(()) };
        if !ends.contains(&end) {
            return Ok(());
        }
        states.keep(&text.last_of(end), |_, bytes| session.save_state(bytes))
    }
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
        shelves: &Shelves,
        owner: Owner,
        history: &[u32],
    ) -> Result<Served, RuntimeError> {
        let before = &history[..history.len() - 1];
        let rows = before.len().checked_sub(self.skipped);
        if rows.is_none_or(|rows| rows > self.session.context()) {
            return Ok(Served::default());
        }
        self.keep_only(shared(&*self.text, before));
        let text = RunText { owner, all: before, skipped: self.skipped };
        let loaded = shelves.load(self.session, &text, |_, _| ());
        // Of what it had a part may have gone, too.
        let known = self.session.committed();
        self.text.clear();
        if known > 0 {
            self.text.extend_from_slice(&before[..self.skipped + known]);
        }
        Ok(loaded?.served)
    }

    /// Keeps what it has of `history`.
    fn keep(&mut self, shelves: &Shelves, owner: Owner, history: &[u32]) -> Result<(), RuntimeError> {
        let all = &history[..shared(&*self.text, history)];
        if all.len() < self.skipped {
            return Ok(());
        }
        shelves.keep(self.session, &RunText { owner, all, skipped: self.skipped }, |_, _| ())
    }
}
