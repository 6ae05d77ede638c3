//! Memory maps with a safe interface: model files and corpus stores are read through [`MappedFile`]. Also files with a
//! checked header ([`Seal`]) or a lock ([`LockedFile`]), the free space of disks, threads that read files when idle, reads past the system's
//! cache and at places of a file, and what is wrong with a JSON text.
//!
//! Invariant: the bytes lent by a map live as long as any clone of it, never move, and number [`MappedFile::len`].
//!
//! **A file must not change while it is mapped.** Bytes written in place become visible, and reading a page beyond a
//! new, shorter end raises `SIGBUS`. No program can exclude this on Unix. Three measures limit it. `yggc` writes every
//! file under another name and renames it, so existing maps keep the old bytes; replace model files the same way. After
//! reading related bytes a caller checks [`MappedFile::check_unchanged`]. A program that calls [`tell_file_faults`]
//! exits with an error that names the file, instead of being killed.

mod atomic_file;
mod copied_bytes;
mod direct_file;
mod disk;
mod file_faults;
mod file_stamp;
mod heap;
mod idle_thread;
mod json_fault;
mod locked_file;
mod mapped_file;
mod placed_bytes;
mod sealed_file;

pub use atomic_file::replace_file;
pub use copied_bytes::CopiedBytes;
pub use direct_file::open_direct;
pub use disk::free_bytes;
pub use file_faults::tell_file_faults;
pub use file_stamp::FileStamp;
pub use heap::share_heap;
pub use idle_thread::when_idle;
pub use json_fault::json_fault;
pub use locked_file::LockedFile;
pub use mapped_file::{MappedFile, StorageError};
pub use placed_bytes::{read_at, read_exact_at, write_all_at};
pub use sealed_file::{Seal, SealError};
