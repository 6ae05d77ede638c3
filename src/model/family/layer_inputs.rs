//! What every layer gets of a row's token in addition: a row of an embedding for each layer, mixed with a product of the
//! token's usual embedding.

use super::{
    frame::{Frame, linear},
    recipe::inverse_root,
    weights::{Naming, WeightList},
};
use crate::{
    ir::{Graph, Op, ValueId, WeightId},
    model::{ModelConfig, ModelError},
};
use ygg_kernels::Nonlinearity;

/// Sizes of what layers get.
#[derive(Clone, Copy, Debug)]
pub(super) struct LayerInputs {
    /// Elements for each layer, `P`.
    pub(super) size: usize,
    /// Rows of the embedding matrix `[V, layers * P]`.
    pub(super) vocabulary: usize,
}

/// The weights that make what all layers get.
pub(super) struct LayerInputsWeights {
    embedding: WeightId,
    projection: WeightId,
    norm: WeightId,
}

impl LayerInputs {
    /// Looks up the weights.
    ///
    /// # Errors
    /// [`ModelError`] if a tensor is missing or has another shape.
    pub(super) fn find(
        &self,
        list: &mut WeightList<'_>,
        naming: Naming,
        config: &ModelConfig,
    ) -> Result<LayerInputsWeights, ModelError> {
        let all = config.layers * self.size;
        let table = naming.weight("per_layer_token_embd", "model.embed_tokens_per_layer");
        let projection = naming.weight("per_layer_model_proj", "model.per_layer_model_projection");
        let norm = naming.weight("per_layer_proj_norm", "model.per_layer_projection_norm");
        Ok(LayerInputsWeights {
            embedding: list.mapped(table, [self.vocabulary, all])?,
            projection: list.find(projection, &[all, config.hidden_size])?,
            norm: list.gain(norm, self.size, 0.0)?,
        })
    }

    /// Adds what all layers get, `[W, layers * P]`, for rows whose embeddings are `x`.
    ///
    /// # Errors
    /// [`ModelError`] for weights that do not fit.
    pub(super) fn add(
        &self,
        frame: &Frame<'_>,
        graph: &mut Graph,
        weights: &LayerInputsWeights,
        x: ValueId,
    ) -> Result<ValueId, ModelError> {
        let scale = |graph: &mut Graph, factor, value| graph.add(Op::Scale { factor }, &[value], None);
        let own = graph.add(Op::Embed { weight: weights.embedding }, &[frame.tokens], None)?;
        let own = scale(graph, (self.size as f64).sqrt() as f32, own)?;
        let made = graph.add(linear(weights.projection), &[x], None)?;
        let made = scale(graph, inverse_root(frame.config.hidden_size as f64), made)?;
        let made = graph.add(frame.norm(weights.norm), &[made], None)?;
        let sum = graph.add(Op::Add, &[made, own], None)?;
        Ok(scale(graph, inverse_root(2.0), sum)?)
    }
}

/// The weights with which one layer takes in what it gets.
pub(super) struct LayerInputWeights {
    gate: WeightId,
    projection: WeightId,
    norm: WeightId,
    size: usize,
}

impl LayerInputWeights {
    /// Looks up the weights of a layer.
    ///
    /// # Errors
    /// [`ModelError`] if a tensor is missing or has another shape.
    pub(super) fn find(
        list: &mut WeightList<'_>,
        naming: Naming,
        layer: usize,
        config: &ModelConfig,
        inputs: &LayerInputs,
    ) -> Result<Self, ModelError> {
        let (d, size) = (config.hidden_size, inputs.size);
        let name = |gguf, folder| naming.layer_weight(layer, gguf, folder);
        Ok(Self {
            gate: list.find(name("inp_gate", "per_layer_input_gate"), &[size, d])?,
            projection: list.find(name("proj", "per_layer_projection"), &[d, size])?,
            norm: list.gain(name("post_norm", "post_per_layer_input_norm"), d, 0.0)?,
            size,
        })
    }

    /// Adds to the residual stream `x` what a layer makes of its part. It belongs to no group: a layer that is left out
    /// still takes it in.
    ///
    /// # Errors
    /// [`ModelError`] for weights that do not fit.
    pub(super) fn add(
        &self,
        frame: &Frame<'_>,
        graph: &mut Graph,
        layer: usize,
        function: Nonlinearity,
        x: ValueId,
    ) -> Result<ValueId, ModelError> {
        let all = frame.layer_inputs.expect("made before the layers");
        let part = graph.add(Op::Slice { start: layer * self.size, len: self.size }, &[all], None)?;
        let gate = graph.add(linear(self.gate), &[x], None)?;
        let gated = graph.add(Op::Gate(function), &[gate, part], None)?;
        let out = graph.add(linear(self.projection), &[gated], None)?;
        let out = graph.add(frame.norm(self.norm), &[out], None)?;
        Ok(graph.add(Op::Add, &[x, out], None)?)
    }
}
