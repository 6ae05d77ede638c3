//! Each limit is named; schemas in use stay far below them.

use serde_json::{Map, Value, json};

use super::*;
use crate::grammar::{Constraint, tests::tokens};

const WHAT: &str = "JSON schema";

/// Definitions that refer from one to the next, `count` times, each within what `wrap` makes.
fn chain(count: usize, wrap: impl Fn(Value) -> Value) -> Value {
    let mut definitions: Map<String, Value> = (0..count)
        .map(|number| (format!("d{number}"), wrap(json!({"$ref": format!("#/$defs/d{}", number + 1)}))))
        .collect();
    definitions.insert(format!("d{count}"), json!({"type": "null"}));
    json!({"$defs": definitions, "$ref": "#/$defs/d0"})
}

fn nested(levels: usize, wrap: impl Fn(Value) -> Value) -> Value {
    (0..levels).fold(json!({"type": "null"}), |inner, _| wrap(inner))
}

fn properties(count: usize, schema: &Value) -> Value {
    (0..count).map(|number| (format!("p{number}"), schema.clone())).collect::<Map<_, _>>().into()
}

fn object_of(inner: Value) -> Value {
    json!({"type": "object", "properties": {"a": inner}, "required": ["a"], "additionalProperties": false})
}

/// Large in every way that clients found, or might.
fn hostile_schemas() -> Vec<Value> {
    let many = |count: usize| -> Vec<Value> { (0..count).map(|number| json!({"const": number})).collect() };
    let required: Vec<Value> = (0..60).map(|number| json!({"required": [format!("p{number}")]})).collect();
    let email = json!({"type": "string", "format": "email"});
    let pairs: Vec<Value> = (0..20)
        .map(|number| json!({"anyOf": [{"required": [format!("a{number}")]}, {"required": [format!("b{number}")]}]}))
        .collect();
    let overlapping: Vec<Value> =
        (0..20).map(|_| json!({"patternProperties": properties(3, &json!({}))})).collect();
    let doubled = {
        let two = |number: usize| json!({"allOf": [{"$ref": format!("#/$defs/d{number}")}, {"$ref": format!("#/$defs/d{number}")}]});
        let mut schema = chain(0, |inner| inner);
        for number in 0..60 {
            schema["$defs"][format!("d{}", number + 1)] = two(number);
        }
        schema["$ref"] = json!("#/$defs/d60");
        schema
    };
    vec![
        chain(631, |inner| inner),
        chain(3_000, object_of),
        chain(600, |inner| json!({"allOf": [inner]})),
        nested(120, object_of),
        nested(120, |inner| json!({"items": inner})),
        json!({"properties": properties(4_470, &json!({}))}),
        json!({"patternProperties": properties(500, &json!({}))}),
        json!({"anyOf": many(5_000)}),
        json!({"enum": many(50_001)}),
        json!({"enum": (0..100_001).collect::<Vec<u32>>()}),
        json!({"properties": properties(60, &email), "anyOf": required}),
        json!({"allOf": pairs}),
        json!({"allOf": overlapping}),
        doubled,
    ]
}

/// Each is refused by a number that is a limit, or compiles within the counts and has masks.
#[test]
fn hostile_schemas_are_refused_by_a_limit_or_compile() {
    let (_, grammar) = tokens();
    let mut refused = 0;
    for schema in hostile_schemas() {
        let text = schema.to_string();
        let shown: String = text.chars().take(80).collect();
        match grammar.matcher(&Constraint::JsonSchema(text)) {
            Ok(mut matcher) => assert!(matcher.mask().is_ok_and(|mask| mask.count() > 0), "{shown}"),
            Err(error) => {
                let said = error.to_string();
                let names_limit =
                    ["more than", "at most", "deeper than", "items"].iter().any(|words| said.contains(words));
                assert!(names_limit && said.contains("; "), "{shown}: {said}");
                refused += 1;
            }
        }
    }
    assert!(refused >= 5, "{refused}");
}

#[test]
fn ordinary_schemas_are_far_below() {
    let record = json!({"type": "object", "required": ["p1"], "additionalProperties": false,
                        "properties": properties(60, &json!({"type": "string", "format": "date-time"}))});
    let kinds: Vec<Value> = (0..100)
        .map(|number| {
            json!({"type": "object", "required": ["kind"],
        "properties": {"kind": {"const": format!("k{number}")}, "next": {"$ref": "#/$defs/any"}}})
        })
        .collect();
    for schema in [
        record.clone(),
        json!({"type": "array", "items": {"anyOf": [record, {"type": "null"}]}}),
        json!({"$ref": "#/$defs/any", "$defs": {"any": {"anyOf": kinds}}}),
        json!({"properties": properties(700, &json!({"type": "integer"})), "additionalProperties": false}),
    ] {
        Constraint::JsonSchema(schema.to_string()).to_grammar().unwrap();
    }
}

/// The schemas of many tools are no rules of the grammar that names them.
#[test]
fn schemas_in_a_grammar_have_the_counts_of_schemas() {
    let record = json!({"type": "object", "properties": properties(60, &json!({"enum": ["a", "b"]}))});
    let calls: String = (0..128).map(|number| format!("c{number}: %json {record}\n")).collect();
    let names: Vec<String> = (0..128).map(|number| format!("c{number}")).collect();
    let grammar = format!("start: {}\n{calls}", names.join(" | "));
    assert!(grammar.len() > LARK_BYTES && rules_and_brackets(&grammar) > RULES);
    Constraint::Lark(grammar).to_grammar().unwrap();
}

#[test]
fn each_limit_of_texts_is_named() {
    let optional = |count: usize| -> String {
        let rules = (0..count).map(|number| format!("r{number}: (\"a\" r{})?\n", number + 1));
        format!("start: r0\n{}r{count}: \"x\"\n", rules.collect::<String>())
    };
    for (checked, of) in [
        (check_regex(WHAT, &"(".repeat(65)), "64 levels of brackets, found 65"),
        (check_regex(WHAT, &"a".repeat(40_000)), "32768 bytes, found 40000"),
        (check_lark(WHAT, &"a".repeat(140_000)), "131072 bytes, found 140000"),
        (check_lark(WHAT, &"[".repeat(70)), "64 levels of brackets"),
        (check_lark(WHAT, &optional(2_500)), "4000 rules and brackets"),
        (check_lark(WHAT, &format!("start: T\nT: {}/a/", "~".repeat(5_000))), "4000 rules and brackets"),
    ] {
        let said = checked.unwrap_err().to_string();
        assert!(said.contains(of), "expected {of}, found {said}");
    }
    check_lark(WHAT, &optional(750)).unwrap();
}

/// What is accepted at a limit compiles on the stated stack, and its masks, clones and its end take little: they run on
/// threads with the usual one.
#[test]
fn what_the_limits_allow_fits_the_stacks() {
    let rules = (0..1_900).map(|number| format!("r{number}: (\"a\" r{})?\n", number + 1));
    let rules = format!("start: r0\n{}r1900: \"x\"\n", rules.collect::<String>());
    let terminals = (0..3_900).map(|number| format!("T{number}: T{}\n", number + 1));
    let terminals = format!("start: T0\n{}T3900: \"x\"\n", terminals.collect::<String>());
    let (_, grammar) = tokens();
    for constraint in [
        Constraint::JsonSchema(chain(498, |inner| inner).to_string()),
        Constraint::JsonSchema(chain(245, object_of).to_string()),
        Constraint::JsonSchema(chain(245, |inner| json!({"anyOf": [inner, {"type": "string"}]})).to_string()),
        Constraint::JsonSchema(nested(60, object_of).to_string()),
        Constraint::JsonSchema(
            json!({"type": "object", "properties": properties(1_000, &json!({"type": "null"}))}).to_string(),
        ),
        Constraint::Lark(rules),
        Constraint::Lark(terminals),
        Constraint::Regex("a?".repeat(16_000)),
    ] {
        let shown: String = format!("{constraint:?}").chars().take(60).collect();
        let Ok(mut matcher) = grammar.matcher(&constraint) else { continue };
        let small = std::thread::Builder::new().stack_size(128 << 10).spawn(move || {
            for _ in 0..8 {
                let mut copy = matcher.clone();
                let Ok(mask) = copy.mask() else { break };
                let Some(token) = mask.first() else { break };
                if matcher.accept(token).is_err() || matcher.is_complete() {
                    break;
                }
            }
        });
        small.unwrap().join().unwrap_or_else(|_| panic!("{shown}"));
    }
}
