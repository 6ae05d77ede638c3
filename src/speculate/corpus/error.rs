//! Why a corpus store is refused.

use std::path::PathBuf;

use crate::storage::{SealError, StorageError};

/// Why a corpus store cannot be used. The file's or the caller's fault, never the system's but for
/// [`StoreError::Storage`].
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file cannot be opened or mapped.
    #[error("no corpus store: {0}; say where it is, or make one with `yggc corpus build`")]
    Storage(#[from] StorageError),
    /// Another kind of file, another layout, or not the bytes that were written.
    #[error(
        "the corpus store `{}` is damaged, or not one of this version: {fault}; copy it again, or build it with `yggc corpus build`",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What a good file has, and what this one has.
        fault: SealError,
    },
    /// A whole store, but not the one that was asked for.
    #[error(
        "`{}` is another corpus store: expected {expected}, found {found}; give the one that was profiled, or \
         profile and plan with this one",
        path.display()
    )]
    OtherStore {
        /// The file.
        path: PathBuf,
        /// Digest of the store that was asked for.
        expected: String,
        /// Digest of this one.
        found: String,
    },
    /// A store that was scored by another model.
    #[error(
        "the corpus store `{}` was built with another model: expected {expected}, found {found}; build one with this model by \
         `yggc corpus build`",
        path.display()
    )]
    OtherModel {
        /// The file.
        path: PathBuf,
        /// Digest of the model at hand.
        expected: String,
        /// Digest of the model that scored it.
        found: String,
    },
    /// A store with tokens that the model does not have.
    #[error(
        "the corpus store `{}` is of another vocabulary: expected at most {expected} tokens, found {found}; build one with this \
         model by `yggc corpus build`",
        path.display()
    )]
    Vocabulary {
        /// The file.
        path: PathBuf,
        /// Tokens of the model at hand.
        expected: usize,
        /// Tokens of the store's.
        found: u32,
    },
    /// More tokens than 32-bit places can number.
    #[error("a corpus of {found} tokens: expected fewer than {expected}; keep fewer")]
    TooLarge {
        /// The limit.
        expected: u64,
        /// What was given.
        found: u64,
    },
}
