//! Settings of the prior drafter: its corpus store.

use super::{settings::*, *};

/// Settings of the prior drafter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PriorSettings {
    /// The store, which holds the tables.
    pub store: DrafterFile,
}

impl DrafterSettings for PriorSettings {
    const NAME: &'static str = "prior";
    const SUMMARY: &'static str =
        "What the model usually says after one to three tokens, from a corpus store";
    const RECORDED_AS: RecordedAs = RecordedAs::Requests;

    parameters!(store);

    fn facts(&self) -> DrafterFacts<'_> {
        DrafterFacts { store: Some(&self.store), ..DrafterFacts::of(Self::RECORDED_AS) }
    }

    fn validate(&self) -> Result<(), PlanError> {
        expect_file::<Self>(&self.store, "store")
    }

    fn profiled(model: &ProfiledModel<'_>) -> Vec<(String, Self)> {
        let of = |store: &DrafterFile| (Self::NAME.to_owned(), Self { store: store.clone() });
        model.store.map(of).into_iter().collect()
    }

    fn with_file_at(&self, path: &str) -> Option<DrafterKind> {
        Some(Self { store: DrafterFile { path: path.to_owned(), ..self.store.clone() } }.into())
    }
}
