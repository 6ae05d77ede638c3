//! The corpus store: texts that the verifier finds probable, as tokens in a sorted, memory-mapped index.
//!
//! [`Corpus`] collects snippets and sorts them into the bytes of a store; [`CorpusStore`] maps one, checks it, and
//! finds how texts went on after given tokens. After SPECTRA (ACL 2025, "external" knowledge) and REST
//! (<https://arxiv.org/abs/2311.08252>), which finds the continuations of the longest known suffix. Beside the texts a
//! store holds what the model itself usually offers after one, two and three tokens ([`Offer`]).
//!
//! Invariants: a store is checked whole when it is opened, so damage is refused; what is read later is bounds-checked
//! again, since another process may write into a mapped file: then lookups find other tokens of the vocabulary, or
//! none, and no output changes.

mod error;
mod layout;
mod prior;
mod sort;
mod store;
#[cfg(test)]
mod tests;

pub use error::StoreError;
pub use layout::{LONGEST_MATCH, PRIOR_OFFERS, PRIOR_TOKENS, SORTED_TOKENS};
pub use prior::Offer;
pub use sort::Corpus;
pub use store::{CorpusStore, Match, Occurrences, PROBES};
