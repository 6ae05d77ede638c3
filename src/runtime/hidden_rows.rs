//! Hidden rows that outlive their forward: of all tokens of a prompt, and of everything that is committed after it.
//!
//! A drafter that reads the verifier's hidden rows reads those of tokens after which it has not drafted yet, which may
//! be a whole prompt. Programs that prefill show the logits of one row; further programs keep the hidden rows of all,
//! and a session that is asked to copies them to where they stay. Rows between layers are kept by further programs of
//! every width, which take the places of those that keep none.

use std::collections::BTreeSet;

use crate::{
    backend::Replay,
    compile::{self, CompileError},
    ir::{Binding, Graph, GraphError, Id, IdVec, OutputId, ProgramId, WeightSource},
};

use super::{
    ExecutableSet, RuntimeError, Session,
    executable_set::PREFILL_WIDTHS,
    role::{PrefillId, Role, WidthId},
    session::{hidden_row, slot_number},
};

/// What of the verifier's rows is kept.
#[derive(Clone, Debug)]
pub(super) struct Keeping {
    /// The layers whose rows are kept, ascending: for each number, the residual stream after so many.
    pub(super) layers: Vec<usize>,
    /// The programs that prefill and keep the rows of all tokens.
    pub(super) prefill: IdVec<PrefillId, ProgramId>,
    /// Whether the last of the layers is the model's last, whose rows every program leaves.
    keeps_last: bool,
}

impl Keeping {
    /// Layers whose rows further programs leave.
    fn inner(&self) -> &[usize] {
        &self.layers[..self.layers.len() - usize::from(self.keeps_last)]
    }
}

/// Kept rows `[context, parts * D]` of committed tokens, by position: one part for every layer that is kept.
/// Invariant: the first `known` are those of the sequence.
#[derive(Debug)]
pub(super) struct HiddenRows {
    rows: Vec<f32>,
    columns: usize,
    /// Parts that programs leave as inner rows; the last hidden row follows them if it is kept.
    inner: usize,
    known: usize,
}

impl HiddenRows {
    /// Room for as many tokens as the context holds, of parts of `width` elements.
    pub(super) fn new(context: usize, width: usize, keeping: &Keeping) -> Self {
        let columns = width * keeping.layers.len();
        Self { rows: vec![0.0; context * columns], columns, inner: keeping.inner().len(), known: 0 }
    }

    /// The row of the token at `position`, if it is known.
    pub(super) fn row(&self, position: usize) -> Option<&[f32]> {
        let row = || &self.rows[position * self.columns..][..self.columns];
        (position < self.known).then(row)
    }

    /// Notes the row of the token at `position` as row `output` of the last replay left it; nothing after it is known
    /// then; in vain if something before it is unknown, or the program does not leave what is kept.
    pub(super) fn note(&mut self, position: usize, replay: &dyn Replay, program: ProgramId, output: usize) {
        if position > self.known {
            return;
        }
        let row = &mut self.rows[position * self.columns..][..self.columns];
        let last = hidden_row(replay, program, output);
        let (inner, rest) = row.split_at_mut(self.inner * last.len());
        for (part, to) in inner.chunks_exact_mut(last.len()).enumerate() {
            let row = replay.hidden(program, 1 + part, OutputId::new(output));
            to.copy_from_slice(row.expect("programs leave what is kept"));
        }
        if !rest.is_empty() {
            rest.copy_from_slice(last);
        }
        self.known = position + 1;
    }

    /// Forgets the rows from `position` on.
    pub(super) fn forget_from(&mut self, position: usize) {
        self.known = self.known.min(position);
    }

    /// How many rows from the first on are known.
    pub(super) fn known(&self) -> usize {
        self.known
    }

    /// Bytes of the rows of `tokens` tokens.
    pub(super) fn bytes_of(&self, tokens: usize) -> usize {
        tokens * self.columns * size_of::<f32>()
    }

    /// Copies the rows from `first` on to bytes, as many as these hold.
    pub(super) fn save(&self, first: usize, bytes: &mut [u8]) {
        let (to, rest) = bytes.as_chunks_mut::<4>();
        assert!(rest.is_empty(), "bytes of whole elements");
        let rows = &self.rows[first * self.columns..][..to.len()];
        to.iter_mut().zip(rows).for_each(|(to, element)| *to = element.to_ne_bytes());
    }

    /// Takes the rows from `first` on from bytes that were [saved](Self::save); in vain if something before them is
    /// unknown. Nothing after them is known then.
    pub(super) fn load(&mut self, first: usize, bytes: &[u8]) {
        let (from, rest) = bytes.as_chunks::<4>();
        assert!(rest.is_empty(), "bytes of whole elements");
        if first > self.known {
            return;
        }
        let rows = &mut self.rows[first * self.columns..][..from.len()];
        rows.iter_mut().zip(from).for_each(|(element, from)| *element = f32::from_ne_bytes(*from));
        self.known = first + from.len() / self.columns;
    }

    /// Takes the rows of the first `len` tokens for known, whatever they are.
    pub(super) fn assume(&mut self, len: usize) {
        self.known = len;
    }
}

impl Session {
    /// Keeps the hidden rows of committed tokens from now on, for [`committed_hidden`](Self::committed_hidden).
    ///
    /// # Errors
    /// [`RuntimeError::NoHiddenRows`] if the executables do not keep those of prompts.
    pub fn keep_hidden(&mut self) -> Result<(), RuntimeError> {
        let Some(keeping) = &self.set.keeping else { return Err(RuntimeError::NoHiddenRows) };
        if self.hidden.is_none() {
            self.hidden = Some(HiddenRows::new(self.layout.context, self.set.model_width(), keeping));
        }
        Ok(())
    }

    /// Whether it keeps the hidden rows of committed tokens.
    pub fn keeps_hidden(&self) -> bool {
        self.hidden.is_some()
    }

    /// The hidden row of the committed token at `position`: for every layer that is
    /// [kept](ExecutableSet::kept_layers) a part `[D]`, one after the other. `None` if it is not
    /// [kept](Self::keep_hidden): nothing is kept of tokens after ones that were committed after another forward than
    /// theirs.
    pub fn committed_hidden(&self, position: usize) -> Option<&[f32]> {
        if position < self.committed { self.hidden.as_ref()?.row(position) } else { None }
    }

    /// Keeps the hidden rows of the path that is being committed, if the last forward wrote it.
    pub(super) fn note_path(&mut self, path: &[u32]) {
        let (Some(hidden), Some(role)) = (&mut self.hidden, self.last) else { return };
        hidden.forget_from(self.committed);
        // Forwards of variants leave no inner rows.
        if matches!(role, Role::Prefill(_) | Role::KeepingPrefill(_) | Role::Candidates(_, Some(_))) {
            return;
        }
        let slots = self.inputs[role].slots();
        for (place, offset) in path.iter().enumerate() {
            let slot = slot_number(self.committed) + offset;
            let Some(row) = slots.iter().position(|written| *written == slot) else { return };
            hidden.note(self.committed + place, &*self.replay, self.set.program(role), row);
        }
    }
}

impl ExecutableSet {
    /// The same executables, and of every width of a prefill one that keeps the hidden rows of all its tokens, for
    /// [`Session::keep_hidden`](super::Session::keep_hidden). All weights are shared; `weights` is the model's.
    ///
    /// # Errors
    /// As [`build`](Self::build).
    pub fn with_kept_hidden(&self, weights: &dyn WeightSource) -> Result<Self, RuntimeError> {
        self.with_kept_layers(weights, &[self.graph.layers()])
    }

    /// As [`with_kept_hidden`](Self::with_kept_hidden), of the rows that come out of the first so many layers, for each
    /// number in `layers`, in addition to those that are kept already. Of rows between layers there are further
    /// executables of every planned width.
    ///
    /// # Errors
    /// As [`build`](Self::build), and [`RuntimeError::Compile`] for more layers than the model has.
    pub fn with_kept_layers(
        &self,
        weights: &dyn WeightSource,
        layers: &[usize],
    ) -> Result<Self, RuntimeError> {
        let kept = self.kept_layers();
        let all: BTreeSet<usize> = kept.iter().chain(layers).copied().collect();
        if self.keeping.is_some() && all.len() == kept.len() {
            return Ok(self.clone());
        }
        let layers: Vec<usize> = all.into_iter().collect();
        let keeps_last = layers.contains(&self.graph.layers());
        let prefill = IdVec::default();
        let mut keeping = Keeping { layers, prefill, keeps_last };
        let mut graph = self.graph.clone();
        graph.keep_inner(keeping.inner()).map_err(refused)?;

        let mut programs = Vec::new();
        let mut compile = |graph: &Graph, width: usize, outputs: usize| -> Result<(), RuntimeError> {
            programs.push(compile::compile(graph, Binding { width, outputs }, &self.device)?);
            Ok(())
        };
        let mut whole = graph.clone();
        whole.keep_all_hidden().map_err(refused)?;
        PREFILL_WIDTHS.iter().try_for_each(|width| compile(&whole, *width, 1))?;
        let keeps_inner = !keeping.inner().is_empty();
        if keeps_inner {
            let mut choosing = graph.clone();
            choosing.show_candidates(Self::MOST_CANDIDATES).map_err(refused)?;
            for graph in [&graph, &choosing] {
                self.widths().iter().try_for_each(|width| compile(graph, *width, *width))?;
            }
        }
        let mut both = self.clone();
        both.executables = self.executables.with(programs, weights, self.threads)?;
        let mut added = both.executables.programs().ids().skip(self.executables.programs().len());
        keeping.prefill = added.by_ref().take(PREFILL_WIDTHS.len()).collect();
        both.keeping = Some(keeping);
        if keeps_inner {
            let mut of_widths =
                || -> IdVec<WidthId, ProgramId> { added.by_ref().take(self.widths().len()).collect() };
            (both.logits, both.candidates) = (of_widths(), of_widths());
        }
        Ok(both)
    }

    /// The layers whose rows sessions [keep](super::Session::keep_hidden), ascending: for each number, what comes out
    /// of so many. None if no executables were made for that.
    pub fn kept_layers(&self) -> &[usize] {
        self.keeping.as_ref().map_or(&[], |keeping| &keeping.layers)
    }
}

fn refused(error: GraphError) -> CompileError {
    CompileError::Unlawful { stage: "keep_hidden", error }
}
