//! Substitutes: a graph that multiplies by matrices of fewer bits in place of the model's.

use std::collections::BTreeMap;

use ygg_kernels::Matrix;

use super::{
    Elements, Graph, GraphError, Op, OpWeights, Residence, TextGraph, ValueId, WeightFormat, WeightId,
    WeightSpec,
};

/// The format of matrices of a substitute of so many bits an element; `None` if there is none.
pub const fn substitute_format(bits: u32) -> Option<WeightFormat> {
    match bits {
        4 => Some(WeightFormat::Q4_0),
        3 => Some(WeightFormat::Q3_K),
        2 => Some(WeightFormat::Q2_K),
        _ => None,
    }
}

/// A matrix of a substitute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Substituted {
    /// The model's matrix.
    pub of: WeightId,
    /// The same in fewer bits.
    pub by: WeightId,
}

impl WeightSpec {
    /// The matrix, whose bytes are `bytes`, in another format; quantised row by row on at most `threads` threads, how
    /// many changes no byte.
    ///
    /// # Panics
    /// If `bytes` are not the matrix's, or its columns no whole number of the format's blocks.
    pub fn requantised(&self, bytes: &[u8], format: WeightFormat, threads: usize) -> Vec<u8> {
        let stored = Matrix::new(self.format, self.rows, self.columns, bytes);
        ygg_kernels::requantised(&stored.expect("loaders check sizes"), format, threads)
    }
}

impl Graph {
    /// The matrices that rows are multiplied by, each once.
    pub fn multiplied(&self) -> Vec<WeightId> {
        let of_op = |value| match self.node(value).op.weights() {
            OpWeights::Nothing | OpWeights::Rows(_) | OpWeights::Gain(_) | OpWeights::Vectors(_) => {
                Vec::new()
            }
            OpWeights::Stack { weights, biases: _, norm: _ } => weights.to_vec(),
            OpWeights::Gated { gate, up, norm: _ } => vec![gate, up],
            OpWeights::Experts { experts, biases: _ } => experts.to_vec(),
        };
        let of_text = match self.text_rows.as_ref().map(|rows| &rows.graph) {
            None | Some(TextGraph::Same | TextGraph::Normed(_)) => Vec::new(),
            Some(TextGraph::Joined(joining)) => joining.weights.clone(),
            Some(TextGraph::Own(graph)) => graph.multiplied(),
        };
        let mut all: Vec<WeightId> = self.topological().into_iter().flat_map(of_op).chain(of_text).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The matrices of products that a substitute replaces, and those that it leaves: it replaces those that take less
    /// room in `format`; where weights are streamed, only those, since what is in memory is there to be shared.
    fn narrower(&self, format: WeightFormat) -> (Vec<WeightId>, Vec<WeightId>) {
        let streams = self.streams();
        self.multiplied().into_iter().partition(|id| {
            let WeightSpec { format: stored, columns, residence, .. } = self.weight(*id);
            let bytes = format.row_bytes(*columns);
            let is_less =
                bytes.is_some_and(|bytes| stored.row_bytes(*columns).is_some_and(|all| bytes < all));
            is_less && (!streams || residence.is_streamed())
        })
    }

    /// Bytes that products read of matrices, as a share of what they read where a substitute of so many bits takes the
    /// place of those that it makes smaller: 1 if it makes none smaller, leaves streamed ones, or there is no such
    /// substitute.
    pub fn substitute_share(&self, bits: u32) -> f64 {
        let Some(format) = substitute_format(bits) else { return 1.0 };
        let bytes = |ids: &[WeightId], format: Option<WeightFormat>| -> f64 {
            let of = |id: &WeightId| {
                let spec = self.weight(*id);
                let row = format.unwrap_or(spec.format).row_bytes(spec.columns).expect("whole blocks");
                (spec.rows * row) as f64
            };
            ids.iter().map(of).sum()
        };
        let (narrower, others) = self.narrower(format);
        if others.iter().any(|id| self.weight(*id).residence.is_streamed()) {
            return 1.0;
        }
        let (kept, before) = (bytes(&others, None), bytes(&narrower, None));
        if kept + before == 0.0 { 1.0 } else { (kept + bytes(&narrower, Some(format))) / (kept + before) }
    }

    /// Bytes of each matrix of a substitute of so many bits; none where there is no such substitute.
    pub fn substitute_sizes(&self, bits: u32) -> Vec<usize> {
        let Some(format) = substitute_format(bits) else { return Vec::new() };
        let of = |id: &WeightId| {
            let WeightSpec { rows, columns, .. } = self.weight(*id);
            rows * format.row_bytes(*columns).expect("whole blocks")
        };
        self.narrower(format).0.iter().map(of).collect()
    }

    /// Registers the matrices of a substitute: of every matrix of a product that takes less room in `format` one more,
    /// which only [`multiply_by`](Self::multiply_by) makes anything read.
    pub fn add_substitute(&mut self, format: WeightFormat) -> Vec<Substituted> {
        let (narrower, _) = self.narrower(format);
        let add = |of: WeightId| {
            let spec = self.weight(of).clone();
            let name = format!("{} in {format}", spec.name);
            let residence = Residence::Resident;
            let elements = Elements::in_order(spec.columns);
            let by = self.add_weight(WeightSpec { name, format, elements, residence, ..spec });
            Substituted { of, by }
        };
        narrower.into_iter().map(add).collect()
    }

    /// Multiplies by the substitutes of matrices in place of these.
    ///
    /// # Errors
    /// [`GraphError`] if a substitute has another shape than its matrix.
    pub fn multiply_by(&mut self, substitutes: &[Substituted]) -> Result<(), GraphError> {
        let by: BTreeMap<WeightId, WeightId> =
            substitutes.iter().map(|Substituted { of, by }| (*of, *by)).collect();
        let instead = |id: &mut WeightId| *id = by.get(id).copied().unwrap_or(*id);
        for value in self.topological() {
            let mut op = self.node(value).op.clone();
            match &mut op {
                Op::Linear { weights, .. } => weights.iter_mut().for_each(instead),
                Op::GatedLinear { gate, up, .. } => [gate, up].into_iter().for_each(instead),
                Op::RoutedGated { experts, .. } | Op::RoutedLinear { experts, .. } => {
                    experts.iter_mut().for_each(instead);
                }
                Op::Candidates { head: Some(head), .. } => head.weights.iter_mut().for_each(instead),
                _ => continue,
            }
            let operands: Vec<ValueId> = self.operands(value);
            self.rewrite(value, op, &operands)?;
        }
        match self.multiplied().iter().find(|id| by.contains_key(id)) {
            None => Ok(()),
            Some(left) => Err(GraphError::Law {
                place: self.weight(*left).name.clone(),
                expected: "a product by its substitute".to_owned(),
                found: "a product by itself".to_owned(),
            }),
        }
    }
}
