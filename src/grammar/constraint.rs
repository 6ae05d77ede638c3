//! What an answer must be.

use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use serde_json::{Value, json};

use super::{GrammarError, counts};

/// Most bytes of a schema.
const MOST_BYTES: usize = 1 << 20;
/// How JSON is laid out: in one line, with one space behind colons and commas. What is laid out in one way only is forced.
const LAYOUT: &str = "x-guidance";

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
            Self::JsonObject => GrammarWithLexer::from_json_schema(laid_out(json!({"type": "object"}))),
            Self::JsonSchema(text) => {
                counts::check_bytes(self.name(), MOST_BYTES, text)?;
                let schema = self.schema(text)?;
                counts::check_schema(self.name(), &schema)?;
                GrammarWithLexer::from_json_schema(schema)
            }
            Self::Regex(text) => {
                counts::check_regex(self.name(), text)?;
                GrammarWithLexer::from_regex(text)
            }
            Self::Lark(text) => {
                counts::check_lark(self.name(), text)?;
                GrammarWithLexer::from_lark(text.clone())
            }
        };
        Ok(TopLevelGrammar::from_grammar(grammar))
    }

    /// The schema of a text, laid out as ours are.
    fn schema(&self, text: &str) -> Result<Value, GrammarError> {
        let refused = |fault: String| GrammarError::Refused { what: self.name(), fault };
        let schema: Value =
            serde_json::from_str(text).map_err(|fault| refused(format!("expected JSON, found {fault}")))?;
        match &schema {
            Value::Object(entries) if entries.contains_key(LAYOUT) => {
                Err(refused(format!("`{LAYOUT}` is set here alone")))
            }
            Value::Object(_) => Ok(laid_out(schema)),
            Value::Bool(true) => Ok(laid_out(json!({}))),
            Value::Null | Value::Bool(false) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                Err(refused("expected an object or true, found another JSON value".to_owned()))
            }
        }
    }
}

/// A schema, an object, with the layout of its answers.
fn laid_out(mut schema: Value) -> Value {
    schema[LAYOUT] = json!({"item_separator": ", ", "key_separator": ": ", "whitespace_flexible": false});
    schema
}
