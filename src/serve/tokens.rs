//! `/tokenize` and `/detokenize`: text to tokens and back, by the model's tokenizer.

use std::sync::Arc;

use axum::{Json, Router, body::Body, extract::State, http::HeaderMap, routing::post};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{
    task::spawn_blocking,
    time::{Instant, timeout_at},
};
use yggc::{engine::Special, text::Tokenizer};

use super::{
    answers::Refused,
    body, messages, requests,
    routes::{self, Service},
    told_tools,
};

/// Routes of these paths.
pub(super) fn router() -> Router<Arc<Service>> {
    Router::new().route("/tokenize", post(tokenize)).route("/detokenize", post(detokenize))
}

#[derive(Debug, Deserialize)]
struct TokenizeBody {
    model: Option<String>,
    prompt: Option<String>,
    messages: Option<Value>,
    add_special_tokens: Option<bool>,
    return_token_strs: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct DetokenizeBody {
    model: Option<String>,
    tokens: Vec<u32>,
}

async fn tokenize(
    State(service): State<Arc<Service>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Value>, Refused> {
    answered(service, &headers, body, |service, body| {
        let parsed: TokenizeBody = requests::parse(body)?;
        routes::check_model(&service.settings, parsed.model.as_deref())?;
        let ids = ids(service, body, &parsed)?;
        let tokenizer = service.loaded.tokenizer();
        let mut answer = json!({"count": ids.len(), "max_model_len": service.context, "tokens": ids});
        if parsed.return_token_strs == Some(true) {
            answer["token_strs"] = ids.iter().map(|id| tokenizer.spelling(*id)).collect();
        }
        Ok(answer)
    })
    .await
}

async fn detokenize(
    State(service): State<Arc<Service>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Value>, Refused> {
    answered(service, &headers, body, |service, body| {
        let DetokenizeBody { model, tokens } = requests::parse(body)?;
        routes::check_model(&service.settings, model.as_deref())?;
        Ok(json!({"prompt": text("tokens", service.loaded.tokenizer(), &tokens)?}))
    })
    .await
}

/// Reads a body and answers it on a thread of its own: a long text would block the reactor.
async fn answered(
    service: Arc<Service>,
    headers: &HeaderMap,
    body: Body,
    answer: impl FnOnce(&Service, &[u8]) -> Result<Value, Refused> + Send + 'static,
) -> Result<Json<Value>, Refused> {
    routes::authorise(&service.settings, headers)?;
    let limits = &service.settings.limits;
    let deadline = Instant::now() + limits.deadline;
    let body = body::read(headers, body, limits.body_bytes, deadline).await?;
    let turn = timeout_at(deadline, body::turn(body.len())).await.map_err(|_| routes::late())?;
    let answered = spawn_blocking(move || {
        let _turn = turn;
        answer(&service, &body)
    });
    let answered = answered.await;
    answered.unwrap_or_else(|_| Err(routes::not_encoded())).map(Json)
}

/// The tokens of a text as a raw prompt has them, or of a conversation as the model's template lays it out.
fn ids(service: &Service, body: &[u8], parsed: &TokenizeBody) -> Result<Vec<u32>, Refused> {
    let loaded = &service.loaded;
    match (&parsed.prompt, &parsed.messages) {
        (Some(text), None) => Ok(match parsed.add_special_tokens {
            None | Some(true) => loaded.tokenizer().encode_prompt(text),
            Some(false) => loaded.tokenizer().encode(text, Special::Parse),
        }),
        (None, Some(_)) => {
            let mut prompt = requests::chat(body, &service.defaults())?.request.prompt;
            told_tools::lay_out(&mut prompt, loaded)?;
            messages::token_ids(&prompt, loaded)
        }
        (Some(_), Some(_)) => {
            Err(Refused::field("messages", "expected either these or a prompt, found both"))
        }
        (None, None) => Err(Refused::field("prompt", "expected a text, or `messages`, found neither")),
    }
}

/// The text of tokens, control tokens by their names: what a raw prompt would be written as.
pub(super) fn text(field: &'static str, tokenizer: &Tokenizer, ids: &[u32]) -> Result<String, Refused> {
    if let Some(unknown) = ids.iter().find(|id| **id as usize >= tokenizer.vocab_len()) {
        let what = format!("expected ids below {}, found {unknown}", tokenizer.vocab_len());
        return Err(Refused::field(field, what));
    }
    let (mut text, mut detokenizer) = (String::new(), tokenizer.detokenizer());
    for id in ids {
        if tokenizer.is_control(*id) {
            text.push_str(&tokenizer.spelling(*id));
        } else {
            text.push_str(detokenizer.push(*id));
        }
    }
    text.push_str(detokenizer.finish());
    Ok(text)
}
