//! `config.json` and the JSON files of its folder, read with errors that name the key.

use serde_json::{Map, Value};

use super::rope_json::{rope, turned};

use crate::{
    model::{
        ConfigKeys, Container, Family, ModelConfig, ModelError,
        config::{Fields, Own},
        family::LLAMA,
    },
    storage::json_fault,
};

/// A JSON object whose look-ups name key, expected and found; `null` counts as absent.
pub(super) struct Object {
    prefix: String,
    entries: Map<String, Value>,
}

impl Object {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, ModelError> {
        match serde_json::from_slice(bytes) {
            Ok(Value::Object(entries)) => Ok(Self { prefix: String::new(), entries }),
            Ok(other) => Err(ModelError::invalid("content", "a JSON object", kind(&other))),
            Err(e) => Err(ModelError::invalid("content", "JSON", json_fault(&e))),
        }
    }

    /// The configuration of the language model: all there is, and of a model that sees as well, what is said of that
    /// one in an object of its own.
    pub(super) fn of_language(mut self) -> Self {
        if SEEING.iter().any(|seeing| self.get("model_type").is_some_and(|found| found == seeing))
            && let Some(Value::Object(own)) = self.entries.remove("text_config")
        {
            // The class is that of both together.
            self.entries.remove("architectures");
            self.entries.extend(own);
        }
        self
    }

    pub(super) fn path(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    /// The value of a key; `a.b` is that of `b` in the object `a`.
    pub(super) fn get(&self, key: &str) -> Option<&Value> {
        let (first, rest) = key.split_once('.').map_or((key, None), |(first, rest)| (first, Some(rest)));
        let outer = self.entries.get(first);
        let found = rest.map_or(outer, |rest| rest.split('.').try_fold(outer?, |value, key| value.get(key)));
        found.filter(|value| !value.is_null())
    }

    fn typed<'a, T>(
        &'a self,
        key: &str,
        expected: &str,
        get: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, ModelError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let wrong = || ModelError::invalid(format_args!("key `{}`", self.path(key)), expected, kind(value));
        get(value).map(Some).ok_or_else(wrong)
    }

    pub(super) fn object(&self, key: &str) -> Result<Option<Self>, ModelError> {
        self.typed(key, "an object", |value| {
            let prefix = format!("{}.", self.path(key));
            value.as_object().map(|entries| Self { prefix, entries: entries.clone() })
        })
    }

    pub(super) fn required<T>(
        &self,
        found: Option<T>,
        key: &str,
        expected: &'static str,
    ) -> Result<T, ModelError> {
        found.ok_or_else(|| ModelError::MissingKey { key: self.path(key), expected })
    }

    /// A list of integers of either sign.
    pub(super) fn integers(&self, key: &str) -> Result<Option<Vec<i64>>, ModelError> {
        self.typed(key, "a list of integers", |value| value.as_array()?.iter().map(Value::as_i64).collect())
    }

    /// One token id or a list of them.
    pub(super) fn token_ids(&self, key: &str, vocabulary: usize) -> Result<Option<Vec<u32>>, ModelError> {
        let id = |value: &Value| u32::try_from(value.as_u64()?).ok().filter(|id| (*id as usize) < vocabulary);
        self.typed(key, &format!("token ids below {vocabulary}"), |value| match value {
            Value::Array(ids) => ids.iter().map(id).collect(),
            one => id(one).map(|id| vec![id]),
        })
    }
}

impl Fields for Object {
    fn container(&self) -> Container {
        Container::Folder
    }

    fn flag(&self, key: &str) -> Result<Option<bool>, ModelError> {
        self.typed(key, "true or false", Value::as_bool)
    }

    fn float(&self, key: &str) -> Result<Option<f64>, ModelError> {
        self.typed(key, "a number", Value::as_f64)
    }

    fn count(&self, key: &str) -> Result<Option<usize>, ModelError> {
        self.typed(key, "an integer of at least 0", |value| usize::try_from(value.as_u64()?).ok())
    }

    fn text(&self, key: &str) -> Result<Option<&str>, ModelError> {
        self.typed(key, "a string", Value::as_str)
    }

    fn counts(&self, key: &str) -> Result<Option<Vec<usize>>, ModelError> {
        let count = |value: &Value| usize::try_from(value.as_u64()?).ok();
        self.typed(key, "a list of integers of at least 0", |value| {
            value.as_array()?.iter().map(count).collect()
        })
    }

    fn numbers(&self, key: &str) -> Result<Option<Vec<f64>>, ModelError> {
        // What JSON cannot say, transformers writes as `{"__float__": "Infinity"}`.
        let is_infinite = |value: &Value| value.get("__float__").is_some_and(|name| name == "Infinity");
        let number = |value: &Value| value.as_f64().or(is_infinite(value).then_some(f64::INFINITY));
        self.typed(key, "a list of numbers", |value| value.as_array()?.iter().map(number).collect())
    }

    fn flags(&self, key: &str) -> Result<Option<Vec<bool>>, ModelError> {
        self.typed(key, "a list of true and false", |value| {
            value.as_array()?.iter().map(Value::as_bool).collect()
        })
    }

    fn texts(&self, key: &str) -> Result<Option<Vec<String>>, ModelError> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        self.typed(key, "a list of strings", |value| value.as_array()?.iter().map(text).collect())
    }
}

fn kind(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) => format!("{:?}", text.chars().take(40).collect::<String>()),
        Value::Array(items) => format!("a list of {}", items.len()),
        Value::Object(_) => "an object".to_owned(),
    }
}

/// What the fields are called in this file.
fn keys(json: &Object) -> ConfigKeys {
    let first_of = |names: [&str; 2]| {
        let is_there = |name: &&str| json.get(name).is_some();
        names.into_iter().find(is_there).unwrap_or(names[1]).to_owned()
    };
    ConfigKeys {
        layers: "num_hidden_layers".to_owned(),
        hidden_size: "hidden_size".to_owned(),
        feed_forward: first_of(["block_ff_dim", "intermediate_size"]),
        heads: "num_attention_heads".to_owned(),
        kv_heads: "num_key_value_heads".to_owned(),
        head_dim: "head_dim".to_owned(),
        vocabulary: "vocab_size".to_owned(),
        context: "max_position_embeddings".to_owned(),
        rms_eps: first_of(["norm_eps", "rms_norm_eps"]),
        rope_base: "rope_theta".to_owned(),
        rope_scaling: "rope_scaling".to_owned(),
        rotated: "partial_rotary_factor".to_owned(),
    }
}

/// The configuration in `config.json`; `name` is the folder's.
pub(super) fn config(json: &Object, name: &str) -> Result<ModelConfig, ModelError> {
    let family = family(json)?;
    numbers(json, name, family)
}

/// The `model_type` of models that see as well, whose language models are read.
const SEEING: [&str; 2] = ["qwen3_5", "gemma4"];

/// The `model_type` of a hidden-state drafter.
const HIDDEN_STATE: &str = "hidden_state_drafter";

/// Whether a `config.json` is a hidden-state drafter's.
pub(super) fn is_hidden_state(json: &Object) -> Result<bool, ModelError> {
    Ok(json.text("model_type")? == Some(HIDDEN_STATE))
}

/// The configuration in a hidden-state drafter's `config.json`, whose one layer is a Llama's, and the name of the
/// verifier that it was trained for.
pub(super) fn hidden_state_config(json: &Object, name: &str) -> Result<(ModelConfig, String), ModelError> {
    let config = numbers(json, name, &LLAMA)?;
    if config.layers != 1 {
        return Err(ModelError::unsupported("key `num_hidden_layers`", config.layers, "1"));
    }
    let verifier =
        json.required(json.object("verifier")?, "verifier", "an object with `name` and `vocab_size`")?;
    let trained_for = verifier.required(verifier.text("name")?, "name", "the verifier's name")?.to_owned();
    let count = verifier.required(verifier.count("vocab_size")?, "vocab_size", "an integer above 0")?;
    if count != config.vocabulary {
        let expected = format!("{}, as `vocab_size`", config.vocabulary);
        return Err(ModelError::invalid("key `verifier.vocab_size`", expected, count));
    }
    Ok((config, trained_for))
}

pub(super) fn numbers(json: &Object, name: &str, family: &'static Family) -> Result<ModelConfig, ModelError> {
    if let Some(quantised) = json.object("quantization_config")? {
        let turned = quantised.object("transform_config")?.is_some_and(|turns| {
            turns.get("config_groups").and_then(Value::as_object).is_some_and(|groups| !groups.is_empty())
        });
        if turned {
            let what = "key `quantization_config.transform_config`";
            return Err(ModelError::unsupported(
                what,
                "turned activations",
                "weights that are read as they are",
            ));
        }
        let method = quantised.text("quant_method")?.unwrap_or("unnamed").to_owned();
        if !["mxfp4", "fp8", "compressed-tensors", "modelopt"].contains(&method.as_str()) {
            return Err(ModelError::unsupported(
                "key `quantization_config`",
                format_args!("`{method}`"),
                "F32, F16, BF16, `fp8`, `mxfp4` and NVFP4 (`compressed-tensors`, `modelopt`) weights, or a GGUF file",
            ));
        }
    }
    let keys = keys(json);
    let vocabulary = json.required(json.count(&keys.vocabulary)?, &keys.vocabulary, "an integer above 0")?;
    let tied_head = json.flag("tie_embedding")?.or(json.flag("tie_word_embeddings")?);
    let tied_head = tied_head.unwrap_or(family.is_tied_by_default);
    let own =
        Own { name: name.to_owned(), vocabulary, rope: rope(json, &keys)?, turned: turned(json)?, tied_head };
    ModelConfig::read(family, json, &keys, own)
}

fn family(json: &Object) -> Result<&'static Family, ModelError> {
    let model_type = json.required(json.text("model_type")?, "model_type", "the model's architecture")?;
    let (family, class) = Family::of_class(model_type)?;
    match json.get("architectures") {
        Some(Value::Array(classes)) if !classes.iter().any(|c| c.as_str() == Some(class)) => {
            let found = classes.iter().map(kind).collect::<Vec<_>>().join(", ");
            Err(ModelError::unsupported("key `architectures`", found, class))
        }
        _ => Ok(family),
    }
}

/// The chat template in `tokenizer_config.json`: one string, or a list of named ones of which `default` counts.
pub(super) fn chat_template(json: &Object) -> Result<Option<String>, ModelError> {
    json.typed("chat_template", "a string or a list with a template named `default`", |value| match value {
        Value::Array(named) => named
            .iter()
            .find(|entry| entry["name"] == "default")
            .and_then(|entry| entry["template"].as_str())
            .map(str::to_owned),
        one => one.as_str().map(str::to_owned),
    })
}
