//! Greedy verifications in one launch, where the device offers them.

use crate::backend::{Accepted, GrowingTree};

use super::{Choice, Forward, RuntimeError, Session};

/// A verification of trees that a device grows, which a session has made ready.
#[derive(Clone, Copy, Debug)]
pub struct GrownVerification {
    /// Its number there.
    number: usize,
    /// The program whose rows it fills.
    filled: usize,
}

/// What a device walked through, in buffers reserved once.
#[derive(Debug)]
pub(super) struct WalkedRows {
    /// The program that was verified by.
    program: usize,
    nodes: Vec<u32>,
    rows: Vec<u32>,
    tokens: Vec<u32>,
}

impl WalkedRows {
    /// Room for walks through `rows` rows.
    pub(super) fn with_capacity(rows: usize) -> Self {
        let room = || Vec::with_capacity(rows);
        Self { program: 0, nodes: room(), rows: room(), tokens: room() }
    }

    fn note(&mut self, program: usize, nodes: &[u32], accepted: Accepted<'_>) {
        self.program = program;
        for (kept, found) in
            [(&mut self.nodes, nodes), (&mut self.rows, accepted.rows), (&mut self.tokens, accepted.tokens)]
        {
            kept.clear();
            kept.extend_from_slice(found);
        }
    }
}

/// What the last verification by a device walked through.
#[derive(Clone, Copy, Debug)]
pub struct Walked<'a> {
    /// Of a tree that the device grew, the numbers of the nodes that the rows are of; nothing of other trees.
    pub nodes: &'a [u32],
    /// The rows of the walk, with the verifier's token behind each.
    pub accepted: Accepted<'a>,
}

impl Session {
    /// Makes ready to [verify](Forward::verify) trees of up to `rows` rows; whether the device can. A session that is to
    /// [keep hidden rows](Session::keep_hidden) is told so before.
    ///
    /// # Errors
    /// [`RuntimeError`] when no planned width holds so many, or memory is refused.
    pub fn prepare_verifications(&mut self, rows: usize) -> Result<bool, RuntimeError> {
        let Some(widest) = self.set.width_for(rows) else {
            let largest = *self.set.widths().last().expect("width 1 is always planned");
            return Err(RuntimeError::Width { rows, largest });
        };
        let Some(verifications) = self.replay.verifications() else { return Ok(false) };
        let shows_hidden = self.hidden.is_some();
        for width in self.set.widths().iter().filter(|width| **width <= widest) {
            let filled = self.set.verify_program(*width).expect("a planned width");
            verifications.prepare(self.set.choosing_program(filled, None), shows_hidden)?;
        }
        Ok(true)
    }

    /// Makes ready to verify the best `rows` nodes, or fewer, of trees that a device grows. A session that is to
    /// [keep hidden rows](Session::keep_hidden) is told so before.
    ///
    /// # Errors
    /// [`RuntimeError`] when no planned width holds so many, or memory is refused.
    ///
    /// # Panics
    /// If the device does not [offer](Self::offers_verifications) it, or the tree grows on another.
    pub fn prepare_grown_verification(
        &mut self,
        rows: usize,
        tree: &GrowingTree,
    ) -> Result<GrownVerification, RuntimeError> {
        let Some(width) = self.set.width_for(rows) else {
            let largest = *self.set.widths().last().expect("width 1 is always planned");
            return Err(RuntimeError::Width { rows, largest });
        };
        let filled = self.set.verify_program(width).expect("a planned width");
        let program = self.set.choosing_program(filled, None);
        let shows_hidden = self.hidden.is_some();
        let verifications = self.replay.verifications().expect("a device that walks");
        let number = verifications.prepare_grown(program, rows, shows_hidden, tree)?;
        Ok(GrownVerification { number, filled })
    }

    /// Verifies the best nodes of the tree that was [told to grow](Forward::begin_growth) from `root`, the token behind the committed ones: the
    /// device prunes, verifies and walks as [`Forward::verify`] does, and this waits for it. Commits nothing yet; allocates nothing.
    ///
    /// # Errors
    /// [`RuntimeError::DeviceFailed`].
    pub fn verify_grown(&mut self, verification: GrownVerification, root: u32) -> Result<(), RuntimeError> {
        let GrownVerification { number, filled } = verification;
        self.begun = None;
        self.inputs[filled].clear();
        Forward { session: &mut *self, program: filled }.push_behind(root);
        let inputs = &mut self.inputs[filled];
        inputs.set_choice(Choice::ARGMAX);
        self.last_program = None;
        self.replay.verifications().expect("verifications were prepared").verify_grown(number, inputs);
        // Results of a failed device are invalid.
        self.check_device()?;
        let verifications = self.replay.verifications().expect("verifications were prepared");
        let (nodes, accepted) = verifications.grown_accepted(number);
        self.walked.note(self.set.choosing_program(filled, None), nodes, accepted);
        Ok(())
    }

    /// What the last verification by the device walked through.
    pub fn walked(&self) -> Walked<'_> {
        let WalkedRows { program: _, nodes, rows, tokens } = &self.walked;
        Walked { nodes, accepted: Accepted { rows, tokens } }
    }

    /// Commits the first `rows` rows of the last walk of the device, which has moved them behind the committed tokens, with their
    /// hidden rows if these are kept; all other scratch is discarded.
    ///
    /// # Panics
    /// If they are none, or more than were walked through.
    pub fn commit_walked(&mut self, rows: usize) {
        let WalkedRows { program, rows: walked, .. } = &self.walked;
        let walked = &walked[..rows];
        assert!(!walked.is_empty(), "a root is committed");
        if let Some(hidden) = &mut self.hidden {
            hidden.forget_from(self.committed);
            for (place, row) in walked.iter().enumerate() {
                let found = self.replay.hidden(*program, *row as usize);
                hidden
                    .set(self.committed + place, found.expect("the model's graph declares its hidden rows"));
            }
        }
        self.commit_behind(rows);
    }

    /// Whether verifications can be prepared.
    pub fn offers_verifications(&mut self) -> bool {
        self.replay.verifications().is_some()
    }
}

impl Forward<'_> {
    /// Runs it as a greedy verification, which the device walks through by itself: from the row pushed first, the root at scratch
    /// offset 0, to the row that carries the best token behind it, and on from there. [`Session::walked`] shows where that went, and
    /// [`Session::commit_walked`] commits of it. Of the forward nothing else is left to be read. Allocates nothing.
    ///
    /// # Panics
    /// If the rows are no tree whose parents come first, at lower offsets, or verifications of so many rows were not prepared.
    pub fn verify(self) {
        let Self { session, program: filled } = self;
        let inputs = &mut session.inputs[filled];
        inputs.set_choice(Choice::ARGMAX);
        let rows = inputs.used();
        assert!(rows > 0 && inputs.slots()[0] == inputs.prefix()[0], "the root comes first, at offset 0");
        assert!(inputs.slots()[..rows].is_sorted_by(|a, b| a < b), "parents come first, at lower offsets");
        session.last_program = None;
        let program = session.set.choosing_program(filled, None);
        let verifications = session.replay.verifications().expect("verifications were prepared");
        let accepted = verifications.verify(program, session.hidden.is_some(), inputs);
        session.walked.note(program, &[], accepted);
    }
}
