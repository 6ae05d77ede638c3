//! The rotary embedding that a GGUF file describes.

use std::sync::Arc;

use super::GgufFile;
use crate::model::{
    ConfigKeys, Family, ModelError, RopeConfig, RopeScaling,
    config::{Fields, required},
    rope::{YARN_FAST, YARN_SLOW, long_magnitude, yarn_magnitude},
};
use ygg_kernels::WeightFormat;

/// Divisors of the frequencies, one per pair: of all contexts, or of short and of long ones.
pub(super) const ROPE_TENSORS: [&str; 3] = [ALL, SHORT, LONG];
const ALL: &str = "rope_freqs.weight";
const SHORT: &str = "rope_factors_short.weight";
const LONG: &str = "rope_factors_long.weight";

/// Reads it. `bytes` are those of the files.
pub(super) fn rope(
    file: &GgufFile,
    bytes: &[&[u8]],
    family: &Family,
    keys: &ConfigKeys,
) -> Result<RopeConfig, ModelError> {
    let base = file.float(&keys.rope_base)?.unwrap_or(10_000.0);
    let by_rule = by_rule(file, family, keys)?;
    let has = |name: &str| file.tensors.contains_key(name);
    let Some(first) = ROPE_TENSORS.into_iter().find(|name| has(name)) else {
        return Ok(RopeConfig { base, scaling: by_rule });
    };
    if by_rule != RopeScaling::None {
        let what = format!("tensor `{first}`");
        return Err(ModelError::unsupported(what, "with another scaling", "one scaling rule at a time"));
    }
    let scaling = if has(ALL) {
        RopeScaling::PerPair(divisors(file, bytes, ALL)?)
    } else {
        let original = format!("{}.rope.scaling.original_context_length", family.name);
        let original_context = required(file.float_or_count(&original)?, &original, "a number of tokens")?;
        let magnitude = match file.float(&format!("{}.rope.scaling.attn_factor", family.name))? {
            Some(magnitude) => magnitude,
            None => {
                let context = required(file.count(&keys.context)?, &keys.context, "an integer above 0")?;
                long_magnitude(context as f64 / original_context, original_context)
            }
        };
        let [short, long] = [SHORT, LONG].map(|name| divisors(file, bytes, name));
        RopeScaling::LongShort { short: short?, long: long?, original_context, magnitude }
    };
    Ok(RopeConfig { base, scaling })
}

/// Scaling that keys describe.
fn by_rule(file: &GgufFile, family: &Family, keys: &ConfigKeys) -> Result<RopeScaling, ModelError> {
    let key = |name: &str| format!("{}.rope.scaling.{name}", family.name);
    let factor_key = &key("factor");
    let old_factor_key = &format!("{}.rope.scale_linear", family.name);
    let rule = match file.text(&keys.rope_scaling)? {
        Some(rule) => rule,
        None if file.metadata.contains_key(old_factor_key) => "linear",
        None => "none",
    };
    let factor = || {
        let factor = file.float(factor_key)?.or(file.float(old_factor_key)?);
        required(factor, factor_key, "the divisor of the frequencies")
    };
    match rule {
        // The divisors of long contexts are in tensors.
        "none" | "longrope" => Ok(RopeScaling::None),
        "linear" => Ok(RopeScaling::Linear { factor: factor()? }),
        "yarn" => {
            let (factor, original) = (factor()?, key("original_context_length"));
            let original_context = match file.float_or_count(&original)? {
                Some(original_context) => original_context,
                None => required(file.count(&keys.context)?, &keys.context, "an integer above 0")? as f64,
            };
            let attention = file.float(&key("attn_factor"))?.unwrap_or(1.0);
            Ok(RopeScaling::Yarn {
                factor,
                original_context,
                fast: file.float(&key("yarn_beta_fast"))?.unwrap_or(YARN_FAST),
                slow: file.float(&key("yarn_beta_slow"))?.unwrap_or(YARN_SLOW),
                is_truncated: true,
                magnitude: attention * yarn_magnitude(factor, 1.0),
            })
        }
        other => Err(ModelError::unsupported(
            format_args!("key `{}`", keys.rope_scaling),
            format_args!("`{other}`"),
            "`none`, `linear`, `yarn`, `longrope`, and the tensor `rope_freqs.weight`",
        )),
    }
}

/// The numbers of a tensor of divisors.
fn divisors(file: &GgufFile, bytes: &[&[u8]], name: &str) -> Result<Arc<[f32]>, ModelError> {
    let Some(info) = file.tensors.get(name) else {
        let (name, shape) = (name.to_owned(), Vec::new());
        return Err(ModelError::MissingTensor { name, shape });
    };
    if info.format != WeightFormat::F32 || info.shape.len() != 1 {
        let found = format!("{:?} {:?}", info.format, info.shape);
        return Err(ModelError::invalid(format_args!("tensor `{name}`"), "an F32 vector", found));
    }
    let (factors, _) = bytes[info.file][info.bytes.clone()].as_chunks::<4>();
    Ok(factors.iter().map(|b| f32::from_le_bytes(*b)).collect())
}
