//! How the products of an MLP's gate and those that it gates become one.

use std::fmt;

/// The function that is applied to the gate's products before they are multiplied by the up products, and what is done
/// to these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Nonlinearity {
    /// `x * sigmoid(x)`: SwiGLU (arXiv 2002.05202).
    Silu,
    /// `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))`: the approximation of GELU (arXiv 1606.08415, section
    /// 2).
    GeluTanh,
    /// `g * sigmoid(1.702 g) * (u + 1)` of the gate's products `g`, at most 7, and the up products `u`, within -7 and
    /// 7: the gate of gpt-oss (`swiglu_alpha` and `swiglu_limit` of its configuration).
    ClampedSilu,
    /// `sigmoid(x)`: a gate between 0 and 1.
    Sigmoid,
}

impl Nonlinearity {
    /// `2 sqrt(2 / pi)`: with it GELU is `x * sigmoid(SLOPE * (x + CUBIC x^3))`.
    pub(crate) const SLOPE: f64 = 1.595_769_121_605_730_7;
    /// Factor of the cube in GELU.
    pub(crate) const CUBIC: f64 = 0.044_715;

    /// Slope of the sigmoid in the clamped function.
    pub const CLAMPED_SLOPE: f64 = 1.702;
    /// Bound of products under the clamped function.
    pub const CLAMPED_BOUND: f64 = 7.0;

    /// Name in snake case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Silu => "silu",
            Self::GeluTanh => "gelu_tanh",
            Self::ClampedSilu => "clamped_silu",
            Self::Sigmoid => "sigmoid",
        }
    }
}

impl fmt::Display for Nonlinearity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
