//! Looking up a calibration: the probability that a drafter's score stands for.
use crate::{
    plan::{Calibration, Knot},
    tree::TokenTree,
};

impl Calibration {
    /// The probability that a node is accepted. It rises with the score.
    ///
    /// # Panics
    /// If the depth is 0, or the calibration is not valid.
    pub fn probability(&self, score: f32, depth: u32) -> f32 {
        let curve = (depth as usize).min(self.by_depth.len());
        probability(&self.by_depth[curve - 1], score)
    }

    /// Replaces the value of every node but the root by its probability.
    pub fn apply(&self, tree: &mut TokenTree) {
        for node in tree.nodes().skip(1) {
            let probability = self.probability(tree.value(node), tree.depth(node));
            tree.set_value(node, probability);
        }
    }
}

/// The probability of a score on one curve.
pub(crate) fn probability(curve: &[Knot], score: f32) -> f32 {
    // The first knot's score is 0, but a score that is NaN or below it must not reach before the start.
    let after = curve.partition_point(|knot| knot.score <= score);
    curve[after.max(1) - 1].probability
}
