//! Inner rows: the residual stream between layers, left to be read after a forward.
//!
//! A drafter may read what the verifier computed on the way and not only what its logits are made of (EAGLE-3,
//! <https://arxiv.org/abs/2503.01840>). Only graphs that are told to keep inner rows have the ops that do.

use super::{
    Graph, GraphError, GroupId, Input, Op, ValueId,
    verify::{group_result, residual_operand},
};

impl Graph {
    /// Layers of the model, each of two groups.
    pub fn layers(&self) -> usize {
        self.groups() as usize / 2
    }

    /// The rows of the residual stream that stay readable, in the order in which they were asked for.
    pub fn inner(&self) -> &[ValueId] {
        &self.inner
    }

    /// Lets the rows `[R, D]` of the residual stream that come out of the first so many layers stay readable, for each
    /// number in `after`; 0 names what the first layer reads.
    ///
    /// # Errors
    /// [`GraphError::Law`] if the graph has no layer that reads such rows.
    pub fn keep_inner(&mut self, after: &[usize]) -> Result<(), GraphError> {
        for layers in after {
            let refuse = |found: String| GraphError::Law {
                place: format!("rows after {layers} layers"),
                expected: format!("a layer after them, of the {} that there are", self.layers()),
                found,
            };
            let group = u32::try_from(2 * layers).ok().filter(|group| *group < self.groups()).map(GroupId);
            let sum = group.and_then(|group| group_result(self, group));
            let stream = sum.and_then(|sum| residual_operand(self, sum));
            let stream = stream.ok_or_else(|| refuse("none".to_owned()))?;
            let is_output_rows = |value: &ValueId| self.node(*value).op == Op::Input(Input::OutputRows);
            let output_rows = self.topological().into_iter().find(is_output_rows);
            let output_rows = output_rows.ok_or_else(|| refuse("no rows that get logits".to_owned()))?;
            let rows = self.add(Op::SelectRows, &[stream, output_rows], None)?;
            self.inner.push(rows);
        }
        Ok(())
    }

    /// Makes a graph that keeps hidden and inner rows of its outputs keep those of all its rows, `[W, D]`.
    ///
    /// # Errors
    /// [`GraphError::Law`] if the rows are not selected among others.
    pub fn keep_all_hidden(&mut self) -> Result<(), GraphError> {
        let last = self.hidden().ok_or_else(|| not_selected("none".to_owned()))?;
        self.hidden = Some(self.selected_among(last)?);
        for place in 0..self.inner.len() {
            let stream = self.selected_among(self.inner[place])?;
            // Sums that follow overwrite the stream in place, so that a copy is kept.
            self.inner[place] = self.add(Op::Scale { factor: 1.0 }, &[stream], None)?;
        }
        Ok(())
    }

    /// The rows among which `value` is selected.
    fn selected_among(&self, value: ValueId) -> Result<ValueId, GraphError> {
        match self.node(value).op {
            Op::SelectRows => Ok(self.operands(value)[0]),
            ref op => Err(not_selected(op.name().to_owned())),
        }
    }
}

fn not_selected(found: String) -> GraphError {
    GraphError::Law {
        place: "the hidden rows".to_owned(),
        expected: "rows that are selected among all".to_owned(),
        found,
    }
}
