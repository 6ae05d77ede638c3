//! Writes a synthetic model as a GGUF file.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    path::Path,
};

use ygg_kernels::WeightFormat;

use super::{
    NAME, RMS_EPS, SyntheticExperts, SyntheticSpec,
    tensors::{Tensor, tensors},
    vocabulary::{BOS, CHAT_TEMPLATE, EOS, UNKNOWN, Vocabulary},
};
use crate::model::{
    ModelError, RopeScaling,
    gguf::{Array, NewTensor, Value, write_file, write_outline},
};

impl SyntheticSpec {
    /// Writes the model as a GGUF file (version 3), under another name first, so that `path` is whole or absent.
    ///
    /// # Errors
    /// [`ModelError::Invalid`] if no such model can exist, [`ModelError::Write`] if the file cannot be written.
    pub fn write_gguf(&self, path: &Path) -> Result<(), ModelError> {
        self.config()?;
        let tensors = tensors(self);
        let factors = match self.rope.scaling {
            RopeScaling::Llama3 { .. } | RopeScaling::PerPair(_) => self.rope.divisors(self.head_dim),
            RopeScaling::None | RopeScaling::Linear { .. } => Vec::new(),
            RopeScaling::Yarn { .. } | RopeScaling::LongShort { .. } | RopeScaling::Proportional { .. } => {
                unreachable!("`config` refuses them")
            }
        };
        let mut table: Vec<NewTensor> = tensors.iter().map(new_tensor).collect();
        if !factors.is_empty() {
            let name = "rope_freqs.weight".to_owned();
            table.push(NewTensor { name, shape: vec![factors.len()], format: WeightFormat::F32 });
        }
        write_file(path, &self.metadata(), &table, |number, out| match tensors.get(number) {
            Some(tensor) => write_tensor(tensor, out),
            None => {
                let mut bytes = Vec::new();
                WeightFormat::F32.quantise_row(&factors, &mut bytes);
                out.write_all(&bytes)
            }
        })
    }

    /// Writes the model as a GGUF file with zeros for weights, which take no room on the disk: for
    /// [`blank`](crate::model::Model::blank) models of any size.
    ///
    /// # Errors
    /// As [`write_gguf`](Self::write_gguf).
    pub fn write_gguf_outline(&self, path: &Path) -> Result<(), ModelError> {
        self.config()?;
        let table: Vec<NewTensor> = tensors(self).iter().map(new_tensor).collect();
        write_outline(path, &self.metadata(), &table)
    }

    fn metadata(&self) -> BTreeMap<String, Value> {
        let vocabulary = Vocabulary::new(self.vocabulary);
        let text = |text: &str| Value::String(text.to_owned());
        let count = |n: usize| Value::U32(u32::try_from(n).expect("checked by config()"));
        let kinds = vocabulary.kinds.iter().map(|kind| kind.cast_signed()).collect();
        let merges = vocabulary.merges.iter().map(|(a, b)| format!("{a} {b}")).collect();
        let mut own = vec![
            ("attention.head_count", count(self.heads)),
            ("attention.head_count_kv", count(self.kv_heads)),
            ("attention.key_length", count(self.head_dim)),
            ("attention.layer_norm_rms_epsilon", Value::F32(RMS_EPS)),
            ("attention.value_length", count(self.head_dim)),
            ("block_count", count(self.layers)),
            ("context_length", count(self.context)),
            ("embedding_length", count(self.width)),
            ("feed_forward_length", count(self.feed_forward)),
            ("rope.dimension_count", count(self.head_dim)),
            ("rope.freq_base", Value::F32(self.rope.base as f32)),
            ("vocab_size", count(self.vocabulary)),
        ];
        let entries = [
            ("general.architecture", text(self.family.name)),
            ("general.name", text(NAME)),
            ("tokenizer.chat_template", text(CHAT_TEMPLATE)),
            ("tokenizer.ggml.add_bos_token", Value::Bool(false)),
            ("tokenizer.ggml.bos_token_id", Value::U32(BOS)),
            ("tokenizer.ggml.eos_token_id", Value::U32(EOS)),
            ("tokenizer.ggml.merges", Value::Array(Array::String(merges))),
            ("tokenizer.ggml.model", text("gpt2")),
            ("tokenizer.ggml.padding_token_id", Value::U32(EOS)),
            ("tokenizer.ggml.pre", text("smollm")),
            ("tokenizer.ggml.token_type", Value::Array(Array::I32(kinds))),
            ("tokenizer.ggml.tokens", Value::Array(Array::String(vocabulary.tokens))),
            ("tokenizer.ggml.unknown_token_id", Value::U32(UNKNOWN)),
        ];
        if let Some(SyntheticExperts { count: experts, used, .. }) = self.experts {
            own.push(("expert_count", count(experts)));
            own.push(("expert_used_count", count(used)));
        }
        if let RopeScaling::Linear { factor } = self.rope.scaling {
            own.push(("rope.scaling.type", text("linear")));
            own.push(("rope.scaling.factor", Value::F32(factor as f32)));
        }
        let own = own.into_iter().map(|(key, value)| (format!("{}.{key}", self.family.name), value));
        entries.into_iter().map(|(key, value)| (key.to_owned(), value)).chain(own).collect()
    }
}

fn new_tensor(tensor: &Tensor) -> NewTensor {
    NewTensor { name: tensor.gguf_name.clone(), shape: tensor.shape.clone(), format: tensor.format }
}

/// Writes the rows of a tensor, those that come again as they were made.
fn write_tensor(tensor: &Tensor, out: &mut dyn Write) -> io::Result<()> {
    let distinct = tensor.period();
    let mut made: Vec<Vec<u8>> = Vec::new();
    let mut row_bytes = Vec::new();
    for row in 0..tensor.rows() {
        match distinct {
            Some(period) if row >= period => out.write_all(&made[row % period])?,
            _ => {
                row_bytes.clear();
                tensor.gguf_row(row, &mut row_bytes);
                out.write_all(&row_bytes)?;
                if distinct.is_some() {
                    made.push(row_bytes.clone());
                }
            }
        }
    }
    Ok(())
}
