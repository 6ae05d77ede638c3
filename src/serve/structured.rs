//! `response_format`: what a client wants an answer to be.

use serde::Deserialize;
use yggc::engine::{Constraint, Json, Loaded};

use super::{answers::Refused, requests::Asked, told_tools, tools::CallFormat};

/// `response_format` of a request.
#[derive(Debug, Deserialize)]
#[serde(try_from = "FormatBody")]
pub(super) enum ResponseFormat {
    /// Anything.
    Text,
    /// Any JSON object.
    JsonObject,
    /// JSON that fits a schema.
    JsonSchema(NamedSchema),
    /// A text of a grammar, as OpenAI writes one of a custom tool.
    Grammar {
        /// Its language.
        syntax: Syntax,
        /// Its text.
        definition: String,
    },
}

/// `response_format` as it is sent. Its type is a field like the others: serde's own choice by a type would read
/// numbers as floats.
#[derive(Debug, Deserialize)]
struct FormatBody {
    r#type: FormatKind,
    json_schema: Option<NamedSchema>,
    syntax: Option<Syntax>,
    definition: Option<String>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FormatKind {
    Text,
    JsonObject,
    JsonSchema,
    Grammar,
}

impl TryFrom<FormatBody> for ResponseFormat {
    type Error = String;

    fn try_from(body: FormatBody) -> Result<Self, String> {
        let FormatBody { r#type, json_schema, syntax, definition } = body;
        let missing = |name: &str| format!("missing field `{name}`");
        Ok(match r#type {
            FormatKind::Text => Self::Text,
            FormatKind::JsonObject => Self::JsonObject,
            FormatKind::JsonSchema => Self::JsonSchema(json_schema.ok_or_else(|| missing("json_schema"))?),
            FormatKind::Grammar => Self::Grammar {
                syntax: syntax.ok_or_else(|| missing("syntax"))?,
                definition: definition.ok_or_else(|| missing("definition"))?,
            },
        })
    }
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
            Self::JsonSchema(NamedSchema { schema }) => Some(Constraint::JsonSchema(schema.to_string())),
            Self::Grammar { syntax: Syntax::Lark, definition } => Some(Constraint::Lark(definition)),
            Self::Grammar { syntax: Syntax::Regex, definition } => Some(Constraint::Regex(definition)),
        }
    }
}

/// Lays out tools for a template that knows none, finds out how the model writes the calls that a request may make, and
/// makes their constraint. Takes a while: nothing for the reactor.
pub(super) fn prepare(asked: &mut Asked, loaded: &Loaded) -> Result<Option<CallFormat>, Refused> {
    told_tools::lay_out(&mut asked.request.prompt, loaded)?;
    let Some(tools) = &asked.tools else { return Ok(None) };
    let format = CallFormat::of_model(loaded)?;
    asked.request.constraint = tools.constraint(format, loaded.tokenizer())?;
    Ok(Some(format))
}
