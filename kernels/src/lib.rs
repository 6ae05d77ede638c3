//! What an op computes, and fast ways to compute it.

use std::fmt;

/// How the elements of a weight are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(non_camel_case_types, reason = "the field's names")]
#[allow(missing_docs, reason = "the field's names")]
pub enum WeightFormat {
    F32,
    F16,
    BF16,
    Q8_0,
    Q4_0,
    Q4_1,
}

/// Which two elements of a head form a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RopePairing {
    /// `(2i, 2i + 1)`: GGUF llama weights.
    Adjacent,
    /// `(i, i + E/2)`: Hugging Face weights.
    Halves,
}

/// Instruction-set tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the field's names")]
pub enum Tier {
    Reference,
    Portable,
    Avx512,
}

/// Kind of op.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the ops' names")]
pub enum OpKind {
    Embed,
    RmsNorm,
    Linear,
    GatedLinear,
    Swiglu,
    Rope,
    AppendKv,
    Attention,
    Add,
    Scale,
    SelectRows,
}

/// A kernel: op, format of its weights, numeric class by tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KernelId {
    op: OpKind,
    format: Option<WeightFormat>,
    tier: Tier,
}

impl KernelId {
    /// The kernel of `op` with weights in `format` on `tier`.
    pub fn new(op: OpKind, format: Option<WeightFormat>, tier: Tier) -> Self {
        Self { op, format, tier }
    }
}

impl fmt::Display for KernelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}.{:?}.{:?}", self.op, self.format, self.tier)
    }
}
