//! The rotary embedding that a `config.json` describes.

use std::sync::Arc;

use serde_json::Value;

use super::config_json::Object;
use crate::model::{
    ConfigKeys, ModelError, RopeConfig, RopeScaling,
    config::{Fields, Turned, required},
    rope::{YARN_FAST, YARN_SLOW, long_magnitude, yarn_magnitude},
};

/// `rope_theta` and `rope_scaling`, or the `rope_parameters` that newer files write instead of both; of models with
/// several rotations, that of the layers without a window.
pub(super) fn rope(json: &Object, keys: &ConfigKeys) -> Result<RopeConfig, ModelError> {
    let parameters = parameters(json)?;
    let base = match &parameters {
        Some(parameters) => parameters.float(&keys.rope_base)?,
        None => None,
    };
    let base = base.or(json.float(&keys.rope_base)?).unwrap_or(10_000.0);
    let rule = match parameters {
        Some(parameters) => Some(parameters),
        None => json.object(&keys.rope_scaling)?,
    };
    let Some(rule) = rule else { return Ok(RopeConfig { base, scaling: RopeScaling::None }) };
    let kind = rule.text("rope_type")?.or(rule.text("type")?);
    let float = |key: &str| rule.required(rule.float(key)?, key, "a number above 0");
    let scaling = match rule.required(kind, "rope_type", "the scaling rule")? {
        "default" => RopeScaling::None,
        "linear" => RopeScaling::Linear { factor: float("factor")? },
        "llama3" => RopeScaling::Llama3 {
            factor: float("factor")?,
            low_freq_factor: float("low_freq_factor")?,
            high_freq_factor: float("high_freq_factor")?,
            original_context: float("original_max_position_embeddings")?,
        },
        "yarn" => yarn(json, &rule, keys)?,
        "longrope" => long(json, &rule, keys)?,
        PROPORTIONAL => RopeScaling::Proportional {
            share: rule.float(SHARE)?.unwrap_or(1.0),
            factor: rule.float("factor")?.unwrap_or(1.0),
        },
        other => {
            return Err(ModelError::unsupported(
                format_args!("key `{}`", rule.path("rope_type")),
                format_args!("`{other}`"),
                "`default`, `linear`, `llama3`, `yarn`, `longrope`, `proportional`",
            ));
        }
    };
    Ok(RopeConfig { base, scaling })
}

/// The rule under which pairs beyond a share of the head have no frequency, so that whole heads turn.
const PROPORTIONAL: &str = "proportional";
const SHARE: &str = "partial_rotary_factor";

/// The share of a head that turns.
pub(super) fn turned(json: &Object) -> Result<Turned, ModelError> {
    let key = SHARE;
    let found = match parameters(json)? {
        Some(parameters) if parameters.text("rope_type")? == Some(PROPORTIONAL) => Some(1.0),
        Some(parameters) => parameters.float(key)?,
        None => None,
    };
    let share = found.or(json.float(key)?).unwrap_or(1.0);
    if share > 0.0 && share <= 1.0 {
        return Ok(Turned::Share(share));
    }
    Err(ModelError::invalid(format_args!("key `{key}`"), "a share above 0 and at most 1", share))
}

fn parameters(json: &Object) -> Result<Option<Object>, ModelError> {
    let Some(all) = json.object("rope_parameters")? else { return Ok(None) };
    let of_whole = all.object("full_attention")?;
    Ok(Some(of_whole.unwrap_or(all)))
}

fn yarn(json: &Object, rule: &Object, keys: &ConfigKeys) -> Result<RopeScaling, ModelError> {
    let factor = rule.required(rule.float("factor")?, "factor", "a number above 0")?;
    let original_context = match rule.float("original_max_position_embeddings")? {
        Some(original) => original,
        None => required(json.float(&keys.context)?, &keys.context, "an integer above 0")?,
    };
    let weights = (rule.float("mscale")?, rule.float("mscale_all_dim")?);
    let magnitude = match (rule.float("attention_factor")?, weights) {
        (Some(magnitude), _) => magnitude,
        (None, (Some(weight), Some(of_all))) if weight != 0.0 && of_all != 0.0 => {
            yarn_magnitude(factor, weight) / yarn_magnitude(factor, of_all)
        }
        (None, _) => yarn_magnitude(factor, 1.0),
    };
    Ok(RopeScaling::Yarn {
        factor,
        original_context,
        fast: rule.float("beta_fast")?.unwrap_or(YARN_FAST),
        slow: rule.float("beta_slow")?.unwrap_or(YARN_SLOW),
        is_truncated: rule.flag("truncate")?.unwrap_or(true),
        magnitude,
    })
}

fn long(json: &Object, rule: &Object, keys: &ConfigKeys) -> Result<RopeScaling, ModelError> {
    let key = "original_max_position_embeddings";
    let context = required(json.float(&keys.context)?, &keys.context, "an integer above 0")?;
    let original = json.float(key)?.or(rule.float(key)?);
    let original_context = original.unwrap_or(context);
    let factor = match original {
        Some(original) => context / original,
        None => rule.float("factor")?.unwrap_or(1.0),
    };
    let magnitude = match rule.float("attention_factor")? {
        Some(magnitude) => magnitude,
        None => long_magnitude(factor, original_context),
    };
    let divisors = |key: &str| -> Result<Arc<[f32]>, ModelError> {
        let wrong = |found: &str| {
            ModelError::invalid(format_args!("key `{}`", rule.path(key)), "a list of numbers", found)
        };
        let list = rule.get(key).ok_or_else(|| wrong("none"))?;
        let numbers =
            list.as_array().and_then(|list| list.iter().map(Value::as_f64).collect::<Option<Vec<_>>>());
        Ok(numbers.ok_or_else(|| wrong("something else"))?.into_iter().map(|x| x as f32).collect())
    };
    let (short, long) = (divisors("short_factor")?, divisors("long_factor")?);
    Ok(RopeScaling::LongShort { short, long, original_context, magnitude })
}
