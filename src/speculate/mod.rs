//! Draft, verify, accept, commit: speculative decoding whose output is exactly plain decoding's.
//!
//! A [`Drafter`] fills a token tree, the verifier checks the planned number of its nodes in one forward, and acceptance
//! walks from the root: at each node the verifier's own token is drawn with that position's random number, and the walk
//! goes on if a child carries it. So a token depends only on the verifier's logits, the seed and the position, whatever
//! was drafted (Leviathan et al., ICML 2023, with the sampler-match rule). Nothing in a step allocates. A depth network may tell
//! before a step how deep drafting pays, a guard may stop a request's drafting and try it again later, and the clock may correct
//! what rows cost, by the policies in `plan`; that changes how many steps there are, no token. Under the schedule that drafts
//! heads ahead, a step drafts what the next one begins with; that changes no tree. A device may grow the trees of a step, or verify,
//! walk and commit by itself; nothing tells the two apart but the clock. A request's temperature may choose who drafts and
//! in what shape.
#![forbid(unsafe_code)]

mod accept;
mod begin;
pub mod corpus;
mod decode;
mod depth;
mod drafter;
mod error;
mod guard;
mod lesson;
mod policy;
mod row_sampler;
mod sequence;
mod shape;
mod stats;
mod step;
#[cfg(test)]
mod tests;
mod tree_forward;
mod verification;
mod way;

pub use crate::sample::Candidate;
pub use accept::{Limits, Walk};
pub use begin::{Begin, Reuse, Speculation};
pub use corpus::{CorpusStore, StoreError};
pub use decode::Decoder;
pub use depth::depth_features;
pub use drafter::*;
pub use error::SpeculateError;
pub use guard::GuardCounts;
pub use lesson::{Lesson, Offers};
pub use policy::Policy;
pub use row_sampler::LogProbs;
pub use shape::Shape;
pub use stats::{ProposerCounts, Stage, Stats};
pub use step::StepReport;
