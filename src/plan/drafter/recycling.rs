//! Settings of the recycling drafter: none.

use super::{Described, DrafterFacts, DrafterSettings, Parameters, PlanError, ProfiledModel, RecordedAs};

/// The recycling drafter has no settings.
#[derive(Debug, Clone, Copy)]
pub struct RecyclingSettings;

impl DrafterSettings for RecyclingSettings {
    const NAME: &'static str = "recycling";
    const SUMMARY: &'static str = "The tokens last found most probable behind each token, in a fixed tree";

    fn facts(&self) -> DrafterFacts<'_> {
        DrafterFacts::of(RecordedAs::LiveSteps)
    }

    fn parameters(&self) -> Parameters {
        Parameters::new()
    }

    fn from_description(_: &Described<'_>) -> Result<Self, PlanError> {
        Ok(Self)
    }

    fn profiled(_: &ProfiledModel<'_>) -> Vec<(String, Self)> {
        vec![(Self::NAME.to_owned(), Self)]
    }
}
