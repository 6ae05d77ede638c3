//! Verifications in one launch, where the device offers them.

use crate::{
    backend::{Accepted, GrowingTree, VerificationId},
    ir::Noise,
};

use super::{
    Choice, Forward, RuntimeError, Session,
    role::{Role, WidthId},
};

/// A verification of trees that a device grows, which a session has made ready.
#[derive(Clone, Copy, Debug)]
pub struct GrownVerification {
    id: VerificationId,
    width: WidthId,
}

/// What a device walked through, in buffers reserved once.
#[derive(Debug)]
pub(super) struct WalkedRows {
    /// The width of the verification's forward; `None` before the first.
    width: Option<WidthId>,
    nodes: Vec<u32>,
    rows: Vec<u32>,
    tokens: Vec<u32>,
}

impl WalkedRows {
    /// Room for walks through `rows` rows.
    pub(super) fn with_capacity(rows: usize) -> Self {
        let room = || Vec::with_capacity(rows);
        Self { width: None, nodes: room(), rows: room(), tokens: room() }
    }

    fn note(&mut self, width: WidthId, nodes: &[u32], accepted: Accepted<'_>) {
        self.width = Some(width);
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
    /// The rows of the walk, with the verifier's token after each.
    pub accepted: Accepted<'a>,
}

impl Session {
    /// Prepares to [verify](Forward::verify) trees of up to `rows` rows; returns whether the device can. Call
    /// [`keep_hidden`](Session::keep_hidden), if at all, before this.
    ///
    /// # Errors
    /// [`RuntimeError`] when no planned width holds so many, or memory is refused.
    pub fn prepare_verifications(&mut self, rows: usize) -> Result<bool, RuntimeError> {
        let widest = self.set.planned(rows)?;
        let Some(verifications) = self.replay.verifications() else { return Ok(false) };
        let shows_hidden = self.hidden.is_some();
        for width in self.set.widths_up_to(widest) {
            verifications.prepare(self.set.program(Role::Candidates(width, None)), shows_hidden)?;
        }
        Ok(true)
    }

    /// Prepares to verify the best `rows` nodes, or fewer, of trees that a device grows. Call
    /// [`keep_hidden`](Session::keep_hidden), if at all, before this.
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
        let width = self.set.planned(rows)?;
        let program = self.set.program(Role::Candidates(width, None));
        let shows_hidden = self.hidden.is_some();
        let verifications = self.replay.verifications().expect("a device that walks");
        let id = verifications.prepare_grown(program, rows, shows_hidden, tree)?;
        Ok(GrownVerification { id, width })
    }

    /// Verifies the best nodes of the tree whose growth was [begun](Forward::begin_growth) from `root`, the token after
    /// the committed ones: the device prunes, verifies and walks as [`Forward::verify`] does, under `noise` if tokens
    /// are drawn, and this waits for it. Commits nothing yet; allocates nothing.
    ///
    /// # Errors
    /// [`RuntimeError::DeviceFailed`].
    pub fn verify_grown(
        &mut self,
        verification: GrownVerification,
        root: u32,
        noise: Option<Noise>,
    ) -> Result<(), RuntimeError> {
        let GrownVerification { id, width } = verification;
        self.begun = None;
        self.inputs.planned[width].clear();
        let mut forward = Forward { session: &mut *self, width };
        forward.push_behind(root);
        if let Some(noise) = noise {
            let _noisy = forward.under_noise(noise);
        }
        let inputs = &mut self.inputs.planned[width];
        inputs.set_choice(Choice::ARGMAX);
        self.last = None;
        self.replay.verifications().expect("verifications were prepared").verify_grown(id, inputs);
        // Results of a failed device are invalid.
        self.check_device()?;
        let verifications = self.replay.verifications().expect("verifications were prepared");
        let (nodes, accepted) = verifications.grown_accepted(id);
        self.walked.note(width, nodes, accepted);
        Ok(())
    }

    /// What the last verification by the device walked through.
    pub fn walked(&self) -> Walked<'_> {
        let WalkedRows { width: _, nodes, rows, tokens } = &self.walked;
        Walked { nodes, accepted: Accepted { rows, tokens } }
    }

    /// Commits the first `rows` rows of the last walk of the device, which has moved them to follow the committed
    /// tokens, with their hidden rows if these are kept; all other scratch is discarded.
    ///
    /// # Panics
    /// If they are none, or more than were walked through.
    pub fn commit_walked(&mut self, rows: usize) {
        let WalkedRows { width, rows: walked, .. } = &self.walked;
        let walked = &walked[..rows];
        assert!(!walked.is_empty(), "a root is committed");
        if let Some(hidden) = &mut self.hidden {
            hidden.forget_from(self.committed);
            let program = self.set.program(Role::Candidates(width.expect("a verification has run"), None));
            for (place, row) in walked.iter().enumerate() {
                hidden.note(self.committed + place, &*self.replay, program, *row as usize);
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
    /// Runs it as a verification, which the device walks through by itself: from the row pushed first, the root at
    /// scratch offset 0, to the row that carries the verifier's token after it, and on from there. That is the best
    /// token, or [under noise](Self::under_noise) the one that a [`Sampler`](crate::sample::Sampler) without filters
    /// draws. [`Session::walked`]
    /// shows where that went, and [`Session::commit_walked`] commits of it. Of the forward nothing else is left to be
    /// read. Allocates nothing.
    ///
    /// # Panics
    /// If the rows are no tree whose parents come first, at lower offsets, or verifications of so many rows were not
    /// prepared.
    pub fn verify(self) {
        let Self { session, width } = self;
        let inputs = &mut session.inputs.planned[width];
        inputs.set_choice(Choice::ARGMAX);
        let rows = inputs.used();
        assert!(rows > 0 && inputs.slots()[0] == inputs.prefix()[0], "the root comes first, at offset 0");
        assert!(inputs.slots()[..rows].is_sorted_by(|a, b| a < b), "parents come first, at lower offsets");
        session.last = None;
        let program = session.set.program(Role::Candidates(width, None));
        let verifications = session.replay.verifications().expect("verifications were prepared");
        let accepted = verifications.verify(program, session.hidden.is_some(), inputs);
        session.walked.note(width, &[], accepted);
    }
}
