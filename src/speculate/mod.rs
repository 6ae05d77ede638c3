//! Draft, verify, accept, commit: speculative decoding whose output is exactly plain decoding's.
//!
//! A [`Drafter`] fills a token tree, the verifier checks the planned number of its nodes in one forward, and acceptance
//! walks from the root: at each node the verifier's own token is drawn with that position's random number, and the walk
//! goes on if a child carries it. So a token depends only on the verifier's logits, the seed and the position, whatever
//! was drafted (Leviathan et al., ICML 2023, with the sampler-match rule). Nothing in a step allocates. A depth network
//! may predict before a step how deep drafting pays, a guard may stop a request's drafting and try it again later, and
//! measured times may correct the costs of rows, by the functions in `policy`: that changes the number of steps and no
//! token. Under the schedule that drafts heads ahead, a step drafts what the next one begins with; that changes no
//! tree. A device may grow the trees of a step, or verify, walk and commit by itself, with identical output. The
//! temperature of a request may choose its drafter and shape, and its length the depth and rows of its steps. A request
//! may have a grammar: its mask is a part of what the verifier says after a row, so the walk asks for it along the
//! accepted path alone, one mask for every emitted token as in plain decoding. Such requests are walked by the host,
//! from logits, and the grammar's work allocates.
#![forbid(unsafe_code)]

mod accept;
mod band;
mod branches;
pub mod corpus;
mod decoder;
mod depth;
mod drafter;
mod error;
mod node_masks;
mod offered;
mod policy;
mod row_sampler;
mod sequence;
mod shape;
mod stats;
mod step_outcome;
#[cfg(test)]
mod tests;
mod tree_forward;

pub use crate::{plan::StepStage, sample::Candidate};
pub use accept::{Limits, Said, Walk};
pub use band::BandSteps;
pub use corpus::{CorpusStore, StoreError};
pub use decoder::{Begin, Decoder, KeptPrefixes, ReadBranches, Reading, Reuse, Shelves, StepReport};
pub use depth::depth_features;
pub use drafter::*;
pub use error::SpeculateError;
pub use policy::GuardCounts;
pub use row_sampler::LogProbs;
pub use sequence::Speculation;
pub use shape::StepShape;
pub use stats::{ProposerCounts, Stats};
pub use step_outcome::{CandidateRows, StepOutcome};
