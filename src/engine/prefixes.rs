//! Kept prefixes: what the blocks of an engine are bound to, and when they are kept.

use std::{env::consts, sync::Arc};

use crate::{
    backend,
    prefix::{Binding, Owner, PrefixStore},
    runtime::{BLOCK_TOKENS, Session},
    speculate::{Decoder, KeptPrefixes, Reading, Reuse, Shelves},
};

use super::{CancelHandle, Engine, Error, Loaded, loaded::model_fingerprint};

/// The shelves of a store for what the sessions of a decoder save. Each is bound to everything that the bytes depend
/// on: the model's contents, the kernels, the numeric class and the device; and of a session its rotations, the cache's
/// shape and format, and which hidden rows are kept. Those of drafters, which may read the verifier's rows, are bound
/// to the drafter's contents too.
///
/// # Errors
/// [`Error`] of kind `Device` if the device cannot be asked what it is.
pub(super) fn shelves(
    store: &Arc<PrefixStore>,
    loaded: &Loaded,
    decoder: &mut Decoder,
) -> Result<KeptPrefixes, Error> {
    let model = model_fingerprint(loaded.model());
    let tier = loaded.tier();
    let device = backend::gpu(tier)?.map_or_else(String::new, |gpu| format!("{} {}", gpu.name, gpu.driver));
    // Tiers of other architectures have the same names.
    let common = [consts::ARCH, tier.kernel_set(), &device, &model.digest];
    let block_bytes = decoder.block_bytes();
    let of_session = |name: &str, session: &Session, block_bytes: usize, drafter: &str| {
        let terms = session.set().block_terms(session.context());
        let hidden = if session.keeps_hidden() { "hidden rows" } else { "" };
        let shelf = |name: &str, bytes: usize, what: &str| {
            let parts = common.into_iter().chain([&*terms, hidden, drafter, what]);
            store.shelf(Binding::new(name, parts), BLOCK_TOKENS, bytes)
        };
        let of_states = || shelf(&format!("states of {name}"), session.state_bytes(), "states");
        let states = session.set().has_states().then(of_states);
        Shelves { blocks: shelf(name, block_bytes, ""), states }
    };
    let own = of_session(&model.name, decoder.session(), block_bytes, "");
    let digests: Vec<Option<String>> =
        decoder.draft_models().map(|file| file.map(|f| f.digest.clone())).collect();
    let name = format!("a drafter of {}", model.name);
    let of_drafter = |(session, digest): (Option<&Session>, &Option<String>)| {
        let session = session?;
        Some(of_session(&name, session, session.block_bytes(), digest.as_deref()?))
    };
    let of_drafters = decoder.own_sessions().into_iter().zip(&digests).map(of_drafter).collect();
    Ok(KeptPrefixes { own, of_drafters })
}

impl Engine {
    /// The text of `owner` that the cache has: the prompt and the answer of the last request, if it was the owner's.
    pub fn cached_text(&self, owner: Owner) -> &[u32] {
        self.decoder.cached_text(owner)
    }

    /// Reads a text without an answer, so that a request that begins with it finds it: what the cache and kept prefixes
    /// have of it is not run again, but for its last token. Gives how many tokens these are; `None` if it was
    /// cancelled.
    ///
    /// # Errors
    /// [`Error`] of kind `Input` when the text is empty, does not fit the context or has unknown ids; of kind `Device`
    /// when the device fails.
    pub fn read(
        &mut self,
        text: &[u32],
        owner: Owner,
        cancel: &CancelHandle,
    ) -> Result<Option<usize>, Error> {
        self.check_prompt(text)?;
        let is_cancelled = || cancel.is_cancelled();
        let prefixes = self.prefixes.as_ref();
        let reading = Reading {
            reuse: Reuse::Prefix,
            prefixes,
            owner,
            is_cancelled: &is_cancelled,
            ..Reading::new(text)
        };
        let read = self.decoder.read_branches(&reading, &[])?;
        self.keep_prefix();
        let reused = usize::try_from(self.decoder.stats().reused).expect("part of a text");
        Ok(read.map(|_| reused))
    }

    /// Keeps the text of the last request for later ones, where prefixes are kept. A device that has failed keeps
    /// nothing, and the next request says so.
    pub(super) fn keep_prefix(&mut self) {
        if let Some(prefixes) = &self.prefixes {
            let _ = self.decoder.keep_prefix(prefixes);
        }
    }
}
