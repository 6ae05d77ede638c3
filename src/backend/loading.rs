//! What programs are loaded with.

use std::fmt;

use crate::{
    ir::{WeightId, WeightSource},
    packed::KeptWeights,
};

/// What the programs of a model are loaded with.
#[derive(Clone, Copy)]
pub struct Loading<'a> {
    /// Lends the weights.
    pub weights: &'a dyn WeightSource,
    /// Where packed copies of these very weights are kept. Processors stream from there.
    pub kept: Option<&'a KeptWeights>,
    /// Told when a weight lies where forwards read it, perhaps more than once.
    pub watch: &'a (dyn Fn(WeightId) + Sync),
}

impl<'a> Loading<'a> {
    /// Weights of which no packed copies are kept, and that nobody watches.
    pub fn of(weights: &'a dyn WeightSource) -> Self {
        Self { weights, kept: None, watch: &|_| () }
    }

    pub(super) fn note(&self, weights: &[WeightId]) {
        weights.iter().copied().for_each(self.watch);
    }
}

impl fmt::Debug for Loading<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loading").field("kept", &self.kept).finish_non_exhaustive()
    }
}
