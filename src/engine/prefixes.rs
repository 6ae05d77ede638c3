//! Kept prefixes: what the blocks of an engine are bound to, and when they are kept.

use std::{env::consts, sync::Arc};

use crate::{
    backend,
    prefix::{Binding, PrefixStore},
    runtime::{BLOCK_TOKENS, Session},
    speculate::{Decoder, KeptPrefixes},
};

use super::{Engine, Error, Loaded, loaded::model_fingerprint};

/// The shelves of a store for what the sessions of a decoder save. Each is bound to everything that the bytes depend
/// on: the model's contents, the kernels, the numeric class and the device; and of a session its rotations, the cache's
/// shape and format, and which hidden rows are kept. Those of drafters, which may read the verifier's rows, are bound to
/// the drafter's contents too.
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
    let shelf = |name: &str, session: &Session, drafter: &str| {
        let terms = session.set().block_terms(session.context());
        let hidden = if session.keeps_hidden() { "hidden rows" } else { "" };
        let parts = common.into_iter().chain([&*terms, hidden, drafter]);
        store.shelf(Binding::new(name, parts), BLOCK_TOKENS, session.block_bytes())
    };
    let own = shelf(&model.name, decoder.session(), "");
    let digests: Vec<Option<String>> =
        decoder.draft_models().map(|file| file.map(|f| f.digest.clone())).collect();
    let name = format!("a drafter of {}", model.name);
    let of_drafter = |(session, digest): (Option<&Session>, &Option<String>)| {
        Some(shelf(&name, session?, digest.as_deref()?))
    };
    let of_drafters = decoder.own_sessions().into_iter().zip(&digests).map(of_drafter).collect();
    Ok(KeptPrefixes { own, of_drafters })
}

impl Engine {
    /// Keeps the text of the last request for later ones, where prefixes are kept. A device that has failed keeps
    /// nothing, and the next request says so.
    pub(super) fn keep_prefix(&mut self) {
        if let Some(prefixes) = &self.prefixes {
            let _ = self.decoder.keep_prefix(prefixes);
        }
    }
}
