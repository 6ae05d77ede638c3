//! The one safe owner of memory maps: model files and corpus stores are read through [`MappedFile`]; and how much room disks have.
//!
//! Invariant: the bytes lent by a map live as long as any clone of it, never move, and number [`MappedFile::len`].
//!
//! **A file must not change while it is mapped.** Bytes written in place show through, and a page beyond a new, shorter end is
//! `SIGBUS` when it is touched. No program can exclude this on Unix. What there is against it: `yggc` writes every file under
//! another name and renames it, which leaves the old bytes to whoever has them mapped (replace model files the same way); whoever
//! has read what belongs together asks [`MappedFile::check_unchanged`], and refuses what was mixed; and a program that calls
//! [`tell_file_faults`] names the file whose page is gone and ends, where it would have been killed without a word.

mod copied_bytes;
mod disk;
mod file_faults;
mod file_stamp;
mod mapped_file;

pub use copied_bytes::CopiedBytes;
pub use disk::free_bytes;
pub use file_faults::tell_file_faults;
pub use file_stamp::FileStamp;
pub use mapped_file::{MappedFile, StorageError};
