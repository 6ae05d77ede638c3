//! Settings of the suffix drafter: how much it remembers, and how much it drafts after a match.

use super::{settings::*, *};

/// Settings of the suffix drafter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SuffixSettings {
    /// Most tokens drafted for every token that matched.
    pub tokens_per_match: u32,
    /// Tokens of the longest strings whose occurrences are counted, continuations included.
    pub counted: u32,
    /// Tokens kept of this request and those before it.
    pub remembered: u32,
}

impl SuffixSettings {
    /// What profiles measure.
    pub const DEFAULT: Self = Self { tokens_per_match: 2, counted: 16, remembered: 32_768 };
}

impl DrafterSettings for SuffixSettings {
    const NAME: &'static str = "suffix";
    const SUMMARY: &'static str =
        "The continuation of the longest matching suffix in this or earlier requests";
    const RECORDED_AS: RecordedAs = RecordedAs::Requests;

    parameters!(tokens_per_match, counted, remembered);

    fn validate(&self) -> Result<(), PlanError> {
        let Self { tokens_per_match, counted, remembered } = *self;
        let holds = tokens_per_match >= 1 && counted >= 2 && (16..=1 << 24).contains(&remembered);
        let expected = "tokens_per_match from 1, counted from 2, remembered from 16 to 16777216";
        expect::<Self>(holds, expected, || format!("{tokens_per_match}, {counted}, {remembered}"))
    }

    fn profiled(_: &ProfiledModel<'_>) -> Vec<(String, Self)> {
        vec![(Self::NAME.to_owned(), Self::DEFAULT)]
    }
}
