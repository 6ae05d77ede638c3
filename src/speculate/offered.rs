//! What the verifier offered after the tokens of a text: kept with the text's prefixes, so that drafters that learn
//! from it go on from a kept prefix as if they had seen it verified.

use crate::{runtime::BLOCK_TOKENS, sample::Candidate};

/// Continuations kept of every token: as many as the drafter that looks at most of them keeps.
pub(super) const KEPT: usize = 8;

/// Bytes of a continuation: its token, then its log-probability, little-endian.
const CANDIDATE_BYTES: usize = 8;

/// Bytes of a block of tokens: 64 for a token, whose keys and values take 23 KB in the default model. A block has them
/// whether or not a drafter learns, so that prefixes do not depend on plans.
pub(super) const OFFERED_BLOCK_BYTES: usize = BLOCK_TOKENS * KEPT * CANDIDATE_BYTES;

/// No token of a model.
const NONE: Candidate = Candidate { token: u32::MAX, log_prob: f32::NEG_INFINITY };

/// By places of a text: what was offered after the token there, the most probable first.
#[derive(Debug)]
pub(super) struct Offered {
    /// `[tokens][KEPT]`, [`NONE`] after the last of a row.
    rows: Vec<[Candidate; KEPT]>,
}

impl Offered {
    /// Of no text yet. Reserves what `tokens` tokens take.
    pub(super) fn with_capacity(tokens: usize) -> Self {
        Self { rows: Vec::with_capacity(tokens) }
    }

    /// Forgets what is after the first `len` tokens.
    pub(super) fn keep_only(&mut self, len: usize) {
        self.rows.truncate(len);
    }

    /// Takes note of what was offered after the token at a place. Tokens before it of which nothing is known were
    /// offered nothing.
    pub(super) fn note(&mut self, place: usize, offered: &[Candidate]) {
        if self.rows.len() <= place {
            self.rows.resize(place + 1, [NONE; KEPT]);
        }
        let row = &mut self.rows[place];
        row.fill(NONE);
        for (kept, candidate) in row.iter_mut().zip(offered) {
            *kept = *candidate;
        }
    }

    /// The places of the text's first `len` tokens of which something is known, with what was offered there.
    pub(super) fn known(&self, len: usize) -> impl Iterator<Item = (usize, &[Candidate])> {
        let rows = self.rows.iter().take(len).enumerate();
        rows.filter_map(|(place, row)| {
            let offered = row.iter().position(|candidate| candidate.token == NONE.token).unwrap_or(KEPT);
            (offered > 0).then(|| (place, &row[..offered]))
        })
    }

    /// Writes the rows of a block to `bytes`, of [`OFFERED_BLOCK_BYTES`].
    pub(super) fn save(&self, block: usize, bytes: &mut [u8]) {
        let first = block * BLOCK_TOKENS;
        let rows =
            (first..first + BLOCK_TOKENS).map(|place| self.rows.get(place).copied().unwrap_or([NONE; KEPT]));
        for (bytes, candidate) in bytes.chunks_exact_mut(CANDIDATE_BYTES).zip(rows.flatten()) {
            let (token, log_prob) = bytes.split_at_mut(CANDIDATE_BYTES / 2);
            token.copy_from_slice(&candidate.token.to_le_bytes());
            log_prob.copy_from_slice(&candidate.log_prob.to_le_bytes());
        }
    }

    /// Reads the rows of a block that [`save`](Self::save) wrote for a model of `vocabulary` tokens. A row ends before
    /// what is no candidate of that model.
    pub(super) fn load(&mut self, block: usize, bytes: &[u8], vocabulary: usize) {
        let first = block * BLOCK_TOKENS;
        for (row, bytes) in bytes.chunks_exact(KEPT * CANDIDATE_BYTES).enumerate() {
            let mut offered = [NONE; KEPT];
            for (candidate, bytes) in offered.iter_mut().zip(bytes.as_chunks::<CANDIDATE_BYTES>().0) {
                let [t0, t1, t2, t3, p0, p1, p2, p3] = *bytes;
                let (token, log_prob) =
                    (u32::from_le_bytes([t0, t1, t2, t3]), f32::from_le_bytes([p0, p1, p2, p3]));
                if token as usize >= vocabulary || log_prob.is_nan() {
                    break;
                }
                *candidate = Candidate { token, log_prob };
            }
            self.note(first + row, &offered);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(token: u32) -> Candidate {
        Candidate { token, log_prob: -0.25 * token as f32 }
    }

    #[test]
    fn a_block_keeps_what_was_offered_within_it() {
        let mut of_text = Offered::with_capacity(3 * BLOCK_TOKENS);
        let all: Vec<Candidate> = (0..KEPT as u32 + 2).map(candidate).collect();
        of_text.note(BLOCK_TOKENS - 1, &all);
        of_text.note(BLOCK_TOKENS, &all[..3]);
        of_text.note(BLOCK_TOKENS + 2, &[]);
        let mut bytes = vec![0xa5; OFFERED_BLOCK_BYTES];
        of_text.save(1, &mut bytes);
        let mut loaded = Offered::with_capacity(3 * BLOCK_TOKENS);
        loaded.load(1, &bytes, 100);
        let known: Vec<_> = loaded.known(usize::MAX).collect();
        assert_eq!(known, [(BLOCK_TOKENS, &all[..3])]);
        of_text.save(0, &mut bytes);
        loaded.load(0, &bytes, 100);
        let known: Vec<_> = loaded.known(BLOCK_TOKENS).collect();
        assert_eq!(known, [(BLOCK_TOKENS - 1, &all[..KEPT])], "as many as are kept, of the tokens asked for");
        loaded.keep_only(BLOCK_TOKENS - 1);
        assert_eq!(loaded.known(usize::MAX).count(), 0);
    }

    #[test]
    fn tokens_that_the_model_has_not_are_no_candidates() {
        let mut of_text = Offered::with_capacity(BLOCK_TOKENS);
        of_text.note(5, &[candidate(7), candidate(20), candidate(3)]);
        of_text.note(6, &[Candidate { token: 1, log_prob: f32::NAN }]);
        let mut bytes = vec![0; OFFERED_BLOCK_BYTES];
        of_text.save(0, &mut bytes);
        let mut loaded = Offered::with_capacity(BLOCK_TOKENS);
        loaded.load(0, &bytes, 20);
        assert_eq!(loaded.known(usize::MAX).collect::<Vec<_>>(), [(5, &[candidate(7)][..])]);
    }
}
