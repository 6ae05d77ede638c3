//! Executables that run op by op: what static programs are measured against.

use crate::{
    backend, compile,
    ir::{Graph, WeightSource},
};

use super::{ExecutableSet, RuntimeError, SetOptions};

impl ExecutableSet {
    /// Like [`build`](Self::build), but every forward runs its ops one by one, unfused, each with a buffer of its own:
    /// what static programs are measured against. Sessions of such a set give the same bits, cannot skip groups, and
    /// allocate.
    ///
    /// # Errors
    /// As `build`, and for the reference tier.
    pub fn build_eager(
        graph: &Graph,
        weights: &dyn WeightSource,
        options: &SetOptions,
    ) -> Result<Self, RuntimeError> {
        Self::build_for(compile::compile_unfused, graph, options, |programs, device| {
            backend::load_eager(programs, device, weights, options.threads)
        })
    }
}
