//! Writes a synthetic EAGLE-3 head for a synthetic verifier, in the layouts that are published.

use std::{fs, path::Path};

use serde_json::{Value, json};
use ygg_kernels::WeightFormat;

use super::{
    NAME, SyntheticSpec,
    hf_folder::{write, write_with_integers},
    hidden_state::layer_sizes,
    tensors::eagle3_tensors,
};
use crate::model::{ModelError, safetensors::SINGLE};

/// Shape, format and seed of an EAGLE-3 head for a synthetic verifier. Its `fc` passes the last of the rows on that it
/// joins and its layer adds little: with the verifier's head and the rows of its last layer it often agrees with it.
///
/// ```
/// # use yggc::model::{HiddenStateModel, synthetic::{Eagle3Spec, SyntheticSpec}};
/// let folder = tempfile::tempdir()?;
/// Eagle3Spec::for_verifier(&SyntheticSpec::default()).write_folder(folder.path())?;
/// let head = HiddenStateModel::open(folder.path())?.expect("it says what it is");
/// assert_eq!(head.config().layers, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Eagle3Spec {
    /// Its own layer: all fields but `layers` and `tied` are read; those of a folder's formats only.
    pub shape: SyntheticSpec,
    /// The verifier's layers whose rows it reads: for each number, what comes out of so many.
    pub layers: Vec<usize>,
    /// The tokens of a head of its own, in any order; without it, it has the verifier's.
    pub draft_tokens: Option<Vec<u32>>,
    /// Whether it is in the layout of speculators, not in SafeAILab's, and its residual stream begins normalised.
    pub is_speculators: bool,
}

impl Eagle3Spec {
    /// One of the verifier's shape, in BF16, with its head, in SafeAILab's layout.
    pub fn for_verifier(verifier: &SyntheticSpec) -> Self {
        let seed = verifier.seed.wrapping_add(2);
        let layers = vec![0, verifier.layers / 2, verifier.layers];
        let shape = SyntheticSpec { layers: 1, format: WeightFormat::BF16, seed, ..verifier.clone() };
        Self { shape, layers, draft_tokens: None, is_speculators: false }
    }

    /// Writes `config.json` and the weights into a folder, making it if need be.
    ///
    /// # Errors
    /// [`ModelError::Invalid`] if no such head can exist, [`ModelError::Unsupported`] for a rotary scaling,
    /// [`ModelError::Write`] if a file cannot be written.
    pub fn write_folder(&self, folder: &Path) -> Result<(), ModelError> {
        let Self { shape, layers, draft_tokens, is_speculators } = self;
        let sizes = layer_sizes(shape)?;
        let draft = draft_tokens.as_ref().map_or(shape.vocabulary, Vec::len);
        let tensors =
            eagle3_tensors(shape, layers.len(), draft_tokens.as_ref().map(Vec::len), *is_speculators);
        let offsets =
            |tokens: &Vec<u32>| (0..).zip(tokens).map(|(row, token)| i64::from(*token) - row).collect();
        let d2t: Option<Vec<i64>> = draft_tokens.as_ref().map(offsets);
        let maps: Vec<_> = d2t.iter().map(|d2t| ("d2t", d2t.as_slice())).collect();
        fs::create_dir_all(folder).map_err(|source| ModelError::Write { path: folder.to_owned(), source })?;
        write(&folder.join("config.json"), &self.config_json(sizes, draft))?;
        write_with_integers(&folder.join(SINGLE), &tensors, &maps)
    }

    fn config_json(&self, mut sizes: Value, draft: usize) -> Value {
        sizes["model_type"] = json!("llama");
        sizes["hidden_act"] = json!("silu");
        let mut json = if self.is_speculators {
            json!({
                "architectures": ["Eagle3Speculator"],
                "speculators_model_type": "eagle3",
                "norm_before_residual": true,
                "speculators_config": { "algorithm": "eagle3", "verifier": { "name_or_path": NAME } },
                "transformer_layer_config": sizes,
            })
        } else {
            let mut json = sizes;
            json["architectures"] = json!(["LlamaForCausalLMEagle3"]);
            json
        };
        json["draft_vocab_size"] = draft.into();
        json["eagle_aux_hidden_state_layer_ids"] = self.layers.clone().into();
        json
    }
}
