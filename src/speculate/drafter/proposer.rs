//! Who proposed a node, by name: what [`Source`] means here.

use crate::tree::Source;

/// A proposer of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proposer {
    /// [`Lookup`](super::Lookup).
    Lookup,
    /// [`LayerSkip`](super::LayerSkip), or [`Swift`](super::Swift).
    LayerSkip,
    /// [`Suffix`](super::Suffix).
    Suffix,
    /// [`Recycling`](super::Recycling).
    Recycling,
    /// [`Ngram`](super::Ngram).
    Ngram,
    /// [`Retrieval`](super::Retrieval), but for what a lookup before it proposed.
    Retrieval,
    /// [`ModelDrafter`](super::ModelDrafter).
    Model,
}

impl Proposer {
    /// All proposers.
    pub const ALL: [Self; 7] = [
        Self::Lookup,
        Self::LayerSkip,
        Self::Suffix,
        Self::Recycling,
        Self::Ngram,
        Self::Retrieval,
        Self::Model,
    ];

    /// The set of this proposer alone.
    pub const fn source(self) -> Source {
        Source::new(self as u8)
    }

    /// Name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lookup => "lookup",
            Self::LayerSkip => "layer_skip",
            Self::Suffix => "suffix",
            Self::Recycling => "recycling",
            Self::Ngram => "ngram",
            Self::Retrieval => "retrieval",
            Self::Model => "model",
        }
    }
}
