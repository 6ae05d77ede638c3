//! The outcome of a finished step, for drafters that learn: the verified rows, the verifier's candidates after each,
//! the accepted path.

use crate::{
    runtime::{Choice, Choices, ExecutableSet, Logits},
    sample::{Candidate, top},
    tree::{NodeId, TokenTree},
};

use super::{SpeculateError, StepShape};

/// The candidates of some rows, in buffers reserved once.
#[derive(Clone, Debug, Default)]
pub struct CandidateRows {
    candidates: Vec<Candidate>,
    /// Where the candidates of each row end.
    ends: Vec<usize>,
}

impl CandidateRows {
    /// Room for `rows` rows of `most` candidates each.
    pub fn with_capacity(rows: usize, most: usize) -> Self {
        Self { candidates: Vec::with_capacity(rows * most), ends: Vec::with_capacity(rows) }
    }

    /// Forgets all rows.
    pub fn clear(&mut self) {
        self.candidates.clear();
        self.ends.clear();
    }

    /// Adds a row that `write` appends the candidates of, most probable first.
    pub fn add_row(&mut self, write: impl FnOnce(&mut Vec<Candidate>)) {
        write(&mut self.candidates);
        self.ends.push(self.candidates.len());
    }

    /// Candidates of the row added as number `row`, most probable first.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn row(&self, row: usize) -> &[Candidate] {
        let start = row.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.candidates[start..self.ends[row]]
    }
}

/// A finished step, whose tokens are committed.
#[derive(Clone, Copy, Debug)]
pub struct StepOutcome<'a> {
    /// The drafted tree; of a step that did not draft, its root alone.
    pub tree: &'a TokenTree,
    /// The verified nodes, ascending.
    pub rows: &'a [NodeId],
    /// The verifier's best continuations of each of them: as many as
    /// [`Drafter::candidates_to_learn`](super::Drafter::candidates_to_learn) says, fewer where a row has fewer finite
    /// logits, more where another drafter of a mixture learns from more. The values are logits.
    pub offers: &'a CandidateRows,
    /// Nodes whose keys and values are now the sequence's: the root and the accepted ones.
    pub path: &'a [NodeId],
    /// The sequence with what the step emitted; the last token is the next root.
    pub history: &'a [u32],
    /// How many tokens the step emitted, 1 or more.
    pub emitted: usize,
}

/// The verifier's candidates after the rows of a step, kept for a drafter that learns.
#[derive(Debug)]
pub(super) struct VerifiedCandidates {
    /// Continuations of each row, 1 or more.
    most: usize,
    offers: CandidateRows,
    scratch: Vec<Candidate>,
}

impl VerifiedCandidates {
    /// For steps of `shape` whose drafter learns from `most` continuations of each row; none where that is 0.
    pub(super) fn of(most: usize, shape: &StepShape) -> Result<Option<Self>, SpeculateError> {
        if most > ExecutableSet::MOST_CANDIDATES {
            let expected = format!("at most {}", ExecutableSet::MOST_CANDIDATES);
            return Err(SpeculateError::Shape { what: "candidates to learn from", expected, found: most });
        }
        let rows = shape.tree_nodes().min(shape.verify_width);
        let offers = || CandidateRows::with_capacity(rows, most);
        Ok((most > 0).then(|| Self { most, offers: offers(), scratch: Vec::with_capacity(most) }))
    }

    /// What a greedy verification chooses of every row: the best token, and as many as the drafter learns from.
    pub(super) fn choice(verified: Option<&Self>) -> Choice {
        Choice { k: verified.map_or(Choice::ARGMAX.k, |verified| verified.most), ..Choice::ARGMAX }
    }

    /// What was kept of the last verification.
    pub(super) fn offers(&self) -> &CandidateRows {
        &self.offers
    }

    /// Keeps the continuations of a greedy verification's rows.
    pub(super) fn note_choices(&mut self, choices: Choices<'_>, rows: usize) {
        self.offers.clear();
        for row in 0..rows {
            let candidates = choices.row(row).iter().map(|(token, log_prob)| Candidate { token, log_prob });
            self.offers.add_row(|out| out.extend(candidates));
        }
    }

    /// Keeps the best continuations of the rows of a verification that showed logits.
    pub(super) fn note_logits(&mut self, logits: Logits<'_>, rows: usize) {
        let Self { most, offers, scratch } = self;
        offers.clear();
        for row in 0..rows {
            offers.add_row(|out| top(logits.row(row), *most, scratch, out));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_any_length_are_kept_apart() {
        let rows: [&[u32]; 4] = [&[3, 1], &[], &[7], &[5, 6, 2]];
        let mut offers = CandidateRows::with_capacity(4, 3);
        for _ in 0..2 {
            offers.clear();
            for row in rows {
                let candidate = |token: &u32| Candidate { token: *token, log_prob: 0.0 };
                offers.add_row(|out| out.extend(row.iter().map(candidate)));
            }
            for (i, row) in rows.iter().enumerate() {
                assert_eq!(offers.row(i).iter().map(|c| c.token).collect::<Vec<_>>(), *row);
            }
        }
    }
}
