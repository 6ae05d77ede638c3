//! Draft phases that a device runs by itself: forwards of a drafter with the growth of its tree between them, one
//! launch for all.

use std::{any::Any, fmt::Debug, sync::Arc};

use crate::ir::{ProgramId, RowInputs, id};

use super::BackendError;

id! {
    /// A draft phase that a replay has prepared.
    pub PhaseId
}

/// Which forwards a draft phase is made of. All programs show candidates, of the same head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhaseShape {
    /// Programs for the root, with text before it that the model has not read, one of each width that may be needed.
    pub root_programs: Vec<ProgramId>,
    /// Program for the nodes of a growth.
    pub growth_program: ProgramId,
    /// Nodes of a growth, `Wd`: no more than that program has rows.
    pub width: usize,
    /// Most growths, `Dd`: at least 1.
    pub depth: usize,
    /// Candidates kept of a node.
    pub kept: usize,
    /// Tokens that nodes may carry: the ids below.
    pub vocabulary: usize,
}

impl PhaseShape {
    /// Nodes of the largest tree, root included.
    pub fn nodes(&self) -> usize {
        self.depth * self.width + 1
    }
}

/// What a tree grows from: a forward whose last row is the root, after the rows of the text before it.
#[derive(Clone, Copy, Debug)]
pub struct PhaseRoot<'a> {
    /// Its program, one of the phase's.
    pub program: ProgramId,
    /// Its rows, each in its place after the committed tokens, with the choice of candidates, which holds for every
    /// forward: of as many as the phase keeps, with a temperature. With [noise](RowInputs::set_noise), which holds for
    /// every forward too, they may be more: those that are best under it are valued at the choice's temperature, as
    /// [`Coupling::value`](crate::sample::Coupling::value) does, and then as many as the phase keeps are left.
    pub rows: &'a RowInputs,
}

/// Nodes as they came in, the root first: entry `i` of each slice is of node `i`.
#[derive(Clone, Copy, Debug)]
pub struct Grown<'a> {
    /// Their tokens.
    pub tokens: &'a [u32],
    /// Their parents; the root's own is 0.
    pub parents: &'a [u32],
    /// Their places among the candidates of their parents.
    pub ranks: &'a [u32],
    /// Logarithms of the probabilities of their paths.
    pub scores: &'a [f32],
    /// How many of them were forwarded, the first ones: all but those of the last growth.
    pub forwarded: usize,
}

/// A tree on a device while phases grow it: where a [verification of what grew](super::Verifications::prepare_grown)
/// finds it.
#[derive(Clone, Debug)]
pub struct GrowingTree(
    #[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "no other backend grows trees"))]
    pub(super) Arc<dyn OnDevice>,
);

/// What a backend knows of a tree on its device.
pub(super) trait OnDevice: Any + Debug + Send + Sync {}

/// A replay whose device grows trees by itself. Trees are those that a [`Frontier`](crate::tree::Frontier) grows from
/// the same forwards, to the bit.
pub trait DraftPhases: Debug {
    /// Prepares phases of a shape.
    ///
    /// # Errors
    /// [`BackendError`] when memory is refused.
    ///
    /// # Panics
    /// If the programs are others than the shape says.
    fn prepare(&mut self, shape: PhaseShape) -> Result<PhaseId, BackendError>;

    /// Grows a tree of `depth` growths, leaving out the groups with `skipped[group]`. Fewer nodes come in where there
    /// are fewer candidates. A node goes to the slot of its number after the root's. Of a model that reads hidden rows,
    /// a node is given its parent's. Allocates nothing.
    ///
    /// # Panics
    /// If the phase was not prepared for that depth, that program or as many candidates.
    fn grow(&mut self, phase: PhaseId, depth: usize, root: PhaseRoot<'_>, skipped: &[bool]) -> Grown<'_> {
        self.begin_growth(phase, depth, root, skipped);
        self.grown(phase)
    }

    /// As [`grow`](Self::grow), but only begins.
    ///
    /// # Panics
    /// As `grow`.
    fn begin_growth(&mut self, phase: PhaseId, depth: usize, root: PhaseRoot<'_>, skipped: &[bool]);

    /// Waits for what was begun, and shows it.
    fn grown(&mut self, phase: PhaseId) -> Grown<'_>;

    /// Where a phase grows its trees.
    fn growing(&self, phase: PhaseId) -> GrowingTree;
}
