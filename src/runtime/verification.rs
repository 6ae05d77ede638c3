//! Greedy verifications in one launch, where the device offers them.

use crate::backend::Accepted;

use super::{Choice, Forward, RuntimeError, Session};

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

    /// Whether verifications can be prepared.
    pub fn offers_verifications(&mut self) -> bool {
        self.replay.verifications().is_some()
    }
}

impl Forward<'_> {
    /// Runs it as a greedy verification, which the device walks through by itself: from the row pushed first, the root at scratch
    /// offset 0, to the row that carries the best token behind it, and on from there. `keep` is shown where that went and says how
    /// many of these rows, the root among them, are committed, with their hidden rows if these are kept; all other scratch is
    /// discarded. Of the forward nothing else is left to be read. Allocates nothing.
    ///
    /// # Panics
    /// If the rows are no tree whose parents come first, at lower offsets; if verifications of so many rows were not prepared;
    /// or if `keep` says none, or more than it was shown.
    pub fn verify(self, keep: impl FnOnce(Accepted<'_>) -> usize) {
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
        let shown = accepted.rows.len();
        let kept = keep(accepted);
        assert!((1..=shown).contains(&kept), "{kept} of {shown} rows are kept");
        if let Some(hidden) = &mut session.hidden {
            hidden.forget_from(session.committed);
            session.moves.clear();
            session.moves.extend_from_slice(&accepted.rows[..kept]);
            for (place, row) in session.moves.iter().enumerate() {
                let found = session.replay.hidden(program, *row as usize);
                hidden.set(
                    session.committed + place,
                    found.expect("the model's graph declares its hidden rows"),
                );
            }
        }
        session.commit_behind(kept);
    }
}
