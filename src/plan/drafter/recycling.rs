//! Settings of the recycling drafter: none.

use super::{settings::*, *};

/// The recycling drafter has no settings.
#[derive(Debug, Clone, Copy)]
pub struct RecyclingSettings;

impl DrafterSettings for RecyclingSettings {
    const NAME: &'static str = "recycling";
    const SUMMARY: &'static str = "The tokens last found most probable after each token, in a fixed tree";
    const RECORDED_AS: RecordedAs = RecordedAs::LiveSteps;

    parameters!();

    fn profiled(_: &ProfiledModel<'_>) -> Vec<(String, Self)> {
        vec![(Self::NAME.to_owned(), Self)]
    }
}
