//! Forwards that show logits, at once or begun and waited for.

use crate::ir::{Id, OutputId, ProgramId};

use super::{Forward, Session, SkipSet, role::Role};

impl Session {
    /// Begins the forward of `role`, leaving out the groups of `skip`.
    pub(super) fn begin(&mut self, role: Role, skip: Option<&SkipSet>) {
        let skip = skip.unwrap_or(&self.nothing_skipped);
        self.replay.begin(self.set.program(role), &self.inputs[role], skip.as_mask());
        (self.last, self.begun) = (None, Some(role));
    }

    /// Whether a forward that was [begun](Forward::begin_logits) still runs in parallel with the host.
    pub fn is_running(&self) -> bool {
        self.begun.is_some() && self.replay.is_running()
    }

    /// Waits for the forward that was [begun](Forward::begin_logits), and shows its logits; `None` if another one has
    /// run since.
    pub fn begun_logits(&mut self) -> Option<Logits<'_>> {
        let role = self.begun.take()?;
        self.replay.finish();
        self.last = Some(role);
        let program = self.set.program(role);
        Some(Logits { session: self, program })
    }

    /// The logits of the last forward.
    ///
    /// # Panics
    /// If none has [run](Forward::run), or something else has since.
    pub fn logits(&self) -> Logits<'_> {
        Logits { session: self, program: self.set.program(self.last.expect("a forward has run")) }
    }
}

impl<'a> Forward<'a> {
    /// Runs it, leaving out the groups of `skip`, and shows the logits: what sampling and scoring need.
    pub fn run(self, skip: Option<&SkipSet>) -> Logits<'a> {
        let Self { session, width } = self;
        Forward { session: &mut *session, width }.begin_logits(skip);
        session.begun_logits().expect("it was begun")
    }

    /// As [`run`](Self::run), but where a device runs in parallel with the host it only begins, until
    /// [`begun_logits`](Session::begun_logits).
    pub fn begin_logits(self, skip: Option<&SkipSet>) {
        self.session.begin(Role::Logits(self.width), skip);
    }
}

/// Logits of the last forward.
#[derive(Clone, Copy, Debug)]
pub struct Logits<'a> {
    pub(super) session: &'a Session,
    pub(super) program: ProgramId,
}

impl<'a> Logits<'a> {
    /// Logits `[V]` of the row pushed as number `row`.
    pub fn row(&self, row: usize) -> &'a [f32] {
        self.session.replay.shown(self.program, OutputId::new(row))
    }
}
