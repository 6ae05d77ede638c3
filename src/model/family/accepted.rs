//! Checks that several families share: what their files may say.

use super::{Family, Fields};
use crate::model::{
    Container, ModelConfig, ModelError,
    config::{equal, only},
};
use ygg_kernels::RopePairing;

/// Refuses what no family like Llama has: the checks below, with SwiGLU.
pub(super) fn like_llama(fields: &dyn Fields, config: &mut ModelConfig) -> Result<(), ModelError> {
    dense(fields, config)?;
    like_llama_with_experts(fields, config)
}

/// As [`like_llama`], of a family that may have experts.
pub(super) fn like_llama_with_experts(
    fields: &dyn Fields,
    config: &mut ModelConfig,
) -> Result<(), ModelError> {
    common_with_experts(fields, config)?;
    activation(fields, &["hidden_act"], "silu")?;
    whole_heads_turn(fields, config)
}

/// Pairs of rotated elements where GGUF files have the rows of queries and keys reordered, so that pairs are
/// neighbours.
pub(super) fn adjacent_in_gguf(container: Container) -> RopePairing {
    match container {
        Container::Gguf => RopePairing::Adjacent,
        Container::Folder => RopePairing::Halves,
    }
}

/// Refuses experts.
pub(super) fn dense(fields: &dyn Fields, config: &ModelConfig) -> Result<(), ModelError> {
    if fields.container() == Container::Folder {
        return Ok(());
    }
    let key = format!("{}.expert_count", config.family.name);
    only(&key, fields.count(&key)?, 0, "no mixture of experts")
}

/// Refuses experts, heads of another size for values, and biases that no family has.
pub(super) fn common(fields: &dyn Fields, config: &ModelConfig) -> Result<(), ModelError> {
    dense(fields, config)?;
    common_with_experts(fields, config)
}

/// As [`common`], of a family that may have experts.
pub(super) fn common_with_experts(fields: &dyn Fields, config: &ModelConfig) -> Result<(), ModelError> {
    same_heads(fields, config)?;
    no_biases(fields)
}

/// Refuses heads of another size for values.
pub(super) fn same_heads(fields: &dyn Fields, config: &ModelConfig) -> Result<(), ModelError> {
    let Family { name, .. } = config.family;
    match fields.container() {
        Container::Gguf => {
            let key = format!("{name}.attention.value_length");
            equal(&key, fields.count(&key)?, config.head_dim, "the head size")?;
            as_many_heads(fields, config)?;
            // One number, not one for each layer.
            fields.count(&format!("{name}.attention.head_count_kv")).map(drop)
        }
        Container::Folder => Ok(()),
    }
}

/// Refuses lists of key/value heads of which layers that attend have different numbers.
pub(super) fn as_many_heads(fields: &dyn Fields, config: &ModelConfig) -> Result<(), ModelError> {
    let key = format!("{}.attention.head_count_kv", config.family.name);
    let Ok(Some(of_layers)) = fields.counts(&key) else { return Ok(()) };
    match of_layers.into_iter().find(|heads| ![0, config.kv_heads].contains(heads)) {
        None => Ok(()),
        Some(other) => {
            let found = format!("{} in one layer, {other} in another", config.kv_heads);
            Err(ModelError::unsupported(format_args!("key `{key}`"), found, "as many in all that attend"))
        }
    }
}

/// Refuses biases that few families have.
pub(super) fn no_biases(fields: &dyn Fields) -> Result<(), ModelError> {
    if fields.container() == Container::Gguf {
        return Ok(());
    }
    ["attention_bias", "mlp_bias"]
        .into_iter()
        .try_for_each(|key| only(key, fields.flag(key)?, false, "no biases"))
}

/// Refuses another function of the gates than `supported`, which the first of `keys` that is there names.
pub(super) fn activation(fields: &dyn Fields, keys: &[&str], supported: &str) -> Result<(), ModelError> {
    if fields.container() == Container::Gguf {
        return Ok(());
    }
    let meaning = if supported == "silu" { "SwiGLU" } else { "GeGLU" };
    for key in keys {
        if let Some(found) = fields.text(key)? {
            return only(key, Some(found), supported, meaning);
        }
    }
    Ok(())
}

/// Refuses rotations of a part of a head.
pub(super) fn whole_heads_turn(fields: &dyn Fields, config: &ModelConfig) -> Result<(), ModelError> {
    match fields.container() {
        Container::Gguf => {
            let key = format!("{}.rope.dimension_count", config.family.name);
            equal(&key, fields.count(&key)?, config.head_dim, "the head size")
        }
        Container::Folder => {
            let key = "partial_rotary_factor";
            only(key, fields.float(key)?, 1.0, "rotation of whole heads")
        }
    }
}
