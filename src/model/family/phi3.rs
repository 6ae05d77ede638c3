//! Phi 3: Llama whose files hold queries, keys and values in one tensor, and gate and up in one; heads may turn in
//! part.

use super::{Family, Source, accepted, recipe::Recipe};
use crate::model::ModelError;
use ygg_kernels::RopePairing;

/// Phi 3, 3.5 and 4, and their mini models.
pub(super) static PHI3: Family = Family {
    name: "phi3",
    models: "Phi 3, 3.5, 4, and their mini models",
    beside_llama: "fused tensors, rotation of a part of a head, factors for long contexts, a window",
    tried: &[],
    classes: &[("phi3", "Phi3ForCausalLM")],
    pairing: |_| RopePairing::Halves,
    is_tied_by_default: false,
    accept: |fields, config| {
        accepted::common(fields, config)?;
        accepted::activation(fields, &["hidden_act"], "silu")
    },
    recipe,
};

fn recipe(source: &Source<'_>) -> Result<Recipe, ModelError> {
    let recipe = Recipe { has_fused_queries: true, has_fused_gates: true, ..Recipe::llama(source.config) };
    recipe.windowed(source, |_| true)
}
