//! Proof on the machine at hand: that speculation changes no answer of this model, plan and build.
//!
//! [`verify`] checks property by property, each against something slow and obvious: rows of a tree against rows alone,
//! answers with speculation against plain decoding, a cache with any history against a fresh prefill, draws against the
//! distribution, ties against the order by definition, logits against the scalar reference. The tests of this room
//! plant faults, which the checks must find; the test of draws shows in every run that it would find a biased sampler.
//!
//! The checks use what serves requests: sessions of the [`Loaded`](crate::engine::Loaded) model with the plan's widths,
//! and engines over it. All choices are reproducible; the clock decides only how many cases are tried.
#![forbid(unsafe_code)]

mod answers;
mod cache;
mod conformance;
mod distribution;
mod extent;
mod halt;
mod property;
mod rows;
mod subject;
mod ties;
mod walk;

#[cfg(test)]
mod tests;

pub use conformance::logit_tolerance;
pub use extent::Extent;
pub use property::{Property, Verdict, Verification};
pub use subject::VerifyOptions;
pub use walk::{Progress, property_names, verify};
