//! One request's state: executables of every planned width, and a session that runs them over one cache.
//!
//! Law of slots: the committed token at position `p` is in slot `p`; rows of a tree go to scratch slots after the
//! committed prefix; [`Session::commit`] gathers the accepted path down to the prefix and the rest is discarded.
//! Verification rewrites every layer of every row it reads, so drafters that share the cache may write scratch freely.
//!
//! Graphs that are derived from the model's belong here: a forward may leave sub-layers out ([`SkipSet`]), choose among
//! some tokens only or multiply by fewer bits ([`DraftVariant`]). A drafter model has executables of its own, kept with
//! those of its verifier, and a session of its own on the verifier's threads.
#![forbid(unsafe_code)]

mod block;
mod draft_sets;
#[cfg(feature = "planner")]
mod eager;
mod error;
mod executable_set;
mod hidden_rows;
mod logits;
mod observation;
mod phase;
mod role;
mod saved;
mod session;
mod session_options;
#[cfg(test)]
pub(crate) mod tests;

mod tuning;
mod variants;
mod verification;

pub use block::MarkovHead;
pub use error::RuntimeError;
pub use executable_set::{ExecutableSet, Memory, SetOptions, SkipSet};
pub use logits::Logits;
pub use observation::StepFacts;
pub use phase::{DraftPhase, DraftPhaseSize};
pub use role::DraftVariant;
pub use saved::BLOCK_TOKENS;
pub use session::{Choices, Forward, Session};
pub use session_options::SessionOptions;
pub use variants::VariantChange;
pub use verification::{GrownVerification, Walked};

pub use crate::{
    backend::{Accepted, Arithmetic, Exercise, GrowingTree, Grown, Moment, Pinning, Tuning},
    ir::{
        BlockRows, Candidates, Choice, Id, LinearShape, Noise, Placed, StepId, WeightSplit, WeightSplits,
        Work,
    },
};
