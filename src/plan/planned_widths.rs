//! The widths that a plan has programs compiled for.
use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{PlanError, check::ensure};

/// The widths compiled for each role, ascending, with 1 in both.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedWidths {
    /// Of the verifier.
    pub verify: Vec<u32>,
    /// Of drafters that run a model.
    pub draft: Vec<u32>,
}

impl PlannedWidths {
    /// The widths of both roles, ascending: an executable of each serves whichever sub-plan is chosen.
    pub fn widths(&self) -> Vec<usize> {
        let PlannedWidths { verify, draft } = self;
        let widths: BTreeSet<usize> = verify.iter().chain(draft).map(|width| *width as usize).collect();
        widths.into_iter().collect()
    }

    pub(super) fn validate(&self) -> Result<(), PlanError> {
        let PlannedWidths { verify, draft } = self;
        for widths in [verify, draft] {
            let good = widths.first() == Some(&1) && widths.is_sorted_by(|a, b| a < b);
            ensure(good, "planned widths", "ascending from 1", || format!("{widths:?}"))?;
        }
        Ok(())
    }
}
