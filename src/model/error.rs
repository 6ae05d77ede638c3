//! Why a model could not be read, or not written.

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

use crate::{ir::GraphError, storage::StorageError};

/// Why a path is not a model we can run. Every variant but [`Write`](Self::Write) is the fault of the file.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// A file could not be mapped.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// A file or folder could not be read.
    #[error("cannot read `{}`: {source}; expected a .gguf file or a folder with config.json, tokenizer.json and \
        *.safetensors: check the path", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file of a model could not be written.
    #[error("cannot write `{}`: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The path holds no model at all.
    #[error(
        "`{}` is not a model: expected a .gguf file or a folder with config.json, tokenizer.json and *.safetensors, \
         found {found}", path.display()
    )]
    NotAModel {
        /// The path.
        path: PathBuf,
        /// What is there.
        found: String,
    },
    /// The bytes end inside something.
    #[error("{what}: expected {needed} more bytes, found {left}: the file ends early; download it again")]
    Truncated {
        /// What was being read.
        what: String,
        /// Bytes it still takes.
        needed: u64,
        /// Bytes that are left.
        left: u64,
    },
    /// Something is there and is wrong.
    #[error("{what}: expected {expected}, found {found}")]
    Invalid {
        /// Key, tensor or part of the file.
        what: String,
        /// The rule.
        expected: String,
        /// The breach.
        found: String,
    },
    /// The file is valid, but asks for something that this version cannot run.
    #[error("{what}: {found} is not supported; supported: {supported}")]
    Unsupported {
        /// Key, tensor or part of the file.
        what: String,
        /// What the file asks for.
        found: String,
        /// What would run.
        supported: String,
    },
    /// A configuration key is missing.
    #[error("key `{key}` is missing; expected {expected}")]
    MissingKey {
        /// The key.
        key: String,
        /// What it should say.
        expected: &'static str,
    },
    /// A tensor is missing.
    #[error("tensor `{name}` is missing; expected shape {shape:?}")]
    MissingTensor {
        /// The tensor.
        name: String,
        /// Shape the configuration gives it, outermost dimension first.
        shape: Vec<usize>,
    },
    /// The family built an invalid graph from a checked configuration.
    #[error("the model's graph is invalid: {0}")]
    Graph(#[from] GraphError),
    /// One of the above, in this file.
    #[error("`{}`: {error}", path.display())]
    InFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: Box<ModelError>,
    },
}

impl ModelError {
    pub(in crate::model) fn invalid(
        what: impl fmt::Display,
        expected: impl fmt::Display,
        found: impl fmt::Display,
    ) -> Self {
        Self::Invalid { what: what.to_string(), expected: expected.to_string(), found: found.to_string() }
    }

    pub(in crate::model) fn unsupported(
        what: impl fmt::Display,
        found: impl fmt::Display,
        supported: impl fmt::Display,
    ) -> Self {
        Self::Unsupported {
            what: what.to_string(),
            found: found.to_string(),
            supported: supported.to_string(),
        }
    }

    /// Says in which file it happened, unless the error already does.
    pub(in crate::model) fn in_file(self, path: &Path) -> Self {
        match self {
            Self::Storage(_)
            | Self::Read { .. }
            | Self::Write { .. }
            | Self::NotAModel { .. }
            | Self::InFile { .. } => self,
            Self::Truncated { .. }
            | Self::Invalid { .. }
            | Self::Unsupported { .. }
            | Self::MissingKey { .. }
            | Self::MissingTensor { .. }
            | Self::Graph(_) => Self::InFile { path: path.to_owned(), error: Box::new(self) },
        }
    }
}
