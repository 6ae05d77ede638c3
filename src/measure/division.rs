//! The division of a budget of memory at which a model is first measured, before anything of it is known.
//!
//! Which division is the best follows from what was measured
//! ([`plan_within_memory`](crate::planner::plan_within_memory)), and measuring needs one. It is the one with the
//! substitute of the most bits that leaves room for a tenth of the layers: more bits are accepted more often, and times
//! at other divisions are derived from those of the layers in memory, which have to take long enough to be told from
//! those of embedding and head.

use crate::{
    planner::{MemoryBudget, SearchError},
    runtime::{WeightSplit, WeightSplits},
};

/// The part of the layers that is in memory at least where a substitute is.
const LEAST_PART: usize = 10;

/// How a budget of memory is divided at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstDivision {
    /// It holds all weights.
    Whole,
    /// Some weights are streamed.
    Streamed {
        /// Most bytes of packed weights in memory.
        resident: usize,
        /// Bits of the substitute of the others, if there is room for one.
        substitute_bits: Option<u32>,
    },
}

impl FirstDivision {
    /// Most bytes of packed weights in memory; `None` for all of them.
    pub fn resident(self) -> Option<usize> {
        match self {
            Self::Whole => None,
            Self::Streamed { resident, .. } => Some(resident),
        }
    }

    /// Bits of the substitute, if there is one.
    pub fn substitute_bits(self) -> Option<u32> {
        match self {
            Self::Whole => None,
            Self::Streamed { substitute_bits, .. } => substitute_bits,
        }
    }

    /// The first of these divisions of the weights of a model that `drafts`, or is decoded plainly, in sessions of
    /// `session_bytes`.
    ///
    /// # Errors
    /// [`SearchError::Budget`] for a budget that is too small.
    pub fn of(
        splits: &WeightSplits,
        budget: MemoryBudget,
        session_bytes: usize,
        drafts: bool,
    ) -> Result<Self, SearchError> {
        let bytes = usize::try_from(budget.bytes).unwrap_or(usize::MAX);
        let weights = |split: &WeightSplit| split.placed.resident + split.placed.staging;
        let fits =
            |split: &WeightSplit, substitute: usize| weights(split) + substitute + session_bytes <= bytes;
        let Some(most) = splits.all.iter().rfind(|split| fits(split, 0)) else {
            let least = splits.all.iter().map(weights).min().unwrap_or(0) + session_bytes;
            return Err(SearchError::Budget {
                found: budget.bytes,
                least: least as u64,
                context: budget.context,
            });
        };
        if most.placed.streamed == 0 {
            return Ok(Self::Whole);
        }
        let layers = splits.all.iter().map(|split| split.whole).max().unwrap_or(0);
        let beside = |bits: u32| {
            splits.all.iter().rfind(|split| {
                let substitute = split.substitutes.iter().find(|(of, _)| *of == bits);
                split.whole > 0
                    && LEAST_PART * split.whole >= layers
                    && substitute.is_some_and(|(_, bytes)| fits(split, *bytes))
            })
        };
        let with_substitute = || (1..=8).rev().find_map(|bits| Some((beside(bits)?, Some(bits))));
        let (split, substitute_bits) = drafts.then(with_substitute).flatten().unwrap_or((most, None));
        Ok(Self::Streamed { resident: split.budget, substitute_bits })
    }
}

#[cfg(test)]
mod tests;
