//! SmolLM 3: Llama, of whose layers some do not turn queries and keys.

use super::{Family, Source, accepted, qwen2::optional_window, recipe::Recipe};
use crate::model::ModelError;

/// SmolLM 3.
pub(super) static SMOLLM3: Family = Family {
    name: "smollm3",
    models: "SmolLM 3",
    beside_llama: "one layer of four does not turn queries and keys",
    tried: &[],
    classes: &[("smollm3", "SmolLM3ForCausalLM")],
    pairing: accepted::adjacent_in_gguf,
    is_tied_by_default: true,
    accept: accepted::like_llama,
    recipe,
};

/// One layer of so many does not turn where a file does not say; no GGUF file does.
const INTERVAL: usize = 4;

fn recipe(source: &Source<'_>) -> Result<Recipe, ModelError> {
    let mut recipe = Recipe::llama(source.config);
    let interval = source.fields.count("no_rope_layer_interval")?.unwrap_or(INTERVAL);
    // 1 for a layer that turns, whatever the name says.
    let turns = source.fields.counts("no_rope_layers")?.filter(|turns| !turns.is_empty());
    if let Some(turns) = turns.as_ref().filter(|turns| turns.len() != recipe.layers.len()) {
        let expected = format!("one for each of {} layers", recipe.layers.len());
        return Err(ModelError::invalid("key `no_rope_layers`", expected, turns.len()));
    }
    if interval == 0 {
        return Err(ModelError::invalid("key `no_rope_layer_interval`", "an integer above 0", interval));
    }
    for (number, layer) in recipe.layers.iter_mut().enumerate() {
        let is_turned = turns.as_ref().map_or((number + 1) % interval != 0, |turns| turns[number] != 0);
        layer.rope = layer.rope.filter(|_| is_turned);
    }
    optional_window(source, recipe)
}
