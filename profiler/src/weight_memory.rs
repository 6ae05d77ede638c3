//! What a model whose weights are streamed takes in memory, however many of its matrices stay there.
use serde::{Deserialize, Serialize};

/// A size that no memory has, small enough that sizes can be added up; and of a token, that they can be for any
/// context.
const NO_SIZE: u64 = 1 << 58;
const NO_SLOT: u64 = NO_SIZE >> 32;

/// The memory of a model some of whose weights are read for every forward. All of it follows from sizes; nothing was
/// measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WeightMemory {
    /// Packed bytes of what always stays in memory: embedding, head, norms and biases.
    pub fixed_bytes: u64,
    /// Every number of matrices that a budget can leave in memory, the fewest first.
    pub splits: Vec<Split>,
    /// The place in `splits` of what was in force when the profile was measured.
    pub measured: u32,
    /// At that split, packed bytes of the matrices of groups of which none is streamed.
    pub whole_bytes: u64,
    /// What one token of context takes, in the cache and elsewhere.
    pub slot_bytes: u64,
    /// What a session takes in addition to its context.
    pub session_bytes: u64,
    /// The longest context of the model.
    pub model_context: u32,
}

/// Which matrices are in memory, by their bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Split {
    /// The least budget for weights in memory that gives it.
    pub budget_bytes: u64,
    /// Packed weights in memory, without the staging buffer.
    pub resident_bytes: u64,
    /// Packed weights that every forward reads.
    pub streamed_bytes: u64,
    /// The staging buffer.
    pub staging_bytes: u64,
    /// What substitutes of the streamed matrices take, by ascending bits; those of bits that make none of them smaller
    /// are missing.
    pub substitutes: Vec<SubstituteBytes>,
}

/// The matrices of a substitute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubstituteBytes {
    /// Bits of an element.
    pub bits: u32,
    /// Packed bytes of all of them.
    pub bytes: u64,
}

impl Split {
    /// What the substitute of so many bits takes, if it replaces every streamed matrix.
    pub fn substitute_bytes(&self, bits: u32) -> Option<u64> {
        self.substitutes.iter().find(|substitute| substitute.bits == bits).map(|substitute| substitute.bytes)
    }
}

impl WeightMemory {
    /// The split that was in force when the profile was measured.
    ///
    /// # Panics
    /// If it is not valid.
    pub fn measured_split(&self) -> &Split {
        &self.splits[self.measured as usize]
    }

    /// What a session with a context of so many tokens takes.
    pub fn session_bytes(&self, context: u32) -> u64 {
        self.session_bytes + self.slot_bytes * u64::from(context)
    }

    /// What is wrong: what it is about, what was expected, what was found.
    pub(crate) fn fault(&self) -> Option<(&'static str, &'static str, String)> {
        let Self { fixed_bytes, splits, measured, whole_bytes, slot_bytes, session_bytes, model_context } =
            self;
        let what = "memory of weights";
        if !splits.is_sorted_by(|a, b| a.resident_bytes < b.resident_bytes) {
            return Some((what, "splits with more and more in memory", format!("{splits:?}")));
        }
        let Some(in_force) = splits.get(*measured as usize) else {
            return Some((
                what,
                "a split that was measured",
                format!("number {measured} of {}", splits.len()),
            ));
        };
        let total = in_force.resident_bytes.checked_add(in_force.streamed_bytes);
        let is_whole = |split: &Split| {
            split.resident_bytes.checked_add(split.streamed_bytes) == total
                && total.is_some_and(|total| total < NO_SIZE && split.staging_bytes < NO_SIZE)
                && split.resident_bytes >= *fixed_bytes
                && split.budget_bytes >= split.resident_bytes + split.staging_bytes
                && split.substitutes.is_sorted_by(|a, b| a.bits < b.bits)
                && split.substitutes.iter().all(|substitute| substitute.bytes < NO_SIZE)
        };
        if let Some(split) = splits.iter().find(|split| !is_whole(split)) {
            return Some((what, "splits of the same weights", format!("{split:?}")));
        }
        if *whole_bytes > in_force.resident_bytes - fixed_bytes {
            return Some((what, "whole groups among what is in memory", whole_bytes.to_string()));
        }
        if *session_bytes >= NO_SIZE || *slot_bytes >= NO_SLOT {
            return Some((
                what,
                "sizes of a session",
                format!("{session_bytes} bytes, {slot_bytes} a token"),
            ));
        }
        (*model_context == 0).then(|| (what, "a context of 1 or more", model_context.to_string()))
    }
}
