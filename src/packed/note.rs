//! What becomes of packed weights, for people.

use std::{fmt, path::PathBuf};

/// What happened to the packed weights of a model. Each variant displays as one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PackedNote {
    /// They were read from the folder into memory.
    Read(PathBuf),
    /// The stored file is mapped: it is too large to read, or the system refused the memory.
    Mapped(PathBuf),
    /// They were packed and stored.
    Kept(PathBuf),
    /// The stored ones belong to another version of the model or of the code layout; the weights are packed again.
    Outdated(PathBuf),
    /// They were not stored this time, for this reason; a later start may store them.
    Later(&'static str),
    /// They are not stored because their file exceeds the limit of the folder.
    TooLarge {
        /// Bytes of their file.
        needed: u64,
        /// Limit of the folder in bytes.
        limit: u64,
    },
    /// The stored file is damaged in this way; the weights are packed again.
    Damaged(PathBuf, String),
    /// They cannot be stored, for this reason; the model works without.
    Refused(PathBuf, String),
}

impl PackedNote {
    /// Whether the user should act on it.
    pub fn is_warning(&self) -> bool {
        match self {
            Self::Read(_) | Self::Mapped(_) | Self::Kept(_) | Self::Outdated(_) | Self::Later(_) => false,
            Self::Damaged(..) | Self::Refused(..) | Self::TooLarge { .. } => true,
        }
    }
}

impl fmt::Display for PackedNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(path) => write!(f, "packed weights are read from `{}`", path.display()),
            Self::Mapped(path) => write!(f, "packed weights are mapped from `{}`", path.display()),
            Self::Kept(path) => write!(f, "packed weights are kept in `{}`", path.display()),
            Self::Outdated(path) => {
                write!(
                    f,
                    "the packed weights in `{}` are of another state of the model or of yggc",
                    path.display()
                )
            }
            Self::Later(why) => write!(f, "packed weights are not kept this time: {why}"),
            Self::TooLarge { needed, limit } => write!(
                f,
                "packed weights are not kept: expected at most the folder's {} MB, found {} MB; the model runs, and is \
                 packed again next time unless the limit is raised",
                limit / 1_000_000,
                needed.div_ceil(1_000_000)
            ),
            Self::Damaged(path, how) => write!(
                f,
                "the packed weights in `{}` are damaged: {how}; the model is packed again; if this comes back, check \
                 the disk",
                path.display()
            ),
            Self::Refused(path, why) => write!(
                f,
                "packed weights cannot be kept in `{}`: {why}; the model runs, and is packed again next time",
                path.display()
            ),
        }
    }
}
