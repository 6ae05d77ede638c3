//! What the dictionaries hold, as a later process goes on from it.

use serde::{Deserialize, Serialize};

use super::{Ngram, dictionary::Dictionary};
use crate::{plan::MOST_ORDER, storage::SealError};

/// The n-grams of a drafter, for one of the same order that holds parts if this one did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NgramState {
    pub(in crate::speculate::drafter) order: u32,
    pub(in crate::speculate::drafter) parts: bool,
    /// Of the forward dictionary, in an order that makes the same one.
    pub(in crate::speculate::drafter) forward: Vec<Vec<u32>>,
    /// Of the backward dictionary, likewise.
    pub(in crate::speculate::drafter) backward: Vec<Vec<u32>>,
}

impl Ngram {
    /// What the dictionaries hold.
    pub(super) fn kept(&self) -> NgramState {
        let grams = |dictionary: &Dictionary| dictionary.oldest_first().map(<[u32]>::to_vec).collect();
        NgramState {
            order: self.settings.order,
            parts: self.settings.parts,
            forward: grams(&self.dictionaries.forward),
            backward: grams(&self.dictionaries.backward),
        }
    }

    /// Adds n-grams of a vocabulary to the dictionaries; none if they are refused.
    ///
    /// # Errors
    /// [`SealError`] if they are of another order or other parts, too long or too short, or of other tokens.
    pub(super) fn add(&mut self, state: &NgramState, vocabulary: usize) -> Result<(), SealError> {
        let NgramState { order, parts, forward, backward } = state;
        let show = |order, parts| format!("n-grams of order {order}, parts {parts}");
        let expected = show(self.settings.order, self.settings.parts);
        let found = show(*order, *parts);
        if expected != found {
            return Err(SealError::new(expected, found));
        }
        for gram in forward.iter().chain(backward) {
            if !(2..=MOST_ORDER).contains(&gram.len()) {
                let expected = format!("n-grams of 2 to {MOST_ORDER} tokens");
                return Err(SealError::new(expected, gram.len().to_string()));
            }
            if let Some(token) = gram.iter().find(|token| **token as usize >= vocabulary) {
                return Err(SealError::new(format!("tokens below {vocabulary}"), token.to_string()));
            }
        }
        forward.iter().for_each(|gram| self.dictionaries.forward.record(gram));
        backward.iter().for_each(|gram| self.dictionaries.backward.record(gram));
        Ok(())
    }
}
