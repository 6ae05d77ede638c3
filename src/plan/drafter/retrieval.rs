//! Settings of the retrieval drafter: its corpus store, and which lengths of the last tokens it looks for.

use super::{settings::*, *};

/// Settings of the retrieval drafter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetrievalSettings {
    /// The store.
    pub store: DrafterFile,
    /// Longest suffix looked for, in tokens.
    pub longest_match: u32,
    /// Shortest suffix looked for, in tokens.
    pub shortest_match: u32,
    /// Longest and shortest suffix of a lookup in the sequence itself, whose guesses come first; `None` without one.
    pub lookup_match: Option<(u32, u32)>,
}

impl RetrievalSettings {
    /// The match lengths of REST (<https://arxiv.org/abs/2311.08252>), without a lookup.
    pub(super) fn of(store: &DrafterFile) -> Self {
        Self { store: store.clone(), longest_match: 16, shortest_match: 2, lookup_match: None }
    }
}

impl DrafterSettings for RetrievalSettings {
    const NAME: &'static str = "retrieval";
    const SUMMARY: &'static str = "Continuations found in a corpus store";
    const RECORDED_AS: RecordedAs = RecordedAs::Requests;

    parameters!(store, longest_match, shortest_match, lookup_match);

    fn facts(&self) -> DrafterFacts<'_> {
        DrafterFacts { store: Some(&self.store), ..DrafterFacts::of(Self::RECORDED_AS) }
    }

    fn validate(&self) -> Result<(), PlanError> {
        let Self { store, longest_match, shortest_match, lookup_match } = self;
        for (longest, shortest) in std::iter::once(&(*longest_match, *shortest_match)).chain(lookup_match) {
            let holds = 1 <= *shortest && shortest <= longest;
            expect::<Self>(holds, "1 <= shortest match <= longest match", || {
                format!("{shortest}, {longest}")
            })?;
        }
        expect_file::<Self>(store, "store")
    }

    fn profiled(model: &ProfiledModel<'_>) -> Vec<(String, Self)> {
        let Some(store) = model.store else { return Vec::new() };
        let alone = Self::of(store);
        let LookupSettings { longest_match, shortest_match } = LookupSettings::SHORT;
        let behind_lookup = Self { lookup_match: Some((longest_match, shortest_match)), ..alone.clone() };
        vec![("retrieval".to_owned(), alone), ("retrieval_lookup".to_owned(), behind_lookup)]
    }

    fn with_file_at(&self, path: &str) -> Option<DrafterKind> {
        let store = DrafterFile { path: path.to_owned(), ..self.store.clone() };
        Some(Self { store, ..self.clone() }.into())
    }
}
