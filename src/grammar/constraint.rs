//! What an answer must be.

use llguidance::api::{GrammarWithLexer, TopLevelGrammar};

use super::{
    GrammarError, counts,
    schema::{self, Written},
};

/// Most bytes of a schema, and of a grammar with its schemas.
const MOST_BYTES: usize = 1 << 20;

/// What an answer must be. Start from what the user gave; [`GrammarTokens::matcher`](super::GrammarTokens::matcher)
/// checks it.
///
/// JSON is written in one line, with one space after each colon and comma, and properties in the order of the schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Constraint {
    /// Any JSON object.
    JsonObject,
    /// JSON that fits this schema, given as JSON.
    JsonSchema(String),
    /// A text that this regular expression matches as a whole, in the syntax of Rust's `regex` crate without
    /// look-around.
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
                counts::check_bytes(self.name(), MOST_BYTES, text)?;
                self.of_schemas(schema::to_lark(text)?)?
            }
            Self::Regex(text) => {
                counts::check_regex(self.name(), text)?;
                GrammarWithLexer::from_regex(text)
            }
            Self::Lark(text) => {
                counts::check_bytes(self.name(), MOST_BYTES, text)?;
                let Written { own, whole } = schema::in_lark(text)?;
                counts::check_lark(self.name(), &own)?;
                self.of_schemas(whole)?
            }
        };
        Ok(TopLevelGrammar::from_grammar(grammar))
    }

    /// The grammar of a text in which schemas were written out.
    fn of_schemas(&self, lark: String) -> Result<GrammarWithLexer, GrammarError> {
        counts::check_written(self.name(), &lark)?;
        Ok(GrammarWithLexer::from_lark(lark))
    }
}
