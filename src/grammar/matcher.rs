//! The state of one constrained answer.

use llguidance::TokenParser;

use super::{GrammarError, Mask, error::one_line};

/// Where an answer is in its grammar. Clones are independent, and share what the lexer has found out.
#[derive(Clone)]
pub struct Matcher {
    inner: llguidance::Matcher,
    /// The mask of this state, if it is known.
    mask: Option<Mask>,
    tokens: usize,
}

impl std::fmt::Debug for Matcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Matcher").field("tokens", &self.tokens).finish_non_exhaustive()
    }
}

impl Matcher {
    pub(super) fn new(parser: TokenParser) -> Result<Self, GrammarError> {
        let mut matcher = Self { inner: llguidance::Matcher::new(Ok(parser)), mask: None, tokens: 0 };
        // A grammar without any text shows here.
        matcher.mask()?;
        Ok(matcher)
    }

    /// Tokens accepted.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// The tokens that may follow; at least one.
    ///
    /// # Errors
    /// [`GrammarError::Stuck`] if none can be found within the limits; so will every later call.
    ///
    /// # Panics
    /// If the answer is [complete](Self::is_complete).
    pub fn mask(&mut self) -> Result<&Mask, GrammarError> {
        assert!(!self.is_complete(), "nothing follows a complete answer");
        if self.mask.is_none() {
            let allowed = self.inner.compute_mask();
            self.mask = Some(Mask::new(allowed.map_err(|fault| self.stuck(&fault.to_string()))?));
        }
        Ok(self.mask.as_ref().expect("it was computed"))
    }

    /// Takes the next token, which the mask allows.
    ///
    /// # Errors
    /// [`GrammarError::Stuck`] if it may not follow, or the limits are exceeded; so will every later call.
    pub fn accept(&mut self, token: u32) -> Result<(), GrammarError> {
        self.mask = None;
        self.inner.consume_token(token).map_err(|fault| self.stuck(&fault.to_string()))?;
        self.tokens += 1;
        Ok(())
    }

    /// Takes back the last `tokens` tokens.
    ///
    /// # Errors
    /// [`GrammarError::Stuck`] if the answer is already.
    ///
    /// # Panics
    /// If so many were not accepted.
    pub fn rollback(&mut self, tokens: usize) -> Result<(), GrammarError> {
        assert!(tokens <= self.tokens, "{tokens} of {} tokens taken back", self.tokens);
        self.mask = None;
        self.inner.rollback(tokens).map_err(|fault| self.stuck(&fault.to_string()))?;
        self.tokens -= tokens;
        Ok(())
    }

    /// Whether the answer may end here.
    ///
    /// # Errors
    /// [`GrammarError::Stuck`] if the answer is already.
    pub fn may_end(&mut self) -> Result<bool, GrammarError> {
        Ok(self.is_complete() || self.inner.is_accepting().map_err(|fault| self.stuck(&fault.to_string()))?)
    }

    /// Whether the answer is whole and nothing may follow, or it was ended.
    pub fn is_complete(&self) -> bool {
        !self.inner.is_error() && self.inner.is_stopped()
    }

    /// Appends the tokens that must follow, as far as one encoding says. The first is certain: the mask allows no other.
    pub fn forced(&mut self, out: &mut Vec<u32>) {
        if !self.is_complete() {
            out.extend(self.inner.compute_ff_tokens());
        }
    }

    /// How many of `tokens`, one behind the other, the grammar could take next. Where text is forced it also takes
    /// other encodings of that than the mask allows.
    pub fn fitting(&mut self, tokens: &[u32]) -> usize {
        if self.is_complete() { 0 } else { self.inner.validate_tokens(tokens).unwrap_or(0) }
    }

    fn stuck(&self, fault: &str) -> GrammarError {
        let fault = one_line(fault);
        let fault = if fault.is_empty() { "no token may follow".to_owned() } else { fault };
        GrammarError::Stuck { tokens: self.tokens, fault }
    }
}
