//! Layer skip: the verifier drafts without some of its sub-layers.

use crate::{
    plan::{DrafterId, LayerSkipSettings},
    runtime::{SkipSet, VariantChange},
    speculate::SpeculateError,
    tree::Source,
};

use super::{
    Drafter, SelfDrafter,
    registry::{MakeContext, MakeDrafter},
};

/// The drafter's mark.
pub(super) const SOURCE: Source = DrafterId::LayerSkip.source();

impl MakeDrafter for LayerSkipSettings {
    fn make(&self, context: &MakeContext<'_>) -> Result<Option<Box<dyn Drafter>>, SpeculateError> {
        let MakeContext { growth, shape, session } = *context;
        let skip = SkipSet::new(session.set().groups(), &self.skipped)?;
        let mut drafter = SelfDrafter::layer_skip(session, skip, shape)?;
        let change = VariantChange { head_tokens: self.head_tokens.as_deref(), substitute_bits: None };
        if let Some(variant) = session.set().variant(change)? {
            drafter = drafter.with_variant(variant);
        }
        Ok(Some(Box::new(drafter.grown_as(growth, shape)?)))
    }
}
