//! Each limit is named; schemas in use stay far below them.

use serde_json::{Value, json};

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

#[test]
fn each_limit_of_schemas_is_named() {
    let many = |count: usize| -> Vec<Value> { (0..count).map(|number| json!({"const": number})).collect() };
    let required: Vec<Value> = (0..60).map(|number| json!({"required": [format!("p{number}")]})).collect();
    let email = json!({"type": "string", "format": "email"});
    let pairs: Vec<Value> = (0..20)
        .map(|number| json!({"anyOf": [{"required": [format!("a{number}")]}, {"required": [format!("b{number}")]}]}))
        .collect();
    let overlapping: Vec<Value> =
        (0..20).map(|_| json!({"patternProperties": properties(3, &json!({}))})).collect();
    for (schema, of) in [
        (chain(631, |inner| inner), "500 levels of schemas and `$ref`s, found 501"),
        (chain(300, object_of), "500 levels"),
        (chain(600, |inner| json!({"allOf": [inner]})), "500 levels"),
        (nested(600, object_of), "500 levels"),
        (nested(600, |inner| json!({"items": inner})), "500 levels"),
        (json!({"properties": properties(1_001, &json!({}))}), "1000 properties of an object, found 1001"),
        (json!({"patternProperties": properties(500, &json!({}))}), "64 patternProperties, found 500"),
        (json!({"anyOf": many(1_001)}), "1000 schemas of one anyOf"),
        (json!({"enum": many(50_001)}), "10000 objects in the schema, found 50002"),
        (json!({"enum": (0..100_001).collect::<Vec<u32>>()}), "100000 values in the schema"),
        (json!({"properties": properties(60, &email), "anyOf": required}), "400000 units of work"),
        (json!({"allOf": pairs}), "400000 units of work"),
        (json!({"allOf": overlapping}), "400000 units of work"),
    ] {
        let said = check_schema(WHAT, &schema).unwrap_err().to_string();
        assert!(said.contains(of) && said.contains("; "), "expected {of}, found {said}");
    }
}

#[test]
fn what_refers_to_itself_or_nowhere_is_counted_to_an_end() {
    for schema in [
        json!({"$ref": "#"}),
        json!({"allOf": [{"$ref": "#"}, {"$ref": "#/allOf/0"}]}),
        json!({"$ref": "#/none"}),
        json!({"$ref": "https://example.org/#/x"}),
        json!({"$ref": "nowhere"}),
        json!({"$ref": "#/$defs/a%20~1b", "$defs": {"a /b": {"$ref": "#named"}, "c": {"$anchor": "named"}}}),
        json!({"$ref": "#/%f"}),
        json!({"$ref": "#/%é"}),
    ] {
        check_schema(WHAT, &schema).unwrap();
    }
    let doubled = |levels: usize| {
        let two = |number: usize| json!({"allOf": [{"$ref": format!("#/$defs/d{number}")}, {"$ref": format!("#/$defs/d{number}")}]});
        let mut schema = chain(0, |inner| inner);
        for number in 0..levels {
            schema["$defs"][format!("d{}", number + 1)] = two(number);
        }
        schema["$ref"] = json!(format!("#/$defs/d{levels}"));
        schema
    };
    check_schema(WHAT, &doubled(10)).unwrap();
    let said = check_schema(WHAT, &doubled(60)).unwrap_err().to_string();
    assert!(said.contains("units of work"), "{said}");
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
        json!({"enum": (0..20_000).map(|number| format!("value {number}")).collect::<Vec<_>>()}),
        chain(200, object_of),
        json!({"properties": properties(700, &json!({"type": "integer"})), "additionalProperties": false}),
    ] {
        check_schema(WHAT, &schema).unwrap();
    }
}

#[test]
fn each_limit_of_texts_is_named() {
    let optional = |count: usize| -> String {
        let rules = (0..count).map(|number| format!("r{number}: (\"a\" r{})?\n", number + 1));
        format!("start: r0\n{}r{count}: \"x\"\n", rules.collect::<String>())
    };
    let chained = format!("start: %json {}", chain(631, |inner| inner));
    for (checked, of) in [
        (check_regex(WHAT, &"(".repeat(65)), "64 levels of brackets, found 65"),
        (check_regex(WHAT, &"a".repeat(40_000)), "32768 bytes, found 40000"),
        (check_lark(WHAT, &"a".repeat(140_000)), "131072 bytes, found 140000"),
        (check_lark(WHAT, &"[".repeat(70)), "64 levels of brackets"),
        (check_lark(WHAT, &optional(2_500)), "4000 rules and brackets"),
        (check_lark(WHAT, &format!("start: T\nT: {}/a/", "~".repeat(5_000))), "4000 rules and brackets"),
        (check_lark(WHAT, &chained), "500 levels of schemas"),
        (check_lark(WHAT, "start: %json {a"), "expected JSON behind `%json`"),
    ] {
        let said = checked.unwrap_err().to_string();
        assert!(said.contains(of), "expected {of}, found {said}");
    }
    check_lark(WHAT, &optional(750)).unwrap();
    check_lark(WHAT, "start: %json {\"type\": \"null\"} \"x\"").unwrap();
}

/// What is accepted at a limit compiles on the stated stack, and its masks, clones and its end take little: they run on threads with the usual one.
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
