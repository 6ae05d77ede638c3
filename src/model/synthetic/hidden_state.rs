//! Writes a synthetic hidden-state drafter: the folder that a training program would write for a synthetic verifier.

use std::{fs, path::Path};

use serde_json::{Value, json};
use ygg_kernels::WeightFormat;

use super::{
    NAME, RMS_EPS, SyntheticSpec,
    hf_folder::{write, write_weights},
    tensors::hidden_state_tensors,
};
use crate::model::{ModelError, RopeScaling, safetensors::SINGLE};

/// Shape, format and seed of a hidden-state drafter for a synthetic verifier. Its projection passes the hidden row on
/// and its layer adds little, so it often agrees with the verifier about frequent tokens.
///
/// ```
/// # use yggc::model::{HiddenStateModel, synthetic::{HiddenStateSpec, SyntheticSpec}};
/// let folder = tempfile::tempdir()?;
/// HiddenStateSpec::for_verifier(&SyntheticSpec::default()).write_folder(folder.path())?;
/// let drafter = HiddenStateModel::open(folder.path())?.expect("it says what it is");
/// assert_eq!(drafter.config().layers, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct HiddenStateSpec {
    /// Its own layer: all fields but `layers` and `tied` are read; those of a folder's formats only.
    pub shape: SyntheticSpec,
}

impl HiddenStateSpec {
    /// One of the verifier's shape, in BF16.
    pub fn for_verifier(verifier: &SyntheticSpec) -> Self {
        let seed = verifier.seed.wrapping_add(1);
        Self { shape: SyntheticSpec { layers: 1, format: WeightFormat::BF16, seed, ..verifier.clone() } }
    }

    /// Writes `config.json` and the weights into a folder, making it if need be.
    ///
    /// # Errors
    /// [`ModelError::Invalid`] if no such drafter can exist, [`ModelError::Unsupported`] for a rotary scaling,
    /// [`ModelError::Write`] if a file cannot be written.
    pub fn write_folder(&self, folder: &Path) -> Result<(), ModelError> {
        let shape = &self.shape;
        let mut config = layer_sizes(shape)?;
        config["architectures"] = json!(["HiddenStateDrafter"]);
        config["model_type"] = json!("hidden_state_drafter");
        config["torch_dtype"] = json!(if shape.format == WeightFormat::F32 { "float32" } else { "bfloat16" });
        config["verifier"] = json!({ "name": NAME, "vocab_size": shape.vocabulary });
        fs::create_dir_all(folder).map_err(|source| ModelError::Write { path: folder.to_owned(), source })?;
        write(&folder.join("config.json"), &config)?;
        write_weights(&folder.join(SINGLE), &hidden_state_tensors(shape))
    }
}

/// The sizes of a drafter's one layer, as a `config.json` says them.
///
/// # Errors
/// [`ModelError::Invalid`] if no such layer can exist, [`ModelError::Unsupported`] for a rotary scaling.
pub(super) fn layer_sizes(shape: &SyntheticSpec) -> Result<Value, ModelError> {
    shape.without_tokenizer()?;
    if shape.rope.scaling != RopeScaling::None {
        return Err(ModelError::unsupported("key `rope.scaling`", "a scaling", "None"));
    }
    Ok(json!({
        "hidden_size": shape.width,
        "intermediate_size": shape.feed_forward,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "rms_norm_eps": RMS_EPS,
        "rope_theta": shape.rope.base,
        "vocab_size": shape.vocabulary,
        "num_hidden_layers": 1,
        "max_position_embeddings": shape.context,
    }))
}
