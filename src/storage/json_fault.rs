//! What a JSON parser met, in words for whoever wrote the text.

use serde_json::error::Category;

/// Says what is wrong with a text that should be JSON of a certain form, and where, to follow the word "found".
pub fn json_fault(error: &serde_json::Error) -> String {
    let said = error.to_string();
    let what = said.rsplit_once(" at line ").map_or(said.as_str(), |(what, _)| what);
    let place = format!("line {}, column {}", error.line(), error.column());
    match error.classify() {
        Category::Eof if error.column() == 0 && error.line() <= 1 => "an empty text".to_owned(),
        Category::Eof => format!("a text that breaks off at {place}"),
        Category::Syntax if what == "number out of range" => {
            format!("a number beyond the range of those with 64 bits at {place}")
        }
        // The parser's own limit, before it recurses further.
        Category::Syntax if what == "recursion limit exceeded" => {
            format!("a text that nests more than 127 deep at {place}")
        }
        Category::Syntax => format!("a text that is no JSON at {place}: {what}"),
        // What a value itself refuses has no place.
        Category::Data if error.line() == 0 => form(what),
        Category::Data => format!("{} at {place}", form(what)),
        Category::Io => what.to_owned(),
    }
}

/// A fault of the form, without the terms of the program that reads it.
fn form(what: &str) -> String {
    let names = |rest: &str, kind: &str| {
        let (name, known) = rest.split_once(", expected ").unwrap_or((rest, "none"));
        let known = known.strip_prefix("one of ").unwrap_or(known);
        format!("the unknown {kind} {name} (known: {known})")
    };
    if let Some(rest) = what.strip_prefix("invalid type: ").or_else(|| what.strip_prefix("invalid value: ")) {
        let (found, expected) = rest.rsplit_once(", expected ").unwrap_or((rest, "another"));
        return format!("{} where {} belongs", value(found), type_name(expected));
    }
    if let Some(rest) = what.strip_prefix("invalid length ") {
        let (count, expected) = rest.split_once(", expected ").unwrap_or((rest, "another number of them"));
        return format!("a list of {count} where {} belongs", type_name(expected));
    }
    if let Some(name) = what.strip_prefix("missing field ") {
        return format!("no field {name}");
    }
    if let Some(name) = what.strip_prefix("duplicate field ") {
        return format!("the field {name} twice");
    }
    if let Some(rest) = what.strip_prefix("unknown field ") {
        return names(rest, "field");
    }
    if let Some(rest) = what.strip_prefix("unknown variant ") {
        return names(rest, "value");
    }
    what.to_owned()
}

/// A value, which begins with its kind.
fn value(found: &str) -> String {
    match found {
        "map" => "an object".to_owned(),
        "sequence" => "a list".to_owned(),
        "null" => "null".to_owned(),
        _ => {
            let plain =
                [("string ", "the text "), ("integer ", ""), ("floating point ", ""), ("boolean ", "")];
            let short = plain.iter().find_map(|(kind, plain)| Some((plain, found.strip_prefix(kind)?)));
            short.map_or_else(|| found.to_owned(), |(plain, rest)| format!("{plain}{rest}"))
        }
    }
}

/// A type of Rust as a JSON author knows it.
fn type_name(expected: &str) -> &str {
    match expected {
        "a map" => "an object",
        "a sequence" => "a list",
        "a string" | "string" => "a text",
        "a boolean" => "true or false",
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number that is not negative",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        _ if expected.starts_with("struct ") => "an object",
        _ => expected,
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only read")]
    struct Line {
        text: String,
        count: Option<u32>,
        of: Option<Kind>,
        ids: Option<[u8; 2]>,
        inner: Option<Box<Line>>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Kind {
        One,
        Two,
    }

    #[test]
    fn nesting_is_limited_and_named() {
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            let nested = |depth: usize| format!("{}1{}", open.repeat(depth), close.repeat(depth));
            assert!(serde_json::from_str::<serde_json::Value>(&nested(127)).is_ok());
            for depth in [128, 200_000] {
                let error = serde_json::from_str::<serde_json::Value>(&nested(depth)).unwrap_err();
                let found = json_fault(&error);
                assert!(found.starts_with("a text that nests more than 127 deep at line 1"), "{found}");
            }
        }
    }

    #[test]
    fn faults_are_said_in_the_terms_of_json() {
        let cases = [
            ("", "an empty text"),
            (r#"{"text": "a"#, "a text that breaks off at line 1, column 11"),
            ("{\"text\"\n1}", "a text that is no JSON at line 2, column 1: expected `:`"),
            (r#"{"text": 1e999}"#, "a number beyond the range of those with 64 bits at line 1"),
            (r#"{"text": 5}"#, "`5` where a text belongs at line 1, column 10"),
            (r#"{"text": [1]}"#, "a list where a text belongs at line 1, column 9"),
            (r#"{"text": null}"#, "null where a text belongs at line 1, column 13"),
            (r#"{"text": "a", "count": -1}"#, "-1` where"),
            (
                r#"{"text": "a", "count": "b"}"#,
                "the text \"b\" where a whole number that is not negative belongs",
            ),
            (r#"{"text": "a", "inner": 3}"#, "3` where an object belongs"),
            (r#"{"text": "a", "ids": [1]}"#, "a list of 1 where an array of length 2 belongs"),
            (r#"{}"#, "no field `text` at line 1, column 2"),
            (r#"{"text": "a", "text": "b"}"#, "the field `text` twice at line 1"),
            (r#"{"texts": "a"}"#, "the unknown field `texts` (known: `text`, `count`, `of`, `ids`, `inner`)"),
            (r#"{"text": "a", "of": "three"}"#, "the unknown value `three` (known: `one` or `two`)"),
        ];
        for (text, expected) in cases {
            let found = json_fault(&serde_json::from_str::<Line>(text).unwrap_err());
            assert!(found.contains(expected), "{text}: expected {expected}, found {found}");
        }
    }
}
