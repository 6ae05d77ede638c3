//! Settings of the drafter that forwards blocks: which model.

use super::{settings::*, *};

/// Settings of the drafter that forwards blocks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockSettings {
    /// The drafter's folder, by its fingerprint. It says how large a block is.
    pub model: DrafterFile,
}

impl DrafterSettings for BlockSettings {
    const NAME: &'static str = "block";
    const SUMMARY: &'static str =
        "A block drafter: one forward of a model over the model's hidden rows proposes several tokens";
    const RECORDED_AS: RecordedAs = RecordedAs::Trees;

    parameters!(model);

    fn facts(&self) -> DrafterFacts<'_> {
        let facts = DrafterFacts::of(Self::RECORDED_AS);
        DrafterFacts { draft_model: Some(&self.model), drafts_blocks: true, ..facts }
    }

    fn validate(&self) -> Result<(), PlanError> {
        expect_file::<Self>(&self.model, "block drafter")
    }

    fn profiled(model: &ProfiledModel<'_>) -> Vec<(String, Self)> {
        let of = |file: &DrafterFile| Self { model: file.clone() };
        model.block_drafters.iter().map(|(name, file)| (name.clone(), of(file))).collect()
    }

    fn with_file_at(&self, path: &str) -> Option<DrafterKind> {
        let model = DrafterFile { path: path.to_owned(), ..self.model.clone() };
        Some(Self { model }.into())
    }
}
