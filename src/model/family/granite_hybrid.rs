//! Granite 4: selective scans, as Mamba 2 has them, in most layers, and Granite's attention in the others.

use super::{
    Family, Source, accepted, granite,
    recipe::{self, Instead, Recipe},
    recurrence,
};
use crate::model::{
    Container, ModelConfig, ModelError,
    config::{Fields, equal, only, required},
};
use ygg_kernels::{StateForm, StateRule, StateShape};

/// Granite 4, dense and with experts.
pub(super) static GRANITE_HYBRID: Family = Family {
    name: "granitehybrid",
    models: "Granite 4: H 350M, H 1B and H Micro, dense; H Tiny and H Small, with experts; of folders, those that only \
        attend as well",
    beside_llama: "Granite's factors; most layers have a selective scan, whose rows have a state, in place of attention; \
        in the others nothing turns as a rule; experts in place of MLPs, chosen by softmax, and a shared MLP, where the \
        file has them",
    tried: &[],
    classes: &[("granitemoehybrid", "GraniteMoeHybridForCausalLM")],
    pairing: accepted::adjacent_in_gguf,
    is_tied_by_default: false,
    accept,
    recipe,
};

/// What folders without experts call what those of Llama call otherwise.
const DENSE_NAMES: &[(&str, &str)] =
    &[("mlp.gate_up_proj", granite::SHARED[0]), ("mlp.down_proj", granite::SHARED[1])];

/// How many times wider than the hidden size scans are, where a folder does not say.
const EXPANSION: usize = 2;

fn accept(fields: &dyn Fields, config: &mut ModelConfig) -> Result<(), ModelError> {
    accepted::no_biases(fields)?;
    accepted::activation(fields, &["hidden_act"], "silu")?;
    accepted::whole_heads_turn(fields, config)?;
    if fields.container() == Container::Gguf {
        let key = config.family.key(Container::Gguf, "attention.value_length", "");
        equal(&key, fields.count(&key)?, config.head_dim, "the head size")?;
        return accepted::as_many_heads(fields, config);
    }
    only("mamba_conv_bias", fields.flag("mamba_conv_bias")?, true, "biases of convolutions")?;
    only("mamba_proj_bias", fields.flag("mamba_proj_bias")?, false, "no biases of products")?;
    only("normalization_function", fields.text("normalization_function")?, "rmsnorm", "norms by mean squares")
}

/// Which layers attend; the others have a selective scan.
fn attending(source: &Source<'_>) -> Result<Vec<bool>, ModelError> {
    if source.fields.container() == Container::Gguf {
        return recipe::attending_by_heads(source);
    }
    // Published configurations have the first name of each, what transformers 5 writes the second.
    let kinds = [&["attention", "full_attention"][..], &["mamba", "linear_attention"]];
    required(recipe::attending(source, kinds)?, "layer_types", "what each layer has")
}

/// Whether queries and keys of the layers that attend turn.
fn turns(source: &Source<'_>) -> Result<bool, ModelError> {
    let fields = source.fields;
    if fields.container() == Container::Gguf {
        return Ok(fields.flag(&source.key("rope.scaling.finetuned", ""))?.unwrap_or(true));
    }
    let key = "position_embedding_type";
    match fields.text(key)? {
        Some("rope") => Ok(true),
        None | Some("nope") => Ok(false),
        Some(other) => Err(ModelError::unsupported(
            format_args!("key `{key}`"),
            format_args!("`{other}`"),
            "`rope`, `nope`",
        )),
    }
}

/// Sizes of the selective scans.
fn shape(source: &Source<'_>) -> Result<StateShape, ModelError> {
    let count = |gguf: &str, folder: &str, expected: &'static str| {
        let key = source.key(gguf, folder);
        required(source.fields.count(&key)?, &key, expected)
    };
    let value_heads = count("ssm.time_step_rank", "mamba_n_heads", "how many heads scans have")?;
    let key_heads = count("ssm.group_count", "mamba_n_groups", "how many groups heads are in")?;
    let key_dim = count("ssm.state_size", "mamba_d_state", "elements of a head's state for each of its own")?;
    let taps = count("ssm.conv_kernel", "mamba_d_conv", "the taps of a convolution")?;
    let (key, all) = match source.fields.container() {
        Container::Gguf => ("ssm.inner_size", count("ssm.inner_size", "", "elements of all heads together")?),
        Container::Folder => {
            let times = source.fields.count("mamba_expand")?.unwrap_or(EXPANSION);
            ("mamba_expand", times.saturating_mul(source.config.hidden_size))
        }
    };
    if value_heads == 0 || !all.is_multiple_of(value_heads) {
        let key = source.key(key, key);
        let expected = format!("elements of all heads in multiples of the {value_heads} heads");
        return Err(ModelError::invalid(format_args!("key `{key}`"), expected, all));
    }
    let value_dim = all / value_heads;
    let key = "mamba_d_head";
    if source.fields.container() == Container::Folder && !matches!(source.fields.text(key), Ok(Some("auto")))
    {
        equal(key, source.fields.count(key)?, value_dim, "elements of a head")?;
    }
    let shape = StateShape { rule: StateRule::Scan, key_heads, value_heads, key_dim, value_dim, taps };
    recurrence::lawful(shape, "the selective scan")
}

/// Between which lengths steps are held.
fn steps(source: &Source<'_>) -> Result<[f32; 2], ModelError> {
    let key = "time_step_limit";
    if source.fields.container() == Container::Gguf {
        return Ok(StateForm::ALL_STEPS);
    }
    let Some(found) = source.fields.numbers(key)? else { return Ok(StateForm::ALL_STEPS) };
    match found[..] {
        [shortest, longest] if 0.0 <= shortest && shortest <= longest => {
            Ok([shortest as f32, longest as f32])
        }
        _ => {
            let expected = "the shortest and the longest step, not below 0";
            Err(ModelError::invalid(format_args!("key `{key}`"), expected, format_args!("{found:?}")))
        }
    }
}

fn recipe(source: &Source<'_>) -> Result<Recipe, ModelError> {
    let is_folder = source.fields.container() == Container::Folder;
    let attends = attending(source)?;
    let turned = if turns(source)? { Some(0) } else { None };
    let experts = granite::experts(source)?;
    let mut recipe = granite::recipe(source)?;
    if attends.contains(&false) {
        let form = StateForm { is_grouped: true, is_logarithm: is_folder, steps: steps(source)? };
        recipe.recurrence = Some((shape(source)?, form));
    }
    if experts.is_none() && is_folder {
        (recipe.names, recipe.has_fused_gates) = (DENSE_NAMES, true);
    }
    // Models without experts have the MLP that others share.
    let shared = granite::shared_size(source)?;
    for (layer, attends) in recipe.layers.iter_mut().zip(attends) {
        layer.instead = (!attends).then_some(Instead::Recurrence);
        layer.rope = turned;
        layer.feed_forward = shared.unwrap_or(layer.feed_forward);
    }
    Ok(Recipe { experts, ..recipe })
}
