//! `/v1/choose`: how probable each of some given texts is after a prompt or a conversation.

use std::sync::Arc;

use axum::{Router, body::Body, extract::State, http::HeaderMap, response::Response, routing::post};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::{
    sync::oneshot,
    time::{Instant, timeout_at},
};
use yggc::engine::{Choices, ChooseRequest, Continuation, Normalisation, OptionToken, Prompt, ScoredOption};

use super::{
    answers::{Refused, Usage},
    choices::check_length,
    compiling,
    ending::Ending,
    log_probs::{LEAST_LOG_PROB, MOST_OF_REQUEST},
    queue::{Choice, Job, Work},
    requests::{self, Asked, Defaults},
    routes::{self, Service, drained, late, queued, received},
    spans::Span,
    tokens,
};

const PATH: &str = "/v1/choose";
/// The fields of a request. Others are refused: what is drawn, and how, changes no probability.
const FIELDS: [&str; 10] = [
    "model",
    "prompt",
    "messages",
    "options",
    "normalize",
    "response_format",
    "chat_template_kwargs",
    "add_generation_prompt",
    "continue_final_message",
    "user",
];

/// Routes of this path.
pub(super) fn router() -> Router<Arc<Service>> {
    Router::new().route(PATH, post(choose))
}

#[derive(Debug, Deserialize)]
struct ChooseBody {
    options: Vec<OptionBody>,
    normalize: Option<NormaliseBody>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "an option that is neither a text nor a list of token ids")]
enum OptionBody {
    Text(String),
    Tokens(Vec<u32>),
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum NormaliseBody {
    None,
    Length,
}

/// A question that is ready to be queued, with the texts of its options.
#[derive(Debug)]
struct Encoded {
    request: ChooseRequest,
    texts: Vec<String>,
}

async fn choose(State(service): State<Arc<Service>>, headers: HeaderMap, body: Body) -> Response {
    let arrived = Instant::now();
    let ending = Ending::of_route(Arc::clone(&service), PATH, Span::default(), arrived);
    let answer = chosen(&service, &headers, body, arrived, &ending).await;
    ending.with(answer)
}

/// Queues a question and waits for what is found.
async fn chosen(
    service: &Arc<Service>,
    headers: &HeaderMap,
    body: Body,
    arrived: Instant,
    ending: &Ending,
) -> Result<Value, Refused> {
    let deadline = arrived + service.settings.limits.deadline;
    let (owner, encoded) = received(service, headers, body, deadline, encoded).await?;
    let Encoded { mut request, texts } = encoded?;
    let cancel = ending.cancel();
    request.cancel = cancel.clone();
    let constraint = request.constraint.clone();
    let compiled = compiling::compile(service, constraint, "response_format", cancel.clone(), deadline);
    request.compiled = compiled.await?;
    let (sender, receiver) = oneshot::channel();
    let work = Work::Choice(Box::new(Choice { request, chosen: sender }));
    queued(service, Job { work, owner, cancel, arrived })?;
    let choices = match timeout_at(deadline, receiver).await {
        Ok(Ok(choices)) => choices?.ok_or_else(drained)?,
        Ok(Err(_)) => return Err(drained()),
        Err(_) => return Err(late()),
    };
    service.metrics.prompt(choices.prompt_token_ids.len());
    Ok(answer(&service.settings.model_name, &choices, &texts))
}

/// A parsed question.
#[derive(Debug)]
pub(super) struct AskedChoice {
    pub(super) request: ChooseRequest,
    model: Option<String>,
    /// The field that has the prompt.
    field: &'static str,
}

/// Parses a body.
pub(super) fn asked(body: &[u8], defaults: &Defaults<'_>) -> Result<AskedChoice, Refused> {
    let fields: Map<String, Value> = requests::parse(body)?;
    let is_set = |name: &str| fields.get(name).is_some_and(|value| !value.is_null());
    if let Some(other) = fields.keys().find(|name| is_set(name) && !FIELDS.contains(&name.as_str())) {
        return Err(Refused::field(other.clone(), format!("it is no field of {PATH}; leave it out")));
    }
    let ChooseBody { options, normalize } = requests::parse(body)?;
    let (field, asked) = match (is_set("prompt"), is_set("messages")) {
        (true, true) => {
            return Err(Refused::field("messages", "expected either these or a prompt, found both"));
        }
        (false, true) => ("messages", requests::chat(body, defaults)?),
        (_, false) => ("prompt", requests::completion(body, defaults)?),
    };
    let Asked { request, model, choices, .. } = asked;
    if choices.has_further() {
        return Err(Refused::field("prompt", "expected one prompt, found several; send a request for each"));
    }
    let continuation = |option| match option {
        OptionBody::Text(text) => Continuation::Text(text),
        OptionBody::Tokens(ids) => Continuation::Tokens(ids),
    };
    let request = ChooseRequest {
        normalisation: match normalize {
            None | Some(NormaliseBody::None) => Normalisation::None,
            Some(NormaliseBody::Length) => Normalisation::Length,
        },
        constraint: request.constraint,
        ..ChooseRequest::new(request.prompt, options.into_iter().map(continuation).collect())
    };
    Ok(AskedChoice { request, model, field })
}

/// Parses a body and encodes its prompt and options, which fit the limits.
fn encoded(service: &Service, body: &[u8]) -> Result<Encoded, Refused> {
    let AskedChoice { request, model, field } = asked(body, &service.defaults())?;
    routes::check_model(&service.settings, model.as_deref())?;
    let loaded = &service.loaded;
    let encoded = request.encoded(loaded)?;
    let Prompt::Tokens(ids) = &encoded.prompt else { unreachable!("it was encoded") };
    check_length(ids.len(), &service.settings.limits, service.context, field)?;
    let found = encoded.options.iter().map(|option| match option {
        Continuation::Tokens(ids) => ids.len(),
        Continuation::Text(_) => unreachable!("it was encoded"),
    });
    let found: usize = found.sum();
    if found > MOST_OF_REQUEST {
        let what =
            format!("expected at most {MOST_OF_REQUEST} tokens together, found {found}; send fewer options");
        return Err(Refused::field("options", what));
    }
    let text = |option| match option {
        Continuation::Text(text) => Ok(text),
        Continuation::Tokens(ids) => tokens::text("options", loaded.tokenizer(), &ids),
    };
    let texts = request.options.into_iter().map(text).collect::<Result<_, _>>()?;
    Ok(Encoded { request: encoded, texts })
}

/// The response: the options in the request's order.
fn answer(model: &str, choices: &Choices, texts: &[String]) -> Value {
    // JSON has no infinity.
    let said = |log_prob: f64| log_prob.max(f64::from(LEAST_LOG_PROB));
    let option = |(option, text): (&ScoredOption, &String)| {
        let ScoredOption { tokens, log_prob, probability, is_admitted } = option;
        let token =
            |OptionToken { id, log_prob }: &OptionToken| json!({"id": id, "log_prob": said(*log_prob)});
        json!({
            "text": text,
            "token_ids": tokens.iter().map(|token| token.id).collect::<Vec<_>>(),
            "log_prob": said(*log_prob),
            "probability": probability,
            "admitted": is_admitted,
            "tokens": tokens.iter().map(token).collect::<Vec<_>>(),
        })
    };
    let usage = Usage {
        prompt_tokens: choices.prompt_token_ids.len(),
        cached_tokens: choices.report.reused_tokens,
        ..Usage::default()
    };
    json!({
        "object": "choose",
        "created": routes::seconds_since_1970(),
        "model": model,
        "options": choices.options.iter().zip(texts).map(option).collect::<Vec<_>>(),
        "usage": usage.json(),
    })
}
