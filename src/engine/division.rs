//! How the weights of a model can be divided, before it is loaded.

use crate::{
    model::Model,
    runtime::{ExecutableSet, SetOptions, WeightSplits},
};

use super::{Error, KvFormat, LoadOptions, Tier};

/// All ways in which budgets can divide the weights of a model, and about what a session with a context of so many
/// tokens takes in addition. The widths of the options are those that the session runs.
///
/// # Errors
/// [`Error`] of kind `Device` for a tier that streams no weights.
pub fn weight_splits(
    model: &Model,
    options: &LoadOptions,
    context: usize,
) -> Result<(WeightSplits, usize), Error> {
    let LoadOptions { tier, activations, cache, threads, ref widths, resident: _ } = *options;
    let set_options = SetOptions {
        tier: tier.unwrap_or_else(Tier::detect_best),
        kv_format: cache,
        activations,
        widths: Vec::new(),
        model_context: model.config.context,
        threads: threads.unwrap_or(1),
        resident: None,
    };
    let splits = ExecutableSet::splits_of(&model.graph, &set_options)?;
    let widest = widths.iter().copied().max().unwrap_or(1);
    Ok((splits, session_bytes(model, cache, context, widest)))
}

/// Keys and values, and the rows of the widest forward, of which logits and the gated layer are the largest.
fn session_bytes(model: &Model, cache: KvFormat, context: usize, widest: usize) -> usize {
    let config = &model.config;
    let of_element = match cache {
        KvFormat::F32 => 4,
        KvFormat::F16 | KvFormat::Q8 => 2,
    };
    let elements =
        model.graph.kv().shapes().map(|(layers, [kv_heads, head_dim])| layers * kv_heads * head_dim);
    let of_slot = 2 * elements.iter().sum::<usize>() * of_element;
    let of_row = 4 * (config.vocabulary + 3 * config.feed_forward + 8 * config.hidden_size);
    (context + widest) * of_slot + widest * of_row
}
