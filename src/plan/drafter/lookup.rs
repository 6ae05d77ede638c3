//! Settings of the lookup drafter: which lengths of the last tokens it looks for.

use super::{settings::*, *};

/// Settings of the lookup drafter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LookupSettings {
    /// Longest suffix looked for, in tokens.
    pub longest_match: u32,
    /// Shortest suffix looked for, in tokens.
    pub shortest_match: u32,
}

impl LookupSettings {
    /// The setting that mixtures and retrieval are profiled with: it finds more, and worse, than longer matches.
    pub(super) const SHORT: Self = Self { longest_match: 3, shortest_match: 1 };
}

impl DrafterSettings for LookupSettings {
    const NAME: &'static str = "lookup";
    const SUMMARY: &'static str = "The continuation of an earlier occurrence of the last tokens";
    const RECORDED_AS: RecordedAs = RecordedAs::Requests;

    parameters!(longest_match, shortest_match);

    fn validate(&self) -> Result<(), PlanError> {
        let Self { longest_match, shortest_match } = *self;
        let holds = 1 <= shortest_match && shortest_match <= longest_match;
        expect::<Self>(holds, "1 <= shortest_match <= longest_match", || {
            format!("{shortest_match}, {longest_match}")
        })
    }

    fn profiled(_: &ProfiledModel<'_>) -> Vec<(String, Self)> {
        let long = Self { longest_match: 4, shortest_match: 2 };
        vec![("lookup".to_owned(), long), ("lookup_short".to_owned(), Self::SHORT)]
    }
}
