//! The one safe owner of memory maps: model files and corpus stores are read through [`MappedFile`].
//!
//! Invariant: the bytes lent by a map live as long as any clone of it, never move, and number [`MappedFile::len`].
//!
//! **A file must not change while it is mapped.** Bytes written in place show through (results become wrong), and a
//! page beyond a new, shorter end kills the process with `SIGBUS` when touched. No program can exclude this on
//! Unix; what protects our own files is that `yggc` writes every file under another name and renames it, which leaves
//! the old bytes to whoever has them mapped. Replace model files the same way.

mod mapped_file;

pub use mapped_file::{MappedFile, StorageError};
