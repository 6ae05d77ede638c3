//! What drafters learned, as a later process goes on from it: a [sealed file](Seal) of the model that they drafted for
//! and of one state for each kind of drafter.

mod former;

use serde::{Deserialize, Serialize};

use super::ngram::NgramState;
use crate::{
    plan::{DrafterId, ModelFingerprint},
    policy::SkipState,
    speculate::SpeculateError,
    storage::{Seal, SealError},
};

const SEAL: Seal = Seal { magic: b"YGGKEPT\0", format: 1, most_payload_bytes: 1 << 32 };

/// What a drafter learned. Files name its kind by the place of the variant: others are added at the end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum DrafterState {
    /// The search of `swift`.
    Swift(Box<SkipState>),
    /// The dictionaries of `ngram`.
    Ngram(NgramState),
}

impl DrafterState {
    /// The kind of drafter that goes on from it.
    pub fn drafter(&self) -> DrafterId {
        match self {
            Self::Swift(_) => DrafterId::Swift,
            Self::Ngram(_) => DrafterId::Ngram,
        }
    }

    /// The bytes of a file with the states of drafters for `model`.
    pub fn encode(states: &[Self], model: &ModelFingerprint) -> Vec<u8> {
        SEAL.encode(&(model, states)).expect("what drafters hold in memory is smaller than the largest file")
    }

    /// The states in a file. Whether they are lawful, says [`Drafter::restore`](super::Drafter::restore).
    ///
    /// # Errors
    /// [`SpeculateError::KeptState`] if the bytes are no whole, unchanged file of states, or of another model.
    pub fn decode(bytes: &[u8], model: &ModelFingerprint) -> Result<Vec<Self>, SpeculateError> {
        let (of, states) = former::decode(bytes).unwrap_or_else(|| SEAL.decode(bytes))?;
        if of.digest != model.digest {
            let show = |of: &ModelFingerprint| format!("the model {} ({})", of.name, of.digest);
            return Err(SealError::new(show(model), show(&of)).into());
        }
        Ok(states)
    }
}

#[cfg(test)]
mod tests;
