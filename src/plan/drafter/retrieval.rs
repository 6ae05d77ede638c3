//! Settings of the retrieval drafter: its corpus store, and which lengths of the last tokens it looks for.

use serde::{Deserialize, Serialize};
use ygg_profiler::DrafterFile;

use super::{
    Described, DrafterFacts, DrafterKind, DrafterSettings, LookupSettings, Parameters, PlanError,
    ProfiledModel, RecordedAs,
    lookup::{LONGEST, SHORTEST},
    settings::{expect, expect_file, numbers},
};

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

const LOOKUP: &str = "lookup_match";

impl DrafterSettings for RetrievalSettings {
    const NAME: &'static str = "retrieval";
    const SUMMARY: &'static str = "How texts of a corpus store continue";

    fn facts(&self) -> DrafterFacts<'_> {
        DrafterFacts { store: Some(&self.store), ..DrafterFacts::of(RecordedAs::Requests) }
    }

    fn parameters(&self) -> Parameters {
        let mut all = numbers([LONGEST, SHORTEST], [self.longest_match, self.shortest_match]);
        let lookup = self.lookup_match.map(|(longest, shortest)| vec![longest, shortest]);
        all.extend(lookup.map(|lengths| (LOOKUP.to_owned(), lengths)));
        all
    }

    fn from_description(given: &Described<'_>) -> Result<Self, PlanError> {
        let lookup_match = match given.parameters.get(LOOKUP).map(Vec::as_slice) {
            None => None,
            Some([longest, shortest]) => Some((*longest, *shortest)),
            Some(other) => {
                return Err(given.fault("two numbers for lookup_match", format!("{other:?}")));
            }
        };
        Ok(Self {
            store: given.file("the corpus store")?,
            longest_match: given.number(LONGEST)?,
            shortest_match: given.number(SHORTEST)?,
            lookup_match,
        })
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
