//! The candidate pool: sequences that the verifier goes on with in the forward that verifies the guesses.
//!
//! SPECTRA (ACL 2025, section on predicting candidate tokens): each sequence of N - 1 tokens follows the same prefix as
//! the guesses, so here it is a branch of the token tree, pinned; what the verifier offers after its last token makes
//! an n-gram, and the sequence moves on by one. Sequences that would become equal part, or they would stay so.

use ygg_profiler::Random;

use crate::{
    plan::MOST_ORDER,
    speculate::StepOutcome,
    tree::{NodeId, TokenTree},
};

use super::{SOURCE, dictionary::Dictionaries};

/// The pool.
#[derive(Clone, Debug)]
pub(super) struct Pool {
    /// Sequences end to end, `[L][length]`.
    tokens: Vec<u32>,
    /// Tokens of a sequence.
    length: usize,
    explored_percent: u64,
    /// Tokens chosen so far: what chance is made of.
    choices: u64,
}

impl Pool {
    pub(super) fn new(sequences: usize, length: usize, explored_percent: u32) -> Self {
        Self {
            tokens: vec![0; sequences * length],
            length,
            explored_percent: explored_percent.into(),
            choices: 0,
        }
    }

    /// Begins with n-grams of the text, taken from all of it.
    pub(super) fn begin(&mut self, text: &[u32]) {
        let sequences = self.tokens.len() / self.length;
        if text.is_empty() {
            return;
        }
        for (i, sequence) in self.tokens.chunks_exact_mut(self.length).enumerate() {
            let start = i * text.len() / sequences;
            for (token, place) in sequence.iter_mut().zip(start..) {
                *token = text[place % text.len()];
            }
        }
    }

    /// Adds its sequences to the tree, pinned, if they fit into `depth` and `nodes`; their values claim nothing.
    pub(super) fn draft(&self, tree: &mut TokenTree, depth: usize, nodes: usize) {
        if depth < self.length || tree.len() + self.tokens.len() > nodes {
            return;
        }
        for sequence in self.tokens.chunks_exact(self.length) {
            let mut node = NodeId::ROOT;
            for token in sequence {
                let inserted = tree.insert(node, *token, 0.0, 0, SOURCE);
                node = inserted.node().expect("there is room for all sequences");
            }
            tree.pin(node);
        }
    }

    /// Extends every sequence that the step verified, and records the new n-gram. With the configured probability the
    /// next token is the best one that the forward dictionary does not have after the last token, otherwise the best.
    pub(super) fn refresh(&mut self, outcome: &StepOutcome<'_>, dictionaries: &mut Dictionaries) {
        for start in (0..self.tokens.len()).step_by(self.length) {
            let (before, rest) = self.tokens.split_at_mut(start);
            let sequence = &mut rest[..self.length];
            let leaf = outcome.tree.follow(sequence.iter().copied()).nth(sequence.len() - 1);
            let Some(row) = leaf.and_then(|leaf| outcome.rows.binary_search(&leaf).ok()) else { continue };
            let last = [sequence[self.length - 1]];
            let is_known = |token: u32| dictionaries.forward.after(&last).any(|rest| rest[0] == token);
            let is_free = |token: u32| {
                let mut others = before.chunks_exact(sequence.len());
                others.all(|other| {
                    let (end, start) = other.split_last().expect("sequences are not empty");
                    start != &sequence[1..] || *end != token
                })
            };
            let explores = Random::new(0).after(self.choices).bits() % 100 < self.explored_percent;
            self.choices += 1;
            let offered = || outcome.offers.row(row).iter().map(|candidate| candidate.token);
            let free = || offered().filter(|token| is_free(*token));
            let unknown = explores.then(|| free().find(|token| !is_known(*token))).flatten();
            let Some(token) = unknown.or_else(|| free().next()).or_else(|| offered().next()) else {
                continue;
            };
            let mut gram = [0; MOST_ORDER];
            gram[..sequence.len()].copy_from_slice(sequence);
            gram[sequence.len()] = token;
            dictionaries.record_all(&gram[..=sequence.len()]);
            sequence.copy_from_slice(&gram[1..=sequence.len()]);
        }
    }

    #[cfg(test)]
    pub(super) fn sequences(&self) -> impl Iterator<Item = &[u32]> {
        self.tokens.chunks_exact(self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{sample::Candidate, speculate::CandidateRows};

    fn dictionaries() -> Dictionaries {
        Dictionaries::new(256, true)
    }

    /// Verifies the pool's tree whole, a row offering its token plus 1, plus 2 and plus 3.
    fn refresh(pool: &mut Pool, dictionaries: &mut Dictionaries) {
        let mut tree = TokenTree::with_capacity(64);
        tree.reset(1);
        pool.draft(&mut tree, 8, 64);
        tree.check().unwrap();
        let rows: Vec<NodeId> = tree.nodes().collect();
        assert!(rows[1..].iter().all(|row| tree.is_pinned(*row)));
        let mut offers = CandidateRows::with_capacity(rows.len(), 3);
        for row in &rows {
            let token = tree.token(*row);
            offers.add_row(|out| out.extend((1..4).map(|i| Candidate { token: token + i, log_prob: 0.0 })));
        }
        let path = [NodeId::ROOT];
        let outcome = StepOutcome {
            tree: &tree,
            rows: &rows,
            offers: &offers,
            path: &path,
            history: &[1, 2],
            emitted: 1,
        };
        pool.refresh(&outcome, dictionaries);
    }

    #[test]
    fn sequences_move_on_by_what_the_verifier_offers_behind_their_end() {
        let mut known = dictionaries();
        let mut pool = Pool::new(2, 3, 0);
        pool.begin(&[10, 20, 30, 40, 50, 60]);
        assert_eq!(pool.sequences().collect::<Vec<_>>(), [[10, 20, 30], [40, 50, 60]]);
        refresh(&mut pool, &mut known);
        assert_eq!(pool.sequences().collect::<Vec<_>>(), [[20, 30, 31], [50, 60, 61]]);
        assert_eq!(known.forward.after(&[10]).next(), Some(&[20, 30, 31][..]));
        assert_eq!(known.backward.after(&[50, 60]).next(), Some(&[61][..]));
        pool.begin(&[7]);
        assert_eq!(pool.sequences().collect::<Vec<_>>(), [[7, 7, 7], [7, 7, 7]]);
        refresh(&mut pool, &mut known);
        assert_eq!(pool.sequences().collect::<Vec<_>>(), [[7, 7, 8], [7, 7, 9]], "equal ones part");
    }

    #[test]
    fn an_explored_token_is_the_best_that_the_forward_dictionary_does_not_know() {
        let known = || {
            let mut known = dictionaries();
            known.record(&[30, 31, 5]);
            known.record(&[30, 9]);
            known
        };
        let mut pool = Pool::new(1, 2, 30);
        let mut next = |percent| {
            pool.explored_percent = percent;
            pool.begin(&[20, 30]);
            refresh(&mut pool, &mut known());
            pool.tokens[1]
        };
        assert_eq!((next(0), next(100)), (31, 32));
        let explored = (0..1000).filter(|_| next(30) == 32).count();
        assert!((250..350).contains(&explored), "{explored} of 1000 instead of 300");
    }

    #[test]
    fn without_room_or_a_verified_leaf_the_pool_stays_as_it_is() {
        let mut pool = Pool::new(2, 3, 0);
        pool.begin(&[1, 2, 3, 4, 5, 6]);
        let mut tree = TokenTree::with_capacity(64);
        for (depth, nodes) in [(2, 64), (3, 6)] {
            tree.reset(1);
            pool.draft(&mut tree, depth, nodes);
            assert_eq!((tree.len(), tree.pinned()), (1, 0));
        }
        pool.draft(&mut tree, 3, 7);
        assert_eq!((tree.len(), tree.pinned()), (7, 6));
        let offers = CandidateRows::default();
        let root = [NodeId::ROOT];
        let outcome = StepOutcome {
            tree: &tree,
            rows: &root,
            offers: &offers,
            path: &root,
            history: &[1, 2],
            emitted: 1,
        };
        pool.refresh(&outcome, &mut dictionaries());
        assert_eq!(pool.sequences().collect::<Vec<_>>(), [[1, 2, 3], [4, 5, 6]]);
    }
}
