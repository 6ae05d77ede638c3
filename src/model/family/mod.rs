//! Model families: each is one file here and one entry of [`FAMILIES`].
//!
//! A family's file states what its model files are called, which configurations it accepts, and how its graph differs
//! from Llama's: its `Recipe`. `frame`, `layer` and `mlp` make the graph of a recipe. A hidden-state drafter is no family: its
//! graph extends another model's.

mod accepted;
mod block;
mod eagle3;
mod ernie4_5moe;
mod experts;
mod frame;
mod further;
mod gemma;
mod gemma4;
mod gpt_oss;
mod granite;
mod granite_hybrid;
mod hidden_state;
mod layer;
mod layer_inputs;
mod lfm2;
mod llama;
mod mlp;
mod olmo2;
mod olmoe;
mod phi3;
mod qwen2;
mod qwen2moe;
mod qwen3;
mod qwen35;
mod qwen35moe;
mod qwen3moe;
mod recipe;
mod recurrence;
mod smollm3;
#[cfg(test)]
mod throwaway;
mod weights;

use std::{cell::RefCell, fmt};

use ygg_kernels::RopePairing;

pub(super) use block::BLOCK;
pub(super) use eagle3::EAGLE3;
pub(super) use further::FurtherLayer;
pub(super) use hidden_state::HiddenStateGraph;
pub(super) use llama::LLAMA;
pub(super) use weights::Naming;

use self::recipe::Recipe;
use super::{Container, ModelConfig, ModelError, TensorTable, config::Fields};
use crate::ir::{Graph, verify};

/// All families.
static FAMILIES: &[&Family] = &[
    &LLAMA,
    &qwen2::QWEN2,
    &qwen3::QWEN3,
    &smollm3::SMOLLM3,
    &gemma::GEMMA3,
    &gemma::GEMMA2,
    &phi3::PHI3,
    &granite::GRANITE,
    &olmo2::OLMO2,
    &lfm2::LFM2,
    &qwen3moe::QWEN3MOE,
    &olmoe::OLMOE,
    &granite::GRANITE_MOE,
    &lfm2::LFM2_MOE,
    &gpt_oss::GPT_OSS,
    &qwen2moe::QWEN2MOE,
    &ernie4_5moe::ERNIE4_5_MOE,
    &qwen35::QWEN35,
    &qwen35moe::QWEN35MOE,
    &gemma4::GEMMA4,
    &granite_hybrid::GRANITE_HYBRID,
    #[cfg(test)]
    &throwaway::THROWAWAY,
];

/// A family of models. Two families are equal if their names are.
pub struct Family {
    /// Its name. GGUF files have it in `general.architecture` and in front of their keys.
    pub name: &'static str,
    /// Models of the family.
    pub models: &'static str,
    /// How its graph differs from Llama's.
    pub beside_llama: &'static str,
    /// Whole models that were compared with another program; tiny models of every family are.
    pub tried: &'static [&'static str],
    /// What `config.json` may say: `model_type`, and the class that `architectures` then contains.
    pub(super) classes: &'static [(&'static str, &'static str)],
    /// Which elements of a head are rotated together.
    pub(super) pairing: fn(Container) -> RopePairing,
    /// Whether the head is the embedding matrix where a `config.json` does not say.
    pub(super) is_tied_by_default: bool,
    /// Refuses configurations that mean something else than the graph, and puts right what the family states in its own
    /// way.
    pub(super) accept: fn(&dyn Fields, &mut ModelConfig) -> Result<(), ModelError>,
    /// How its graph differs from Llama's.
    recipe: fn(&Source<'_>) -> Result<Recipe, ModelError>,
}

/// What a graph is built from.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) config: &'a ModelConfig,
    /// What else the configuration says, for what only one family reads.
    pub(super) fields: &'a dyn Fields,
    pub(super) tensors: &'a TensorTable,
    /// The bytes of the model's files, for the few numbers that are a part of its graph.
    pub(super) bytes: &'a [&'a [u8]],
    /// Gets the names of tensors that became such numbers.
    pub(super) read: &'a RefCell<Vec<String>>,
}

impl Source<'_> {
    /// The key of a value that the two containers call by these names; in GGUF files after the family's.
    fn key(&self, gguf: &str, folder: &str) -> String {
        self.config.family.key(self.fields.container(), gguf, folder)
    }

    /// The only element of a tensor, if there is such a tensor.
    ///
    /// # Errors
    /// [`ModelError`] for another shape, and for what is no finite number.
    fn scalar(&self, name: &str) -> Result<Option<f32>, ModelError> {
        let Some(info) = self.tensors.get(name) else { return Ok(None) };
        self.read.borrow_mut().push(name.to_owned());
        let what = || format!("tensor `{name}`");
        if info.shape != [1] || !info.format.is_dense() {
            let found = format!("{:?} {:?}", info.format, info.shape);
            return Err(ModelError::invalid(what(), "one number in F32, F16 or BF16", found));
        }
        let mut number = [0.0];
        info.format.dequantise_row(&self.bytes[info.file][info.bytes.clone()], &mut number);
        match number[0].is_finite() {
            true => Ok(Some(number[0])),
            false => Err(ModelError::invalid(what(), "a finite number", number[0])),
        }
    }

    /// A number that the two containers call by these names.
    fn float(&self, gguf: &str, folder: &str) -> Result<Option<f64>, ModelError> {
        self.fields.float(&self.key(gguf, folder))
    }
}

impl Family {
    /// Every family.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        FAMILIES.iter().copied()
    }

    /// As [`Source::key`].
    pub(super) fn key(&self, container: Container, gguf: &str, folder: &str) -> String {
        match container {
            Container::Gguf => format!("{}.{gguf}", self.name),
            Container::Folder => folder.to_owned(),
        }
    }

    /// The family of a GGUF file with this `general.architecture`.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] with the names there are; so does [`of_class`](Self::of_class).
    pub(super) fn of_architecture(name: &str) -> Result<&'static Self, ModelError> {
        let found = FAMILIES.iter().find(|family| family.name == name);
        found.copied().ok_or_else(|| unknown("general.architecture", name, |family| vec![family.name]))
    }

    /// The family of a folder with this `model_type`, and the class that it expects in `architectures`.
    pub(super) fn of_class(model_type: &str) -> Result<(&'static Self, &'static str), ModelError> {
        let mut classes = FAMILIES.iter().flat_map(|f| f.classes.iter().map(|class| (*f, *class)));
        let found = classes.find(|(_, (name, _))| *name == model_type);
        found.map(|(family, (_, class))| (family, class)).ok_or_else(|| {
            unknown("model_type", model_type, |family| family.classes.iter().map(|(name, _)| *name).collect())
        })
    }

    /// The verified graph of a model, whose weights carry the names of their tensors in the table, and the layer that
    /// predicts a further token, if its files have one.
    ///
    /// # Errors
    /// [`ModelError`] for a tensor that is missing, has another shape, or is one that the graph does not compute.
    pub(super) fn graph(&self, source: &Source<'_>) -> Result<(Graph, Option<FurtherLayer>), ModelError> {
        let recipe = (self.recipe)(source)?;
        let graph = frame::decoder(source, &recipe)?;
        verify::verify(&graph)?;
        Ok((graph, FurtherLayer::of(source, recipe)))
    }
}

fn unknown(key: &str, found: &str, names: impl Fn(&Family) -> Vec<&'static str>) -> ModelError {
    let known: Vec<String> =
        FAMILIES.iter().flat_map(|family| names(family)).map(|name| format!("`{name}`")).collect();
    ModelError::unsupported(format_args!("key `{key}`"), format_args!("`{found}`"), known.join(", "))
}

impl PartialEq for Family {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl fmt::Debug for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
