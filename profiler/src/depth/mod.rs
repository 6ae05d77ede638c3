//! The depth predictor: how many drafted tokens a step will accept, told before anything is drafted.
//!
//! Yggdrasil (NeurIPS 2025, <https://arxiv.org/abs/2512.23858>), depth prediction. A [`DepthNetwork`] sees what the verifier
//! left behind (a hidden row and the embedding of the token that follows it) and gives P(accepted >= d) for every depth d.
//! [`cross_fit`] trains it on recorded steps, and tells every recorded step what a network says that saw nothing of its
//! prompt, so that whoever replays the steps is not told by heart.
//!
//! Invariants: same samples, settings and clock, same numbers; probabilities never rise with depth, because heads give
//! P(accepted >= d given accepted >= d - 1) and are multiplied.

mod cross_fit;
mod network;
#[cfg(test)]
mod tests;
mod training;

pub use cross_fit::{CrossFit, DepthPredictor, DepthReport, TrainingSettings, cross_fit};
pub use network::{DEEPEST, DepthNetwork, Layers, NetworkFault, UNITS};
pub use training::DepthSample;
