//! Weights as backends have packed them, kept in files between starts: a folder with one file per model.
//!
//! A backend names by a [`PackedDigest`] how it packs. [`KeptWeights`] gives what is kept under it, in memory, mapped,
//! or as an open file to stream from, and takes parts to keep. The room knows no layout and no model: of a model it is
//! given path, fingerprint and file stamps.
//!
//! ```text
//! <folder>/DIGEST.packed            the digest is of the model's path; `file` has the format
//! <folder>/.DIGEST.packed.partial   being written, under the lock
//! <folder>/lock
//! ```
//!
//! Invariants:
//! - A file appears by one rename, after its weights were read back and their digest compared.
//! - A file is used only if the digest of its header is right, its length is the header's, 64 evenly spaced sample
//!   pages are unchanged, and code layout, model fingerprint and file stamps are the present ones. Otherwise the model
//!   is packed again.
//! - Opening does not read the weights between the samples. Only [`KeptFile::check`], which reads the whole file, finds
//!   damage there.
//! - The folder stays within its limit. Storing another model first removes the weights of models that no longer exist,
//!   then the least recently used ones.
#![forbid(unsafe_code)]

mod file;
mod folder;
mod kept_weights;
mod note;
mod parts;

pub use folder::{KeptFile, KeptPlace, kept_files};
pub use kept_weights::{KeptModel, KeptWeights};
pub use note::PackedNote;
pub use parts::{Append, KEPT_ALIGNMENT, KeptBytes, PackPart, PackedDigest, PackedFile};

#[cfg(test)]
mod tests;
