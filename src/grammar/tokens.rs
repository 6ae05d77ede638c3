//! A model's tokens as grammars see them: by their bytes.

use std::sync::Arc;

use llguidance::{ParserFactory, earley::SlicedBiasComputer};
use toktrie::{InferenceCapabilities, TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv};

use super::{Constraint, GrammarError, Matcher, error::one_line};
use crate::text::Tokenizer;

/// Work that compiling a constraint may take, in the parser's units: about 20 ms.
const COMPILE_FUEL: u64 = 1_000_000;
/// Work that one mask may take, in the parser's units of the lexer: about 15 ms.
const MASK_FUEL: u64 = 200_000;
/// Items of the parser that one mask may take: about 3 ms.
const MASK_ITEMS: usize = 50_000;
/// Items of the parser at one place of the text.
const PLACE_ITEMS: usize = 2_000;
/// States of the lexer, of 1 to 2 kB each.
const LEXER_STATES: usize = 50_000;
/// Symbols of a grammar.
const GRAMMAR_SYMBOLS: usize = 200_000;
/// Longest token in bytes that a constrained answer may have.
const LONGEST_TOKEN: usize = 512;

/// The tokens of one model, for all its constraints. Making it takes a pass over the vocabulary, about 0.2 s for 100 000 tokens, and some
/// megabytes.
pub struct GrammarTokens {
    factory: ParserFactory,
}

impl std::fmt::Debug for GrammarTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GrammarTokens").finish_non_exhaustive()
    }
}

impl GrammarTokens {
    /// For rows of `vocabulary` logits; `ends` are the tokens that end a text.
    ///
    /// # Errors
    /// [`GrammarError::Tokens`] for a vocabulary without text.
    ///
    /// # Panics
    /// If the vocabulary is smaller than the tokenizer's, or an end is outside it.
    pub fn new(tokenizer: Arc<Tokenizer>, vocabulary: usize, ends: &[u32]) -> Result<Self, GrammarError> {
        assert!(tokenizer.vocab_len() <= vocabulary, "every token has a logit");
        let size = u32::try_from(vocabulary).expect("ids have 32 bits");
        assert!(ends.iter().all(|end| *end < size), "an end is a token");
        let words: Vec<Vec<u8>> = (0..size).map(|id| word(&tokenizer, id)).collect();
        let end = ends.first().copied().unwrap_or(toktrie::INVALID_TOKEN);
        let mut trie = TokTrie::from(&TokRxInfo::new(size, end), &words);
        if !ends.is_empty() {
            trie = trie.with_eos_tokens(ends);
        }
        let environment: TokEnv = Arc::new(Environment { trie, tokenizer });
        let capabilities = InferenceCapabilities { ff_tokens: true, ..InferenceCapabilities::default() };
        let slices = SlicedBiasComputer::json_slices();
        let mut factory = ParserFactory::new(&environment, capabilities, &slices)
            .map_err(|fault| GrammarError::Tokens { fault: fault.to_string() })?;
        factory.quiet();
        let limits = factory.limits_mut();
        limits.initial_lexer_fuel = COMPILE_FUEL;
        limits.step_lexer_fuel = MASK_FUEL;
        limits.step_max_items = MASK_ITEMS;
        limits.max_items_in_row = PLACE_ITEMS;
        limits.max_lexer_states = LEXER_STATES;
        limits.max_grammar_size = GRAMMAR_SYMBOLS;
        limits.verbose_errors = false;
        Ok(Self { factory })
    }

    /// Compiles a constraint: the matcher of an answer that has no token yet.
    ///
    /// # Errors
    /// [`GrammarError`] for a constraint that is malformed, not supported, or too large.
    pub fn matcher(&self, constraint: &Constraint) -> Result<Matcher, GrammarError> {
        let grammar = constraint.to_grammar()?;
        let parser = self.factory.create_parser(grammar).map_err(|fault| {
            let fault = one_line(&fault.to_string());
            GrammarError::Refused { what: constraint.name(), fault }
        })?;
        Matcher::new(parser)
    }
}

/// The bytes of a token; empty where no answer may have it. The names of control tokens are marked, so that no text spells one.
fn word(tokenizer: &Tokenizer, id: u32) -> Vec<u8> {
    let text = tokenizer.token_bytes(id).unwrap_or_default();
    if text.len() > LONGEST_TOKEN {
        return Vec::new();
    }
    if !tokenizer.is_control(id) {
        return text.to_vec();
    }
    let name = tokenizer.spelling(id);
    if name.is_empty() || name.len() >= LONGEST_TOKEN {
        return Vec::new();
    }
    [&[TokTrie::SPECIAL_TOKEN_MARKER], name.as_bytes()].concat()
}

/// The trie of the tokens, and how text is encoded.
struct Environment {
    trie: TokTrie,
    tokenizer: Arc<Tokenizer>,
}

impl TokenizerEnv for Environment {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        self.trie.tokenize_with_greedy_fallback(bytes, |text| {
            let ids = self.tokenizer.encode_continuation(text);
            // What the tokenizer would change of a text has to stay as it is.
            if self.trie.decode_raw(&ids) == text.as_bytes() {
                ids
            } else {
                self.trie.greedy_tokenize(text.as_bytes())
            }
        })
    }
}
