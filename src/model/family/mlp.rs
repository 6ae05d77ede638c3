//! An MLP with a gate, which each row goes through by itself: its weights in a file, and its part of the graph.

use super::{
    frame::linear,
    weights::{Naming, WeightList},
};
use crate::{
    ir::{Graph, GroupId, Op, ValueId, WeightId},
    model::ModelError,
};
use ygg_kernels::Nonlinearity;

/// The weights of an MLP.
#[derive(Clone, Copy)]
pub(super) struct Mlp {
    pub(super) gate: WeightId,
    pub(super) up: WeightId,
    pub(super) down: WeightId,
}

impl Mlp {
    /// Looks up the MLP of a layer, of hidden size `f`; files of some families have gate and up in one tensor.
    ///
    /// # Errors
    /// [`ModelError`] if a tensor is missing or has another shape.
    pub(super) fn find(
        list: &mut WeightList<'_>,
        naming: Naming,
        layer: usize,
        [f, d]: [usize; 2],
        has_fused_gates: bool,
    ) -> Result<Self, ModelError> {
        let name = |gguf, folder| naming.layer_weight(layer, gguf, folder);
        let [gate, up] = if has_fused_gates {
            let both = list.parts(name("ffn_up", "mlp.gate_up_proj"), &[2 * f, d], &[f, f])?;
            [both[0], both[1]]
        } else {
            [
                list.find(name("ffn_gate", "mlp.gate_proj"), &[f, d])?,
                list.find(name("ffn_up", "mlp.up_proj"), &[f, d])?,
            ]
        };
        Ok(Self { gate, up, down: list.find(name("ffn_down", "mlp.down_proj"), &[d, f])? })
    }

    /// Adds `function(gate) * up` of the rows `n`.
    pub(super) fn gated(
        self,
        graph: &mut Graph,
        function: Nonlinearity,
        n: ValueId,
        group: Option<GroupId>,
    ) -> Result<ValueId, ModelError> {
        let gate = graph.add(linear(self.gate), &[n], group)?;
        let up = graph.add(linear(self.up), &[n], group)?;
        Ok(graph.add(Op::Gate(function), &[gate, up], group)?)
    }

    /// Adds all of it.
    pub(super) fn add(
        self,
        graph: &mut Graph,
        function: Nonlinearity,
        n: ValueId,
        group: Option<GroupId>,
    ) -> Result<ValueId, ModelError> {
        let gated = self.gated(graph, function, n, group)?;
        Ok(graph.add(linear(self.down), &[gated], group)?)
    }
}
