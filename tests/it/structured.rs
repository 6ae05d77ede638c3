//! Constrained answers: whatever drafts, they are plain constrained decoding's to the bit, and they are what they have
//! to be.

use std::process::Command;

use serde_json::{Value, json};

use yggc::{
    backend::Tier,
    engine::{
        Adjustment, Answer, Constraint, DrafterChoice, Engine, ErrorKind, FinishReason, Options, PlanSource,
        Prompt, Request, Sampling, Speculation,
    },
    plan,
};

use crate::{
    program::{failure, success},
    tiny_commands::{drafting_plan, model, on_tiny},
};

fn engine(drafter: &str) -> Engine {
    let plan = (drafter != "no plan").then(|| PlanSource {
        plan: plan::read(drafting_plan()).expect("the plan of the tests"),
        name: "drafting.plan".to_owned(),
        force: false,
    });
    let drafter = match drafter {
        "plain" | "no plan" => DrafterChoice::Plain,
        name => DrafterChoice::Forced(name.to_owned()),
    };
    let (tier, threads) = (Some(Tier::Portable), Some(1));
    let options = Options { plan, drafter, tier, threads, ..Options::new(model()) };
    Engine::open(&options).expect("the plan was made here")
}

/// Drafters that the plan of the tests has.
fn drafters() -> Vec<String> {
    let plan = plan::read(drafting_plan()).expect("the plan of the tests");
    plan.bands[0].by_drafter.iter().map(|sub_plan| sub_plan.name.as_str().to_owned()).collect()
}

fn schemas() -> Vec<Value> {
    let name = json!({"type": "string", "maxLength": 6});
    let of = |properties: Value, required: &[&str]| json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false});
    vec![
        of(json!({"name": name, "age": {"type": "integer", "minimum": 0, "maximum": 150}}), &["name", "age"]),
        of(json!({"city": {"enum": ["Oslo", "Rome", "Rio de Janeiro"]}}), &["city"]),
        of(json!({"kind": {"const": "a rather long constant"}, "ok": {"type": "boolean"}}), &["kind", "ok"]),
        of(json!({"a": {"type": "null"}, "b": {"type": "number", "minimum": -1, "maximum": 1}}), &["a"]),
        of(
            json!({"list": {"type": "array", "items": {"enum": [1, 2, 3]}, "minItems": 2, "maxItems": 4}}),
            &["list"],
        ),
        of(json!({"inner": of(json!({"x": name, "y": {"type": "boolean"}}), &["y"])}), &["inner"]),
        json!({"anyOf": [of(json!({"left": name}), &["left"]), of(json!({"right": {"type": "boolean"}}), &["right"])]}),
        json!({"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 5}),
        of(json!({"date": {"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"}}), &["date"]),
        json!({"$defs": {"flag": {"type": "boolean"}}, "type": "object", "properties": {"f": {"$ref": "#/$defs/flag"},
               "g": {"$ref": "#/$defs/flag"}}, "required": ["f", "g"], "additionalProperties": false}),
        json!({"enum": ["yes", "no", 3, null]}),
        json!({"type": "string", "minLength": 2, "maxLength": 5}),
    ]
}

/// Whether a value fits a schema of those above: a walk over the words that they use.
fn fits(value: &Value, schema: &Value, root: &Value) -> bool {
    if let Some(name) = schema.get("$ref").and_then(Value::as_str) {
        return fits(value, root.pointer(name.trim_start_matches('#')).expect("a definition"), root);
    }
    let at_least =
        |key: &str, found: usize| schema.get(key).is_none_or(|n| found as u64 >= n.as_u64().unwrap());
    let at_most =
        |key: &str, found: usize| schema.get(key).is_none_or(|n| found as u64 <= n.as_u64().unwrap());
    let is_type = match schema.get("type").and_then(Value::as_str) {
        None => true,
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("null") => value.is_null(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        Some(other) => panic!("the walk knows no type {other}"),
    };
    let is_named = schema.get("enum").is_none_or(|all| all.as_array().unwrap().contains(value))
        && schema.get("const").is_none_or(|only| only == value);
    let is_either = schema
        .get("anyOf")
        .is_none_or(|all| all.as_array().unwrap().iter().any(|schema| fits(value, schema, root)));
    let is_within = value.as_f64().is_none_or(|found| {
        schema.get("minimum").is_none_or(|least| found >= least.as_f64().unwrap())
            && schema.get("maximum").is_none_or(|most| found <= most.as_f64().unwrap())
    });
    let is_text = value.as_str().is_none_or(|text| {
        let length = text.chars().count();
        let is_date = |text: &str| {
            text.len() == 10
                && text
                    .bytes()
                    .enumerate()
                    .all(|(i, b)| if i == 4 || i == 7 { b == b'-' } else { b.is_ascii_digit() })
        };
        at_least("minLength", length)
            && at_most("maxLength", length)
            && (schema.get("pattern").is_none() || is_date(text))
    });
    let is_list = value.as_array().is_none_or(|items| {
        at_least("minItems", items.len())
            && at_most("maxItems", items.len())
            && items.iter().all(|item| schema.get("items").is_none_or(|schema| fits(item, schema, root)))
    });
    let is_object = value.as_object().is_none_or(|entries| {
        let known = schema.get("properties").and_then(Value::as_object);
        let required = schema.get("required").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        required.iter().all(|name| entries.contains_key(name.as_str().unwrap()))
            && entries.iter().all(|(name, value)| match known.and_then(|known| known.get(name)) {
                Some(schema) => fits(value, schema, root),
                None => schema.get("additionalProperties") != Some(&json!(false)),
            })
    });
    is_type && is_named && is_either && is_within && is_text && is_list && is_object
}

fn request(constraint: Constraint, sampling: Sampling) -> Request {
    let prompt = Prompt::Raw("one and one and one".to_owned());
    Request { max_tokens: 90, sampling, constraint: Some(constraint), ..Request::new(prompt) }
}

#[track_caller]
fn answer(engine: &mut Engine, request: &Request) -> Answer {
    engine.generate(request).expect("it begins").collect_answer().expect("it ends")
}

const HOT: Sampling = Sampling { temperature: 0.9, top_k: 0, top_p: 0.95, min_p: 0.0, seed: 5 };

/// What an answer says: ids, text, end, and the bits of its log-probabilities.
fn said(answer: &Answer) -> (&[u32], &str, FinishReason, Vec<u32>) {
    let bits = answer.log_probs.iter().map(|token| token.log_prob.to_bits()).collect();
    (&answer.token_ids, &answer.text, answer.finish_reason, bits)
}

#[test]
fn no_drafter_changes_a_token_of_a_constrained_answer_and_answers_are_valid() {
    let mut judge = engine("plain");
    let mut engines: Vec<(String, Engine)> = drafters()
        .into_iter()
        .chain(["no plan".to_owned()])
        .map(|name| (name.clone(), engine(&name)))
        .collect();
    let (mut whole, mut forced, mut accepted) = (0, 0, 0);
    for (number, schema) in schemas().into_iter().enumerate() {
        for sampling in [Sampling::GREEDY, HOT] {
            let mut request = request(Constraint::JsonSchema(schema.to_string()), sampling);
            if number % 3 == 1 {
                request.log_probs = Some(1);
            }
            if number % 4 == 2 {
                request.adjustment = Adjustment { repetition: 1.2, presence: 0.4, ..Adjustment::NONE };
            }
            let plain = Request { speculation: Speculation::Off, ..request.clone() };
            let expected = answer(&mut judge, &plain);
            assert_eq!(expected.report.forced, 0, "the judge draws every token");
            if expected.finish_reason == FinishReason::Stop {
                let value: Value = serde_json::from_str(&expected.text).expect("JSON");
                assert!(fits(&value, &schema, &schema), "{} for {schema}", expected.text);
                whole += 1;
            }
            for (name, engine) in &mut engines {
                let found = answer(engine, &request);
                assert_eq!(said(&found), said(&expected), "{name}, {sampling:?}: {schema}");
                forced += found.report.forced;
                accepted += found.report.accepted;
            }
        }
    }
    assert!(whole >= 16, "{whole} answers came to their end");
    assert!(forced > 100 && accepted > 100, "{forced} tokens were forced, {accepted} accepted");
}

#[test]
fn objects_expressions_and_grammars_are_kept_and_the_next_request_is_free() {
    let mut drafting = engine("ngram");
    let mut judge = engine("plain");
    let lark = "start: greeting \", \" WHO\ngreeting: \"hello\" | \"good evening\"\nWHO: /[a-z]{2,5}!/\n";
    for (constraint, is_kept) in [
        (
            Constraint::Regex("(ab|cd){2}-[0-9]{3}".to_owned()),
            (|text| text.len() == 8 && text.contains('-')) as fn(&str) -> bool,
        ),
        (Constraint::Lark(lark.to_owned()), |text| {
            text.starts_with("hello, ") || text.starts_with("good evening, ")
        }),
        (Constraint::JsonObject, |text| text.starts_with('{')),
    ] {
        for sampling in [Sampling::GREEDY, HOT] {
            let request = request(constraint.clone(), sampling);
            let found = answer(&mut drafting, &request);
            let expected = answer(&mut judge, &Request { speculation: Speculation::Off, ..request });
            assert_eq!(said(&found), said(&expected), "{constraint:?}");
            assert!(is_kept(&found.text), "{constraint:?}: {}", found.text);
            if !matches!(constraint, Constraint::JsonObject) {
                assert_eq!(found.finish_reason, FinishReason::Stop, "{}", found.text);
            }
        }
    }
    let free = Request { constraint: None, ..request(Constraint::JsonObject, Sampling::GREEDY) };
    assert_eq!(said(&answer(&mut drafting, &free)), said(&answer(&mut judge, &free)));
}

#[test]
fn a_text_with_one_way_to_write_it_takes_few_steps_and_limits_cut_it_anywhere() {
    let text = "all of this sentence is known before the model says a word of it";
    let constraint = || Constraint::Regex(format!("({text}|{text})"));
    for (name, fewest) in [("no plan", 3), ("ngram", 30)] {
        let mut engine = engine(name);
        let request = request(constraint(), Sampling::GREEDY);
        let whole = answer(&mut engine, &request);
        assert_eq!((whole.text.as_str(), whole.finish_reason), (text, FinishReason::Stop));
        let tokens = whole.token_ids.len();
        assert!(
            whole.report.steps <= fewest && whole.report.forced > tokens as u64 / 2,
            "{:?}",
            whole.report
        );
        for most in 1..tokens {
            let cut = answer(&mut engine, &Request { max_tokens: most, ..request.clone() });
            assert_eq!(
                (&cut.token_ids[..], cut.finish_reason),
                (&whole.token_ids[..most], FinishReason::Length)
            );
        }
    }
}

#[test]
fn what_cannot_be_kept_is_refused_and_the_engine_goes_on() {
    let mut engine = engine("plain");
    for (constraint, part) in [
        (Constraint::JsonSchema("{".to_owned()), "expected JSON"),
        (Constraint::JsonSchema(r#"{"not": {}}"#.to_owned()), "not"),
        (Constraint::Lark("start: nobody".to_owned()), "nobody"),
    ] {
        let error = engine.generate(&request(constraint, Sampling::GREEDY)).unwrap_err();
        assert!(error.kind() == ErrorKind::Input && error.to_string().contains(part), "{error}");
    }
    assert_eq!(
        answer(&mut engine, &request(Constraint::Regex("ab".to_owned()), Sampling::GREEDY)).text,
        "ab"
    );
}

/// A text of `n` after `b`, which many rules read at once, each from every place of the text on.
fn read_often() -> Constraint {
    let rules: Vec<String> = (0..450).map(|number| format!("r{number}: \"n\" r{number} | \"n\"\n")).collect();
    let names: Vec<String> = (0..450).map(|number| format!("r{number}")).collect();
    Constraint::Lark(format!("start: \"b\" text\ntext: {}\n{}", names.join(" | "), rules.concat()))
}

#[test]
fn a_slow_grammar_is_followed_without_drafts_and_one_beyond_its_limits_says_so() {
    let (mut drafting, mut judge) = (engine("ngram"), engine("plain"));
    let [more] = judge.loaded().tokenizer().encode_continuation("n")[..] else { panic!("`n` is a token") };
    for sampling in [Sampling::GREEDY, HOT] {
        let request = Request { max_tokens: 10, ..request(read_often(), sampling) };
        let plain = Request { speculation: Speculation::Off, ..request.clone() };
        let [found, expected] = [answer(&mut drafting, &request), answer(&mut judge, &plain)];
        assert_eq!(said(&found), said(&expected));
        assert!(found.text.starts_with("bn"), "{}", found.text);
        assert_eq!(found.report.spec_off_reason.as_deref(), Some("the grammar is slow to follow"));
        assert_eq!(found.report.drafted, 0, "it is slow from its second token on");
    }
    // Nothing but another `n`, until a place has too many items.
    let long = Request {
        adjustment: Adjustment { bias: vec![(more, 100.0)], ..Adjustment::NONE },
        ..request(read_often(), Sampling::GREEDY)
    };
    let plain = Request { speculation: Speculation::Off, ..long.clone() };
    let [found, expected] = [(&mut drafting, &long), (&mut judge, &plain)].map(|(engine, request)| {
        let error = engine.generate(request).expect("it begins").collect_answer().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Input);
        error.to_string()
    });
    assert_eq!(found, expected);
    assert!(["items", "simplify the grammar"].iter().all(|part| found.contains(part)), "{found}");
    let next = request(Constraint::Regex("ab".to_owned()), Sampling::GREEDY);
    assert_eq!(answer(&mut drafting, &next).text, "ab");
}

#[test]
fn run_takes_constraints_from_files_and_the_command_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("the folder is writable");
        path
    };
    let schema = write(
        "schema.json",
        r#"{"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": false}"#,
    );
    let lark = write("grammar.lark", "start: \"on\" | \"off\"\n");
    let run = || {
        let mut command = on_tiny("run");
        command.args(["-p", "one and one", "-n", "60", "--no-spec"]);
        command
    };
    let said = |command: &mut Command| success(&command.output().expect("yggc starts"));
    let json = said(run().arg("--json-schema").arg(&schema));
    assert!(["{\"ok\": true}\n", "{\"ok\": false}\n"].contains(&json.as_str()), "{json}");
    let word = said(run().arg("--grammar").arg(&lark));
    assert!(["on\n", "off\n"].contains(&word.as_str()), "{word}");
    assert_eq!(said(run().args(["--regex", "-[x]{3}"])), "-xxx\n");
    assert!(said(run().arg("--json-object")).starts_with('{'));
    let bad = write("bad.json", r#"{"type": "strang"}"#);
    let refused = failure(&run().arg("--json-schema").arg(&bad).output().expect("yggc starts"), 3);
    assert!(refused.contains("strang"), "{refused}");
    let both = failure(&run().arg("--json-object").args(["--regex", "a"]).output().expect("yggc starts"), 2);
    assert!(both.contains("--regex"), "{both}");
}
