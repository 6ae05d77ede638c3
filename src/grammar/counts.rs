//! What is counted of a constraint before anything recurses over it: levels, `$ref`s, properties, patterns, rules, brackets.
//!
//! Compiling recurses over schemas and rules, copies what alternatives share, and compares patterns and alternatives by pairs; none of that can be
//! interrupted. So its depth is bounded here against the [stack](super::compiling::STACK_BYTES) that it runs on, and its work by a sum in which every
//! part counts as often as it is copied.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::GrammarError;

/// Most levels of schemas within schemas, `$ref`s followed. A level takes 4 to 12 kB of stack; written by hand they are below 30.
const LEVELS: u64 = 500;
/// Most objects of a schema, wherever they are: whatever order a schema is compiled in, its depth stays below this. 12 kB of stack each are half of the stack.
const OBJECTS: u64 = 10_000;
/// Most values of a schema.
const VALUES: u64 = 100_000;
/// Most `properties` of one object. Masks compare the optional ones with each other and get stuck above 1,500.
const PROPERTIES: u64 = 1_000;
/// Most `patternProperties` of a schema: each is compared with all others that it is merged with.
const PATTERNS: u64 = 64;
/// Most alternatives of one `anyOf`, `oneOf` or `allOf`.
const ALTERNATIVES: u64 = 1_000;
/// Most work of a schema, in units of about 10 µs (of a debug build on a Zen 3): about 4 s, far above the 0.1 s of large schemas in use.
const WORK: u64 = 400_000;
/// Work of a `pattern` or `format`, whose emptiness is tested.
const PATTERN_WORK: u64 = 450;
/// Work of each pair of `patternProperties`, whose intersection is tested.
const PATTERN_PAIR_WORK: u64 = 30;
/// A pair of properties costs a unit divided by this.
const PROPERTY_PAIRS: u64 = 20;
/// Most bytes of a regular expression: each mask follows what is forced to its end.
const REGEX_BYTES: usize = 32 << 10;
/// Most bytes of a Lark grammar.
const LARK_BYTES: usize = 128 << 10;
/// Deepest brackets of a grammar or an expression.
const BRACKETS: u64 = 64;
/// Most rules and brackets of a Lark grammar, each of which takes up to 3 kB of stack when rules follow from one another in a chain.
const RULES: u64 = 4_000;
/// Where Lark grammars have a schema.
const LARK_SCHEMA: &str = "%json";
/// Keywords that constrain nothing.
const NOTES: [&str; 12] = [
    "$defs",
    "definitions",
    "$schema",
    "$id",
    "$anchor",
    "$comment",
    "title",
    "description",
    "default",
    "examples",
    "x-guidance",
    "deprecated",
];

/// Checks the counts of a schema of a constraint of this kind.
///
/// # Errors
/// [`GrammarError::TooMuch`] that names the limit.
pub(super) fn check_schema(what: &'static str, schema: &Value) -> Result<(), GrammarError> {
    let patterns = check_values(what, schema)?;
    let merge_work = patterns * patterns / 2 * PATTERN_PAIR_WORK;
    let mut counting = Counting { what, root: schema, merge_work, known: HashMap::new() };
    let work = counting.schema(schema, 0, false)?.work;
    limited(
        what,
        "units of work",
        WORK,
        work,
        "use fewer alternatives beside other keywords, and fewer patterns and properties",
    )
}

/// Checks the counts of a regular expression.
///
/// # Errors
/// [`GrammarError`] that names the limit.
pub(super) fn check_regex(what: &'static str, text: &str) -> Result<(), GrammarError> {
    check_bytes(what, REGEX_BYTES, text)?;
    limited(what, "levels of brackets", BRACKETS, nesting(text.as_bytes()), "flatten it")
}

/// Checks the counts of a Lark grammar and of the schemas in it.
///
/// # Errors
/// [`GrammarError`] that names the limit, or what stands in the place of a schema.
pub(super) fn check_lark(what: &'static str, text: &str) -> Result<(), GrammarError> {
    check_bytes(what, LARK_BYTES, text)?;
    limited(what, "levels of brackets", BRACKETS, nesting(text.as_bytes()), "flatten it")?;
    let rules = text.lines().filter(|line| line.contains(':')).count();
    let brackets = text.bytes().filter(|byte| matches!(byte, b'(' | b'[' | b'{' | b'~')).count();
    limited(what, "rules and brackets", RULES, (rules + brackets) as u64, "use fewer rules")?;
    for (place, _) in text.match_indices(LARK_SCHEMA) {
        let rest = text[place + LARK_SCHEMA.len()..].trim_start();
        if !rest.starts_with('{') {
            continue;
        }
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
        match values.next() {
            Some(Ok(schema)) => check_schema(what, &schema)?,
            Some(Err(fault)) => {
                let fault = format!("expected JSON behind `{LARK_SCHEMA}`, found {fault}");
                return Err(GrammarError::Refused { what, fault });
            }
            None => {}
        }
    }
    Ok(())
}

/// Checks the length of a text.
pub(super) fn check_bytes(what: &'static str, most: usize, text: &str) -> Result<(), GrammarError> {
    if text.len() <= most {
        return Ok(());
    }
    Err(GrammarError::TooLong { what, most, found: text.len() })
}

fn limited(
    what: &'static str,
    of: &'static str,
    most: u64,
    found: u64,
    advice: &'static str,
) -> Result<(), GrammarError> {
    if found <= most {
        return Ok(());
    }
    Err(GrammarError::TooMuch { what, of, most, found, advice })
}

/// The deepest brackets of a text, those within literals counted like others.
fn nesting(text: &[u8]) -> u64 {
    let (mut level, mut deepest) = (0_u64, 0);
    for byte in text {
        match byte {
            b'(' | b'[' | b'{' => level += 1,
            b')' | b']' | b'}' => level = level.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(level);
    }
    deepest
}

/// Counts objects and values without recursion; returns how many `patternProperties` there are.
fn check_values(what: &'static str, schema: &Value) -> Result<u64, GrammarError> {
    let (mut waiting, mut objects, mut values, mut patterns) = (vec![schema], 0, 0, 0);
    while let Some(value) = waiting.pop() {
        values += 1;
        match value {
            Value::Array(items) => waiting.extend(items),
            Value::Object(entries) => {
                objects += 1;
                let named = entries.get("patternProperties").and_then(Value::as_object);
                patterns += named.map_or(0, Map::len) as u64;
                waiting.extend(entries.values());
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    limited(what, "objects in the schema", OBJECTS, objects, "use a smaller schema")?;
    limited(what, "values in the schema", VALUES, values, "use a smaller schema")?;
    limited(what, "patternProperties", PATTERNS, patterns, "use fewer, each for more names")?;
    Ok(patterns)
}

/// What a schema costs.
#[derive(Clone, Copy)]
struct Cost {
    work: u64,
    /// Alternatives that are left of it: what it is merged with is copied for each.
    alternatives: u64,
}

/// Of what costs nothing further.
const SIMPLE: Cost = Cost { work: 1, alternatives: 1 };

/// The cost of parts that hold for the same value: each is copied for the alternatives of all others.
fn merged(parts: &[Cost]) -> Cost {
    let alternatives = parts.iter().fold(1_u64, |all, part| all.saturating_mul(part.alternatives.max(1)));
    let of_part = |part: &Cost| part.work.saturating_mul(alternatives / part.alternatives.max(1));
    let work = parts.iter().fold(0_u64, |sum, part| sum.saturating_add(of_part(part)));
    Cost { work, alternatives }
}

struct Counting<'s> {
    what: &'static str,
    root: &'s Value,
    /// Work of one more schema of the same value: all `patternProperties` are compared again.
    merge_work: u64,
    /// Of each `$ref` what it stands for, `None` while that is being counted.
    known: HashMap<&'s str, Option<Cost>>,
}

impl<'s> Counting<'s> {
    /// The cost of a schema at a level; `is_merged` with others that hold for the same value.
    fn schema(&mut self, schema: &'s Value, level: u64, is_merged: bool) -> Result<Cost, GrammarError> {
        let advice = "nest less, and follow fewer `$ref`s from one to the next";
        limited(self.what, "levels of schemas and `$ref`s", LEVELS, level, advice)?;
        let Value::Object(entries) = schema else { return Ok(SIMPLE) };
        let is_merged = is_merged || entries.keys().filter(|key| !NOTES.contains(&key.as_str())).count() > 1;
        let mut own = SIMPLE;
        let mut parts = Vec::new();
        for (key, value) in entries {
            match (key.as_str(), value) {
                ("$ref", Value::String(reference)) => {
                    parts.push(self.reference(reference, level, is_merged)?)
                }
                (key @ ("allOf" | "anyOf" | "oneOf"), Value::Array(items)) => {
                    self.in_place(key, items, (level, is_merged), &mut parts)?;
                }
                (key, value) => own.work = own.work.saturating_add(self.own(key, value, level)?),
            }
        }
        own.work = own.work.saturating_add(self.merge_work.saturating_mul(parts.len() as u64));
        parts.push(own);
        Ok(merged(&parts))
    }

    /// The cost of a keyword that is no alternative and no other schema of the same value.
    fn own(&mut self, key: &str, value: &'s Value, level: u64) -> Result<u64, GrammarError> {
        match (key, value) {
            ("pattern" | "format", _) => Ok(PATTERN_WORK),
            // What is only defined is compiled where it is referred to.
            ("$defs" | "definitions", _) => Ok(0),
            ("const" | "enum" | "default" | "examples", value) => Ok(size(value)),
            ("properties" | "patternProperties", Value::Object(named)) => self.named(key, named, level),
            (_, Value::Object(_)) => Ok(self.schema(value, level + 1, false)?.work),
            (_, Value::Array(items)) => items.iter().try_fold(0_u64, |sum, item| {
                Ok(sum.saturating_add(self.schema(item, level + 1, false)?.work))
            }),
            (_, Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => Ok(1),
        }
    }

    /// Schemas of properties.
    fn named(&mut self, key: &str, named: &'s Map<String, Value>, level: u64) -> Result<u64, GrammarError> {
        let count = named.len() as u64;
        let mut work = if key == "properties" {
            limited(
                self.what,
                "properties of an object",
                PROPERTIES,
                count,
                "put some into objects of their own",
            )?;
            count * count / PROPERTY_PAIRS
        } else {
            self.merge_work + count * PATTERN_WORK
        };
        for schema in named.values() {
            work = work.saturating_add(self.schema(schema, level + 1, false)?.work);
        }
        Ok(work)
    }

    /// Adds the parts that a list of schemas of the same value makes: one of `anyOf` and `oneOf`, and each schema of `allOf`.
    fn in_place(
        &mut self,
        key: &str,
        items: &'s [Value],
        (level, is_merged): (u64, bool),
        parts: &mut Vec<Cost>,
    ) -> Result<(), GrammarError> {
        let count = items.len() as u64;
        limited(self.what, "schemas of one anyOf, oneOf or allOf", ALTERNATIVES, count, "use fewer")?;
        if key == "allOf" {
            for item in items {
                parts.push(self.schema(item, level + 1, is_merged || count > 1)?);
            }
            return Ok(());
        }
        let mut all = Cost { work: 0, alternatives: 0 };
        for item in items {
            let of = self.schema(item, level + 1, is_merged)?;
            all.work = all.work.saturating_add(of.work);
            all.alternatives = all.alternatives.saturating_add(of.alternatives);
        }
        if key == "oneOf" {
            // They are compared by pairs.
            all.work = all.work.saturating_add(all.alternatives.saturating_mul(all.alternatives) / 2);
        }
        parts.push(all);
        Ok(())
    }

    /// What a `$ref` stands for: once where it stands alone, else a copy for each.
    fn reference(&mut self, reference: &'s str, level: u64, is_merged: bool) -> Result<Cost, GrammarError> {
        match self.known.get(reference) {
            // It refers to itself: the parser refuses that, or needs no copy.
            Some(None) => Ok(SIMPLE),
            Some(Some(cost)) => Ok(if is_merged { *cost } else { SIMPLE }),
            None => {
                let Some(target) = find(self.root, reference) else { return Ok(SIMPLE) };
                self.known.insert(reference, None);
                let cost = self.schema(target, level + 1, is_merged)?;
                self.known.insert(reference, Some(cost));
                Ok(cost)
            }
        }
    }
}

/// The values in a value.
fn size(value: &Value) -> u64 {
    match value {
        Value::Array(items) => items.iter().map(size).sum::<u64>() + 1,
        Value::Object(entries) => entries.values().map(size).sum::<u64>() + 1,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 1,
    }
}

/// What a `$ref` within the schema stands for; `None` for one that is not, or is not there: the parser says which.
fn find<'s>(root: &'s Value, reference: &str) -> Option<&'s Value> {
    let fragment = &reference[reference.find('#')? + 1..];
    match percent_decoded(fragment) {
        fragment if fragment.is_empty() || fragment.starts_with('/') => root.pointer(&fragment),
        anchor => find_anchor(root, &anchor),
    }
}

fn find_anchor<'s>(root: &'s Value, anchor: &str) -> Option<&'s Value> {
    let mut waiting = vec![root];
    while let Some(value) = waiting.pop() {
        match value {
            Value::Object(entries) if entries.get("$anchor").is_some_and(|found| found == anchor) => {
                return Some(value);
            }
            Value::Object(entries) => waiting.extend(entries.values()),
            Value::Array(items) => waiting.extend(items),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    None
}

fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let escaped = behind.get(..2).filter(|_| *first == b'%');
        let escaped = escaped.and_then(|digits| std::str::from_utf8(digits).ok());
        match escaped.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &behind[2..];
            }
            None => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests;
