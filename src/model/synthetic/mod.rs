//! Synthetic models: valid files with random weights from a seed. Tiny ones serve tests, ones of published shapes serve
//! measurements.
//!
//! The same [`SyntheticSpec`] always gives the same bytes, on any machine. Written as GGUF and as folder it is the same
//! function: the folder holds the values that the GGUF's formats round to, its query and key rows paired by halves.
//! Weights are scaled so that logits spread (a standard deviation of about 3) and activations stay finite; later
//! layers add less than earlier ones, so that a forward that skips some of them often agrees with the whole.

mod block;
mod eagle3;
mod gguf_file;
mod hf_folder;
mod hidden_state;
mod numbers;
mod shapes;
mod tensors;
mod vocabulary;

pub use block::BlockSpec;
pub use eagle3::Eagle3Spec;
pub use hidden_state::HiddenStateSpec;
use ygg_kernels::{Routing, WeightFormat};

use super::{ConfigKeys, Family, ModelConfig, ModelError, RopeConfig, RopeScaling, family::LLAMA};

/// Family, shape, format and seed of a synthetic model.
///
/// ```
/// # use yggc::model::{Model, synthetic::SyntheticSpec};
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("tiny.gguf");
/// SyntheticSpec { layers: 3, seed: 7, ..SyntheticSpec::default() }.write_gguf(&path)?;
/// assert_eq!(Model::open(&path)?.config.layers, 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct SyntheticSpec {
    /// The family whose names and pairing the files have. The tensors are those of Llama.
    pub family: &'static Family,
    /// Number of layers.
    pub layers: usize,
    /// Hidden size `D`.
    pub width: usize,
    /// Query heads `H`.
    pub heads: usize,
    /// Key/value heads `G`.
    pub kv_heads: usize,
    /// Head size `E`.
    pub head_dim: usize,
    /// Hidden size `F` of the MLPs, and of experts.
    pub feed_forward: usize,
    /// Experts in every layer in place of an MLP, as Mixtral has them.
    pub experts: Option<SyntheticExperts>,
    /// Vocabulary `V`, at least [`LEAST_VOCABULARY`].
    pub vocabulary: usize,
    /// Longest context in tokens.
    pub context: usize,
    /// Format of the matrices. Norm gains are F32; embedding and head are Q8_0 where this is a 4-bit format, but Q6_K
    /// where it is Q4_K. Then, as in the files called Q4_K_M, so are the value and down projections of some layers: the
    /// even ones.
    pub format: WeightFormat,
    /// Whether the embedding matrix is also the head.
    pub tied: bool,
    /// Rotary embedding.
    pub rope: RopeConfig,
    /// All weights follow from it.
    pub seed: u64,
    /// Rows of a matrix that differ; the others are these again, in turn.
    pub distinct_rows: usize,
}

/// The experts of a synthetic model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyntheticExperts {
    /// How many a layer has.
    pub count: usize,
    /// How many a row uses.
    pub used: usize,
    /// Whether all have the weights of the MLP that the model has without them: as a model is upcycled (arXiv
    /// 2212.05055). Weights of experts sum to one, so the model is the same function to rounding.
    pub are_copies: bool,
}

/// Three control tokens and one token per byte.
pub const LEAST_VOCABULARY: usize = vocabulary::CONTROL.len() + 256;

/// Name of every synthetic model.
const NAME: &str = "synthetic";
const RMS_EPS: f32 = 1e-5;

impl Default for SyntheticSpec {
    fn default() -> Self {
        Self {
            family: &LLAMA,
            layers: 2,
            width: 64,
            heads: 4,
            kv_heads: 2,
            head_dim: 16,
            feed_forward: 128,
            experts: None,
            vocabulary: 384,
            context: 512,
            format: WeightFormat::F32,
            tied: true,
            rope: RopeConfig { base: 10_000.0, scaling: RopeScaling::None },
            seed: 1,
            distinct_rows: usize::MAX,
        }
    }
}

impl SyntheticSpec {
    /// The configuration of the model, checked.
    ///
    /// # Errors
    /// [`ModelError::Invalid`] if no such model can exist, naming the field.
    pub fn config(&self) -> Result<ModelConfig, ModelError> {
        let config = self.without_tokenizer()?;
        if self.vocabulary < LEAST_VOCABULARY {
            let expected = format!("at least {LEAST_VOCABULARY}");
            return Err(ModelError::invalid("key `vocabulary`", expected, self.vocabulary));
        }
        Ok(config)
    }

    /// As [`config`](Self::config), of what has no tokenizer and may have any vocabulary.
    fn without_tokenizer(&self) -> Result<ModelConfig, ModelError> {
        let config = ModelConfig {
            family: self.family,
            name: NAME.to_owned(),
            layers: self.layers,
            hidden_size: self.width,
            feed_forward: self.feed_forward,
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            vocabulary: self.vocabulary,
            context: self.context,
            rms_eps: RMS_EPS,
            rope: self.rope.clone(),
            rotated: self.head_dim,
            tied_head: self.tied,
        };
        config.check(&ConfigKeys {
            layers: "layers".to_owned(),
            hidden_size: "width".to_owned(),
            feed_forward: "feed_forward".to_owned(),
            heads: "heads".to_owned(),
            kv_heads: "kv_heads".to_owned(),
            head_dim: "head_dim".to_owned(),
            vocabulary: "vocabulary".to_owned(),
            context: "context".to_owned(),
            rms_eps: "rms_eps".to_owned(),
            rope_base: "rope.base".to_owned(),
            rope_scaling: "rope.scaling".to_owned(),
            rotated: "head_dim".to_owned(),
        })?;
        if let RopeScaling::Yarn { .. } | RopeScaling::LongShort { .. } = self.rope.scaling {
            return Err(ModelError::unsupported("key `rope.scaling`", "YaRN or LongRoPE", "the other rules"));
        }
        if let Some(SyntheticExperts { count, used, .. }) = self.experts {
            if self.family != &LLAMA {
                let expected = format_args!("`{}`", LLAMA.name);
                return Err(ModelError::unsupported("key `family`", self.family.name, expected));
            }
            let most = count.min(Routing::MOST_USED);
            if !(1..=most).contains(&used) {
                return Err(ModelError::invalid("key `experts.used`", format_args!("1 to {most}"), used));
            }
        }
        let block = self.format.block_len();
        let inputs = [
            ("width", self.width),
            ("feed_forward", self.feed_forward),
            ("heads * head_dim", self.heads * self.head_dim),
        ];
        if let Some((field, columns)) = inputs.into_iter().find(|(_, n)| !n.is_multiple_of(block)) {
            let expected = format!("a multiple of the {block} elements of a {:?} block", self.format);
            return Err(ModelError::invalid(format_args!("key `{field}`"), expected, columns));
        }
        Ok(config)
    }
}

#[cfg(test)]
mod tests;
