//! Plain decoding: the drafter that proposes nothing.

use super::{Described, DrafterFacts, DrafterSettings, Parameters, PlanError, RecordedAs};

/// Plain decoding has no settings.
#[derive(Debug, Clone, Copy)]
pub struct PlainDecoding;

impl DrafterSettings for PlainDecoding {
    const NAME: &'static str = "none";
    const SUMMARY: &'static str = "Nothing: plain decoding";

    fn facts(&self) -> DrafterFacts<'_> {
        DrafterFacts::of(RecordedAs::Nothing)
    }

    fn parameters(&self) -> Parameters {
        Parameters::new()
    }

    fn from_description(_: &Described<'_>) -> Result<Self, PlanError> {
        Ok(Self)
    }
}
