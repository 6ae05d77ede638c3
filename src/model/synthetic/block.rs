//! Writes a synthetic block drafter for a synthetic verifier, in the layouts that are published.

use std::{fs, path::Path};

use serde_json::{Value, json};
use ygg_kernels::WeightFormat;

use super::{
    NAME, SyntheticSpec,
    hf_folder::{write, write_with_integers},
    hidden_state::layer_sizes,
    tensors::block_tensors,
};
use crate::model::{ModelError, safetensors::SINGLE};

/// Shape, format and seed of a block drafter for a synthetic verifier. Its weights are random.
///
/// ```
/// # use yggc::model::{HiddenStateModel, synthetic::{BlockSpec, SyntheticSpec}};
/// let folder = tempfile::tempdir()?;
/// BlockSpec::for_verifier(&SyntheticSpec::default()).write_folder(folder.path())?;
/// let drafter = HiddenStateModel::open(folder.path())?.expect("it says what it is");
/// assert!(drafter.is_block());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct BlockSpec {
    /// Its layers: all fields but `tied` are read; those of a folder's formats only.
    pub shape: SyntheticSpec,
    /// The verifier's layers whose rows it reads: for each number, what comes out of so many.
    pub layers: Vec<usize>,
    /// Rows of a block.
    pub size: usize,
    /// The rank of a Markov head: then it is a DSpark drafter in DeepSpec's layout, else a DFlash drafter in z-lab's.
    pub markov_rank: Option<usize>,
    /// The tokens of a head of its own, in any order, in the layout of speculators; without it, it has the verifier's.
    pub draft_tokens: Option<Vec<u32>>,
}

impl BlockSpec {
    /// Two layers of the verifier's shape in BF16, with its head: a DFlash drafter of blocks of 5 rows.
    pub fn for_verifier(verifier: &SyntheticSpec) -> Self {
        let seed = verifier.seed.wrapping_add(3);
        let layers = vec![0, verifier.layers];
        let shape = SyntheticSpec { layers: 2, format: WeightFormat::BF16, seed, ..verifier.clone() };
        Self { shape, layers, size: 5, markov_rank: None, draft_tokens: None }
    }

    /// Writes `config.json` and the weights into a folder, making it if need be.
    ///
    /// # Errors
    /// [`ModelError::Invalid`] if no such drafter can exist, [`ModelError::Unsupported`] for a rotary scaling,
    /// [`ModelError::Write`] if a file cannot be written.
    pub fn write_folder(&self, folder: &Path) -> Result<(), ModelError> {
        let Self { shape, layers, size: _, markov_rank, draft_tokens } = self;
        let sizes = layer_sizes(shape)?;
        let own_head = draft_tokens.as_ref().map(Vec::len);
        let tensors = block_tensors(shape, layers.len(), *markov_rank, own_head);
        let offsets =
            |tokens: &Vec<u32>| (0..).zip(tokens).map(|(row, token)| i64::from(*token) - row).collect();
        let d2t: Option<Vec<i64>> = draft_tokens.as_ref().map(offsets);
        let maps: Vec<_> = d2t.iter().map(|d2t| ("d2t", d2t.as_slice())).collect();
        fs::create_dir_all(folder).map_err(|source| ModelError::Write { path: folder.to_owned(), source })?;
        write(&folder.join("config.json"), &self.config_json(sizes))?;
        write_with_integers(&folder.join(SINGLE), &tensors, &maps)
    }

    fn config_json(&self, mut sizes: Value) -> Value {
        let Self { shape, layers, size, markov_rank, draft_tokens } = self;
        // The last token: any will do.
        let mask = shape.vocabulary - 1;
        sizes["model_type"] = json!("qwen3");
        sizes["hidden_act"] = json!("silu");
        sizes["num_hidden_layers"] = shape.layers.into();
        let rank = markov_rank.unwrap_or(0);
        let numbers: Vec<i64> = layers.iter().map(|layer| layer.cast_signed() as i64 - 1).collect();
        match (draft_tokens, markov_rank) {
            (Some(tokens), _) => json!({
                "architectures": ["DSparkSpeculator"],
                "speculators_model_type": "dspark",
                "speculators_config": { "algorithm": "dspark", "verifier": { "name_or_path": NAME } },
                "transformer_layer_config": sizes,
                "draft_vocab_size": tokens.len(),
                "aux_hidden_state_layer_ids": layers,
                "block_size": size,
                "mask_token_id": mask,
                "markov_rank": rank,
            }),
            (None, Some(_)) => {
                sizes["architectures"] = json!(["Qwen3DSparkModel"]);
                sizes["block_size"] = json!(size);
                sizes["mask_token_id"] = json!(mask);
                sizes["target_layer_ids"] = json!(numbers);
                sizes["markov_rank"] = json!(rank);
                sizes["markov_head_type"] = json!("vanilla");
                sizes
            }
            (None, None) => {
                sizes["architectures"] = json!(["DFlashDraftModel"]);
                sizes["block_size"] = json!(size);
                sizes["dflash_config"] = json!({ "mask_token_id": mask, "target_layer_ids": numbers });
                sizes
            }
        }
    }
}
