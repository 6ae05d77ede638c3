//! Paths that tell about the service: where things are, its version, whether a request would be taken now; and OpenAI's
//! paths that it does not have.

use std::sync::Arc;

use axum::{
    Json, Router,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::{any, get},
};
use serde_json::{Map, Value, json};

use super::{answers::Refused, page, routes::Service};

/// Every path, and what is there.
const PATHS: [(&str, &str); 15] = [
    ("POST /v1/chat/completions", "answers a conversation"),
    ("POST /v1/completions", "continues prompts"),
    ("POST /v1/responses", "answers a conversation, in OpenAI's newer form"),
    ("POST /v1/choose", "how probable each of some given texts is after a prompt"),
    ("GET /v1/models", "the model"),
    ("GET /v1/models/NAME", "the model, by its name"),
    ("POST /tokenize", "tokens of a text or a conversation"),
    ("POST /detokenize", "text of tokens"),
    ("GET /slots", "what the cache is doing, as llama.cpp's server says it"),
    ("POST /slots/0?action=ACTION", "saves, restores or erases the text of the cache"),
    ("GET /health", "whether the service works"),
    ("GET /ready", "whether a request would be taken now"),
    ("GET /version", "version of the program"),
    ("GET /metrics", "metrics for Prometheus"),
    ("GET /", "this list; for a browser a page, unless it is off"),
];

/// Routes of these paths.
pub(super) fn router() -> Router<Arc<Service>> {
    Router::new()
        .route("/", get(index))
        .route("/ready", get(ready))
        .route("/version", get(version))
        .route("/v1/embeddings", any(embeddings))
}

/// Where things are: the page for a browser, a list for others.
async fn index(State(service): State<Arc<Service>>, headers: HeaderMap) -> Response {
    if service.settings.page && page::is_asked(&headers) {
        return page::response();
    }
    let paths: Map<String, Value> =
        PATHS.into_iter().map(|(path, what)| (path.to_owned(), Value::from(what))).collect();
    let list = json!({
        "name": "yggc",
        "version": env!("CARGO_PKG_VERSION"),
        "model": service.settings.model_name,
        "paths": paths,
    });
    ([(header::VARY, "accept")], Json(list)).into_response()
}

async fn version() -> Json<Value> {
    Json(json!({"version": env!("CARGO_PKG_VERSION")}))
}

/// Whether a request that is sent now would be taken; `health` says whether the service works at all.
async fn ready(State(service): State<Arc<Service>>) -> Response {
    let busy =
        |status: &str| (StatusCode::SERVICE_UNAVAILABLE, Json(json!({"status": status}))).into_response();
    if service.queue.is_closed() {
        return busy("draining");
    }
    if service.metrics.failure().is_some() {
        return busy("failed");
    }
    if service.queue.is_full() {
        return busy("full");
    }
    Json(json!({"status": "ready"})).into_response()
}

async fn embeddings() -> Refused {
    let what = "this server computes no embeddings; use a server that runs an embedding model";
    Refused::new(StatusCode::NOT_FOUND, what).with_code("embeddings_not_supported")
}
