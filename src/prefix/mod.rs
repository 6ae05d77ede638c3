//! Kept prefixes: what a model computed of beginnings of texts, in memory and in files, so that none is run twice.
//!
//! A [`PrefixStore`] keeps *blocks*: of a fixed number of tokens the bytes that a session saves. The room knows no
//! model and no session; a [`Shelf`] of a store has the blocks of one [`Binding`], which names everything that their
//! bytes depend on. A block is found by a key made of binding, owner and all tokens up to its end.
//!
//! ```text
//! <folder>/DIGEST.prefixes   blocks of one binding, under its own lock; `layout` has the format
//! <folder>/lock              held while a file grows or one is removed
//! ```
//!
//! Invariants:
//! - A block is served only for the tokens that it has, compared one by one, to the [`Owner`] that kept it.
//! - A level (memory, a file) has a block only together with the block before it.
//! - Bytes from a file are served only if their BLAKE3 is the one that their checked header names. Of a place the
//!   header is cleared first, then the payload is written, then the header: whoever is killed at any point loses
//!   blocks, never an answer.
//! - Memory and folder stay within their limits after every operation. What is least recently used and cheapest to
//!   compute again goes first, the end of a text before its beginning.
//! - Nothing here fails a request: what cannot be kept or read is computed, and a [`PrefixNote`] says why.
#![forbid(unsafe_code)]

mod counts;
mod file;
mod folder;
mod guarded_queue;
mod key;
mod layout;
mod memory;
mod note;
mod readers;
mod restore;
mod store;
mod tree;
mod writer;

pub use counts::{PrefixCounts, Served};
pub use folder::{PrefixFile, prefix_files};
pub use key::{Binding, KeptText, Owner};
pub use note::PrefixNote;
pub use restore::Found;
pub use store::{PrefixDisk, PrefixLimits, PrefixStore, Shelf};
