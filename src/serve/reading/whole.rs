//! Calls that are read when all of one has arrived: forms whose arguments are no JSON, or have no end of their own.

use serde_json::{Map, Value};
use yggc::engine::Json;

use crate::serve::messages::member;

/// The deepest that values of Gemma's form may lie in one another: its reader calls itself.
const DEEPEST: usize = 64;

/// A function that may be called, and the schema of its parameters.
pub(super) type Callable = (String, Option<Json>);

/// A call `<function=NAME><parameter=KEY>VALUE</parameter></function>`, of Qwen 3 Coder and Qwen 3.5: its function and
/// its arguments as JSON. A value is text where the function's schema says so, else JSON where it is that.
pub(super) fn of_xml(text: &str, callable: &[Callable]) -> Option<(String, String)> {
    let inner = text.trim().strip_prefix("<function=")?.strip_suffix("</function>")?;
    let (name, mut rest) = inner.split_once('>')?;
    let (_, schema) = callable.iter().find(|(known, _)| known == name)?;
    let mut arguments = Map::new();
    loop {
        rest = rest.trim_start();
        if rest.is_empty() {
            return Some((name.to_owned(), Value::Object(arguments).to_string()));
        }
        let (key, after) = rest.strip_prefix("<parameter=")?.split_once('>')?;
        let (value, after) = after.split_once("</parameter>")?;
        // The line that begins after the mark and the one that ends before the next are layout.
        let value = value.strip_prefix('\n').unwrap_or(value);
        let value = value.strip_suffix('\n').unwrap_or(value);
        arguments.insert(key.to_owned(), meant(value, schema.as_ref(), key));
        rest = after;
    }
}

/// What the text of a parameter means.
fn meant(text: &str, schema: Option<&Json>, key: &str) -> Value {
    let of_key = schema.and_then(|schema| member(member(schema, "properties")?, key));
    let mut kinds = Vec::new();
    if let Some(schema) = of_key {
        kinds_of(schema, &mut kinds);
        for form in ["anyOf", "oneOf"] {
            if let Some(Json::Array(forms)) = member(schema, form) {
                forms.iter().for_each(|form| kinds_of(form, &mut kinds));
            }
        }
    }
    let is_text = kinds.iter().any(|kind| kind == "string");
    let is_null = text.trim() == "null" && kinds.iter().any(|kind| kind == "null");
    if is_text && !is_null {
        return Value::from(text);
    }
    serde_json::from_str(text).unwrap_or_else(|_| Value::from(text))
}

fn kinds_of(schema: &Json, out: &mut Vec<String>) {
    match member(schema, "type") {
        Some(Json::String(kind)) => out.push(kind.clone()),
        Some(Json::Array(kinds)) => out.extend(kinds.iter().filter_map(|kind| match kind {
            Json::String(kind) => Some(kind.clone()),
            _ => None,
        })),
        _ => {}
    }
    // The texts of an enumeration are texts.
    if let Some(Json::Array(values)) = member(schema, "enum")
        && values.iter().any(|value| matches!(value, Json::String(_)))
    {
        out.push("string".to_owned());
    }
}

/// A call `call:NAME{key:<|"|>text<|"|>,other:1}` of Gemma 4.
pub(super) fn of_gemma(text: &str, callable: &[Callable]) -> Option<(String, String)> {
    let (name, arguments) = text.trim().strip_prefix("call:")?.split_once('{')?;
    let name = name.trim();
    callable.iter().find(|(known, _)| known == name)?;
    let mut reader = Gemma { rest: arguments };
    let arguments = reader.entries(0)?;
    reader.rest.trim().is_empty().then(|| (name.to_owned(), arguments.to_string()))
}

/// Reads values as templates of Gemma 4 write them.
struct Gemma<'t> {
    rest: &'t str,
}

impl Gemma<'_> {
    /// The mark around texts.
    const QUOTE: &'static str = "<|\"|>";

    fn takes(&mut self, mark: &str) -> bool {
        match self.rest.trim_start().strip_prefix(mark) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// What follows up to `mark`, which is read as well.
    fn up_to(&mut self, mark: &str) -> Option<String> {
        let (text, rest) = self.rest.split_once(mark)?;
        self.rest = rest;
        Some(text.to_owned())
    }

    /// The entries of an object whose brace was read.
    fn entries(&mut self, depth: usize) -> Option<Value> {
        let mut entries = Map::new();
        if self.takes("}") {
            return Some(Value::Object(entries));
        }
        loop {
            let key = if self.takes(Self::QUOTE) {
                let key = self.up_to(Self::QUOTE)?;
                self.takes(":").then_some(key)?
            } else {
                self.up_to(":")?.trim().trim_matches('"').to_owned()
            };
            let value = self.value(depth + 1)?;
            entries.insert(key, value);
            if self.takes("}") {
                return Some(Value::Object(entries));
            }
            self.takes(",").then_some(())?;
        }
    }

    fn value(&mut self, depth: usize) -> Option<Value> {
        if depth > DEEPEST {
            return None;
        }
        if self.takes(Self::QUOTE) {
            return self.up_to(Self::QUOTE).map(Value::from);
        }
        if self.takes("{") {
            return self.entries(depth);
        }
        if self.takes("[") {
            let mut values = Vec::new();
            if self.takes("]") {
                return Some(Value::Array(values));
            }
            loop {
                values.push(self.value(depth + 1)?);
                if self.takes("]") {
                    return Some(Value::Array(values));
                }
                self.takes(",").then_some(())?;
            }
        }
        // Numbers, `true`, `false`, `null`, and texts as JSON has them.
        let rest = self.rest.trim_start();
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
        let value = values.next()?.ok().filter(|value| !value.is_object() && !value.is_array())?;
        self.rest = &rest[values.byte_offset()..];
        Some(value)
    }
}

/// A call `NAME[ARGS]{..}` of Mistral, perhaps with an id: how much of the text it is, where it has ended.
pub(super) fn end_of_mistral(text: &str) -> Option<usize> {
    let at = text.find(ARGS)? + ARGS.len();
    let mut values = serde_json::Deserializer::from_str(&text[at..]).into_iter::<serde::de::IgnoredAny>();
    // A number or a text may go on: arguments are an object, which has an end.
    let is_object = text[at..].trim_start().starts_with('{');
    let is_whole = is_object && values.next().is_some_and(|value| value.is_ok());
    is_whole.then(|| at + values.byte_offset())
}

/// What stands between the name and the arguments of a call of Mistral's.
const ARGS: &str = "[ARGS]";

/// The same as function and arguments.
pub(super) fn of_mistral(text: &str, callable: &[Callable]) -> Option<(String, String)> {
    let (name, arguments) = text.split_once(ARGS)?;
    let name = name.split("[CALL_ID]").next().unwrap_or(name).trim();
    callable.iter().find(|(known, _)| known == name)?;
    let is_object = serde_json::from_str::<Value>(arguments).is_ok_and(|value| value.is_object());
    is_object.then(|| (name.to_owned(), arguments.trim().to_owned()))
}
