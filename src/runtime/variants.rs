//! Variants: forwards that draft by the verifier's own graph, changed so that they read less, in addition to the
//! executables of the whole model.
//!
//! What they draft is verified by the whole model, so no answer changes. They share its cache: their rows go to
//! scratch, and verification writes the same slots anew. Two changes are known, and go together:
//!
//! - A *trimmed head* shows logits of some tokens only (frequency-ranked heads: FR-Spec,
//!   <https://arxiv.org/abs/2502.14856>). Candidates are those of the whole head among the kept tokens, with the same
//!   logits to the last bit unless its rows are read in fewer bits, and probabilities are shares of the kept tokens.
//! - A *substitute* multiplies by the model's own matrices in fewer bits (SubSpec, <https://arxiv.org/abs/2509.18344>).

use std::{borrow::Cow, collections::BTreeMap};

use crate::{
    compile::{self, CompileError},
    ir::{
        Binding, Graph, GraphError, HeadTokens, Id, Substituted, WeightFormat, WeightId, WeightSource,
        WeightSpec, substitute_format,
    },
};

use super::{DraftVariant, ExecutableSet, RuntimeError, executable_set::of_nodes_and_text};

/// What a variant changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VariantChange<'a> {
    /// The tokens whose logits it shows, ascending; all if `None`.
    pub head_tokens: Option<&'a [u32]>,
    /// Bits an element of the substitute that it multiplies by; the model's own matrices if `None`.
    pub substitute_bits: Option<u32>,
}

/// What a variant that was made changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Changed {
    head: Option<HeadTokens>,
    bits: Option<u32>,
}

impl Changed {
    fn is(&self, change: VariantChange<'_>) -> bool {
        self.bits == change.substitute_bits
            && self.head.as_ref().map(HeadTokens::as_slice) == change.head_tokens
    }
}

/// What a weight of a variant is made of, in the format that the graph says.
struct Part {
    /// A matrix of the model.
    of: WeightId,
    /// The rows of it, if not all.
    rows: Option<HeadTokens>,
}

/// The model's weights, and after them those of variants, which are made when they are asked for and kept by nobody
/// here.
struct Derived<'a> {
    model: &'a dyn WeightSource,
    graph: &'a Graph,
    parts: BTreeMap<WeightId, Part>,
    threads: usize,
}

impl WeightSource for Derived<'_> {
    fn bytes(&self, weight: WeightId) -> Cow<'_, [u8]> {
        let Some(Part { of, rows }) = self.parts.get(&weight) else { return self.model.bytes(weight) };
        let (stored, format) = (self.graph.weight(*of), self.graph.weight(weight).format);
        let all = self.model.bytes(*of);
        let (bytes, count) = match rows {
            None => (all, stored.rows),
            Some(tokens) => {
                let row = all.len() / stored.rows;
                let starts = tokens.as_slice().iter().map(|token| *token as usize * row);
                let rows: Vec<u8> = starts.flat_map(|start| &all[start..start + row]).copied().collect();
                (Cow::Owned(rows), tokens.as_slice().len())
            }
        };
        if format == stored.format {
            return bytes;
        }
        // A row is quantised by itself, so those of some rows are those of the whole matrix.
        let stored = WeightSpec { rows: count, ..stored.clone() };
        Cow::Owned(stored.requantised(&bytes, format, self.threads))
    }
}

fn refused(error: GraphError) -> CompileError {
    CompileError::Unlawful { stage: "draft_variant", error }
}

impl ExecutableSet {
    /// The same executables with variants of trimmed heads, as [`with_variants`](Self::with_variants) says, whose
    /// matrices are in the format that `read_in` says for the head's: another one where the logits of a head need not be
    /// the model's.
    ///
    /// # Errors
    /// As `with_variants`.
    pub fn with_heads(
        &self,
        weights: &dyn WeightSource,
        heads: &[impl AsRef<[u32]>],
        read_in: impl Fn(WeightFormat) -> WeightFormat,
    ) -> Result<Self, RuntimeError> {
        let of = |head| VariantChange { head_tokens: Some(head), substitute_bits: None };
        let changes: Vec<_> = heads.iter().map(|head| of(head.as_ref())).collect();
        self.with_variants_read_in(weights, &changes, read_in)
    }

    /// The same executables, and of every planned width one for each of `changes` that shows candidates. All weights
    /// are shared with this set but for rows of trimmed heads and matrices of substitutes, which are made of `weights`,
    /// the model's; substitutes of the same bits are shared. A variant that the set has is not made again.
    ///
    /// # Errors
    /// [`RuntimeError::Head`] for a list of tokens that is empty, out of order or out of range,
    /// [`RuntimeError::Substitute`] for bits of which there are no substitutes; else as [`build`](Self::build).
    pub fn with_variants(
        &self,
        weights: &dyn WeightSource,
        changes: &[VariantChange<'_>],
    ) -> Result<Self, RuntimeError> {
        self.with_variants_read_in(weights, changes, |stored| stored)
    }

    fn with_variants_read_in(
        &self,
        weights: &dyn WeightSource,
        changes: &[VariantChange<'_>],
        read_in: impl Fn(WeightFormat) -> WeightFormat,
    ) -> Result<Self, RuntimeError> {
        let mut wanted: Vec<Changed> = Vec::new();
        for change in changes {
            let VariantChange { head_tokens, substitute_bits: bits } = *change;
            let head = head_tokens.map(|tokens| HeadTokens::new(tokens, self.vocabulary())).transpose()?;
            let changed = Changed { head, bits };
            let is_made = self.variants.iter().any(|(made, _)| *made == changed);
            if !is_made && *change != VariantChange::default() && !wanted.contains(&changed) {
                wanted.push(changed);
            }
        }
        if wanted.is_empty() {
            return Ok(self.clone());
        }
        let (mut graph, mut substitutes) = (self.graph.clone(), self.substitutes.clone());
        let head = graph.head().map_err(refused)?;
        let mut parts = BTreeMap::new();
        for bits in wanted.iter().filter_map(|changed| changed.bits) {
            let format = substitute_format(bits).ok_or(RuntimeError::Substitute { bits })?;
            substitutes.entry(bits).or_insert_with(|| graph.add_substitute(format));
        }
        // Those that were packed before are not asked for again.
        let narrow = |matrix: &Substituted| (matrix.by, Part { of: matrix.of, rows: None });
        parts.extend(substitutes.values().flatten().map(narrow));
        let mut heads = Vec::with_capacity(wanted.len());
        for Changed { head: tokens, bits } in &wanted {
            let Some(tokens) = tokens else {
                heads.push(None);
                continue;
            };
            let in_fewer_bits = bits.and_then(|bits| by(&substitutes[&bits], head));
            let (tokens, rows) = match graph.reduced_head() {
                Some(reduced) => reduced.of(tokens)?,
                None => (tokens.clone(), tokens.clone()),
            };
            let trimmed = graph.add_trimmed_head(&tokens).map_err(refused)?;
            let WeightSpec { format, columns, .. } = graph.weight(in_fewer_bits.unwrap_or(head));
            let read_in = read_in(*format);
            if columns.is_multiple_of(read_in.block_len()) {
                graph.store_in(trimmed, read_in);
            }
            parts.insert(trimmed, Part { of: head, rows: Some(rows) });
            heads.push(Some((trimmed, tokens)));
        }
        let mut programs = Vec::new();
        for (Changed { bits, .. }, trimmed) in wanted.iter().zip(heads) {
            let mut changed = graph.clone();
            match trimmed {
                Some((trimmed, tokens)) => {
                    changed.trim_head(trimmed, tokens, Self::MOST_CANDIDATES).map_err(refused)?;
                }
                None => changed.show_candidates(Self::MOST_CANDIDATES).map_err(refused)?,
            }
            if let Some(bits) = bits {
                changed.multiply_by(&substitutes[bits]).map_err(refused)?;
            }
            for graph in of_nodes_and_text(&changed)? {
                for width in self.widths() {
                    let binding = Binding { width: *width, outputs: *width };
                    programs.push(compile::compile(&graph, binding, &self.device)?);
                }
            }
        }
        let of_change = programs.len() / wanted.len();
        let source = Derived { model: weights, graph: &graph, parts, threads: self.threads };
        let executables = self.executables.with(programs, &source, self.threads)?;
        let mut added = executables.programs().ids().skip(self.executables.programs().len());
        let mut both = self.clone();
        for changed in wanted {
            both.variants.push((changed, added.by_ref().take(of_change).collect()));
        }
        (both.executables, both.graph, both.substitutes) = (executables, graph, substitutes);
        Ok(both)
    }

    /// Bits of the substitutes that there are, and bytes that each reads as a share of what the model reads.
    pub fn substitute_shares(&self) -> Vec<(u32, f64)> {
        let is_made = |bits: &u32| substitute_format(*bits).is_some();
        (1..=8).filter(is_made).map(|bits| (bits, self.graph.substitute_share(bits))).collect()
    }

    /// The variant that changes this; `None` if nothing is changed.
    ///
    /// # Errors
    /// [`RuntimeError::MissingVariant`] if the set has none.
    pub fn variant(&self, change: VariantChange<'_>) -> Result<Option<DraftVariant>, RuntimeError> {
        if change == VariantChange::default() {
            return Ok(None);
        }
        let place = self.variants.iter().position(|(made, _)| made.is(change));
        let VariantChange { head_tokens, substitute_bits } = change;
        let missing =
            || RuntimeError::MissingVariant { tokens: head_tokens.map(<[u32]>::len), bits: substitute_bits };
        place.map(|place| Some(DraftVariant::new(place))).ok_or_else(missing)
    }

    /// The variant whose head keeps these tokens, with the model's own matrices.
    ///
    /// # Errors
    /// As [`variant`](Self::variant).
    pub fn head(&self, tokens: &[u32]) -> Result<DraftVariant, RuntimeError> {
        let change = VariantChange { head_tokens: Some(tokens), substitute_bits: None };
        Ok(self.variant(change)?.expect("a head is a change"))
    }
}

/// The substitute of a matrix, if it has one.
fn by(substitutes: &[Substituted], matrix: WeightId) -> Option<WeightId> {
    substitutes.iter().find(|substitute| substitute.of == matrix).map(|substitute| substitute.by)
}
