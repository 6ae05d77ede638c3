//! Roles of the programs of a set, and the input rows that programs of different roles share.

use std::ops::{Index, IndexMut};

use crate::ir::{IdVec, RowInputs, id};

id! {
    /// A planned width, by its place in ascending order.
    pub(super) WidthId
}

id! {
    /// A width of prefill chunks, by its place in ascending order.
    pub(super) PrefillId
}

id! {
    /// A [variant](super::VariantChange) of a set's forwards.
    pub DraftVariant
}

/// What a program of a set is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Shows the logits of all rows.
    Logits(WidthId),
    /// Shows candidates of all rows, by a variant if one is named.
    Candidates(WidthId, Option<DraftVariant>),
    /// Shows the logits of one row of a prefill chunk.
    Prefill(PrefillId),
    /// As `Prefill`, and keeps the hidden rows of all rows.
    KeepingPrefill(PrefillId),
}

/// Input rows of a session: one buffer for each planned width and each width of prefill chunks, whichever program reads
/// it.
#[derive(Debug)]
pub(super) struct Inputs {
    pub(super) planned: IdVec<WidthId, RowInputs>,
    pub(super) prefill: IdVec<PrefillId, RowInputs>,
}

impl Index<Role> for Inputs {
    type Output = RowInputs;

    fn index(&self, role: Role) -> &RowInputs {
        match role {
            Role::Logits(width) | Role::Candidates(width, _) => &self.planned[width],
            Role::Prefill(width) | Role::KeepingPrefill(width) => &self.prefill[width],
        }
    }
}

impl IndexMut<Role> for Inputs {
    fn index_mut(&mut self, role: Role) -> &mut RowInputs {
        match role {
            Role::Logits(width) | Role::Candidates(width, _) => &mut self.planned[width],
            Role::Prefill(width) | Role::KeepingPrefill(width) => &mut self.prefill[width],
        }
    }
}
