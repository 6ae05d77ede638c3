//! The tensors of an inflated model: which tensor of the model each comes from, and which of its rows and blocks lie
//! where.

use std::io::{self, Write};

use ygg_kernels::WeightFormat;

use super::sizes::{HeadPlace, Sizes};
use crate::model::{ModelError, TensorInfo, TensorTable, gguf::NewTensor};

/// What a tensor does, which says how it grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Rows of tokens, which begin the hidden rows.
    Embedding,
    /// Makes logits of hidden rows.
    Head,
    /// Gain of a norm of hidden rows.
    Gain,
    /// Queries of hidden rows, or their bias.
    Queries,
    /// Keys or values of hidden rows, or their bias.
    Keys,
    /// From what heads have read to the hidden row.
    AttentionOutput,
    /// Neurons of an MLP.
    Neurons,
    /// From neurons to the hidden row.
    Down,
    /// Is what it was.
    Kept,
}

/// The role of a tensor by its name in a GGUF file, without its layer.
fn role(name: &str) -> Option<Role> {
    Some(match name {
        "token_embd.weight" => Role::Embedding,
        "output.weight" => Role::Head,
        "output_norm.weight" | "attn_norm.weight" | "ffn_norm.weight" => Role::Gain,
        "attn_q.weight" | "attn_q.bias" => Role::Queries,
        "attn_k.weight" | "attn_k.bias" | "attn_v.weight" | "attn_v.bias" => Role::Keys,
        "attn_output.weight" => Role::AttentionOutput,
        "ffn_gate.weight" | "ffn_up.weight" => Role::Neurons,
        "ffn_down.weight" => Role::Down,
        "attn_q_norm.weight" | "attn_k_norm.weight" => Role::Kept,
        "rope_freqs.weight" | "rope_factors_short.weight" | "rope_factors_long.weight" => Role::Kept,
        _ => return None,
    })
}

/// A tensor of the inflated model.
#[derive(Debug)]
pub(super) struct Inflated<'a> {
    pub(super) new: NewTensor,
    /// Where the tensor lies from which it comes.
    pub(super) source: &'a TensorInfo,
    role: Role,
    /// Of a layer that adds nothing to the hidden row.
    is_added: bool,
}

/// All of them: those of every layer, and those of none.
///
/// # Errors
/// [`ModelError`] for a tensor that is read and has no role, and for blocks that would be torn apart.
pub(super) fn inflated<'a>(
    sizes: &Sizes<'_>,
    tensors: &'a TensorTable,
    unused: &[String],
) -> Result<Vec<Inflated<'a>>, ModelError> {
    let mut all = Vec::new();
    for (name, source) in tensors.iter().filter(|(name, _)| !unused.contains(name)) {
        let of_layer = name.strip_prefix("blk.").and_then(|rest| rest.split_once('.'));
        let of_layer = of_layer.and_then(|(layer, own)| Some((layer.parse::<usize>().ok()?, own)));
        let role = role(of_layer.map_or(name.as_str(), |(_, own)| own)).ok_or_else(|| {
            ModelError::unsupported(
                "inflation",
                format_args!("tensor `{name}`"),
                "the tensors of Llama and Qwen",
            )
        })?;
        let tensor = |name: String, is_added: bool| {
            let format = if role == Role::Gain { WeightFormat::F32 } else { source.format };
            let new = NewTensor { name, shape: shape(role, sizes, &source.shape), format };
            Inflated { new, source, role, is_added }
        };
        // Those of all layers are made in the same way.
        tensor(name.clone(), false).runs(sizes)?;
        match of_layer {
            None => all.push(tensor(name.clone(), false)),
            Some((layer, own)) => {
                let of_same = (layer..sizes.large.layers).step_by(sizes.small.layers);
                all.extend(of_same.map(|place| tensor(format!("blk.{place}.{own}"), place != layer)));
            }
        }
    }
    Ok(all)
}

/// The shape of a tensor that had `shape`.
fn shape(role: Role, sizes: &Sizes<'_>, shape: &[usize]) -> Vec<usize> {
    let large = &sizes.large;
    let (d, f) = (large.hidden_size, large.feed_forward);
    let (queries, keys) = (large.heads * large.head_dim, large.kv_heads * large.head_dim);
    // A bias has outputs and no inputs.
    let outputs = |outputs: usize| if shape.len() == 1 { vec![outputs] } else { vec![outputs, d] };
    match role {
        Role::Embedding | Role::Head => vec![shape[0], d],
        Role::Gain => vec![d],
        Role::Queries => outputs(queries),
        Role::Keys => outputs(keys),
        Role::AttentionOutput => vec![d, queries],
        Role::Neurons => vec![f, d],
        Role::Down => vec![d, f],
        Role::Kept => shape.to_vec(),
    }
}

/// Blocks of a row that lie together: from this block of the model's row on, or zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    from: Option<usize>,
    blocks: usize,
}

impl Inflated<'_> {
    /// Writes it. `bytes` are those of [`source`](Self::source).
    pub(super) fn write(&self, sizes: &Sizes<'_>, bytes: &[u8], out: &mut dyn Write) -> io::Result<()> {
        let NewTensor { shape, format, .. } = &self.new;
        let columns = self.source.shape[self.source.shape.len() - 1];
        let row_bytes = self.source.format.row_bytes(columns).expect("the model opened");
        if self.role == Role::Gain {
            let mut values = vec![0.0; columns];
            self.source.format.dequantise_row(bytes, &mut values);
            values.iter_mut().for_each(|gain| *gain = (f64::from(*gain) * sizes.gain_factor()) as f32);
            values.resize(shape[0], 0.0);
            let mut stored = Vec::new();
            format.quantise_row(&values, &mut stored);
            return out.write_all(&stored);
        }
        let runs = self.runs(sizes).expect("it was checked when the tensor was listed");
        let zero = zeros(*format, shape[shape.len() - 1]);
        let rows: usize = shape[..shape.len() - 1].iter().product();
        for row in 0..rows {
            let Some(row) = self.row(sizes, row) else {
                out.write_all(&zero)?;
                continue;
            };
            let row = &bytes[row * row_bytes..][..row_bytes];
            for Run { from, blocks } in &runs {
                let len = blocks * format.block_bytes();
                match from {
                    Some(from) => out.write_all(&row[from * format.block_bytes()..][..len])?,
                    None => out.write_all(&zero[..len])?,
                }
            }
        }
        Ok(())
    }

    /// The model's row that a row is, or none if it is zero.
    fn row(&self, sizes: &Sizes<'_>, row: usize) -> Option<usize> {
        let (small, size) = (sizes.small, sizes.small.head_dim);
        match self.role {
            // A bias is one row.
            Role::Queries | Role::Keys if self.source.shape.len() == 1 => Some(row),
            Role::Queries => Some(sizes.queries[row / size].head * size + row % size),
            Role::Keys => Some(sizes.keys[row / size] * size + row % size),
            Role::Neurons => Some(row % small.feed_forward),
            Role::AttentionOutput | Role::Down => (row < small.hidden_size && !self.is_added).then_some(row),
            Role::Embedding | Role::Head | Role::Gain | Role::Kept => Some(row),
        }
    }

    /// The blocks of a row that is not zero.
    fn runs(&self, sizes: &Sizes<'_>) -> Result<Vec<Run>, ModelError> {
        let Sizes { small, queries, keys, .. } = sizes;
        let columns = self.new.shape[self.new.shape.len() - 1];
        let size = small.head_dim;
        let within = |head: usize, column: usize| head * size + column % size;
        let is_bias = self.source.shape.len() == 1;
        let column = |column: usize| match self.role {
            Role::Queries if is_bias => Some(within(queries[column / size].head, column)),
            Role::Keys if is_bias => Some(within(keys[column / size], column)),
            // Only zeros meet the columns after the model's.
            Role::Queries | Role::Keys | Role::Neurons | Role::Head => Some(column % small.hidden_size),
            Role::Embedding => (column < small.hidden_size).then_some(column),
            Role::AttentionOutput => match queries[column / size] {
                HeadPlace { head, is_read: true } => Some(within(head, column)),
                HeadPlace { is_read: false, .. } => None,
            },
            Role::Down => (column < small.feed_forward).then_some(column),
            Role::Gain | Role::Kept => Some(column),
        };
        let block_len = self.new.format.block_len();
        let mut runs: Vec<Run> = Vec::new();
        for start in (0..columns).step_by(block_len) {
            let first = column(start);
            let is_whole = first.is_none_or(|first| first.is_multiple_of(block_len))
                && (1..block_len.min(columns - start))
                    .all(|i| column(start + i) == first.map(|first| first + i));
            if !is_whole {
                return Err(ModelError::unsupported(
                    format_args!("tensor `{}`", self.new.name),
                    format_args!("tearing apart blocks of {block_len} {} elements", self.new.format),
                    "numbers of heads, given by heads=N,kv_heads=N, that keep the model's ratio",
                ));
            }
            let block = first.map(|first| first / block_len);
            match runs.last_mut() {
                Some(Run { from: None, blocks }) if block.is_none() => *blocks += 1,
                Some(Run { from: Some(from), blocks }) if block == Some(*from + *blocks) => *blocks += 1,
                _ => runs.push(Run { from: block, blocks: 1 }),
            }
        }
        Ok(runs)
    }
}

/// A row of zeros.
pub(super) fn zeros(format: WeightFormat, columns: usize) -> Vec<u8> {
    let mut block = Vec::new();
    format.quantise_row(&vec![0.0; format.block_len()], &mut block);
    block.repeat(columns / format.block_len())
}
