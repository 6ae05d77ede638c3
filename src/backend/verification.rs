//! Verifications that a device runs by itself: a forward, the walk through its tree and the move of what is accepted,
//! one launch for all.

use std::fmt::Debug;

use crate::ir::{ProgramId, RowInputs, id};

use super::{BackendError, GrowingTree};

id! {
    /// A verification of grown trees that a replay has prepared.
    pub VerificationId
}

/// What a verification accepts: the rows from the root to the last whose token the verifier says itself.
#[derive(Clone, Copy, Debug)]
pub struct Accepted<'a> {
    /// Numbers of the rows, ascending; the first is 0, the root's.
    pub rows: &'a [u32],
    /// As many tokens: what the verifier says after each row. Each but the last is the next row's, the last is carried
    /// by none of its children.
    pub tokens: &'a [u32],
}

/// A replay whose device walks through the trees that it verifies.
pub trait Verifications: Debug {
    /// Prepares to verify by a program, which shows candidates of all its rows; a second call changes nothing. With
    /// `shows_hidden` the [hidden rows](super::Replay::hidden) of the forward are there to be read after a
    /// verification.
    ///
    /// # Errors
    /// [`BackendError`] when memory is refused.
    ///
    /// # Panics
    /// If the program shows something else.
    fn prepare(&mut self, program: ProgramId, shows_hidden: bool) -> Result<(), BackendError>;

    /// Runs the program, walks from row 0 to the row whose token the verifier says after it, and on from there: the
    /// best, the lowest of equals, or under [noise](RowInputs::set_noise) the winner of the race that
    /// [`ygg_kernels::noise`] describes. Copies the keys and values of the rows walked through to the slots from row
    /// 0's on, as [`SlotMoves::copy_slots`](super::SlotMoves::copy_slots) does. Row 0 is the root; the tail of every
    /// other row has its parent's slot before its own, and its parent is an earlier row in a lower slot. Allocates
    /// nothing.
    ///
    /// # Panics
    /// If the program was not prepared to show as much, or nothing was pushed.
    fn verify(&mut self, program: ProgramId, shows_hidden: bool, inputs: &RowInputs) -> Accepted<'_>;

    /// Prepares to verify, by a program, the best nodes of trees that a device grows, at most `width` of them.
    ///
    /// # Errors
    /// [`BackendError`] when memory is refused.
    ///
    /// # Panics
    /// If the program shows something else or has fewer rows, or the trees grow elsewhere.
    fn prepare_grown(
        &mut self,
        program: ProgramId,
        width: usize,
        shows_hidden: bool,
        tree: &GrowingTree,
    ) -> Result<VerificationId, BackendError>;

    /// After a growth that was begun: prunes its tree on the device as [`select`](crate::tree::select) does, by
    /// logarithms of probabilities, runs the program on what is kept, walks and moves as [`verify`](Self::verify). The
    /// root is the one row of `inputs`, at the slot after what is committed; a node's slot is its number after the
    /// root's. Allocates nothing.
    ///
    /// # Panics
    /// If that was not prepared, or the inputs are of another program.
    fn verify_grown(&mut self, verification: VerificationId, inputs: &RowInputs);

    /// What the last verification of a grown tree kept, the numbers of its nodes by rows, and what it accepted of that.
    fn grown_accepted(&self, verification: VerificationId) -> (&[u32], Accepted<'_>);
}
