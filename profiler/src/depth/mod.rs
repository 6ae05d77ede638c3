//! The depth predictor: predicts, before a step drafts, how many drafted tokens it will accept.
//!
//! Yggdrasil (NeurIPS 2025, <https://arxiv.org/abs/2512.23858>), depth prediction. A [`DepthNetwork`] reads what the
//! last verification left (a hidden row and the embedding of the token that follows it) and gives P(accepted >= d) for
//! every depth d. [`cross_fit`] trains it on recorded steps. It also gives every recorded step the prediction of a
//! network that was not trained on the step's prompt, so that replays are out of sample.
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
