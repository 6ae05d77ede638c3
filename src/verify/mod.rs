//! Proof on the machine at hand: that speculation changes no answer of this model, plan and build.
//!
//! [`verify`] checks property by property, each against something slow and obvious: rows in company against rows alone, answers
//! with speculation against plain decoding, a cache with any history against a fresh prefill, draws against the distribution,
//! ties against the order by definition, logits against the scalar reference. The same checks are run over planted faults by the
//! room's tests, each of which they must find; the test of draws shows at every run that it would find a biased sampler.
//!
//! What is checked is what serves: sessions of the [`Loaded`](crate::engine::Loaded) model with the plan's widths, and engines over it.
//! All choices are reproducible; the clock decides only how many cases are tried.
#![forbid(unsafe_code)]

mod answers;
mod cache;
mod case_seed;
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
pub use walk::{Progress, verify};
