//! Response bodies in the shapes of OpenAI's API.

use std::borrow::Cow;

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};
use yggc::{
    engine::{self, ErrorKind, FinishReason, Hint, Report},
    text::Tokenizer,
};

use super::log_probs::{Noted, TokenNames};

/// Why a request is refused, with its status.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) status: StatusCode,
    pub(super) message: String,
    field: Option<Cow<'static, str>>,
    code: Option<&'static str>,
    retry_after_s: Option<u64>,
}

impl Refused {
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), field: None, code: None, retry_after_s: None }
    }

    /// Status 400.
    pub(super) fn request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// Status 400, for one field of the request.
    pub(super) fn field(field: impl Into<Cow<'static, str>>, what: impl std::fmt::Display) -> Self {
        let field = field.into();
        let refused = Self::request(format!("{field}: {what}"));
        Self { field: Some(field), ..refused }
    }

    /// The same of a field by its other name, and of what is in it.
    pub(super) fn renamed(self, from: &str, to: &'static str) -> Self {
        let Some(rest) = self.field.as_deref().and_then(|field| field.strip_prefix(from)) else {
            return self;
        };
        if !(rest.is_empty() || rest.starts_with(['.', '['])) {
            return self;
        }
        let field = format!("{to}{rest}");
        let said = self.message.strip_prefix(&*format!("{from}{rest}")).unwrap_or(&self.message);
        Self { message: format!("{field}{said}"), field: Some(field.into()), ..self }
    }

    /// The same of a field as a whole, where it was said of a place in it.
    pub(super) fn without_place(self, field: &'static str) -> Self {
        let Some(place) = self.field.as_deref().and_then(|found| found.strip_prefix(field)) else {
            return self;
        };
        if !place.starts_with('[') {
            return self;
        }
        let said = self.message.strip_prefix(&*format!("{field}{place}")).unwrap_or(&self.message);
        Self { message: format!("{field}{said}"), field: Some(field.into()), ..self }
    }

    /// The same with what may have led to it.
    pub(super) fn with_remark(self, remark: &str) -> Self {
        Self { message: format!("{}; {remark}", self.message), ..self }
    }

    pub(super) fn with_code(self, code: &'static str) -> Self {
        Self { code: Some(code), ..self }
    }

    pub(super) fn with_retry_after(self, seconds: u64) -> Self {
        Self { retry_after_s: Some(seconds), ..self }
    }

    /// The error object in OpenAI's shape.
    pub(super) fn body(&self) -> Value {
        let kind = match self.status {
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            status if status.is_server_error() => "server_error",
            _ => "invalid_request_error",
        };
        json!({"error": {"message": self.message, "type": kind, "param": self.field, "code": self.code}})
    }
}

impl From<engine::Error> for Refused {
    fn from(error: engine::Error) -> Self {
        let status = match error.kind() {
            ErrorKind::Input => StatusCode::BAD_REQUEST,
            ErrorKind::Device => StatusCode::SERVICE_UNAVAILABLE,
            ErrorKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, message(&error))
    }
}

/// What a client reads of an error: its message and the next step.
pub(super) fn message(error: &engine::Error) -> String {
    match error.hint() {
        Some(hint) => format!("{error}; {}", next_step(hint)),
        None => error.to_string(),
    }
}

/// What the client can do, in fields of its request, or what the operator can, in flags of `yggc serve`.
fn next_step(hint: &Hint) -> String {
    let step = match hint {
        Hint::Context => "send a shorter prompt, or ask the operator to serve with another --context",
        Hint::Tier => "the operator can serve with another --isa",
        Hint::Processor => "the operator can serve with --device cpu",
        Hint::Threads => "the operator can serve with fewer --threads",
        Hint::Resident => "the operator can serve with another --resident or --cache-dir",
        Hint::ForcePlan => "the operator can serve with --force",
        Hint::DraftModel => "leave `drafter` out, or ask the operator to serve with --draft-model",
        Hint::Store => "leave `drafter` out, or ask the operator to serve with --store",
        Hint::RawPrompt => "send a `prompt` to /v1/completions, which needs no chat template",
        Hint::Profile { drafter } => {
            return format!(
                "leave `drafter` out, or ask the operator to measure `{drafter}` with `yggc profile` and to serve \
                 with a plan made from that"
            );
        }
        Hint::Recording => {
            "the operator can record again with `yggc profile`, for longer or on other prompts"
        }
        Hint::Corpus => "the operator can build a smaller corpus store with `yggc corpus build`",
    };
    step.to_owned()
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let mut response = (self.status, axum::Json(self.body())).into_response();
        let headers = response.headers_mut();
        if let Some(seconds) = self.retry_after_s {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// The endpoints that generate text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Endpoint {
    Chat,
    Completions,
    /// A chat by other names.
    Responses,
}

impl Endpoint {
    /// Its path, as metrics name it.
    pub(super) const fn route(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Completions => "/v1/completions",
            Self::Responses => "/v1/responses",
        }
    }
}

/// Fields that all responses to one request share.
#[derive(Debug, Clone)]
pub(super) struct Frame {
    pub(super) endpoint: Endpoint,
    pub(super) id: String,
    /// What makes it and the ids of its parts this request's.
    pub(super) number: String,
    /// Seconds since 1970.
    pub(super) created: u64,
    pub(super) model: String,
    /// The answer that is given, from 0.
    pub(super) choice: usize,
    /// How log-probabilities name tokens.
    pub(super) token_names: TokenNames,
}

impl Frame {
    /// A new id for a request.
    pub(super) fn new(endpoint: Endpoint, model: &str, created: u64, number: u64) -> Self {
        let kind = match endpoint {
            Endpoint::Chat => "chatcmpl-",
            Endpoint::Completions => "cmpl-",
            Endpoint::Responses => "resp_",
        };
        let number = format!("{created:x}{number:016x}");
        Self {
            endpoint,
            id: format!("{kind}{number}"),
            number,
            created,
            model: model.to_owned(),
            choice: 0,
            token_names: TokenNames::Texts,
        }
    }

    fn object(&self, of_chat: &str, choices: Value) -> Value {
        let object = match self.endpoint {
            Endpoint::Chat | Endpoint::Responses => of_chat,
            Endpoint::Completions => "text_completion",
        };
        json!({"id": self.id, "object": object, "created": self.created, "model": self.model, "choices": choices})
    }

    /// A whole answer.
    pub(super) fn choice(
        &self,
        text: &str,
        noted: Option<&[Noted]>,
        reason: FinishReason,
        tokenizer: &Tokenizer,
    ) -> Value {
        let log_probs = noted.map(|noted| self.log_probs(noted, tokenizer));
        match self.endpoint {
            Endpoint::Chat | Endpoint::Responses => {
                let message = json!({"role": "assistant", "content": text, "refusal": null});
                json!({"index": self.choice, "message": message, "logprobs": log_probs, "finish_reason": reason.name()})
            }
            Endpoint::Completions => {
                json!({"index": self.choice, "text": text, "logprobs": log_probs, "finish_reason": reason.name()})
            }
        }
    }

    /// The response that has all answers.
    pub(super) fn whole(&self, choices: Vec<Value>, usage: &Usage) -> Value {
        let mut answer = self.object("chat.completion", Value::from(choices));
        answer["usage"] = usage.json();
        answer
    }

    /// First chunk of a chat's stream.
    pub(super) fn opening(&self) -> Option<Value> {
        let choice = |delta: Value| json!([{"index": self.choice, "delta": delta, "logprobs": null, "finish_reason": null}]);
        let delta = json!({"role": "assistant", "content": "", "refusal": null});
        (self.endpoint == Endpoint::Chat).then(|| self.object("chat.completion.chunk", choice(delta)))
    }

    /// A chunk of a stream; the last one has the finish reason.
    pub(super) fn piece(
        &self,
        text: &str,
        noted: Option<&[Noted]>,
        reason: Option<FinishReason>,
        tokenizer: &Tokenizer,
    ) -> Value {
        let log_probs = noted.map(|noted| self.log_probs(noted, tokenizer));
        let reason = reason.map(FinishReason::name);
        let choice = match self.endpoint {
            Endpoint::Chat | Endpoint::Responses => {
                let delta =
                    if text.is_empty() && noted.is_none() { json!({}) } else { json!({"content": text}) };
                json!({"index": self.choice, "delta": delta, "logprobs": log_probs, "finish_reason": reason})
            }
            Endpoint::Completions => {
                json!({"index": self.choice, "text": text, "logprobs": log_probs, "finish_reason": reason})
            }
        };
        self.object("chat.completion.chunk", json!([choice]))
    }

    /// A chunk of a chat's stream with this delta.
    pub(super) fn delta(
        &self,
        delta: Value,
        noted: Option<&[Noted]>,
        reason: Option<&str>,
        tokenizer: &Tokenizer,
    ) -> Value {
        let log_probs = noted.map(|noted| self.log_probs(noted, tokenizer));
        let choice =
            json!([{"index": self.choice, "delta": delta, "logprobs": log_probs, "finish_reason": reason}]);
        self.object("chat.completion.chunk", choice)
    }

    /// The chunk of a stream that reports token usage.
    pub(super) fn usage(&self, usage: &Usage) -> Value {
        let mut piece = self.object("chat.completion.chunk", json!([]));
        piece["usage"] = usage.json();
        piece
    }

    fn log_probs(&self, noted: &[Noted], tokenizer: &Tokenizer) -> Value {
        match self.endpoint {
            Endpoint::Chat | Endpoint::Responses => self.token_names.of_chat(noted, tokenizer),
            Endpoint::Completions => self.token_names.of_completion(noted, tokenizer),
        }
    }
}

/// Token usage of a request.
#[derive(Debug, Default)]
pub(super) struct Usage {
    /// Tokens of its prompts, each counted once.
    pub(super) prompt_tokens: usize,
    pub(super) completion_tokens: usize,
    /// Tokens of its prompts whose keys and values were there before the request.
    pub(super) cached_tokens: usize,
    /// Tokens of its answers that are thoughts.
    pub(super) thought_tokens: usize,
}

impl Usage {
    /// Adds a finished answer.
    pub(super) fn add(&mut self, report: &Report, is_first_of_prompt: bool) {
        self.completion_tokens += report.tokens;
        self.cached_tokens += if is_first_of_prompt { report.reused_tokens } else { 0 };
    }

    pub(super) fn json(&self) -> Value {
        let Self { prompt_tokens, completion_tokens, cached_tokens, thought_tokens } = self;
        json!({
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
            "prompt_tokens_details": {"cached_tokens": cached_tokens},
            "completion_tokens_details": {"reasoning_tokens": thought_tokens},
        })
    }

    /// By the names of `/v1/responses`.
    pub(super) fn of_response(&self) -> Value {
        let Self { prompt_tokens, completion_tokens, cached_tokens, thought_tokens } = self;
        json!({
            "input_tokens": prompt_tokens,
            "input_tokens_details": {"cached_tokens": cached_tokens, "cache_write_tokens": prompt_tokens.saturating_sub(*cached_tokens)},
            "output_tokens": completion_tokens,
            "output_tokens_details": {"reasoning_tokens": thought_tokens},
            "total_tokens": prompt_tokens + completion_tokens,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hint_names_what_the_client_or_the_operator_can_do() {
        for (hint, part) in [
            (Hint::Context, "a shorter prompt"),
            (Hint::Tier, "--isa"),
            (Hint::Processor, "--device cpu"),
            (Hint::Threads, "--threads"),
            (Hint::Resident, "--resident"),
            (Hint::ForcePlan, "--force"),
            (Hint::DraftModel, "--draft-model"),
            (Hint::Store, "--store"),
            (Hint::RawPrompt, "/v1/completions"),
            (Hint::Profile { drafter: "lookup".to_owned() }, "measure `lookup` with `yggc profile`"),
            (Hint::Recording, "`yggc profile`"),
            (Hint::Corpus, "`yggc corpus build`"),
        ] {
            let refused = Refused::from(engine::Error::input("the cause").with_hint(hint));
            let error = &refused.body()["error"];
            let text = error["message"].as_str().unwrap();
            assert!(text.starts_with("the cause; ") && text.contains(part), "{text}");
            assert_eq!(refused.status, StatusCode::BAD_REQUEST);
        }
        assert_eq!(Refused::from(engine::Error::input("the cause")).message, "the cause");
    }
}
