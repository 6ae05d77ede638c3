//! What an answer must be.

use super::{GrammarError, schema};
use llguidance::api::{GrammarWithLexer, TopLevelGrammar};

/// Most bytes of a constraint.
const MOST_BYTES: usize = 1 << 20;
/// Deepest brackets of a grammar or an expression: parsers recurse.
const MOST_NESTED: usize = 64;

/// What an answer must be. Start from what the user gave; [`GrammarTokens::matcher`](super::GrammarTokens::matcher) checks it.
///
/// JSON is written in one line, with one space behind each colon and comma, and properties in the order of the schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Constraint {
    /// Any JSON object.
    JsonObject,
    /// JSON that fits this schema, given as JSON.
    JsonSchema(String),
    /// A text that this regular expression matches as a whole, in the syntax of Rust's `regex` crate without look-around.
    Regex(String),
    /// A text of this grammar, in the Lark syntax of `llguidance`.
    Lark(String),
}

impl Constraint {
    /// What kind it is, for messages.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::JsonObject => "JSON object",
            Self::JsonSchema(_) => "JSON schema",
            Self::Regex(_) => "regular expression",
            Self::Lark(_) => "grammar",
        }
    }

    /// The same for the parser.
    pub(super) fn to_grammar(&self) -> Result<TopLevelGrammar, GrammarError> {
        let grammar = match self {
            Self::JsonObject => GrammarWithLexer::from_lark(schema::to_lark(r#"{"type": "object"}"#)?),
            Self::JsonSchema(text) => {
                self.check_length(text)?;
                GrammarWithLexer::from_lark(schema::to_lark(text)?)
            }
            Self::Regex(text) => {
                self.check_length(text)?;
                self.check_nesting(text)?;
                GrammarWithLexer::from_regex(text)
            }
            Self::Lark(text) => {
                self.check_length(text)?;
                self.check_nesting(text)?;
                GrammarWithLexer::from_lark(schema::in_lark(text)?)
            }
        };
        Ok(TopLevelGrammar::from_grammar(grammar))
    }

    fn check_length(&self, text: &str) -> Result<(), GrammarError> {
        if text.len() <= MOST_BYTES {
            return Ok(());
        }
        Err(GrammarError::TooLong { what: self.name(), most: MOST_BYTES, found: text.len() })
    }

    fn check_nesting(&self, text: &str) -> Result<(), GrammarError> {
        let (mut level, mut deepest) = (0_usize, 0);
        for byte in text.bytes() {
            match byte {
                b'(' | b'[' | b'{' => level += 1,
                b')' | b']' | b'}' => level = level.saturating_sub(1),
                _ => {}
            }
            deepest = deepest.max(level);
        }
        if deepest <= MOST_NESTED {
            return Ok(());
        }
        Err(GrammarError::TooDeep { what: self.name(), most: MOST_NESTED, found: deepest })
    }
}
