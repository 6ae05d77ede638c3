//! Executables of drafter models, kept with those of the model that they draft for.

use std::sync::Arc;

use super::{ExecutableSet, RuntimeError};

impl ExecutableSet {
    /// The same executables, with those of a drafter model added, in the place of any that the digest named before.
    #[must_use]
    pub fn with_draft(&self, digest: &str, draft: Arc<ExecutableSet>) -> Self {
        let mut both = self.clone();
        both.drafts.retain(|(other, _)| other != digest);
        both.drafts.push((digest.to_owned(), draft));
        both
    }

    /// The executables of the drafter model of this digest.
    ///
    /// # Errors
    /// [`RuntimeError::MissingDraft`] if there are none.
    pub fn draft(&self, digest: &str) -> Result<&Arc<ExecutableSet>, RuntimeError> {
        let found = self.drafts.iter().find(|(other, _)| other == digest);
        found.map(|(_, draft)| draft).ok_or_else(|| RuntimeError::MissingDraft { digest: digest.to_owned() })
    }
}
