//! Settings of the self-tuning layer-skip drafter: which sub-layers it leaves out at first.

use super::{layer_skip::first_skip_set, settings::*, *};
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
    const RECORDED_AS: RecordedAs = RecordedAs::Trees;

    parameters!(skipped);

    fn facts(&self) -> DrafterFacts<'_> {
        let facts = DrafterFacts::of(Self::RECORDED_AS);
        DrafterFacts { skipped: Some(&self.skipped), tunes_itself: true, ..facts }
    }

    fn validate(&self) -> Result<(), PlanError> {
        let (skipped, most) = (&self.skipped, GroupSet::MOST_GROUPS);
        let holds = is_ascending(skipped) && skipped.last().is_none_or(|last| *last < most);
        let expected = format!("ascending, distinct groups to skip, below {most}");
        expect::<Self>(holds, &expected, || format!("{skipped:?}"))
    }

    fn profiled(model: &ProfiledModel<'_>) -> Vec<(String, Self)> {
        let skipped = first_skip_set(model);
        if skipped.is_empty() { Vec::new() } else { vec![(Self::NAME.to_owned(), Self { skipped })] }
    }
}
