//! The substitute: the verifier drafts by its own matrices in fewer bits.

use crate::{plan::SubstituteSettings, runtime::VariantChange, speculate::SpeculateError};

use super::{
    Drafter, SelfDrafter,
    registry::{MakeContext, MakeDrafter},
};

impl MakeDrafter for SubstituteSettings {
    fn make(&self, context: &MakeContext<'_>) -> Result<Option<Box<dyn Drafter>>, SpeculateError> {
        let MakeContext { growth, shape, session } = *context;
        let Self { bits, head_tokens } = self;
        let change = VariantChange { head_tokens: head_tokens.as_deref(), substitute_bits: Some(*bits) };
        let variant = session.set().variant(change)?.expect("fewer bits are a change");
        let drafter = SelfDrafter::substitute(session, variant, shape)?;
        Ok(Some(Box::new(drafter.grown_as(growth, shape)?)))
    }
}
