//! Writes a synthetic model as a GGUF file.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::Path,
};

use ygg_kernels::WeightFormat;

use super::{
    NAME, RMS_EPS, SyntheticSpec,
    tensors::{Tensor, tensors},
    vocabulary::{BOS, CHAT_TEMPLATE, EOS, UNKNOWN, Vocabulary},
};
use crate::model::{
    ModelError, RopeScaling,
    gguf::{Array, DATA_ALIGNMENT, TensorRecord, Value, encode_header},
    tensor_bytes,
};

impl SyntheticSpec {
    /// Writes the model as a GGUF file (version 3), under another name first, so that `path` is whole or absent.
    ///
    /// # Errors
    /// [`ModelError::Invalid`] if no such model can exist, [`ModelError::Write`] if the file cannot be written.
    pub fn write_gguf(&self, path: &Path) -> Result<(), ModelError> {
        self.config()?;
        let unfinished = path.with_extension("gguf.part");
        let write = || {
            let mut out = BufWriter::new(File::create(&unfinished)?);
            self.write_to(&mut out)?;
            out.into_inner()?.sync_all()?;
            fs::rename(&unfinished, path)
        };
        write().map_err(|source| ModelError::Write { path: path.to_owned(), source })
    }

    fn write_to(&self, out: &mut impl Write) -> io::Result<()> {
        let tensors = tensors(self);
        let factors = match self.rope.scaling {
            RopeScaling::Llama3 { .. } | RopeScaling::PerPair(_) => self.rope.divisors(self.head_dim),
            RopeScaling::None | RopeScaling::Linear { .. } => Vec::new(),
            RopeScaling::Yarn { .. } | RopeScaling::LongShort { .. } => unreachable!("`config` refuses them"),
        };
        let mut table = Table { records: Vec::new(), end: 0 };
        for Tensor { gguf_name, shape, format, .. } in &tensors {
            table.add(gguf_name, shape, *format);
        }
        if !factors.is_empty() {
            table.add("rope_freqs.weight", &[factors.len()], WeightFormat::F32);
        }
        let header = encode_header(3, &self.metadata(), &table.records);
        out.write_all(&header)?;
        pad(out, header.len())?;
        let mut row_bytes = Vec::new();
        for tensor in &tensors {
            let mut written = 0;
            let distinct = tensor.period();
            let mut made: Vec<Vec<u8>> = Vec::new();
            for row in 0..tensor.rows() {
                let bytes = match distinct {
                    Some(period) if row >= period => &made[row % period],
                    _ => {
                        row_bytes.clear();
                        tensor.gguf_row(row, &mut row_bytes);
                        if distinct.is_some() {
                            made.push(row_bytes.clone());
                        }
                        &row_bytes
                    }
                };
                out.write_all(bytes)?;
                written += bytes.len();
            }
            pad(out, written)?;
        }
        row_bytes.clear();
        WeightFormat::F32.quantise_row(&factors, &mut row_bytes);
        out.write_all(&row_bytes)?;
        pad(out, row_bytes.len())
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
        if let RopeScaling::Linear { factor } = self.rope.scaling {
            own.push(("rope.scaling.type", text("linear")));
            own.push(("rope.scaling.factor", Value::F32(factor as f32)));
        }
        let own = own.into_iter().map(|(key, value)| (format!("{}.{key}", self.family.name), value));
        entries.into_iter().map(|(key, value)| (key.to_owned(), value)).chain(own).collect()
    }
}

struct Table {
    records: Vec<TensorRecord>,
    end: u64,
}

impl Table {
    fn add(&mut self, name: &str, shape: &[usize], format: WeightFormat) {
        let len = tensor_bytes(name, shape, format).expect("checked by config()");
        self.records.push(TensorRecord {
            name: name.to_owned(),
            shape: shape.to_vec(),
            format,
            offset: self.end,
        });
        self.end = (self.end + len as u64).next_multiple_of(DATA_ALIGNMENT);
    }
}

fn pad(out: &mut impl Write, written: usize) -> io::Result<()> {
    let alignment = usize::try_from(DATA_ALIGNMENT).expect("small");
    out.write_all(&vec![0; written.next_multiple_of(alignment) - written])
}
