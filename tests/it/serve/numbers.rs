//! Numbers in bodies, in forms that a JSON library would not write, on every path.

use super::{answered, planned};

#[test]
fn numbers_are_taken_or_refused_alike_on_every_path() {
    let server = planned();
    let chat = r#""messages": [{"role": "user", "content": "x"}]"#;
    let paths = [
        ("/v1/chat/completions", chat, "max_tokens"),
        ("/v1/chat/completions", chat, "max_completion_tokens"),
        ("/v1/completions", r#""prompt": "x""#, "max_tokens"),
        ("/v1/responses", r#""input": "x""#, "max_output_tokens"),
        ("/tokenize", chat, "max_tokens"),
    ];
    for (path, rest, limit) in paths {
        let ask = |more: &str| server.post_with(path, &format!("{{{rest}, {more}}}"), None);
        for (field, number) in [
            ("temperature", "0.5"),
            ("temperature", "-0.0"),
            ("temperature", "null"),
            ("temperature", "1e-50"),
            ("top_p", "0"),
            ("top_p", "1"),
            ("top_k", "-1"),
            ("top_k", "5.0"),
            ("min_p", "0"),
            ("seed", "-9223372036854775808"),
            ("seed", "18446744073709551615"),
            ("presence_penalty", "-2"),
        ] {
            answered(&ask(&format!("\"{limit}\": 2.0, \"{field}\": {number}")));
        }
        for (field, number) in [
            ("temperature", "\"0.7\""),
            ("temperature", "true"),
            ("temperature", "1e39"),
            ("temperature", "1e999"),
            ("temperature", "-1e999"),
            ("temperature", "[1]"),
            ("top_p", "-1e-50"),
            ("top_p", "1.0000001"),
            ("top_k", "0.5"),
            ("top_k", "-2"),
            ("min_p", "2"),
            ("seed", "1.5"),
            ("seed", "18446744073709551616"),
            ("repetition_penalty", "0"),
            ("repetition_penalty", "1e-60"),
            ("frequency_penalty", "2.5"),
            ("presence_penalty", "\"1\""),
            (limit, "0"),
            (limit, "-1"),
            (limit, "2.5"),
            (limit, "\"2\""),
            (limit, "true"),
            (limit, "1e30"),
            (limit, "123456789012345678901234567890"),
        ] {
            let refused = ask(&format!("\"{field}\": {number}"));
            let error = &refused.json()["error"];
            assert_eq!(
                (refused.status, error["param"].as_str()),
                (400, Some(field)),
                "{path} {number}: {refused:?}"
            );
        }
        // No JSON at all, as some libraries write what is no number.
        for number in ["NaN", "Infinity", "-Infinity", ".5", "5.", "+1", "0x10", "1_000"] {
            let refused = ask(&format!("\"temperature\": {number}"));
            assert_eq!(refused.status, 400, "{path} {number}: {refused:?}");
        }
    }
}
