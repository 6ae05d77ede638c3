//! How deep the next step drafts, asked before anything is drafted, so that all draft forwards follow without a decision.

use crate::{
    plan::{DepthCost, DepthCosts, DepthNetwork},
    policy::{DepthScratch, normalise, reach_probabilities},
    runtime::Session,
};

use super::SpeculateError;

/// Writes what depth networks see of a place in a text, `[2 D]`: the last hidden row of `output` of the session's last
/// forward, normalised, and the embedding of `token`, which that row gave. Allocates nothing.
///
/// # Panics
/// If `features` has another length, or the session has run no forward with such an output.
pub fn depth_features(session: &Session, output: usize, token: u32, features: &mut [f32]) {
    let hidden = session.hidden(output).expect("a forward gave the token");
    let (normalised, embedding) = features.split_at_mut(hidden.len());
    normalise(hidden, normalised);
    session.embedding(token, embedding);
}

/// A sub-plan's choice of depth, with the network it goes by.
#[derive(Debug)]
pub(super) struct DepthPolicy {
    costs: DepthCosts,
    network: DepthNetwork,
    scratch: DepthScratch,
}

impl DepthPolicy {
    /// # Errors
    /// [`SpeculateError::Shape`] if the network is for a model of another width, or the deepest choice is not `depth`.
    pub(super) fn new(
        costs: DepthCosts,
        network: DepthNetwork,
        depth: usize,
        session: &Session,
    ) -> Result<Self, SpeculateError> {
        let inputs = 2 * session.set().model_width();
        if network.inputs() != inputs {
            let expected = format!("{inputs}, two rows of the model's width");
            let found = network.inputs();
            return Err(SpeculateError::Shape { what: "inputs of the depth network", expected, found });
        }
        let deepest = costs.costs.last().map_or(0, |cost| cost.depth as usize);
        if deepest != depth {
            let expected = format!("{depth}, the depth of the shape");
            return Err(SpeculateError::Shape { what: "deepest choice", expected, found: deepest });
        }
        Ok(Self { costs, network, scratch: DepthScratch::with_inputs(inputs) })
    }

    /// The depth of a step from `root`, which output `output` of the last forward gave; `most` at most.
    pub(super) fn choose(&mut self, session: &Session, output: usize, root: u32, most: usize) -> DepthCost {
        depth_features(session, output, root, self.scratch.features_mut());
        let predicted = reach_probabilities(&self.network, &mut self.scratch);
        self.costs.choose(predicted, u32::try_from(most).unwrap_or(u32::MAX))
    }
}
