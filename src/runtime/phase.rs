//! Draft phases in one launch, where the device offers them.

use crate::backend::{Grown, PhaseRoot, PhaseShape};

use super::{Choice, RuntimeError, Session, SkipSet, TrimmedHead};

/// A draft phase that a session has made ready: its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DraftPhase(usize);

impl Session {
    /// Makes ready to grow trees of up to `depth` growths of `width` nodes, with `kept` candidates of a node, in one launch each;
    /// `None` where the device runs forwards only.
    ///
    /// # Errors
    /// [`RuntimeError`] when no planned width holds a growth, or memory is refused.
    ///
    /// # Panics
    /// If a number is 0, more candidates are asked for than a forward gives, or the head is of another set.
    pub fn prepare_phase(
        &mut self,
        depth: usize,
        width: usize,
        kept: usize,
        head: Option<TrimmedHead>,
    ) -> Result<Option<DraftPhase>, RuntimeError> {
        let Some(rows) = self.set.width_for(width) else {
            let largest = *self.set.widths().last().expect("width 1 is always planned");
            return Err(RuntimeError::Width { rows: width, largest });
        };
        let program = |width: usize| {
            let filled = self.set.verify_program(width).expect("a planned width");
            self.set.choosing_program(filled, head)
        };
        let shape =
            PhaseShape { root_program: program(1), growth_program: program(rows), width, depth, kept };
        let Some(phases) = self.replay.phases() else { return Ok(None) };
        Ok(Some(DraftPhase(phases.prepare(shape)?)))
    }

    /// Whether draft phases can be prepared.
    pub fn offers_phases(&mut self) -> bool {
        self.replay.phases().is_some()
    }

    /// Grows a tree of `depth` growths from `token` behind the committed prefix, leaving out the groups of `skip`: nodes go to the
    /// scratch offsets of their numbers. Allocates nothing.
    ///
    /// # Panics
    /// If the phase was not prepared for as much, or the tree leaves the context.
    pub fn grow(
        &mut self,
        phase: DraftPhase,
        depth: usize,
        token: u32,
        choice: Choice,
        skip: &SkipSet,
    ) -> Grown<'_> {
        let committed = u32::try_from(self.committed()).expect("contexts are far below 2^32");
        self.last_program = None;
        let phases = self.replay.phases().expect("a phase was prepared");
        phases.grow(phase.0, depth, PhaseRoot { token, committed, choice }, skip.as_mask())
    }
}
