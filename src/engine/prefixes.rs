//! Kept prefixes: what the blocks of an engine are bound to, and when they are kept.

use std::{env::consts, sync::Arc};

use crate::{
    backend,
    prefix::{Binding, PrefixStore, Shelf},
    runtime::{BLOCK_TOKENS, Session},
};

use super::{Engine, Error, Loaded, loaded::model_fingerprint};

/// The shelf of a store for what sessions of a model save, bound to everything that the bytes depend on: the model's
/// contents, the kernels, the numeric class and the device, the session's rotations, the cache's shape and format, and
/// which hidden rows are kept.
///
/// # Errors
/// [`Error`] of kind `Device` if the device cannot be asked what it is.
pub(super) fn shelf(
    store: &Arc<PrefixStore>,
    loaded: &Loaded,
    session: &Session,
) -> Result<Arc<Shelf>, Error> {
    let model = model_fingerprint(loaded.model());
    let tier = loaded.tier();
    let device = backend::gpu(tier)?.map_or_else(String::new, |gpu| format!("{} {}", gpu.name, gpu.driver));
    let terms = session.set().block_terms(session.context());
    let hidden = if session.keeps_hidden() { "hidden rows" } else { "" };
    // Tiers of other architectures have the same names.
    let parts = [consts::ARCH, tier.kernel_set(), &device, &model.digest, &terms, hidden];
    Ok(store.shelf(Binding::new(model.name, parts), BLOCK_TOKENS, session.block_bytes()))
}

impl Engine {
    /// Keeps the text of the last request for later ones, where prefixes are kept. A device that has failed keeps
    /// nothing, and the next request says so.
    pub(super) fn keep_prefix(&mut self) {
        if let Some(shelf) = &self.prefixes {
            let _ = self.decoder.keep_prefix(shelf);
        }
    }
}
