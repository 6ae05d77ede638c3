//! The network's shape and weights: two layers of [`UNITS`] units, then one head per depth.
use serde::{Deserialize, Serialize};

/// Units of each of the two layers, `U`.
pub const UNITS: usize = 32;
/// Most depths that a network predicts.
pub const DEEPEST: usize = 64;

/// Weights of a network of `I` inputs and `D` depths, with the standardisation of its inputs.
///
/// With `x` the standardised inputs, `h = silu(first x + b)`, `g = silu(second h + c)`, and head d gives
/// `sigmoid(heads[d] g + e[d])`, the probability that a step which accepted d - 1 drafted tokens accepts another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DepthNetwork {
    /// Mean of every input `[I]` over the steps it was trained on.
    pub mean: Vec<f32>,
    /// What an input's distance from its mean is multiplied by `[I]`: 1 over the standard deviation, 0 for a constant.
    pub scale: Vec<f32>,
    /// Depths predicted, `D`.
    pub depths: u32,
    /// All weights, laid out as [`layers`](Self::layers) cuts them.
    pub parameters: Vec<f32>,
}

/// A network's weights, layer by layer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Layers<'a> {
    /// First layer, by input: `[I, U]`.
    pub first: &'a [f32],
    /// Its biases `[U]`.
    pub first_bias: &'a [f32],
    /// Second layer, by unit of the first: `[U, U]`.
    pub second: &'a [f32],
    /// Its biases `[U]`.
    pub second_bias: &'a [f32],
    /// Heads, by depth: `[D, U]`.
    pub heads: &'a [f32],
    /// Their biases `[D]`.
    pub head_bias: &'a [f32],
}

/// What is wrong with a network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("depth network: {what}: expected {expected}, found {found}")]
pub struct NetworkFault {
    /// Which part.
    pub what: &'static str,
    /// The rule.
    pub expected: String,
    /// What breaks it.
    pub found: String,
}

/// Lengths of the layers in the order of [`Layers`].
pub(super) fn lengths(inputs: usize, depths: usize) -> [usize; 6] {
    [inputs * UNITS, UNITS, UNITS * UNITS, UNITS, depths * UNITS, depths]
}

impl DepthNetwork {
    /// A network whose weights are all 0: it gives every conditional probability as a half.
    ///
    /// # Panics
    /// Without an input or a depth, or with more depths than [`DEEPEST`].
    pub fn blank(inputs: usize, depths: usize) -> Self {
        assert!(inputs >= 1 && (1..=DEEPEST).contains(&depths), "{inputs} inputs and {depths} depths");
        DepthNetwork {
            mean: vec![0.0; inputs],
            scale: vec![1.0; inputs],
            depths: u32::try_from(depths).expect("few depths"),
            parameters: vec![0.0; lengths(inputs, depths).iter().sum()],
        }
    }

    /// Inputs, `I`.
    pub fn inputs(&self) -> usize {
        self.mean.len()
    }

    /// The weights by layer.
    ///
    /// # Panics
    /// If the network is not valid.
    pub fn layers(&self) -> Layers<'_> {
        let mut rest = &self.parameters[..];
        let [first, first_bias, second, second_bias, heads, head_bias] =
            lengths(self.inputs(), self.depths as usize).map(|length| {
                let (layer, remaining) = rest.split_at(length);
                rest = remaining;
                layer
            });
        Layers { first, first_bias, second, second_bias, heads, head_bias }
    }

    /// Checks sizes and numbers.
    ///
    /// # Errors
    /// [`NetworkFault`] names the first thing that is wrong.
    pub fn validate(&self) -> Result<(), NetworkFault> {
        let DepthNetwork { mean, scale, depths, parameters } = self;
        let fault = |what, expected: String, found: String| Err(NetworkFault { what, expected, found });
        let depths = *depths as usize;
        if mean.is_empty() || scale.len() != mean.len() {
            let found = format!("{} means and {} scales", mean.len(), scale.len());
            return fault("inputs", "one or more, each with mean and scale".to_owned(), found);
        }
        if !(1..=DEEPEST).contains(&depths) {
            return fault("depths", format!("1 to {DEEPEST}"), depths.to_string());
        }
        let expected: usize = lengths(mean.len(), depths).iter().sum();
        if parameters.len() != expected {
            return fault("weights", expected.to_string(), parameters.len().to_string());
        }
        if let Some(bad) = mean.iter().chain(scale).chain(parameters).find(|number| !number.is_finite()) {
            return fault("weights", "finite numbers".to_owned(), bad.to_string());
        }
        Ok(())
    }
}
