//! Settings of the self-tuning layer-skip drafter: which sub-layers it leaves out at first.

use serde::{Deserialize, Serialize};

use super::{
    Described, DrafterFacts, DrafterSettings, Parameters, PlanError, ProfiledModel, RecordedAs,
    layer_skip::{SKIPPED, first_skip_set},
    settings::{expect, is_ascending},
};
use crate::plan::GroupSet;

/// Settings of the self-tuning layer-skip drafter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwiftSettings {
    /// Groups left out at first, ascending.
    pub skipped: Vec<u32>,
}

impl DrafterSettings for SwiftSettings {
    const NAME: &'static str = "swift";
    const SUMMARY: &'static str = "The model with a set of layers left out that is tuned while it runs";

    fn facts(&self) -> DrafterFacts<'_> {
        let facts = DrafterFacts::of(RecordedAs::Trees);
        DrafterFacts { skipped: Some(&self.skipped), tunes_itself: true, ..facts }
    }

    fn parameters(&self) -> Parameters {
        Parameters::from([(SKIPPED.to_owned(), self.skipped.clone())])
    }

    fn from_description(given: &Described<'_>) -> Result<Self, PlanError> {
        Ok(Self { skipped: given.list(SKIPPED)? })
    }

    fn validate(&self) -> Result<(), PlanError> {
        let (skipped, most) = (&self.skipped, GroupSet::MOST_GROUPS);
        let holds = is_ascending(skipped) && skipped.last().is_none_or(|last| *last < most);
        let expected = format!("ascending, distinct groups to skip, below {most}");
        expect::<Self>(holds, &expected, || format!("{skipped:?}"))
    }

    fn profiled(model: &ProfiledModel<'_>) -> Vec<(String, Self)> {
        let skipped = first_skip_set(model.groups);
        if skipped.is_empty() { Vec::new() } else { vec![(Self::NAME.to_owned(), Self { skipped })] }
    }
}
