//! Why a model of the hub could not be downloaded.

use std::path::PathBuf;

use crate::cli::cache::CacheError;

/// Whose fault it is, the variants say; what to do, their texts.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HubError {
    /// The user's.
    #[error("`{typed}` names no model of the hub: {why}; expected hf:OWNER/REPO or hf:OWNER/REPO/FILE.gguf")]
    Name { typed: String, why: &'static str },
    /// The user's, or the repository is not for everybody.
    #[error(
        "the hub at {endpoint} shows no model repository {repository} (HTTP {status}); check the name; if it is \
         private or its terms must be accepted first, accept them there and give a token, by HF_TOKEN or `hf auth \
         login`"
    )]
    NoRepository { endpoint: String, repository: String, status: u16 },
    /// The user's.
    #[error("{repository} has no file `{file}`: {there_are}")]
    NoFile { repository: String, file: String, there_are: String },
    /// The user's.
    #[error(
        "{repository} has no model that can be run: expected config.json, tokenizer.json and model.safetensors (or \
         the shards of model.safetensors.index.json), or a .gguf file or all parts of one; found {found}"
    )]
    NoModel { repository: String, found: String },
    /// The user's.
    #[error("{repository} has several .gguf files: name one of {names}")]
    Several { repository: String, names: String },
    /// The user's wish.
    #[error(
        "{name} is not whole in the cache {cache}, and HF_HUB_OFFLINE forbids to ask for it; fetch it once without \
         that variable, or give a model file with -m PATH.gguf"
    )]
    Offline { name: String, cache: PathBuf },
    /// The network's, or the hub has no time.
    #[error(
        "the hub at {endpoint} cannot be reached: {why}; check the network, and HF_ENDPOINT if it is set, and try \
         again: what was downloaded is kept; or give a model file with -m PATH.gguf"
    )]
    Network { endpoint: String, why: String },
    /// Whatever is there.
    #[error("what answers at {endpoint} is no hub: {why}; check HF_ENDPOINT")]
    NoHub { endpoint: String, why: String },
    /// The transfer's.
    #[error(
        "{file} of {repository} came damaged: expected {expected}, found {found}; it was removed, try again"
    )]
    Damaged { repository: String, file: String, expected: String, found: String },
    /// The repository's.
    #[error(
        "model.safetensors.index.json of {repository} names no weights: {why}; choose another repository"
    )]
    Index { repository: String, why: String },
    /// The file's, or what of it cannot be read is too long.
    #[error(
        "the header of {file} of {repository} cannot be read: {why}; choose another file, or fetch the model and give \
         its path with -m"
    )]
    Header { repository: String, file: String, why: String },
    #[error("another program is downloading the same: it holds {path}; try again when it is done")]
    Busy { path: PathBuf },
    #[error(
        "there is no folder for models of the hub: HF_HOME, HF_HUB_CACHE, XDG_CACHE_HOME and HOME name none; set \
         HF_HOME"
    )]
    NoFolder,
    #[error("{variable} is not text: expected UTF-8; set it again")]
    NotText { variable: &'static str },
    #[error(transparent)]
    Cache(#[from] CacheError),
}

impl HubError {
    /// Whether the requested model or file does not exist.
    pub(crate) fn is_input(&self) -> bool {
        match self {
            Self::Name { .. }
            | Self::NoRepository { .. }
            | Self::NoFile { .. }
            | Self::NoModel { .. }
            | Self::Several { .. }
            | Self::Index { .. }
            | Self::Header { .. }
            | Self::Offline { .. } => true,
            Self::Network { .. }
            | Self::NoHub { .. }
            | Self::Damaged { .. }
            | Self::Busy { .. }
            | Self::NoFolder
            | Self::NotText { .. }
            | Self::Cache(_) => false,
        }
    }
}
