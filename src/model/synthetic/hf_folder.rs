//! Writes a synthetic model as a Hugging Face folder.

use std::{borrow::Cow, collections::BTreeMap, fs, io, ops::Range, path::Path};

use ::safetensors::{Dtype, SafeTensorError, View, serialize_to_file};
use serde_json::{Value, json};
use ygg_kernels::WeightFormat;

use super::{
    RMS_EPS, SyntheticSpec,
    tensors::{Tensor, tensors},
    vocabulary::{BOS, CHAT_TEMPLATE, CONTROL, EOS, Vocabulary},
};
use crate::model::{
    ModelError, RopeScaling,
    safetensors::{INDEX, SINGLE},
};

impl SyntheticSpec {
    /// Writes the model as a Hugging Face folder with one safetensors file, making the folder if need be.
    ///
    /// # Errors
    /// [`ModelError::Invalid`] if no such model can exist, [`ModelError::Unsupported`] for
    /// [`RopeScaling::PerPair`], which `config.json` cannot say, [`ModelError::Write`] if a file cannot be written.
    pub fn write_folder(&self, folder: &Path) -> Result<(), ModelError> {
        self.write_side_files(folder)?;
        write_weights(&folder.join(SINGLE), &tensors(self))
    }

    /// Writes the model as a folder with `shards` safetensors files and their index.
    ///
    /// # Errors
    /// As [`write_folder`](Self::write_folder).
    ///
    /// # Panics
    /// If `shards` is 0.
    pub fn write_sharded_folder(&self, folder: &Path, shards: usize) -> Result<(), ModelError> {
        self.write_side_files(folder)?;
        let tensors = tensors(self);
        let mut weight_map = BTreeMap::new();
        for (i, part) in tensors.chunks(tensors.len().div_ceil(shards)).enumerate() {
            let name = format!("model-{:05}-of-{shards:05}.safetensors", i + 1);
            write_weights(&folder.join(&name), part)?;
            let names = part.iter().flat_map(Tensor::folder_parts).map(|(tensor, _)| tensor);
            weight_map.extend(names.map(|tensor| (tensor, name.clone())));
        }
        write(&folder.join(INDEX), &json!({ "metadata": {}, "weight_map": weight_map }))
    }

    fn write_side_files(&self, folder: &Path) -> Result<(), ModelError> {
        self.config()?;
        let config = self.config_json()?;
        fs::create_dir_all(folder).map_err(|source| ModelError::Write { path: folder.to_owned(), source })?;
        write(&folder.join("config.json"), &config)?;
        write(&folder.join("tokenizer.json"), &tokenizer_json(self.vocabulary))?;
        write(
            &folder.join("tokenizer_config.json"),
            &json!({
                "add_prefix_space": false,
                "bos_token": CONTROL[BOS as usize],
                "chat_template": CHAT_TEMPLATE,
                "eos_token": CONTROL[EOS as usize],
                "tokenizer_class": "GPT2Tokenizer",
            }),
        )?;
        write(&folder.join("generation_config.json"), &json!({ "bos_token_id": BOS, "eos_token_id": EOS }))
    }

    fn config_json(&self) -> Result<Value, ModelError> {
        let scaling = match &self.rope.scaling {
            RopeScaling::None => Value::Null,
            RopeScaling::Linear { factor } => json!({ "rope_type": "linear", "factor": factor }),
            RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_context } => json!({
                "rope_type": "llama3",
                "factor": factor,
                "low_freq_factor": low_freq_factor,
                "high_freq_factor": high_freq_factor,
                "original_max_position_embeddings": original_context,
            }),
            RopeScaling::PerPair(_)
            | RopeScaling::Proportional { .. }
            | RopeScaling::Yarn { .. }
            | RopeScaling::LongShort { .. } => {
                return Err(ModelError::unsupported(
                    "key `rope.scaling`",
                    "another rule in config.json",
                    "None, Linear, Llama3",
                ));
            }
        };
        let class = |model_type: &str| self.family.classes.iter().find(|(name, _)| *name == model_type);
        let with_experts = self.experts.and_then(|_| class("mixtral"));
        let (model_type, class) = *with_experts.unwrap_or(&self.family.classes[0]);
        let experts = self.experts.map(|experts| (experts.count, experts.used)).unzip();
        Ok(json!({
            "architectures": [class],
            "attention_bias": false,
            "bos_token_id": BOS,
            "eos_token_id": EOS,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "hidden_size": self.width,
            "intermediate_size": self.feed_forward,
            "max_position_embeddings": self.context,
            "mlp_bias": false,
            "model_type": model_type,
            "num_attention_heads": self.heads,
            "num_experts_per_tok": experts.1,
            "num_hidden_layers": self.layers,
            "num_key_value_heads": self.kv_heads,
            "num_local_experts": experts.0,
            "rms_norm_eps": RMS_EPS,
            "rope_scaling": scaling,
            "rope_theta": self.rope.base,
            "tie_word_embeddings": self.tied,
            "vocab_size": self.vocabulary,
        }))
    }
}

fn tokenizer_json(size: usize) -> Value {
    let vocabulary = Vocabulary::new(size);
    let ids: BTreeMap<&str, usize> =
        vocabulary.tokens.iter().enumerate().map(|(id, token)| (token.as_str(), id)).collect();
    let added: Vec<_> = CONTROL
        .iter()
        .enumerate()
        .map(|(id, content)| {
            json!({
                "id": id, "content": content, "special": true,
                "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
            })
        })
        .collect();
    let byte_level = |add_prefix_space: bool, use_regex: bool| {
        json!({
            "type": "ByteLevel", "add_prefix_space": add_prefix_space,
            "trim_offsets": true, "use_regex": use_regex,
        })
    };
    json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added,
        "normalizer": null,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{ "type": "Digits", "individual_digits": true }, byte_level(false, true)],
        },
        "post_processor": byte_level(true, true),
        "decoder": byte_level(true, true),
        "model": {
            "type": "BPE",
            "dropout": null,
            "unk_token": null,
            "continuing_subword_prefix": null,
            "end_of_word_suffix": null,
            "fuse_unk": false,
            "byte_fallback": false,
            "ignore_merges": false,
            "vocab": ids,
            "merges": vocabulary.merges,
        },
    })
}

pub(super) fn write(path: &Path, json: &Value) -> Result<(), ModelError> {
    let text = serde_json::to_string_pretty(json).expect("a JSON value is text");
    fs::write(path, text).map_err(|source| ModelError::Write { path: path.to_owned(), source })
}

enum FolderTensor<'a> {
    Weights { tensor: &'a Tensor, rows: Range<usize>, shape: Vec<usize> },
    Integers { elements: &'a [i64], shape: [usize; 1] },
}

impl View for FolderTensor<'_> {
    fn dtype(&self) -> Dtype {
        match self {
            Self::Weights { tensor, .. } => match tensor.folder_format() {
                WeightFormat::F16 => Dtype::F16,
                WeightFormat::BF16 => Dtype::BF16,
                _ => Dtype::F32,
            },
            Self::Integers { .. } => Dtype::I64,
        }
    }

    fn shape(&self) -> &[usize] {
        match self {
            Self::Weights { shape, .. } => shape,
            Self::Integers { shape, .. } => shape,
        }
    }

    fn data(&self) -> Cow<'_, [u8]> {
        match self {
            Self::Weights { tensor, rows, .. } => tensor.folder_bytes(rows.clone()).into(),
            Self::Integers { elements, .. } => elements.iter().flat_map(|x| x.to_le_bytes()).collect(),
        }
    }

    fn data_len(&self) -> usize {
        self.shape().iter().product::<usize>() * self.dtype().bitsize() / 8
    }
}

pub(super) fn write_weights(path: &Path, tensors: &[Tensor]) -> Result<(), ModelError> {
    write_with_integers(path, tensors, &[])
}

/// As [`write_weights`], with vectors of integers.
pub(super) fn write_with_integers(
    path: &Path,
    tensors: &[Tensor],
    integers: &[(&str, &[i64])],
) -> Result<(), ModelError> {
    let weights = tensors.iter().flat_map(|tensor| {
        // The last two sizes: of all experts a tensor each.
        let shape = &tensor.shape[tensor.shape.len().saturating_sub(2)..];
        let part = |(name, rows)| (name, FolderTensor::Weights { tensor, rows, shape: shape.to_vec() });
        tensor.folder_parts().into_iter().map(part)
    });
    let vector = |elements| FolderTensor::Integers { elements, shape: [elements.len()] };
    let integers = integers.iter().map(|(name, elements)| ((*name).to_owned(), vector(elements)));
    serialize_to_file(weights.chain(integers), None, path).map_err(|error| {
        let source = match error {
            SafeTensorError::IoError(source) => source,
            other => io::Error::other(other),
        };
        ModelError::Write { path: path.to_owned(), source }
    })
}
