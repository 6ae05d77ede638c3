//! What becomes of kept prefixes, for people.

use std::{fmt, path::PathBuf};

/// Is told what a user should know, on whichever thread learns it.
pub(super) type Notify = dyn Fn(PrefixNote) + Send + Sync;

/// What a user should know of a store. Each variant displays as one line; each is told once for a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PrefixNote {
    /// Another process has the file: this one keeps prefixes in memory alone.
    InUse(PathBuf),
    /// Nothing more is kept in this file or folder, for this reason.
    Stopped(PathBuf, String),
    /// Blocks in this file are damaged; they were dropped, and what they had is computed again.
    Damaged(PathBuf),
}

impl fmt::Display for PrefixNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse(path) => write!(
                f,
                "prefixes are kept in memory alone: expected to be the only user of `{}`, found another process that \
                 uses it",
                path.display()
            ),
            Self::Stopped(path, why) => write!(
                f,
                "prefixes are no longer kept in `{}`: {why}; answers go on, and long prompts are read again after a \
                 restart",
                path.display()
            ),
            Self::Damaged(path) => write!(
                f,
                "kept prefixes in `{}` are damaged: expected the bytes that were written, found others; what they had \
                 is computed again; if this comes back, check the disk",
                path.display()
            ),
        }
    }
}
