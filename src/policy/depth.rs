//! Predicting how deep to draft while decoding: the depth network over storage reserved once.
//!
//! Yggdrasil (NeurIPS 2025, <https://arxiv.org/abs/2512.23858>), depth prediction: before a step drafts, a small
//! network sees the last hidden row of the verify row that gave the bonus token, and that token's embedding.
use ygg_profiler::{DEEPEST, DepthNetwork, UNITS};

/// Added to the mean square of a hidden row, so that a row of zeros stays one.
const FLOOR: f32 = 1e-12;

/// Storage that predictions reuse between steps.
#[derive(Debug, Clone)]
pub struct DepthScratch {
    features: Vec<f32>,
    reach: [f64; DEEPEST],
}

impl DepthScratch {
    /// Room for networks of `inputs` inputs.
    pub fn with_inputs(inputs: usize) -> Self {
        DepthScratch { features: vec![0.0; inputs], reach: [0.0; DEEPEST] }
    }

    /// Where the features of a step are written, `[I]`: see [`normalise`].
    pub fn features_mut(&mut self) -> &mut [f32] {
        &mut self.features
    }
}

/// Writes a hidden row `[D]` as networks see it: divided by its root mean square. What a final norm does beyond that
/// (its gain) is undone by the standardisation of the inputs.
///
/// # Panics
/// If `out` has another length.
pub fn normalise(hidden: &[f32], out: &mut [f32]) {
    assert_eq!(hidden.len(), out.len(), "a hidden row and its place");
    let square: f32 = hidden.iter().map(|x| x * x).sum();
    let factor = 1.0 / (square / hidden.len() as f32 + FLOOR).sqrt();
    for (out, x) in out.iter_mut().zip(hidden) {
        *out = x * factor;
    }
}

/// P(accepted >= d) for every depth `[D]` by the features in `scratch`; never rising with depth. Allocates nothing.
///
/// # Panics
/// If the scratch was made for another number of inputs, or the network is not valid.
pub fn reach_probabilities<'s>(network: &DepthNetwork, scratch: &'s mut DepthScratch) -> &'s [f64] {
    let DepthScratch { features, reach } = scratch;
    assert_eq!(features.len(), network.inputs(), "features and inputs");
    let layers = network.layers();
    let standard = features.iter().zip(network.mean.iter().zip(&network.scale));
    let standard = standard.map(|(x, (mean, scale))| (x - mean) * scale);
    let first = layer(standard, layers.first, layers.first_bias);
    let second = layer(first.into_iter(), layers.second, layers.second_bias);
    let reach = &mut reach[..network.depths as usize];
    let heads = layers.heads.chunks_exact(UNITS).zip(layers.head_bias);
    let mut reached = 1.0;
    for (reach, (weights, bias)) in reach.iter_mut().zip(heads) {
        let sum: f32 = weights.iter().zip(&second).map(|(w, x)| w * x).sum();
        reached *= f64::from(sigmoid(sum + bias));
        *reach = reached;
    }
    reach
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// `silu(x · weights + bias)`, weights by input: `[I, U]`.
fn layer(inputs: impl Iterator<Item = f32>, weights: &[f32], bias: &[f32]) -> [f32; UNITS] {
    let mut sums = [0.0; UNITS];
    sums.copy_from_slice(bias);
    for (x, weights) in inputs.zip(weights.chunks_exact(UNITS)) {
        for (sum, weight) in sums.iter_mut().zip(weights) {
            *sum += x * weight;
        }
    }
    sums.map(|x| x * sigmoid(x))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_told_is_what_the_trainer_says(
            inputs in 1..40_usize, depths in 1..9_usize, seed in any::<u32>(), scale in 0.01f32..3.0,
        ) {
            let mut state = seed;
            let mut number = || {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 8) as f32 / (1 << 23) as f32 - 1.0
            };
            let mut network = DepthNetwork::blank(inputs, depths);
            network.parameters.iter_mut().for_each(|weight| *weight = scale * number());
            network.mean.iter_mut().for_each(|mean| *mean = number());
            network.scale.iter_mut().for_each(|scale| *scale = 1.0 + number());
            let features: Vec<f32> = (0..inputs).map(|_| 2.0 * number()).collect();
            let expected = network.probabilities(&features);
            let mut scratch = DepthScratch::with_inputs(inputs);
            // What an earlier step left is of no account.
            let _earlier = reach_probabilities(&network, &mut scratch);
            scratch.features_mut().copy_from_slice(&features);
            let reach = reach_probabilities(&network, &mut scratch);
            prop_assert_eq!(reach.len(), depths);
            prop_assert!(reach.is_sorted_by(|a, b| a >= b), "{:?}", reach);
            for (reach, expected) in reach.iter().zip(&expected) {
                prop_assert!((reach - expected).abs() < 1e-4, "{} instead of {}", reach, expected);
            }
        }
    }

    #[test]
    fn a_normalised_row_has_a_mean_square_of_one() {
        let mut out = [0.0; 4];
        normalise(&[3.0, -3.0, 3.0, 3.0], &mut out);
        assert_eq!(out, [1.0, -1.0, 1.0, 1.0]);
        normalise(&[0.0; 4], &mut out);
        assert_eq!(out, [0.0; 4]);
    }
}
