//! The weights that an op reads.

use super::{Head, Norm, Op, WeightId};

/// The weights that an op reads, by what it does with them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OpWeights<'a> {
    /// It reads none.
    Nothing,
    /// Rows of a matrix, by token.
    Rows(WeightId),
    /// A gain without a product.
    Gain(Norm),
    /// Any other vectors, each by itself.
    Vectors(&'a [WeightId]),
    /// A product with matrices concatenated by rows.
    Stack {
        /// The matrices.
        weights: &'a [WeightId],
        /// Their biases, or none.
        biases: &'a [WeightId],
        /// Normalisation fused in front.
        norm: Option<Norm>,
    },
    /// Two products of the same rows.
    Gated {
        /// The matrix under the function.
        gate: WeightId,
        /// The matrix whose products are multiplied by the gate's.
        up: WeightId,
        /// Normalisation fused in front.
        norm: Option<Norm>,
    },
    /// Products with some of these matrices, each packed by itself.
    Experts {
        /// The matrices.
        experts: &'a [WeightId],
        /// Their biases, or none.
        biases: &'a [WeightId],
    },
}

impl Op {
    /// The weights it reads.
    pub fn weights(&self) -> OpWeights<'_> {
        match self {
            Op::Embed { weight } => OpWeights::Rows(*weight),
            Op::RmsNorm(norm) => OpWeights::Gain(*norm),
            Op::ShortConv { taps, .. } => OpWeights::Vectors(std::slice::from_ref(taps)),
            Op::Recurrence { vectors, .. } => OpWeights::Vectors(vectors),
            Op::Route { vector: Some(vector), .. } => {
                OpWeights::Vectors(std::slice::from_ref(vector.place()))
            }
            Op::Attention { sinks: Some(sinks), .. } => OpWeights::Vectors(std::slice::from_ref(sinks)),
            Op::RoutedGated { experts, biases, .. } | Op::RoutedLinear { experts, biases } => {
                OpWeights::Experts { experts, biases }
            }
            Op::Linear { weights, biases, norm, .. } => OpWeights::Stack { weights, biases, norm: *norm },
            Op::Candidates { head: Some(Head { weights, norm }), .. } => {
                OpWeights::Stack { weights, biases: &[], norm: *norm }
            }
            Op::GatedLinear { gate, up, norm, .. } => OpWeights::Gated { gate: *gate, up: *up, norm: *norm },
            Op::Input(_)
            | Op::GivenRows { .. }
            | Op::Gate(_)
            | Op::Rope(_)
            | Op::AppendKv { .. }
            | Op::Attention { sinks: None, .. }
            | Op::Route { vector: None, .. }
            | Op::Add
            | Op::Scale { .. }
            | Op::Softcap { .. }
            | Op::Slice { .. }
            | Op::SelectRows
            | Op::Candidates { head: None, .. } => OpWeights::Nothing,
        }
    }
}
