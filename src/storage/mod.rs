//! What differs between operating systems, each behind one door: no other room asks which system it is built for.
//!
//! Memory maps have a safe interface: model files and corpus stores are read through [`MappedFile`]. Files are locked
//! ([`LockedFile`]), replaced whole ([`replace_file`]), read at places and past the system's cache; they have a checked
//! header ([`Seal`]) or a stamp of their last change ([`FileStamp`]). Here are also the processors that threads run on,
//! threads that run when idle, free memory and disks, signals that end a program, and what is wrong with a JSON text.
//!
//! Invariant: the bytes lent by a map live as long as any clone of it, never move, and number [`MappedFile::len`].
//!
//! **A file must not change while it is mapped.** Bytes written in place become visible, and reading a page beyond a
//! new, shorter end raises `SIGBUS`. No program can exclude this on Unix; Windows lets nobody shorten a mapped file.
//! Three measures limit it. `yggc` writes every file under another name and renames it, so existing maps keep the old
//! bytes; replace model files the same way. After reading related bytes a caller checks
//! [`MappedFile::check_unchanged`]. A program that calls [`tell_file_faults`] exits with an error that names the file,
//! instead of being killed.

mod atomic_file;
mod copied_bytes;
mod direct_file;
mod disk;
mod file_faults;
mod file_stamp;
mod free_memory;
mod heap;
mod idle_thread;
mod json_fault;
mod last_use;
mod locked_file;
mod mapped_file;
mod path_bytes;
mod placed_bytes;
mod private_files;
mod processors;
mod sealed_file;
#[cfg(feature = "cli")]
mod signals;

pub use atomic_file::{install_file, rename_over, replace_file};
pub use copied_bytes::CopiedBytes;
pub use direct_file::open_direct;
pub use disk::free_bytes;
pub use file_faults::tell_file_faults;
pub use file_stamp::FileStamp;
pub use free_memory::free_memory;
pub use heap::share_heap;
pub use idle_thread::when_idle;
pub use json_fault::json_fault;
pub use last_use::mark_used;
pub use locked_file::LockedFile;
pub use mapped_file::{MappedFile, StorageError};
pub use path_bytes::{path_bytes, path_from_bytes};
pub use placed_bytes::{read_at, read_exact_at, write_all_at};
pub use private_files::{create_private_folder, open_private};
pub(crate) use processors::{WorkerPlaces, processors};
pub use sealed_file::{Seal, SealError};
#[cfg(feature = "cli")]
pub use signals::{EndSignal, SignalWatch};
