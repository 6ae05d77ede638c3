//! Trimmed heads: drafting forwards whose logits are those of some tokens only, beside the executables of the whole model.
//!
//! A trimmed head moves and multiplies fewer rows than the model's, so a draft forward is cheaper; what it drafts is verified
//! by the whole model, so no answer changes. Frequency-ranked heads are described in FR-Spec
//! (<https://arxiv.org/abs/2502.14856>). Candidates are those of the whole head among the kept tokens, with the same logits to
//! the last bit, and probabilities are shares of the kept tokens.

use crate::{
    compile::{self, CompileError},
    ir::{Binding, Graph, GraphError, HeadTokens, Id, WeightId, WeightSource},
};

use super::{ExecutableSet, RuntimeError, TrimmedHead};

/// The model's weights, and behind them the rows that trimmed heads keep.
struct Gathered<'a> {
    model: &'a dyn WeightSource,
    first: WeightId,
    heads: Vec<Vec<u8>>,
}

impl WeightSource for Gathered<'_> {
    fn bytes(&self, weight: WeightId) -> &[u8] {
        match weight.0.checked_sub(self.first.0) {
            Some(head) => &self.heads[head as usize],
            None => self.model.bytes(weight),
        }
    }
}

/// The rows of the head that `tokens` name, as they are stored.
fn gather(graph: &Graph, head: WeightId, weights: &dyn WeightSource, tokens: &HeadTokens) -> Vec<u8> {
    let bytes = weights.bytes(head);
    let row = bytes.len() / graph.weight(head).rows;
    let rows = tokens.as_slice().iter().map(|token| *token as usize * row);
    rows.flat_map(|start| &bytes[start..start + row]).copied().collect()
}

fn refused(error: GraphError) -> CompileError {
    CompileError::Unlawful { stage: "trim_head", error }
}

impl ExecutableSet {
    /// The same executables, and of every planned width one whose candidates are chosen among the tokens of each of `heads`
    /// alone. All weights are shared with this set but for the rows of the heads, which are taken from `weights`, the model's.
    /// A head that the set has is not made again.
    ///
    /// # Errors
    /// [`RuntimeError::Head`] for a list that is empty, out of order or out of range; else as [`build`](Self::build).
    pub fn with_heads(
        &self,
        weights: &dyn WeightSource,
        heads: &[impl AsRef<[u32]>],
    ) -> Result<Self, RuntimeError> {
        let mut wanted: Vec<HeadTokens> = Vec::new();
        for head in heads {
            let tokens = HeadTokens::new(head.as_ref(), self.vocabulary())?;
            if self.heads.iter().all(|(made, _)| *made != tokens) && !wanted.contains(&tokens) {
                wanted.push(tokens);
            }
        }
        if wanted.is_empty() {
            return Ok(self.clone());
        }
        let mut graph = self.graph.clone();
        let head = graph.head().map_err(refused)?;
        let first = WeightId(u32::try_from(graph.weights().len()).expect("few weights"));
        let gathered = wanted.iter().map(|tokens| gather(&graph, head, weights, tokens)).collect();
        let matrices = wanted.iter().map(|tokens| graph.add_trimmed_head(tokens));
        let matrices = matrices.collect::<Result<Vec<_>, _>>().map_err(refused)?;
        let mut programs = Vec::with_capacity(wanted.len() * self.widths().len());
        for (matrix, tokens) in matrices.into_iter().zip(&wanted) {
            let mut trimmed = graph.clone();
            trimmed.trim_head(matrix, tokens.clone(), Self::MOST_CANDIDATES).map_err(refused)?;
            for width in self.widths() {
                let binding = Binding { width: *width, outputs: *width };
                programs.push(compile::compile(&trimmed, binding, &self.device)?);
            }
        }
        let source = Gathered { model: weights, first, heads: gathered };
        let executables = self.executables.with(programs, &source, self.threads)?;
        let mut added = executables.programs().ids().skip(self.executables.programs().len());
        let mut both = self.clone();
        for tokens in wanted {
            both.heads.push((tokens, added.by_ref().take(self.widths().len()).collect()));
        }
        (both.executables, both.graph) = (executables, graph);
        Ok(both)
    }

    /// The head that keeps these tokens.
    ///
    /// # Errors
    /// [`RuntimeError::MissingHead`] if the set has none.
    pub fn head(&self, tokens: &[u32]) -> Result<TrimmedHead, RuntimeError> {
        let place = self.heads.iter().position(|(head, _)| head.as_slice() == tokens);
        place.map(TrimmedHead::new).ok_or(RuntimeError::MissingHead { tokens: tokens.len() })
    }
}
