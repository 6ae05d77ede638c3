//! Logits to tokens: the standardised distribution of a request and its draw.
//!
//! Everything is a pure function of its arguments. The token at an output position depends on the verifier's logits
//! (bit for bit), the request's [`Sampling`] and the position, never on what was drafted or on earlier draws;
//! this is what makes speculative output equal plain output under a seed. All arithmetic that decides a
//! verifier's token is written out here, without the platform's mathematics library, in a fixed order.
//!
//! * [`Adjuster`]: logit bias and penalties
//! * [`Sampler`]: temperature, top-k, top-p, min-p, then one keyed draw
//! * [`argmax`]: greedy decoding, lowest id on ties
//! * [`Candidate`]: a continuation and its log-probability, for tree growth
//! * [`Coupling`]: candidates in the order in which the noise of a request will choose among them
//! * [`LogNormaliser`]: log-probabilities to report

#![forbid(unsafe_code)]

mod adjustment;
mod candidate;
mod coupling;
mod exp;
mod log_prob;
mod parameter;
mod rank;
mod sampler;
mod sampling;

pub use adjustment::{Adjuster, Adjustment};
pub use candidate::Candidate;
pub use coupling::Coupling;
pub use log_prob::LogNormaliser;
pub use parameter::{Parameter, Values};
pub use rank::{argmax, top};
pub use sampler::Sampler;
pub use sampling::{SampleError, Sampling};
