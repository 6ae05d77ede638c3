//! The token tree of one speculation step: plain data, its growth, its pruning and its attention masks.
//!
//! A drafter fills a [`TokenTree`], the verifier checks its nodes in one forward, acceptance walks it from the
//! root. The tree knows no model, no cache and no clock: scores and values come in as numbers, and every function
//! here is deterministic, ties included. Nothing allocates after creation: all storage is reserved up front and
//! a full tree refuses.
//!
//! * [`TokenTree`], [`NodeId`], [`Source`]: the data and its law ([`TokenTree::check`]); pinned nodes are
//!   verified whatever their values
//! * [`Frontier`]: equal growth, the `width` best candidates attached anywhere
//! * [`Template`], [`Filling`]: the same shape at every step, filled by the rank of candidates
//! * [`select`], [`expected_tokens`], [`best_width`]: which nodes are worth a verify row
//! * [`tail_slots`]: which rows a row attends to

#![forbid(unsafe_code)]

mod check;
mod filling;
mod growth;
#[cfg(feature = "planner")]
mod make_template;
mod mask;
mod prune;
mod template;
mod token_tree;

pub use check::TreeError;
pub use filling::Filling;
pub use growth::Frontier;
pub use mask::tail_slots;
pub use prune::{PruneScratch, best_width, expected_tokens, select};
pub use template::{Level, Template, TemplateError};
pub use token_tree::{Ancestors, Children, Insert, NodeId, Source, TokenTree};
