//! Numbers and patterns of schemas; what is refused, and how much work is done before it is.

use std::{thread, time::Instant};

use super::{decimal::Decimal, in_lark, text::Pattern, to_lark};
use crate::grammar::{
    Constraint, GrammarError,
    tests::{accept, tokens},
};

fn refusal(schema: &str) -> String {
    to_lark(schema).expect_err(schema).to_string()
}

#[test]
fn decimals_are_compared_and_rounded_to_the_last_digit() {
    let of = |text: &str| Decimal::parse(text).unwrap();
    let ordered = [
        "-1e30",
        "-9007199254740993",
        "-9007199254740992.5",
        "-10",
        "-9.99",
        "-0.1",
        "-0.01",
        "0",
        "1e-20",
        "0.1",
        "0.11",
        "0.2",
        "1",
        "9.5",
        "10",
        "9007199254740992.5",
        "9007199254740993",
        "18446744073709551616",
        "1e30",
    ];
    for (place, small) in ordered.iter().enumerate() {
        for (other, large) in ordered.iter().enumerate() {
            assert_eq!(of(small).cmp(&of(large)), place.cmp(&other), "{small} {large}");
        }
    }
    for (text, written) in [
        ("1.50", "1.5"),
        ("-0.0", "0"),
        ("1e3", "1000"),
        ("12.5e-1", "1.25"),
        ("0.05E2", "5"),
        ("100e-4", "0.01"),
    ] {
        assert_eq!(of(text).text(), written);
    }
    for (text, above, beyond) in [
        ("99.5", "100", "100"),
        ("99", "99", "100"),
        ("-1.5", "-1", "-1"),
        ("-1", "-1", "0"),
        ("-100", "-100", "-99"),
        ("0", "0", "1"),
        ("-0.5", "0", "0"),
        ("9999", "9999", "10000"),
    ] {
        assert_eq!(
            (of(text).whole_above(false).text(), of(text).whole_above(true).text()),
            (above.into(), beyond.into())
        );
    }
    assert!(Decimal::parse("1e1001").is_none() && Decimal::parse("1e99999999999999999999").is_none());
}

#[test]
fn patterns_of_ecma_are_kept_or_refused() {
    let quoted = |source: &str| Pattern::search(source).map(|pattern| pattern.quoted);
    for refused in ["(?=a)b", "(?!a)", "(?<=a)b", "a\\b", "(a)\\1", "\\Z", "\\a", "[]", "a^b", "(", "\\ud83d"]
    {
        let what = quoted(refused).expect_err(refused);
        assert!(what.contains("pattern"), "{what}");
    }
    for kept in [
        "^a|b$",
        "^(a|b$)",
        "(^a|^b)",
        "^\\p{Letter}+$",
        "[\\s\\S]",
        "\\ud83d\\udc32",
        "(?<name>x)",
        "^[^[&~-]]?$",
    ] {
        quoted(kept).unwrap();
    }
    assert_eq!(quoted("^\"\\\\\\n$").unwrap(), r#"(?:\\")(?:\\\\)(?:\\n)"#);
}

#[test]
fn what_cannot_be_kept_is_refused_by_name() {
    for (schema, names) in [
        (r#"{"not": {}}"#, "`not`"),
        (r#"{"if": {}, "then": {}}"#, "`if`"),
        (r#"{"contains": {}}"#, "`contains`"),
        (r#"{"uniqueItems": true}"#, "`uniqueItems`"),
        (r#"{"propertyNames": {"maxLength": 3}}"#, "`propertyNames`"),
        (r#"{"unevaluatedItems": false}"#, "`unevaluatedItems`"),
        (r#"{"oneOf": [{"type": "integer"}, {"minimum": 2}]}"#, "alternatives 0 and 1"),
        (r#"{"format": "iri"}"#, "\"iri\""),
        (r#"{"type": "object", "minProperties": 2}"#, "`minProperties`"),
        (r#"{"type": "number", "multipleOf": 7, "minimum": 9007199254740993}"#, "`multipleOf`"),
        (r#"{"multipleOf": 0}"#, "positive"),
        (r#"{"minimum": "1"}"#, "`minimum`"),
        (r#"{"minLength": -1}"#, "`minLength`"),
        (r#"{"minLength": 1.5}"#, "`minLength`"),
        (r#"{"required": "a"}"#, "`required`"),
        (r#"{"enum": []}"#, "`enum`"),
        (r#"{"const": 1e2000}"#, "1000 digits"),
        (r##"{"$ref": "#"}"##, "refers to itself"),
        (r##"{"$ref": "#/$defs/a%2"}"##, "%XX"),
        (r##"{"properties": {"a": {"$id": "x", "$ref": "#/b"}}, "type": "object"}"##, "`$id`"),
        (r##"{"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}"##, "no value fits"),
        (r#"{"type": "string", "minLength": 3, "maxLength": 2}"#, "no value fits"),
        (r#"{"type": "array", "minItems": 3, "maxItems": 2}"#, "no value fits"),
        (r#"{"type": "string", "pattern": "^a$", "minLength": 2}"#, "no value fits"),
        (r#"{"properties": 3}"#, "`properties`"),
        (r#"{"items": 3}"#, "`schema`"),
    ] {
        let said = refusal(schema);
        assert!(said.contains(names), "{schema}: {said}");
    }
}

#[test]
fn schemas_within_a_grammar_are_read_as_others_are() {
    let (tokenizer, grammar) = tokens();
    let lark = "# %json {\nstart: \"a%json\" /b\\/%json/ %json {\"const\": 9007199254740993} \"c\"\n";
    let mut matcher = grammar.matcher(&Constraint::Lark(lark.to_owned())).unwrap();
    accept(&tokenizer, &mut matcher, "a%jsonb/%json9007199254740993c");
    assert!(matcher.is_complete());
    for bad in ["start: %json", "start: %json {", "start: %json {\"not\": {}}"] {
        assert!(matches!(in_lark(bad), Err(GrammarError::Refused { .. })), "{bad}");
    }
}

/// Schemas that grow with their argument, in depth and in width.
fn grown(size: usize) -> Vec<(&'static str, String)> {
    let nested = |open: &str, close: &str| format!("{}true{}", open.repeat(size), close.repeat(size));
    let many = |part: &dyn Fn(usize) -> String| (0..size).map(part).collect::<Vec<_>>().join(", ");
    let chain = many(&|at| format!("\"d{at}\": {{\"$ref\": \"#/$defs/d{}\"}}", at + 1));
    let through = many(&|at| {
        format!(
            "\"d{at}\": {{\"type\": \"object\", \"properties\": {{\"a\": {{\"$ref\": \"#/$defs/d{}\"}}}}}}",
            at + 1
        )
    });
    let ring = many(&|at| {
        format!(
            "\"d{at}\": {{\"type\": \"object\", \"properties\": {{\"a\": {{\"$ref\": \"#/$defs/d{}\"}}}}}}",
            (at + 1) % size
        )
    });
    vec![
        ("not in not", nested("{\"not\": ", "}")),
        ("items of items", nested("{\"items\": ", "}")),
        ("allOf of allOf", nested("{\"allOf\": [", "]}")),
        ("references", format!("{{\"$ref\": \"#/$defs/d0\", \"$defs\": {{{chain}, \"d{size}\": true}}}}")),
        ("properties", format!("{{\"$ref\": \"#/$defs/d0\", \"$defs\": {{{through}, \"d{size}\": true}}}}")),
        ("a ring", format!("{{\"$ref\": \"#/$defs/d0\", \"$defs\": {{{ring}}}}}")),
        (
            "names",
            format!("{{\"properties\": {{{}}}}}", many(&|at| format!("\"p{at}\": {{\"type\": \"null\"}}"))),
        ),
        (
            "patterns",
            format!(
                "{{\"patternProperties\": {{{}}}}}",
                many(&|at| format!("\"^p{at}\": {{\"type\": \"null\"}}"))
            ),
        ),
        ("anyOf", format!("{{\"anyOf\": [{}]}}", many(&|at| format!("{{\"const\": {at}}}")))),
        (
            "oneOf",
            format!(
                "{{\"oneOf\": [{}]}}",
                many(&|at| format!("{{\"type\": \"string\", \"pattern\": \"^a{at}\"}}"))
            ),
        ),
        (
            "pairs of alternatives",
            format!(
                "{{\"allOf\": [{}]}}",
                many(&|at| format!("{{\"anyOf\": [{{\"minLength\": {at}}}, {{\"maxLength\": {at}}}]}}"))
            ),
        ),
        ("first items", format!("{{\"prefixItems\": [{}]}}", many(&|at| format!("{{\"const\": {at}}}")))),
        (
            "counted names",
            format!(
                "{{\"minProperties\": {size}, \"properties\": {{{}}}}}",
                many(&|at| format!("\"p{at}\": true"))
            ),
        ),
    ]
}

#[test]
#[allow(clippy::disallowed_methods, reason = "a generous bound against hangs")]
fn deep_and_wide_schemas_take_little_stack_and_time() {
    for size in [10, 100, 631, 4_470] {
        for (name, schema) in grown(size) {
            let begun = Instant::now();
            let read = thread::Builder::new()
                .stack_size(1 << 20)
                .spawn(move || to_lark(&schema).map(|lark| lark.len()));
            let read = read.unwrap().join().unwrap_or_else(|_| panic!("{name}: {size}"));
            assert!(begun.elapsed().as_secs() < 60, "{name}, {size}: {:?} {read:?}", begun.elapsed());
        }
    }
}
