//! A digest of every tensor, which tells a changed byte where [`ModelFingerprint`](super::ModelFingerprint) samples
//! only.

use std::{collections::BTreeMap, path::Path};

use super::{Model, ModelError, TensorInfo, TensorTable, pieces};
use crate::storage::{FileStamp, MappedFile};

/// The files of a model for hashing, apart from the model: a thread may hold them while the model is used. Nothing is
/// read before it is asked for.
#[derive(Clone, Debug)]
pub struct Contents {
    files: Vec<MappedFile>,
    tensors: TensorTable,
}

impl Model {
    /// Its files, for hashing.
    pub fn contents(&self) -> Contents {
        Contents { files: self.files().to_vec(), tensors: self.tensors.clone() }
    }
}

impl Contents {
    /// Their paths.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(MappedFile::path)
    }

    /// Stamps of the files, as they are now; `None` on systems that note no changes.
    ///
    /// # Errors
    /// [`ModelError::Storage`] if the system does not give them.
    pub fn stamps(&self) -> Result<Option<Vec<FileStamp>>, ModelError> {
        Ok(FileStamp::of_all(&self.files)?)
    }

    /// Digests of the bytes of all tensors in hexadecimal, by name. Reads every file whole.
    ///
    /// # Errors
    /// [`ModelError::Storage`] if a file was written into meanwhile.
    pub fn digests(&self) -> Result<BTreeMap<String, String>, ModelError> {
        let digest = |info: &TensorInfo| {
            let mut hasher = blake3::Hasher::new();
            for bytes in pieces(&self.files, info) {
                hasher.update(bytes);
            }
            hasher.finalize().to_hex().to_string()
        };
        let digests = self.tensors.iter().map(|(name, info)| (name.clone(), digest(info))).collect();
        self.files.iter().try_for_each(MappedFile::check_unchanged)?;
        Ok(digests)
    }
}
