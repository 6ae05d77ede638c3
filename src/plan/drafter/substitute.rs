//! Settings of the substitute drafter: bits of its matrices, and which tokens its head knows.

use super::{settings::*, *};
use crate::plan::token_list;

/// Fewest and most bits of an element.
const BITS: std::ops::RangeInclusive<u32> = 2..=4;
/// A substitute is worth measuring that reads at most this share of what the model reads: nearly all that it drafts is
/// accepted, and still three tokens by a dearer one cost as much as two plain steps.
const MOST_SHARE: f64 = 0.55;
/// Where one of four bits reads at most this share, fewer bits lose more of what is accepted than they save.
const SMALL_SHARE: f64 = 0.4;

/// Settings of the substitute drafter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubstituteSettings {
    /// Bits of an element of its matrices: 2, 3 or 4.
    pub bits: u32,
    /// Tokens that its head knows, ascending; `None` where the head is not trimmed.
    #[serde(with = "token_list")]
    pub head_tokens: Option<Vec<u32>>,
}

impl DrafterSettings for SubstituteSettings {
    const NAME: &'static str = "substitute";
    const SUMMARY: &'static str = "The model's own matrices in fewer bits, over the model's cache";
    const RECORDED_AS: RecordedAs = RecordedAs::Trees;

    parameters!(bits, head_tokens);

    fn facts(&self) -> DrafterFacts<'_> {
        let Self { bits, head_tokens } = self;
        let facts = DrafterFacts::of(Self::RECORDED_AS);
        DrafterFacts { substitute_bits: Some(*bits), head_tokens: head_tokens.as_deref(), ..facts }
    }

    fn validate(&self) -> Result<(), PlanError> {
        expect::<Self>(BITS.contains(&self.bits), "2, 3 or 4 bits", || self.bits.to_string())?;
        expect_head::<Self>(self.head_tokens.as_deref())
    }

    /// Of four bits where that is small enough, and of fewer where four are not small. Where weights are streamed, of
    /// all bits that are fewer: which of them pays depends on the memory that the substitute takes from the model.
    fn profiled(model: &ProfiledModel<'_>) -> Vec<(String, Self)> {
        let share = |bits: u32| {
            let found = model.substitute_shares.iter().find(|(of, _)| *of == bits);
            found.map_or(1.0, |(_, share)| *share)
        };
        let four_is_small = share(4) <= SMALL_SHARE;
        let pays = |bits: &u32| match model.streams {
            true => share(*bits) < 1.0,
            false => share(*bits) <= MOST_SHARE && (*bits == 4 || !four_is_small),
        };
        let tried = BITS.rev().filter(pays);
        tried.map(|bits| (format!("{}{bits}", Self::NAME), Self { bits, head_tokens: None })).collect()
    }

    fn with_head(&self, tokens: Vec<u32>) -> Option<DrafterKind> {
        Some(Self { head_tokens: Some(tokens), ..self.clone() }.into())
    }
}
