//! Fields of requests that other servers know.

use super::{answers::Refused, numbers::Others};

/// Fields by which other servers change what is generated, and which mean nothing here.
const FOREIGN: [&str; 36] = [
    "add_special_tokens",
    "allowed_token_ids",
    "audio",
    "bad_words",
    "chat_template",
    "dry_multiplier",
    "dynatemp_range",
    "format",
    "grammar",
    "guided_choice",
    "guided_grammar",
    "guided_json",
    "guided_regex",
    "json_schema",
    "length_penalty",
    "logits_processors",
    "max_length",
    "min_tokens",
    "mirostat",
    "modalities",
    "n_predict",
    "num_predict",
    "reasoning_effort",
    "repeat_last_n",
    "repeat_penalty",
    "samplers",
    "stop_token_ids",
    "structured_outputs",
    "tfs_z",
    "top_a",
    "truncate_prompt_tokens",
    "typical_p",
    "use_beam_search",
    "web_search_options",
    "xtc_probability",
    "xtc_threshold",
];

/// Settings of other servers, each with its default, which is what happens here. Routers write them into every request.
const DEFAULTS: [(&str, bool); 5] = [
    ("ignore_eos", false),
    ("include_stop_str_in_output", false),
    ("no_stop_trim", false),
    ("return_hidden_states", false),
    ("skip_special_tokens", true),
];

/// Refuses a field that would change the answer on another server.
pub(super) fn refuse(fields: &Others) -> Result<(), Refused> {
    for (name, expected) in DEFAULTS {
        if fields.flag(name)?.is_some_and(|found| found != expected) {
            let what = format!(
                "expected {expected}, as this server has no such setting, found {}; leave it out",
                !expected
            );
            return Err(Refused::field(name, what));
        }
    }
    match FOREIGN.into_iter().find(|name| fields.get(name).is_some()) {
        Some(name) => Err(Refused::field(name, "this server has no such setting; leave it out")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_router_writes_is_taken_and_what_would_change_an_answer_is_not() {
        let refuse = |body: &str| refuse(&serde_json::from_str(body).unwrap());
        let by_a_router = r#"{"messages": [], "no_stop_trim": false, "ignore_eos": false, "skip_special_tokens": true,
            "separate_reasoning": true, "stream_reasoning": true, "return_hidden_states": false}"#;
        refuse(by_a_router).unwrap();
        for (body, field) in [
            (r#"{"ignore_eos": true}"#, "ignore_eos"),
            (r#"{"skip_special_tokens": false}"#, "skip_special_tokens"),
            (r#"{"no_stop_trim": true}"#, "no_stop_trim"),
            (r#"{"ignore_eos": 1}"#, "ignore_eos"),
            (r#"{"min_tokens": 4}"#, "min_tokens"),
        ] {
            let refused = refuse(body).unwrap_err();
            assert!(refused.message.starts_with(field), "{}", refused.message);
        }
    }
}
