//! JSON schemas as grammars of Lark.
//!
//! A document is read to [`forms`]: what a schema allows, as a union of values of one type each, in which `allOf`,
//! `anyOf` and their like are resolved (`reader`). What a part of a value has to fit stays a set of schemas, so that
//! schemas may refer to each other in rings. Each such set becomes a [shape](shapes), and each shape that some answer
//! ends a rule ([`lark`]).
//!
//! Whatever is accepted is kept: every answer validates. What cannot be kept is refused by name. Numbers are decimal
//! texts, never floats. Every character of a string has one text, so that further names differ from named ones. Work is
//! bounded by counts, and recursion by depth, before anything is compiled.

mod decimal;
mod document;
mod formats;
mod forms;
mod lark;
mod number;
mod reader;
mod shapes;
#[cfg(test)]
mod tests;
mod text;

use document::{Document, entry};
use forms::All;
use reader::Reader;

use super::GrammarError;
use crate::text::Json;

/// What schemas are called in messages.
const WHAT: &str = "JSON schema";
/// A keyword of the parser's, which would change the layout.
const LAYOUT: &str = "x-guidance";
/// The layout of what the parser reads itself: multiples.
const ONE_LINE: &str =
    r#""x-guidance": {"item_separator": ", ", "key_separator": ": ", "whitespace_flexible": false}"#;

/// The grammar of what fits a schema, given as JSON.
///
/// # Errors
/// [`GrammarError::Refused`] for what is no schema, or cannot be kept.
pub(super) fn to_lark(text: &str) -> Result<String, GrammarError> {
    let refused = |fault: String| GrammarError::Refused { what: WHAT, fault };
    let schema: Json =
        serde_json::from_str(text).map_err(|fault| refused(format!("expected JSON, found {fault}")))?;
    match &schema {
        Json::Object(_) if entry(&schema, LAYOUT).is_some() => {
            return Err(refused(format!("`{LAYOUT}` is set here alone")));
        }
        Json::Object(_) | Json::Bool(true) => {}
        Json::Null | Json::Bool(false) | Json::Number(_) | Json::String(_) | Json::Array(_) => {
            return Err(refused("expected an object or true, found another JSON value".to_owned()));
        }
    }
    written(&schema).map_err(refused)
}

fn written(schema: &Json) -> Result<String, String> {
    let mut document = Document::new(schema);
    let root = All::from([document.schema(schema)?]);
    lark::lark(&shapes::shapes(Reader::new(document), root, ONE_LINE)?)
}

/// A grammar whose `%json` schemas were written out.
pub(super) struct Written {
    /// Without its schemas.
    pub(super) own: String,
    /// With the grammar of what fits each in its place.
    pub(super) whole: String,
}

/// Writes out the `%json` schemas of a grammar.
///
/// # Errors
/// As [`to_lark`].
pub(super) fn in_lark(grammar: &str) -> Result<Written, GrammarError> {
    let (mut own, mut whole) = (String::new(), String::new());
    let mut rest = grammar;
    while let Some(place) = json_keyword(rest) {
        let (before, schema) = rest.split_at(place);
        let schema = &schema["%json".len()..];
        let mut values = serde_json::Deserializer::from_str(schema).into_iter::<Json>();
        let end = match values.next() {
            Some(Ok(_)) => values.byte_offset(),
            Some(Err(fault)) => {
                return Err(GrammarError::Refused {
                    what: WHAT,
                    fault: format!("expected JSON after %json, found {fault}"),
                });
            }
            None => {
                return Err(GrammarError::Refused {
                    what: WHAT,
                    fault: "expected JSON after %json, found none".to_owned(),
                });
            }
        };
        own.push_str(before);
        whole.push_str(before);
        whole.push_str(&format!("%lark {{\n{}}}", to_lark(&schema[..end])?));
        rest = &schema[end..];
    }
    own.push_str(rest);
    whole.push_str(rest);
    Ok(Written { own, whole })
}

/// Where a grammar says `%json`: not within strings, expressions and comments.
fn json_keyword(grammar: &str) -> Option<usize> {
    let bytes = grammar.as_bytes();
    let mut place = 0;
    while place < bytes.len() {
        let rest = &bytes[place..];
        match bytes[place] {
            b'#' => place += rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len()),
            b'/' if rest.starts_with(b"//") => {
                place += rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len())
            }
            mark @ (b'"' | b'/') => {
                place += 1;
                while place < bytes.len() && bytes[place] != mark && bytes[place] != b'\n' {
                    place += if bytes[place] == b'\\' { 2 } else { 1 };
                }
                place += 1;
            }
            b'%' if rest.starts_with(b"%json") => return Some(place),
            _ => place += 1,
        }
    }
    None
}
