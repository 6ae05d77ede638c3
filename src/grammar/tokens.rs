//! A model's tokens as grammars see them: by their bytes.

use std::{panic::AssertUnwindSafe, sync::Arc};

use llguidance::{
    Logger, ParserFactory, TokenParser,
    api::GrammarInit,
    earley::{Grammar, SlicedBiasComputer, lexerspec::LexerSpec},
    panic_utils,
};
use toktrie::{InferenceCapabilities, TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv};

use super::{
    Constraint, GrammarError, Matcher,
    compiling::{self, IsCancelled, Turn},
    error::one_line,
    limits::Effort,
};
use crate::text::Tokenizer;

/// Longest token in bytes that a constrained answer may have.
const LONGEST_TOKEN: usize = 512;
/// What is said of a constraint that has more symbols than the library numbers.
const TOO_MANY_SYMBOLS: &str = "expected a grammar of less than 65,535 symbols, found one with more";
/// What parsers are used for: they say which tokens are forced.
const CAPABILITIES: InferenceCapabilities =
    InferenceCapabilities { ff_tokens: true, conditional_ff_tokens: false, backtrack: false, fork: false };

/// The tokens of one model, for all its constraints. Making it takes a pass over the vocabulary, about 0.2 s for 100
/// 000 tokens, and some megabytes.
pub struct GrammarTokens {
    factory: Arc<ParserFactory>,
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
        let slices = SlicedBiasComputer::json_slices();
        let factory = ParserFactory::new(&environment, CAPABILITIES, &slices)
            .map_err(|fault| GrammarError::Tokens { fault: fault.to_string() })?;
        Ok(Self { factory: Arc::new(factory) })
    }

    /// Compiles a constraint: the matcher of an answer that has no token yet. That is done on a thread of its own,
    /// which has the stack that the limits of constraints are measured against; the caller waits, at most 30 s.
    ///
    /// # Errors
    /// [`GrammarError`] for a constraint that is malformed, not supported, or too large.
    pub fn matcher(&self, constraint: &Constraint) -> Result<Matcher, GrammarError> {
        self.matcher_unless(constraint, || false)
    }

    /// As [`matcher`](Self::matcher), until the request `is_cancelled`; so are the masks of the matcher.
    ///
    /// # Errors
    /// As `matcher`, and [`GrammarError::Cancelled`].
    pub fn matcher_unless(
        &self,
        constraint: &Constraint,
        is_cancelled: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Result<Matcher, GrammarError> {
        let (factory, constraint) = (Arc::clone(&self.factory), constraint.clone());
        let is_cancelled: IsCancelled = Arc::new(is_cancelled);
        compiling::run(constraint.name(), Turn::Waits, &Arc::clone(&is_cancelled), move || {
            Matcher::new(Source::new(factory, constraint, &is_cancelled)?, is_cancelled)
        })
    }

    /// Whether a matcher is one of these tokens'.
    pub fn made(&self, matcher: &Matcher) -> bool {
        Arc::ptr_eq(&self.factory, &matcher.source().factory)
    }
}

/// What the parsers of an answer are made from.
pub(super) struct Source {
    factory: Arc<ParserFactory>,
    constraint: Constraint,
    /// The constraint as the parser's rules: making these is what recurses.
    rules: (Grammar, LexerSpec),
}

impl Source {
    /// For the thread that compiles.
    fn new(
        factory: Arc<ParserFactory>,
        constraint: Constraint,
        is_cancelled: &IsCancelled,
    ) -> Result<Self, GrammarError> {
        let what = constraint.name();
        let grammar = GrammarInit::Serialized(constraint.to_grammar()?);
        let tokens = factory.tok_env().clone();
        let rules = panic_utils::catch_unwind(AssertUnwindSafe(|| {
            grammar.to_internal(Some(tokens), Effort::Usual.limits())
        }))
        .map_err(|fault| refused(what, &fault))?;
        if is_cancelled() {
            return Err(GrammarError::Cancelled { what });
        }
        Ok(Self { factory, constraint, rules })
    }

    /// What is compiled.
    pub(super) fn constraint(&self) -> &Constraint {
        &self.constraint
    }

    /// A parser at the beginning of an answer, for the thread that compiles.
    ///
    /// # Errors
    /// [`GrammarError`] for a constraint that is too large.
    pub(super) fn parser(&self, effort: Effort) -> Result<TokenParser, GrammarError> {
        let Self { factory, constraint, rules: (grammar, lexer) } = self;
        let grammar = GrammarInit::Internal(grammar.clone(), lexer.clone());
        let quiet = Logger::new(0, 0);
        let parser = factory.create_parser_from_init_ext(grammar, quiet, CAPABILITIES, effort.limits());
        parser.map_err(|fault| refused(constraint.name(), &fault))
    }
}

/// Why the library compiles no constraint of this kind. What it asserts of the numbers that it gives out, and does not
/// count before, is a limit.
pub(super) fn refused(what: &'static str, fault: &impl std::fmt::Display) -> GrammarError {
    let fault = one_line(&fault.to_string());
    let is_too_large = fault.starts_with("panic: assertion failed") && fault.contains("u16::MAX");
    let fault = if is_too_large { TOO_MANY_SYMBOLS.to_owned() } else { fault };
    GrammarError::Refused { what, fault }
}

/// The bytes of a token; empty where no answer may have it. The names of control tokens are marked, so that no text
/// spells one.
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
