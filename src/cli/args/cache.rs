//! Arguments of `yggc cache`.

use clap::{Args, Subcommand, ValueEnum};

/// Most characters of the name of a session: names of files may have 255 bytes.
const MOST_NAME: usize = 100;

/// The name of a session, which is that of a file.
pub(super) fn session_name(text: &str) -> Result<String, String> {
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "-_.".contains(character);
    let is_named = text.chars().all(is_plain) && !text.starts_with(['.', '-']);
    if is_named && (1..=MOST_NAME).contains(&text.len()) {
        return Ok(text.to_owned());
    }
    Err(format!("expected 1 to {MOST_NAME} letters, digits, `-`, `_` and `.`, and a letter or digit first"))
}

#[derive(Debug, Args)]
pub(crate) struct CacheArgs {
    #[command(subcommand)]
    pub(crate) command: CacheCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CacheCommand {
    /// List what is cached: kind, size, last use and name
    List {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Remove entries; a model goes with the packed weights made from it
    Rm {
        /// Names or paths, as `yggc cache list` prints them
        #[arg(value_name = "NAME", required = true)]
        names: Vec<String>,
    },
    /// Remove all entries of some kinds
    Clear {
        /// The kinds [default: all but hub, whose files other programs use too, and session, which nothing makes again]
        #[arg(value_name = "KIND", value_enum)]
        kinds: Vec<EntryKind>,
    },
    /// Read every model, packed file, file of prefixes, profile and plan whole, and compare it with what was written
    Check,
}

/// Kinds of cache entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum EntryKind {
    /// A known model
    Model,
    /// A repository of the Hugging Face hub, in the cache that its other programs share
    Hub,
    /// A model's packed weights
    Packed,
    /// What was computed of the beginnings of texts by a model
    Prefixes,
    /// A plan made on first use, with its profile
    Plan,
    /// A conversation of `yggc run --session`
    Session,
    /// Why no plan could be made on first use; without it the next use tries again
    Failure,
    /// Kernels compiled for a GPU
    Kernels,
    /// Digests of the tensors of models as they were first opened
    Contents,
    /// Remains of an interrupted download
    Partial,
}

impl EntryKind {
    /// As it is typed and printed.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Hub => "hub",
            Self::Packed => "packed",
            Self::Prefixes => "prefixes",
            Self::Plan => "plan",
            Self::Session => "session",
            Self::Failure => "failure",
            Self::Kernels => "kernels",
            Self::Contents => "contents",
            Self::Partial => "partial",
        }
    }
}
