//! Settings of the drafter that runs a drafter model: which model, and which tokens its head knows.

use super::{settings::*, *};
use crate::plan::token_list;

/// Settings of the drafter that runs a drafter model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelSettings {
    /// The model's file or folder, by its fingerprint.
    pub model: DrafterFile,
    /// Tokens that its head knows, ascending; `None` where the head is not trimmed.
    #[serde(with = "token_list")]
    pub head_tokens: Option<Vec<u32>>,
}

impl DrafterSettings for ModelSettings {
    const NAME: &'static str = "model";
    const SUMMARY: &'static str =
        "A drafter model: a small model of the same vocabulary, or a layer over the model's hidden rows";
    const RECORDED_AS: RecordedAs = RecordedAs::Trees;

    parameters!(model, head_tokens);

    fn facts(&self) -> DrafterFacts<'_> {
        let Self { model, head_tokens } = self;
        let facts = DrafterFacts::of(Self::RECORDED_AS);
        DrafterFacts { draft_model: Some(model), head_tokens: head_tokens.as_deref(), ..facts }
    }

    fn validate(&self) -> Result<(), PlanError> {
        expect_file::<Self>(&self.model, "model")?;
        expect_head::<Self>(self.head_tokens.as_deref())
    }

    fn profiled(model: &ProfiledModel<'_>) -> Vec<(String, Self)> {
        let of = |file: &DrafterFile| Self { model: file.clone(), head_tokens: None };
        model.draft_models.iter().map(|(name, file)| (name.clone(), of(file))).collect()
    }

    fn with_head(&self, tokens: Vec<u32>) -> Option<DrafterKind> {
        Some(Self { head_tokens: Some(tokens), ..self.clone() }.into())
    }

    fn with_file_at(&self, path: &str) -> Option<DrafterKind> {
        let model = DrafterFile { path: path.to_owned(), ..self.model.clone() };
        Some(Self { model, ..self.clone() }.into())
    }
}
