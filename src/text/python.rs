//! What templates expect of Python: `json.dumps` as transformers calls it, and blocks of jinja extensions.

use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Error, ErrorKind};

use super::template::Budget;

/// How `json.dumps` lays a value out.
struct Layout<'b> {
    budget: &'b Budget,
    indent: Option<String>,
    between: String,
    after_key: String,
    sort_keys: bool,
    ascii: bool,
}

/// The filter `tojson` of transformers (`tojson` in `chat_template_utils.py`): no escapes for HTML, spaces after commas
/// and colons, keys in their order.
///
/// # Errors
/// A value that is no JSON, or one that the budget is too small for.
pub(super) fn to_json(budget: &Budget, value: &Value, options: Kwargs) -> Result<String, Error> {
    let indent = match options.get::<Option<Value>>("indent")? {
        None => None,
        Some(value) if value.is_none() => None,
        Some(value) => Some(match value.as_str() {
            Some(text) => text.to_owned(),
            None => " ".repeat(usize::try_from(i64::try_from(value)?).unwrap_or(0).min(64)),
        }),
    };
    let (between, after_key) = match options.get::<Option<Vec<String>>>("separators")? {
        Some(parts) => match <[String; 2]>::try_from(parts) {
            Ok([between, after_key]) => (between, after_key),
            Err(_) => return Err(invalid("separators must be two strings")),
        },
        None => ((if indent.is_some() { "," } else { ", " }).to_owned(), ": ".to_owned()),
    };
    let sort_keys = options.get::<Option<bool>>("sort_keys")?.unwrap_or(false);
    let ascii = options.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false);
    options.assert_all_used()?;
    let mut text = String::new();
    Layout { budget, indent, between, after_key, sort_keys, ascii }.write(value, 0, &mut text)?;
    Ok(text)
}

fn invalid(reason: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("tojson: {reason}"))
}

impl Layout<'_> {
    fn write(&self, value: &Value, depth: usize, text: &mut String) -> Result<(), Error> {
        if depth > 100 {
            return Err(invalid("the value is nested more than 100 deep"));
        }
        // Six bytes for a control character, and what is between values.
        let inside = value.as_str().map_or(value.len().unwrap_or(0).saturating_mul(16), str::len);
        self.budget.charge((32 + inside as u64).saturating_mul(6) + self.layout_bytes(depth))?;
        match value.kind() {
            ValueKind::None => text.push_str("null"),
            ValueKind::Bool => text.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => text.push_str(&number(value)),
            ValueKind::String => self.string(value.as_str().unwrap_or_default(), text),
            ValueKind::Seq | ValueKind::Iterable => {
                let items: Vec<Value> = value.try_iter()?.collect();
                self.list(items.len(), ['[', ']'], depth, text, |at, text| {
                    self.write(&items[at], depth + 1, text)
                })?;
            }
            ValueKind::Map => {
                let mut keys: Vec<Value> = value.try_iter()?.collect();
                let names = keys.iter().map(|key| key.as_str().map_or(32, str::len)).sum::<usize>();
                self.budget.charge((names as u64).saturating_mul(6))?;
                if self.sort_keys {
                    keys.sort();
                }
                self.list(keys.len(), ['{', '}'], depth, text, |at, text| {
                    let key = &keys[at];
                    self.string(&key.as_str().map_or_else(|| key.to_string(), str::to_owned), text);
                    text.push_str(&self.after_key);
                    self.write(&value.get_item(key)?, depth + 1, text)
                })?;
            }
            kind => return Err(invalid(&format!("a value of kind {kind} is no JSON"))),
        }
        Ok(())
    }

    /// Bytes that lay out a value so deep: indentation and separators.
    fn layout_bytes(&self, depth: usize) -> u64 {
        let indent = self.indent.as_ref().map_or(0, |indent| indent.len().saturating_mul(depth + 2));
        (indent + self.between.len() + self.after_key.len()) as u64
    }

    fn list(
        &self,
        count: usize,
        [open, close]: [char; 2],
        depth: usize,
        text: &mut String,
        mut item: impl FnMut(usize, &mut String) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let line = |depth: usize, text: &mut String| {
            if let Some(indent) = &self.indent {
                text.push('\n');
                (0..depth).for_each(|_| text.push_str(indent));
            }
        };
        text.push(open);
        for at in 0..count {
            if at > 0 {
                text.push_str(&self.between);
            }
            line(depth + 1, text);
            item(at, text)?;
        }
        if count > 0 {
            line(depth, text);
        }
        text.push(close);
        Ok(())
    }

    fn string(&self, value: &str, text: &mut String) {
        text.push('"');
        for character in value.chars() {
            match character {
                '"' => text.push_str("\\\""),
                '\\' => text.push_str("\\\\"),
                '\n' => text.push_str("\\n"),
                '\r' => text.push_str("\\r"),
                '\t' => text.push_str("\\t"),
                '\u{8}' => text.push_str("\\b"),
                '\u{c}' => text.push_str("\\f"),
                character if character < ' ' || (self.ascii && !character.is_ascii()) => {
                    for unit in character.encode_utf16(&mut [0; 2]) {
                        text.push_str(&format!("\\u{unit:04x}"));
                    }
                }
                character => text.push(character),
            }
        }
        text.push('"');
    }
}

/// A number as Python prints it.
fn number(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    let Ok(float) = f64::try_from(value.clone()) else { return value.to_string() };
    let size = float.abs();
    if size != 0.0 && !(1e-4..1e16).contains(&size) {
        let text = format!("{float:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |rest| ('-', rest));
        return format!("{digits}e{sign}{exponent:0>2}");
    }
    format!("{float:?}")
}

/// `source` with the blocks `{% generation %}` (they mark what a model is trained on) as blocks that only have a scope
/// of their own.
pub(super) fn without_generation_tags(source: &str) -> String {
    let mut text = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at);
        text.push_str(before);
        let length = tag.find("%}").map_or(tag.len(), |end| end + 2);
        let (tag, after) = tag.split_at(length);
        let name = tag.trim_start_matches("{%").trim_end_matches("%}");
        match name.trim_matches(['-', '+']).trim() {
            "generation" => text.push_str(&tag.replacen("generation", "with", 1)),
            "endgeneration" => text.push_str(&tag.replacen("endgeneration", "endwith", 1)),
            _ => text.push_str(tag),
        }
        rest = after;
    }
    text.push_str(rest);
    text
}
