//! Teacher-forced scoring: how probable a model finds a text.

use crate::{
    engine::{Error, Loaded, argmax},
    runtime::{Pinning, RuntimeError, Session, SessionOptions},
    sample::LogNormaliser,
};

/// One predicted token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScoredToken {
    /// The token that stands there.
    pub id: u32,
    /// Its negative log-likelihood in nats, given all tokens before it.
    pub nll: f64,
    /// The most probable token at that place, the lowest id among equals.
    pub argmax: u32,
}

/// Scores of all tokens but the first.
#[derive(Clone, Debug, PartialEq)]
pub struct Score {
    /// One entry per predicted token.
    pub tokens: Vec<ScoredToken>,
    /// Mean of their `nll`.
    pub mean_nll: f64,
    /// `exp(mean_nll)`.
    pub perplexity: f64,
}

/// Scores a sequence of at least two tokens. `loaded` should hold a wide executable: the widest decides how many
/// tokens run at once, not the result.
///
/// # Errors
/// [`Error`] of kind `Input` when the sequence is too short, too long or has unknown ids.
pub fn score(loaded: &Loaded, ids: &[u32], pinning: Pinning) -> Result<Score, Error> {
    Scorer::new(loaded, ids.len(), pinning)?.score(ids)
}

/// Scores one sequence after another in one session.
#[derive(Debug)]
pub(super) struct Scorer<'a> {
    loaded: &'a Loaded,
    session: Session,
}

impl<'a> Scorer<'a> {
    /// For sequences of `longest` tokens at most.
    pub(super) fn new(loaded: &'a Loaded, longest: usize, pinning: Pinning) -> Result<Self, Error> {
        let context = longest.clamp(2, loaded.set().model_context());
        let options = SessionOptions { context, tree_nodes: 1, threads: loaded.threads(), pinning };
        Ok(Self { loaded, session: Session::open(loaded.set().clone(), &options)? })
    }

    /// As [`score`].
    pub(super) fn score(&mut self, ids: &[u32]) -> Result<Score, Error> {
        self.score_rows(ids, |_| {})
    }

    /// As [`score`]; `visit` sees the logits after every token but the last, in order.
    pub(super) fn score_rows(&mut self, ids: &[u32], mut visit: impl FnMut(&[f32])) -> Result<Score, Error> {
        if ids.len() < 2 {
            return Err(Error::input(format!(
                "{} tokens to score: expected at least 2, the first is only context",
                ids.len()
            )));
        }
        // The last id is only looked up, so no forward would refuse it.
        let vocabulary = self.loaded.set().vocabulary();
        if let Some(found) = ids.iter().copied().find(|id| *id as usize >= vocabulary) {
            return Err(RuntimeError::Token { found, vocabulary }.into());
        }
        let mut tokens = Vec::with_capacity(ids.len() - 1);
        self.session.truncate(0);
        self.session.score(&ids[..ids.len() - 1], |i, logits| {
            let id = ids[i + 1];
            // From 0, so that a certain token has 0 and not its negative.
            let nll = 0.0 - LogNormaliser::new(logits).nats(logits[id as usize]);
            tokens.push(ScoredToken { id, nll, argmax: argmax(logits) });
            visit(logits);
        })?;
        let mean_nll = tokens.iter().map(|t| t.nll).sum::<f64>() / tokens.len() as f64;
        Ok(Score { tokens, mean_nll, perplexity: mean_nll.exp() })
    }
}
