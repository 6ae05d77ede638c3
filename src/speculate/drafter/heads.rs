//! Heads drafted ahead: the next root is one of the verifier's tokens after the verified rows, so all of them are
//! forwarded before the root is known, and the forward of the root serves the next proposal. A device that runs in
//! parallel with the host forwards them while the host walks through the tree.
//!
//! Yggdrasil (NeurIPS 2025, <https://arxiv.org/abs/2512.23858>), ahead-of-time head draft. A head attends to the
//! committed prefix, to the verified rows above it and to itself, which is the sequence that the root will continue: so
//! by row invariance its candidates are, to the bit, those of a forward of the root in its own step. Heads are written
//! after the tree's rows, whose keys and values they read.

use crate::{
    runtime::{DraftVariant, ExecutableSet, Session, SkipSet},
    sample::Candidate,
    speculate::{CandidateRows, SpeculateError},
    tree::tail_slots,
};

use super::{Verified, ranking::Ranking};

/// The heads of one step after another, in buffers reserved once.
#[derive(Debug)]
pub(super) struct Heads {
    /// Scratch offset of the first head.
    bank: usize,
    /// Committed tokens when the heads were drafted.
    committed: usize,
    /// Verified rows that have a head, ascending.
    rows: Vec<usize>,
    tokens: Vec<u32>,
    /// The candidates of the head that was kept.
    offers: CandidateRows,
    kept: Option<Kept>,
}

/// The head of a root that is known.
#[derive(Clone, Copy, Debug)]
struct Kept {
    root: u32,
    /// Committed tokens before the root.
    committed: usize,
}

impl Heads {
    /// Room for heads of `rows` verified rows, after trees of `nodes` nodes.
    pub(super) fn with_capacity(nodes: usize, rows: usize) -> Self {
        Self {
            bank: nodes,
            committed: 0,
            rows: Vec::with_capacity(rows),
            tokens: Vec::with_capacity(rows),
            offers: CandidateRows::with_capacity(1, ExecutableSet::MOST_CANDIDATES),
            kept: None,
        }
    }

    /// Begins to draft a head for every verified row after which there would be another step that drafts, in a session
    /// whose model has the verifier's token of the row in its vocabulary and allows texts as long.
    pub(super) fn draft(
        &mut self,
        verified: &Verified<'_>,
        session: &mut Session,
        trimmed: Option<DraftVariant>,
        ranking: &Ranking,
        skip: Option<&SkipSet>,
    ) -> Result<(), SpeculateError> {
        self.forget();
        let Verified { tree, rows, verifier_tokens, coupling: _, tokens_left } = *verified;
        self.committed = session.committed();
        let (room, vocabulary) = (session.context() - self.committed, session.set().vocabulary());
        let goes_on = |row: &usize| {
            let above = tree.depth(rows[*row]) as usize + 1;
            // The row's own token ends this step; the next one needs one to draft and one to end with.
            above + 2 <= tokens_left && above < room && (verifier_tokens[*row] as usize) < vocabulary
        };
        self.rows.extend((0..rows.len()).filter(goes_on));
        if self.rows.is_empty() {
            return Ok(());
        }
        let mut forward = session.forward(self.rows.len())?;
        for (head, row) in self.rows.iter().enumerate() {
            let node = rows[*row];
            let offset = u32::try_from(self.bank + head).expect("trees are small");
            forward.push(verifier_tokens[*row], tree.depth(node) + 1, offset, |tail| {
                let above = tail_slots(tree, node, 0, tail);
                tail[above] = offset;
                above + 1
            });
            self.tokens.push(verifier_tokens[*row]);
        }
        let (forward, choice) = ranking.asked(forward, 0);
        forward.begin_choice_of(trimmed, choice, skip);
        Ok(())
    }

    /// Keeps the head of the verified row after which the next root stands, if it has one, and moves its keys and
    /// values to the root's place. The path to that row must be committed, and nothing after it.
    pub(super) fn keep(&mut self, row: usize, session: &mut Session) {
        let Ok(head) = self.rows.binary_search(&row) else { return };
        let committed = session.committed();
        let offset = self.bank + head - (committed - self.committed);
        session.move_scratch(u32::try_from(offset).expect("trees are small"));
        let choices = session.begun_choices().expect("the path was committed, and no forward run");
        let candidates = choices.row(head).iter().map(|(token, log_prob)| Candidate { token, log_prob });
        self.offers.add_row(|out| out.extend(candidates));
        self.kept = Some(Kept { root: self.tokens[head], committed });
    }

    /// The candidates of a root after `committed` tokens, most probable first, if its head was kept. Only once.
    pub(super) fn take(&mut self, root: u32, committed: usize) -> Option<&[Candidate]> {
        let kept = self.kept.take()?;
        let is_of = kept.committed == committed && kept.root == root;
        is_of.then(|| self.offers.row(0))
    }

    /// Drops all heads.
    pub(super) fn forget(&mut self) {
        self.rows.clear();
        self.tokens.clear();
        self.offers.clear();
        self.kept = None;
    }
}
