//! `response_format`: what a client wants an answer to be.

use serde::Deserialize;
use yggc::engine::{Constraint, Json, Loaded};

use super::{answers::Refused, requests::Asked, told_tools, tools::CallFormat};

/// `response_format` of a request.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum ResponseFormat {
    /// Anything.
    Text,
    /// Any JSON object.
    JsonObject,
    /// JSON that fits a schema.
    JsonSchema {
        /// The schema with its name.
        json_schema: NamedSchema,
    },
    /// A text of a grammar, as OpenAI writes one of a custom tool.
    Grammar {
        /// Its language.
        syntax: Syntax,
        /// Its text.
        definition: String,
    },
}

/// A schema; its name and `strict` are ignored: it is always kept.
#[derive(Debug, Deserialize)]
pub(super) struct NamedSchema {
    schema: Json,
}

/// Languages of grammars.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Syntax {
    Lark,
    Regex,
}

impl ResponseFormat {
    /// What it makes of answers; `None` for anything.
    pub(super) fn into_constraint(self) -> Option<Constraint> {
        match self {
            Self::Text => None,
            Self::JsonObject => Some(Constraint::JsonObject),
            Self::JsonSchema { json_schema: NamedSchema { schema } } => {
                Some(Constraint::JsonSchema(json_text(&schema)))
            }
            Self::Grammar { syntax: Syntax::Lark, definition } => Some(Constraint::Lark(definition)),
            Self::Grammar { syntax: Syntax::Regex, definition } => Some(Constraint::Regex(definition)),
        }
    }
}

/// A value as JSON, its objects in order.
pub(super) fn json_text(value: &Json) -> String {
    serde_json::to_string(value).expect("JSON can be written")
}

/// Lays out tools for a template that knows none, finds out how the model writes the calls that a request may make, and makes their constraint. Takes a
/// while: nothing for the reactor.
pub(super) fn prepare(asked: &mut Asked, loaded: &Loaded) -> Result<Option<CallFormat>, Refused> {
    told_tools::lay_out(&mut asked.request.prompt, loaded)?;
    let Some(tools) = &asked.tools else { return Ok(None) };
    let format = CallFormat::of_model(loaded)?;
    asked.request.constraint = tools.constraint(format, loaded.tokenizer());
    Ok(Some(format))
}
