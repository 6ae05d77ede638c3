//! Hidden rows that outlive their forward: of all tokens of a prompt, and of everything that is committed after it.
//!
//! A drafter that reads the verifier's hidden rows reads those of tokens after which it has not drafted yet, which may
//! be a whole prompt. Programs that prefill show the logits of one row; further programs keep the hidden rows of all,
//! and a session that is asked to copies them to where they stay.

use crate::{
    compile::{self, CompileError},
    ir::{Binding, GraphError, WeightSource},
};

use super::{ExecutableSet, RuntimeError, executable_set::PREFILL_WIDTHS};

/// Hidden rows `[context, D]` of committed tokens, by position. Invariant: the first `known` are those of the sequence.
#[derive(Debug)]
pub(super) struct HiddenRows {
    rows: Vec<f32>,
    columns: usize,
    known: usize,
}

impl HiddenRows {
    /// Room for as many tokens as the context holds.
    pub(super) fn new(context: usize, columns: usize) -> Self {
        Self { rows: vec![0.0; context * columns], columns, known: 0 }
    }

    /// The row of the token at `position`, if it is known.
    pub(super) fn row(&self, position: usize) -> Option<&[f32]> {
        let row = || &self.rows[position * self.columns..][..self.columns];
        (position < self.known).then(row)
    }

    /// Notes the row of the token at `position`; nothing after it is known then; in vain if something before it is
    /// unknown.
    pub(super) fn set(&mut self, position: usize, row: &[f32]) {
        if position <= self.known {
            self.rows[position * self.columns..][..self.columns].copy_from_slice(row);
            self.known = position + 1;
        }
    }

    /// Forgets the rows from `position` on.
    pub(super) fn forget_from(&mut self, position: usize) {
        self.known = self.known.min(position);
    }

    /// Takes the rows of the first `len` tokens for known, whatever they are.
    pub(super) fn assume(&mut self, len: usize) {
        self.known = len;
    }
}

impl ExecutableSet {
    /// The same executables, and of every width of a prefill one that keeps the hidden rows of all its tokens, for
    /// [`Session::keep_hidden`](super::Session::keep_hidden). All weights are shared; `weights` is the model's.
    ///
    /// # Errors
    /// As [`build`](Self::build).
    pub fn with_kept_hidden(&self, weights: &dyn WeightSource) -> Result<Self, RuntimeError> {
        if self.keeping.is_some() {
            return Ok(self.clone());
        }
        let refused = |error: GraphError| CompileError::Unlawful { stage: "keep_all_hidden", error };
        let mut graph = self.graph.clone();
        graph.keep_all_hidden().map_err(refused)?;
        let program = |width: &usize| {
            let binding = Binding { width: *width, outputs: 1 };
            compile::compile(&graph, binding, &self.device)
        };
        let programs = PREFILL_WIDTHS.iter().map(program).collect::<Result<_, _>>()?;
        let mut both = self.clone();
        both.executables = self.executables.with(programs, weights, self.threads)?;
        let before = self.executables.programs().len();
        both.keeping = Some(both.executables.programs().ids().skip(before).collect());
        Ok(both)
    }
}
