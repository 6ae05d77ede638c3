//! Opens models with a progress bar.

use std::{
    path::Path,
    sync::OnceLock,
    time::{Duration, Instant},
};

use indicatif::ProgressBar;
use yggc::model::{Model, ModelError};

use crate::cli::{cache::CachePlace, output, progress};

/// Loading that takes less time shows no bar.
const A_WHILE: Duration = Duration::from_millis(500);

/// The model at `path`. Its packed weights are read from the cache, or written to it; a bar shows the progress.
///
/// # Errors
/// As [`Model::open`].
#[expect(clippy::disallowed_methods, reason = "whether a bar is shown depends on time")]
pub(crate) fn open(path: &Path, cache: &CachePlace) -> Result<Model, ModelError> {
    let (opened, bar) = (Instant::now(), OnceLock::<ProgressBar>::new());
    let mut model = Model::open(path)?;
    if let Some(place) = cache.packed() {
        model = model.kept_in(place, |note| {
            if note.is_warning() {
                output::remark(format_args!("warning: {note}"));
            }
        })?;
    }
    Ok(model.watched(move |loaded, total| {
        if loaded == total {
            bar.get().into_iter().for_each(ProgressBar::finish_and_clear);
        } else if opened.elapsed() > A_WHILE {
            bar.get_or_init(|| progress::bytes("loading", total)).set_position(loaded);
        }
    }))
}
