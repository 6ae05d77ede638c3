//! Draft phases in one launch, where the device offers them.

use crate::backend::{GrowingTree, Grown, PhaseId, PhaseRoot, PhaseShape};

use super::{Choice, DraftVariant, Forward, RuntimeError, Session, SkipSet, role::Role};

/// A draft phase that a session has made ready.
#[derive(Clone, Copy, Debug)]
pub struct DraftPhase {
    id: PhaseId,
    head: Option<DraftVariant>,
}

/// The size of a draft phase.
#[derive(Clone, Copy, Debug)]
pub struct DraftPhaseSize {
    /// Most growths.
    pub depth: usize,
    /// Nodes of a growth.
    pub width: usize,
    /// Candidates kept of a node.
    pub kept: usize,
    /// Most rows of the first forward: the root, and the text before it that is not in the cache.
    pub root_rows: usize,
    /// Tokens that nodes may carry: the ids below.
    pub vocabulary: usize,
}

impl Session {
    /// Prepares to [grow](Forward::begin_growth) trees, among the tokens of a trimmed head if one is named, in one
    /// launch each; `None` where the device runs forwards only.
    ///
    /// # Errors
    /// [`RuntimeError`] when no planned width holds a growth or the first forward, or memory is refused.
    ///
    /// # Panics
    /// If a number is 0, more candidates are asked for than a forward gives, or the head is of another set.
    pub fn prepare_phase(
        &mut self,
        size: DraftPhaseSize,
        head: Option<DraftVariant>,
    ) -> Result<Option<DraftPhase>, RuntimeError> {
        let DraftPhaseSize { depth, width, kept, root_rows, vocabulary } = size;
        let (widest_root, growth) = (self.set.planned_text(root_rows)?, self.set.planned(width)?);
        let program = |width| self.set.program(Role::Candidates(width, head));
        let shape = PhaseShape {
            root_programs: self.set.widths_up_to(widest_root).map(program).collect(),
            growth_program: program(growth),
            width,
            depth,
            kept,
            vocabulary,
        };
        let Some(phases) = self.replay.phases() else { return Ok(None) };
        Ok(Some(DraftPhase { id: phases.prepare(shape)?, head }))
    }

    /// Waits for the growth that was [begun](Forward::begin_growth), and returns the tree.
    pub fn grown(&mut self, phase: DraftPhase) -> Grown<'_> {
        self.replay.phases().expect("a phase was prepared").grown(phase.id)
    }

    /// Where a phase grows its trees, for [`prepare_grown_verification`](Self::prepare_grown_verification).
    pub fn growing(&mut self, phase: DraftPhase) -> GrowingTree {
        self.replay.phases().expect("a phase was prepared").growing(phase.id)
    }

    /// Whether draft phases can be prepared.
    pub fn offers_phases(&mut self) -> bool {
        self.replay.phases().is_some()
    }
}

impl<'a> Forward<'a> {
    /// Begins it as the first forward of a draft phase that grows a tree of `depth` growths from its last row, [under
    /// noise](Self::under_noise) if that is said, by candidates valued at the temperature of the choice, leaving
    /// out the groups of `skip`: the rows were pushed by [`push_behind`](Self::push_behind), and a node goes to the
    /// slot of its number after the last row's. [`Session::grown`] waits for it. Allocates nothing.
    ///
    /// # Panics
    /// If the phase was not prepared for as much, or the tree leaves the context.
    pub fn begin_growth(self, phase: DraftPhase, depth: usize, choice: Choice, skip: Option<&SkipSet>) {
        let Self { session, width } = self;
        let role = Role::Candidates(width, phase.head);
        session.inputs[role].set_choice(choice);
        session.last = None;
        let skip = skip.unwrap_or(&session.nothing_skipped);
        let phases = session.replay.phases().expect("a phase was prepared");
        let root = PhaseRoot { program: session.set.program(role), rows: &session.inputs[role] };
        phases.begin_growth(phase.id, depth, root, skip.as_mask());
    }
}
