//! Every number of the table in every form that JSON has, on every path.

use serde_json::json;

use super::*;
use crate::serve::{check::DEFAULTS, requests, responses};

/// Whether a body with this number, as JSON text, is taken on a path; the refusal names the field.
fn is_taken(field: &Field, path: Endpoint, number: &str) -> bool {
    let name = field.name();
    let needed = match name {
        "top_logprobs" => ", \"logprobs\": true",
        // The two are equal where both are said.
        "best_of"
            if number.trim_matches('"').parse::<f64>().is_ok_and(|n| [1.0, 2.0, 3.0, 4.0].contains(&n)) =>
        {
            &format!(", \"n\": {}", number.trim_matches('"'))
        }
        _ => "",
    };
    let body = match path {
        Endpoint::Completions => format!("{{\"prompt\": \"x\", \"{name}\": {number}{needed}}}"),
        Endpoint::Chat => format!(
            "{{\"messages\": [{{\"role\": \"user\", \"content\": \"x\"}}], \"{name}\": {number}{needed}}}"
        ),
        Endpoint::Responses => format!("{{\"input\": \"x\", \"{name}\": {number}{needed}}}"),
    };
    let asked = match path {
        Endpoint::Completions => requests::completion(body.as_bytes(), &DEFAULTS),
        Endpoint::Chat => requests::chat(body.as_bytes(), &DEFAULTS),
        Endpoint::Responses => responses::asked(body.as_bytes(), &DEFAULTS),
    };
    match asked {
        Ok(_) => true,
        Err(refused) => {
            assert_eq!(refused.status, 400);
            let said = refused.body();
            assert_eq!(said["error"]["param"], name, "{body}: {said}");
            assert!(refused.message.starts_with(name), "{body}: {said}");
            false
        }
    }
}

fn is_of_64_bits(number: &str) -> bool {
    number.parse::<u64>().is_ok() || number.parse::<i64>().is_ok()
}

/// The paths of a field, and for those that the responses share with the chat that one, too.
fn paths(field: &Field) -> Vec<Endpoint> {
    let is_shared = responses::is_of_chat(field.name());
    field.paths.iter().copied().chain((!is_shared).then_some(Endpoint::Responses)).collect()
}

#[test]
fn numbers_are_taken_in_their_range_and_in_no_other_form() {
    for field in TABLE {
        let is_whole = matches!(field.parameter.values, Values::Integer { .. });
        // The limits of a service are lower than those of the table: there is more to ask for than it gives.
        let is_limited = ["max_tokens", "max_completion_tokens"].contains(&field.name());
        let (least, most) = match field.parameter.values {
            Values::Decimal { least, most, .. } => (f64::from(least), f64::from(most)),
            Values::Integer { least, most, .. } => {
                (least as f64, if is_limited { 50.0 } else { most as f64 })
            }
        };
        for path in paths(field) {
            let taken = |number: &str| is_taken(field, path, number);
            assert!(taken("null"), "{field:?}");
            for number in [
                "0",
                "-0",
                "-0.0",
                "0.0",
                "1",
                "1.0",
                "1e0",
                "0.1e1",
                "2",
                "5.0",
                "1.5",
                "0.5",
                "-1",
                "-2.5",
                "21",
                "1e30",
                "1e39",
                "1e-50",
                "-1e-50",
                "9007199254740993",
                "18446744073709551615",
                "18446744073709551616",
                "-9223372036854775808",
                "-9223372036854775809",
                "123456789012345678901234567890",
            ] {
                let value: f64 = number.parse().unwrap();
                let above = matches!(field.parameter.values, Values::Decimal { above: true, .. });
                let inside = (least..=most).contains(&value)
                    // Below what a decimal of 32 bits tells from 0.
                    && (!above || value as f32 > least as f32)
                    // A whole number is exact, or small enough to be.
                    && (!is_whole || value.fract() == 0.0 && (value.abs() < 1e15 || is_of_64_bits(number)));
                assert_eq!(taken(number), inside, "{} {number} {path:?}", field.name());
            }
            for other in ["\"0.5\"", "\"1\"", "\"\"", "true", "false", "[1]", "[]", "{}", "1e999", "-1e999"] {
                assert!(!taken(other), "{} {other} {path:?}", field.name());
            }
        }
    }
}

#[test]
fn what_is_said_reaches_the_request_to_the_last_digit() {
    let chat = |body: Value| {
        let mut body = body;
        body["messages"] = json!([{"role": "user", "content": "x"}]);
        requests::chat(body.to_string().as_bytes(), &DEFAULTS).unwrap().request
    };
    let seed = |seed: Value| chat(json!({"seed": seed})).sampling.seed;
    assert_eq!(seed(json!(9_007_199_254_740_993_u64)), 9_007_199_254_740_993);
    assert_eq!((seed(json!(u64::MAX)), seed(json!(-1)), seed(json!(5.0))), (u64::MAX, u64::MAX, 5));
    assert_eq!(chat(json!({"max_tokens": 5.0})).max_tokens, 5);
    assert_eq!(chat(json!({"temperature": -0.0})).sampling.temperature, 0.0);
    let top_p = chat(json!({"top_p": 0})).sampling.top_p;
    assert!(top_p > 0.0 && top_p < 1e-30, "the most probable token alone: {top_p}");
    assert_eq!((chat(json!({"top_k": -1})).sampling.top_k, chat(json!({"top_k": 7})).sampling.top_k), (0, 7));
}

#[test]
fn biases_are_numbers_of_the_table_too() {
    let bias = |bias: &str| {
        let body = format!("{{\"prompt\": \"x\", \"logit_bias\": {bias}}}");
        requests::completion(body.as_bytes(), &DEFAULTS).map(|asked| asked.request.adjustment.bias)
    };
    assert_eq!(bias(r#"{"5": -100, "6": 0.5}"#).unwrap(), [(5, -100.0), (6, 0.5)]);
    for bad in [
        r#"{"5": 100.5}"#,
        r#"{"5": "1"}"#,
        r#"{"5": null}"#,
        r#"{"5": true}"#,
        r#"{"5": 1e39}"#,
        r#"{"5": 1e999}"#,
        r#"{"x": 1}"#,
        r#"{"4294967296": 1}"#,
        r#"{"-1": 1}"#,
        "[[5, 1]]",
        "3",
    ] {
        let refused = bias(bad).unwrap_err();
        assert!(refused.message.starts_with("logit_bias"), "{bad}: {}", refused.message);
    }
    assert!(bias("null").unwrap().is_empty());
}

#[test]
fn a_number_that_is_said_twice_is_refused() {
    let body = br#"{"prompt": "x", "seed": 1, "seed": 1}"#;
    let refused = requests::completion(body, &DEFAULTS).unwrap_err();
    assert!(refused.message.contains("the field `seed` twice"), "{}", refused.message);
}
