//! Settings of the layer-skip drafter: which sub-layers it leaves out, and which tokens its head knows.

use super::{settings::*, *};
use crate::plan::token_list;

/// Settings of the layer-skip drafter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerSkipSettings {
    /// Groups left out, ascending: `2 * layer` for attention or the short convolution in its place, `2 * layer + 1` for
    /// the MLP.
    pub skipped: Vec<u32>,
    /// Tokens that its head knows, ascending; `None` where the head is not trimmed.
    #[serde(with = "token_list")]
    pub head_tokens: Option<Vec<u32>>,
}

/// The groups that layer skip leaves out of a model at first: attention and MLP of every odd layer but the last, as
/// SWIFT starts (<https://arxiv.org/abs/2410.06916>). Empty for models of too few layers, and for those that stream
/// weights: what is left out is read all the same.
pub(super) fn first_skip_set(model: &ProfiledModel<'_>) -> Vec<u32> {
    if model.streams {
        return Vec::new();
    }
    let layers = model.groups / 2;
    (1..layers.saturating_sub(1)).step_by(2).flat_map(|l| [2 * l, 2 * l + 1]).collect()
}

impl DrafterSettings for LayerSkipSettings {
    const NAME: &'static str = "layer_skip";
    const SUMMARY: &'static str = "The model with a fixed set of layers left out";
    const RECORDED_AS: RecordedAs = RecordedAs::Trees;

    parameters!(skipped, head_tokens);

    fn facts(&self) -> DrafterFacts<'_> {
        let Self { skipped, head_tokens } = self;
        let facts = DrafterFacts::of(Self::RECORDED_AS);
        DrafterFacts { skipped: Some(skipped), head_tokens: head_tokens.as_deref(), ..facts }
    }

    fn validate(&self) -> Result<(), PlanError> {
        let Self { skipped, head_tokens } = self;
        expect::<Self>(is_ascending(skipped), "ascending, distinct groups to skip", || {
            format!("{skipped:?}")
        })?;
        expect_head::<Self>(head_tokens.as_deref())
    }

    fn profiled(model: &ProfiledModel<'_>) -> Vec<(String, Self)> {
        let skipped = first_skip_set(model);
        if skipped.is_empty() {
            return Vec::new();
        }
        vec![(Self::NAME.to_owned(), Self { skipped, head_tokens: None })]
    }

    fn with_head(&self, tokens: Vec<u32>) -> Option<DrafterKind> {
        Some(Self { head_tokens: Some(tokens), ..self.clone() }.into())
    }
}
