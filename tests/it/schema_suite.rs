//! JSON-Schema-Test-Suite, draft 2020-12: what is accepted is kept, by a validator of another maker.

use std::{collections::BTreeMap, fmt::Write, sync::Arc};

use serde_json::Value;

use yggc::{
    grammar::{Constraint, GrammarError, GrammarTokens, Matcher},
    text::{Json, TokenKind, Tokenizer, Vocabulary},
};

use crate::tiny_model::everything;

/// The suite, a case a line; what needs other documents is left out.
const SUITE: &str = include_str!("../data/schemas/suite.jsonl");
/// Bytes of an answer from which on it is led to its end.
const SOON: usize = 60;
/// Bytes of an answer that is given up.
const LONGEST: usize = 600;

/// A token for each byte, and one that ends an answer.
pub(crate) struct Bytes {
    pub(crate) grammar: GrammarTokens,
    /// Token of a byte.
    ids: Vec<u32>,
    end: u32,
}

impl Bytes {
    pub(crate) fn new() -> Self {
        let printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
        let mut unprintable = 0;
        let mut tokens: Vec<String> = (0..=255_u8)
            .map(|byte| {
                let code = if printable(byte) {
                    u32::from(byte)
                } else {
                    unprintable += 1;
                    255 + unprintable
                };
                char::from_u32(code).expect("a letter").to_string()
            })
            .collect();
        tokens.push("<|end|>".to_owned());
        let mut kinds = vec![TokenKind::Normal; 256];
        kinds.push(TokenKind::Control);
        let vocabulary = Vocabulary {
            model: "gpt2".into(),
            pre_tokenizer: "smollm".into(),
            tokens,
            kinds,
            ..Vocabulary::default()
        };
        let tokenizer = Arc::new(Tokenizer::from_vocabulary(vocabulary).expect("it is a vocabulary"));
        let mut ids = vec![0; 256];
        for id in 0..256 {
            let [byte] = tokenizer.token_bytes(id).expect("a token")[..] else { panic!("a byte each") };
            ids[usize::from(byte)] = id;
        }
        let grammar = GrammarTokens::new(tokenizer, 257, &[256]).expect("it has text");
        Self { grammar, ids, end: 256 }
    }

    /// The matcher of a schema.
    pub(crate) fn matcher(&self, schema: &str) -> Result<Matcher, GrammarError> {
        self.grammar.matcher(&Constraint::JsonSchema(schema.to_owned()))
    }

    /// Whether a text is an answer.
    pub(crate) fn accepts(&self, start: &Matcher, text: &str) -> bool {
        let mut matcher = start.clone();
        for byte in text.bytes() {
            let id = self.ids[usize::from(byte)];
            if matcher.is_complete() || !matcher.mask().expect("no limit is met").allows(id) {
                return false;
            }
            matcher.accept(id).expect("it is allowed");
        }
        matcher.may_end().expect("no limit is met")
    }

    /// An answer of allowed bytes, of which those of `favourites` come more often; `None` if it becomes too long.
    pub(crate) fn answer(&self, start: &Matcher, favourites: &[u8], seed: u64) -> Option<String> {
        let mut matcher = start.clone();
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut draw = move |below: usize| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random >> 11) as usize % below
        };
        let mut text = Vec::new();
        while !matcher.is_complete() {
            if text.len() > LONGEST {
                return None;
            }
            let mask = matcher
                .mask()
                .unwrap_or_else(|stuck| panic!("{stuck} {:?}", String::from_utf8_lossy(&text)))
                .clone();
            let allows = |byte: u8| mask.allows(self.ids[usize::from(byte)]);
            if mask.allows(self.end) && (text.len() > SOON || draw(4) == 0) {
                break;
            }
            let closing = b"\"]}".iter().copied().find(|byte| allows(*byte));
            let allowed: Vec<u8> = (0..=255).filter(|byte| allows(*byte)).collect();
            let liked: Vec<u8> = favourites.iter().copied().filter(|byte| allows(*byte)).collect();
            let next = match closing {
                Some(byte) if text.len() > SOON && draw(4) > 0 => Some(byte),
                _ if !liked.is_empty() && draw(3) > 0 => Some(liked[draw(liked.len())]),
                _ if !allowed.is_empty() => Some(allowed[draw(allowed.len())]),
                _ => None,
            };
            let Some(next) = next else { break };
            matcher.accept(self.ids[usize::from(next)]).expect("it is allowed");
            text.push(next);
        }
        assert!(matcher.may_end().expect("no limit is met"), "{:?}", String::from_utf8_lossy(&text));
        Some(String::from_utf8(text).expect("answers are text"))
    }
}

/// A value as answers are laid out.
pub(crate) fn laid_out(value: &Json) -> String {
    let list = |parts: Vec<String>| parts.join(", ");
    match value {
        Json::Array(values) => format!("[{}]", list(values.iter().map(laid_out).collect())),
        Json::Object(entries) => {
            let entry =
                |(key, value): &(String, Json)| format!("{}: {}", Json::String(key.clone()), laid_out(value));
            format!("{{{}}}", list(entries.iter().map(entry).collect()))
        }
        other => other.to_string(),
    }
}

#[derive(serde::Deserialize)]
struct Case {
    file: String,
    case: String,
    schema: Json,
    valid: Vec<Json>,
    invalid: Vec<Json>,
}

#[test]
#[allow(clippy::print_stdout, reason = "what a long run found is its result")]
fn answers_by_schemas_of_the_suite_validate_and_invalid_values_are_no_answers() {
    let bytes = Bytes::new();
    let seeds = if everything() { 200 } else { 4 };
    let mut faults = String::new();
    let mut by_file: BTreeMap<String, [usize; 6]> = BTreeMap::new();
    let mut refusals: BTreeMap<String, usize> = BTreeMap::new();
    let mut answered = 0;
    for line in SUITE.lines() {
        let Case { file, case, schema, valid, invalid } = serde_json::from_str(line).expect("a case");
        let counts = by_file.entry(file.clone()).or_default();
        counts[0] += 1;
        let text = schema.to_string();
        let start = match bytes.matcher(&text) {
            Ok(start) => start,
            Err(refused) => {
                assert!(matches!(refused, GrammarError::Refused { .. }), "{file}: {case}: {refused}");
                *refusals.entry(refused.to_string().chars().take(110).collect()).or_default() += 1;
                counts[1] += 1;
                continue;
            }
        };
        let mut value: Value = serde_json::from_str(&text).expect("it is JSON");
        // Dialects of the suite's own server. They take keywords away, so what holds without them holds with them.
        if value
            .get("$schema")
            .and_then(Value::as_str)
            .is_some_and(|dialect| dialect.starts_with("http://localhost"))
        {
            value.as_object_mut().expect("it has a dialect").remove("$schema");
        }
        let validator = jsonschema::options().should_validate_formats(true).build(&value).expect("a schema");
        for seed in 0..seeds {
            let Some(answer) = bytes.answer(&start, text.as_bytes(), seed + 1) else {
                counts[5] += 1;
                continue;
            };
            answered += 1;
            let value: Value = serde_json::from_str(&answer).expect("answers are JSON");
            if let Some(fault) = validator.iter_errors(&value).next() {
                writeln!(faults, "{file}: {case}: {text}\n  answers {answer}: {fault}").expect("a text");
            }
        }
        for value in &valid {
            counts[2] += 1;
            counts[3] += usize::from(bytes.accepts(&start, &laid_out(value)));
        }
        for value in &invalid {
            counts[4] += 1;
            let value = laid_out(value);
            // Formats bind here; without a validator of formats they are remarks.
            if bytes.accepts(&start, &value) {
                writeln!(faults, "{file}: {case}: {text}\n  accepts {value}").expect("a text");
            }
        }
    }
    if everything() || !faults.is_empty() {
        for (file, [cases, refused, valid, accepted, invalid, endless]) in &by_file {
            println!(
                "{file}: {cases} schemas, {refused} refused; {accepted} of {valid} valid values are answers, {invalid} invalid ones; {endless} endless"
            );
        }
        refusals.iter().for_each(|(refusal, count)| println!("{count} {refusal}"));
    }
    assert!(faults.is_empty(), "\n{faults}");
    assert!(answered > 500, "{answered}");
}

#[test]
fn numbers_are_kept_to_the_last_digit() {
    let bytes = Bytes::new();
    for (schema, answers, others) in [
        (
            r#"{"const": 9007199254740993}"#,
            vec!["9007199254740993"],
            vec!["9007199254740992", "9007199254740993.0"],
        ),
        (
            r#"{"enum": [18446744073709551617, -9223372036854775809]}"#,
            vec!["18446744073709551617", "-9223372036854775809"],
            vec!["18446744073709551616", "-9223372036854775808"],
        ),
        (
            r#"{"type": "integer", "minimum": -9223372036854775808, "maximum": 9223372036854775807}"#,
            vec!["-9223372036854775808", "9223372036854775807", "0"],
            vec!["-9223372036854775809", "9223372036854775808"],
        ),
        (
            r#"{"type": "integer", "exclusiveMinimum": 9007199254740993, "exclusiveMaximum": 9007199254740995}"#,
            vec!["9007199254740994"],
            vec!["9007199254740993", "9007199254740995"],
        ),
        (
            r#"{"type": "integer", "minimum": 340282366920938463463374607431768211456}"#,
            vec!["340282366920938463463374607431768211456", "1000000000000000000000000000000000000000"],
            vec!["340282366920938463463374607431768211455"],
        ),
        (
            r#"{"type": "number", "maximum": 0.1}"#,
            vec!["0.1", "0.10", "0.0999", "0", "-5.5"],
            vec!["0.11", "0.1000000000000000000001", "1"],
        ),
        (r#"{"type": "integer", "const": 1.0}"#, vec!["1"], vec!["1.0", "2"]),
        (r#"{"const": 1e3}"#, vec!["1000"], vec!["1e3", "1"]),
        (r#"{"type": "integer", "const": 1.5, "minimum": -1}"#, vec![], vec![]),
        (r#"{"type": "integer", "minimum": 0.5, "maximum": 2e0}"#, vec!["1", "2"], vec!["0", "3", "-1"]),
        (
            r#"{"type": "number", "multipleOf": 0.01, "minimum": 0, "maximum": 1}"#,
            vec!["0.07", "1", "0.5"],
            vec!["0.075", "1.01"],
        ),
        (
            r#"{"multipleOf": 3, "minimum": 10, "type": "integer", "maximum": 15}"#,
            vec!["12", "15"],
            vec!["10", "13", "18"],
        ),
        (
            r#"{"minLength": 2.0, "maxLength": 2e0, "type": "string"}"#,
            vec!["\"ab\"", "\"𝄞é\""],
            vec!["\"a\"", "\"abc\""],
        ),
        (r#"{"type": "integer", "maximum": 0}"#, vec!["0", "-12"], vec!["-0", "1"]),
    ] {
        match bytes.matcher(schema) {
            Ok(start) => {
                answers
                    .iter()
                    .for_each(|answer| assert!(bytes.accepts(&start, answer), "{schema}: {answer}"));
                others.iter().for_each(|other| assert!(!bytes.accepts(&start, other), "{schema}: {other}"));
            }
            Err(refused) => {
                assert!(answers.is_empty() && refused.to_string().contains("no value fits"), "{refused}")
            }
        }
    }
}

#[test]
fn bounds_of_every_kind_allow_what_is_within_them() {
    let bytes = Bytes::new();
    let shown = |tenths: i32| {
        format!("{}{}.{}", if tenths < 0 { "-" } else { "" }, tenths.abs() / 10, tenths.abs() % 10)
    };
    let places = [-205, -120, -105, -100, -99, -15, -10, -5, 0, 5, 10, 15, 99, 100, 105, 120, 205];
    let mut seen = 0;
    for (number, low) in places.into_iter().enumerate() {
        for (other, high) in places.into_iter().enumerate().skip(number) {
            // Every second pair in each of four ways would do the same work twice.
            let (with_low, with_high) = ((number + other) % 2 == 0, other % 3 == 0);
            for kind in ["integer", "number"] {
                let name = |included: bool, plain: &'static str, beyond: &'static str| {
                    if included { plain } else { beyond }
                };
                let schema = format!(
                    r#"{{"type": "{kind}", "{}": {}, "{}": {}}}"#,
                    name(with_low, "minimum", "exclusiveMinimum"),
                    shown(low),
                    name(with_high, "maximum", "exclusiveMaximum"),
                    shown(high)
                );
                let within = |tenths: i32| {
                    (tenths > low || (with_low && tenths == low))
                        && (tenths < high || (with_high && tenths == high))
                };
                let Ok(start) = bytes.matcher(&schema) else {
                    assert!(
                        (-250..250).all(|tenths| !within(tenths) || (kind == "integer" && tenths % 10 != 0)),
                        "{schema}"
                    );
                    continue;
                };
                for tenths in (-210..210).step_by(5).chain([-99, 99, -101, 101, 1, -1]) {
                    let text = if tenths % 10 == 0 { (tenths / 10).to_string() } else { shown(tenths) };
                    let expected = within(tenths) && (kind == "number" || tenths % 10 == 0);
                    assert_eq!(bytes.accepts(&start, &text), expected, "{schema}: {text}");
                    seen += 1;
                }
            }
        }
    }
    assert!(seen > 10_000, "{seen}");
}

#[test]
fn names_are_counted_once_and_every_answer_can_end() {
    let bytes = Bytes::new();
    for (schema, answers, others) in [
        (
            r#"{"type": "object", "minProperties": 1, "additionalProperties": {"type": "null"}}"#,
            vec![r#"{"a": null}"#],
            vec!["{}"],
        ),
        (
            r#"{"type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "null"}, "c": {"type": "null"}}, "minProperties": 2, "maxProperties": 2, "additionalProperties": false}"#,
            vec![r#"{"a": null, "b": null}"#, r#"{"a": null, "c": null}"#, r#"{"b": null, "c": null}"#],
            vec![r#"{"a": null}"#, r#"{"a": null, "a": null}"#, r#"{"a": null, "b": null, "c": null}"#],
        ),
        (
            r#"{"type": "object", "properties": {"a": {"type": "null"}}, "minProperties": 2, "additionalProperties": {"type": "null"}}"#,
            vec![r#"{"a": null, "b": null}"#],
            vec![r#"{"b": null, "c": null}"#, r#"{"b": null, "b": null}"#, r#"{"a": null}"#],
        ),
        // A name of the properties that a pattern matches, too, is no further name of that pattern.
        (
            r#"{"type": "object", "properties": {"ab": true}, "patternProperties": {"^ab$": {"type": "null"}}, "additionalProperties": false}"#,
            vec!["{}", r#"{"ab": null}"#],
            vec![r#"{"ab": 1}"#, r#"{"ab": null, "#],
        ),
        (
            r#"{"type": "object", "patternProperties": {"^a": {"type": ["null", "integer"]}, "b$": {"type": ["null", "string"]}}, "additionalProperties": false}"#,
            vec![r#"{"ab": null, "a": 1, "b": "x"}"#],
            vec![r#"{"ab": 1}"#, r#"{"c": null}"#],
        ),
        // Another text of a name is that name.
        (
            r#"{"type": "object", "properties": {"a": {"type": "null"}}}"#,
            vec![r#"{"a": null, "b": 1}"#],
            vec![r#"{"\u0061": 1}"#, r#"{"b": 1, "a": null}"#],
        ),
        (
            r#"{"type": "object", "properties": {"\"\\\n\u0001\u007f𝄞": {"type": "null"}}, "required": ["\"\\\n\u0001\u007f𝄞"], "additionalProperties": false}"#,
            vec!["{\"\\\"\\\\\\n\\u0001\\u007f𝄞\": null}"],
            vec!["{}"],
        ),
        (
            r##"{"$ref": "#/$defs/a~1b~0c%20d", "$defs": {"a/b~c d": {"type": "null"}}}"##,
            vec!["null"],
            vec!["1"],
        ),
        (
            r##"{"$ref": "#here", "$defs": {"x": {"$anchor": "here", "type": "null"}}}"##,
            vec!["null"],
            vec!["1"],
        ),
        (
            r#"{"dependentRequired": {"a": ["b"]}, "properties": {"a": {}, "b": {}}, "type": "object"}"#,
            vec![r#"{"a": 1, "b": 2}"#, r#"{"b": 2}"#, "{}"],
            vec![r#"{"a": 1}"#],
        ),
    ] {
        let start = bytes.matcher(schema).unwrap_or_else(|refused| panic!("{schema}: {refused}"));
        answers.iter().for_each(|answer| assert!(bytes.accepts(&start, answer), "{schema}: {answer}"));
        others.iter().for_each(|other| assert!(!bytes.accepts(&start, other), "{schema}: {other}"));
        for seed in 1..20 {
            bytes.answer(&start, schema.as_bytes(), seed);
        }
    }
}
