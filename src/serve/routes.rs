//! The handlers of all paths.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use axum::{
    Json, Router,
    body::Body,
    extract::{Path, State, rejection::PathRejection},
    http::{HeaderMap, StatusCode, header},
    middleware,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde_json::json;
use tokio::{
    sync::{Semaphore, mpsc::unbounded_channel},
    task::spawn_blocking,
    time::{Instant, sleep_until, timeout_at},
};
use yggc::{
    engine::{self, CancelHandle, Event, FinishReason, Loaded, Options, Prompt},
    prefix::Owner,
};

use super::{
    about,
    answers::{self, Endpoint, Frame, Refused, Usage},
    body,
    choices::Encoded,
    choose, compiling,
    ending::Ending,
    events::{self, Answering},
    guests,
    key::ApiKey,
    log_probs::Offsets,
    metrics::{self, Metrics},
    queue::{Answers, Job, Queue, Refusal, Sent, Work},
    reading::AnswerForm,
    requests::{self, Asked, Defaults, Delivery},
    response_events::{self, Made, Responding},
    responses,
    settings::Settings,
    slots,
    spans::Spans,
    structured, tokens,
    tools::CallFormat,
    worker::{NONE, PLANNED},
};

/// State that all handlers share.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) loaded: Arc<Loaded>,
    /// How engines are opened, and with which plan.
    pub(super) options: Arc<Options>,
    /// Tokens of prompt and answer together.
    pub(super) context: usize,
    pub(super) settings: Settings,
    pub(super) queue: Arc<Queue>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) spans: Spans,
    /// Places of constraints that are compiled.
    pub(super) compiling: Arc<Semaphore>,
}

impl Service {
    /// What requests are parsed with.
    pub(super) fn defaults(&self) -> Defaults<'_> {
        let Settings { drafter, limits, .. } = &self.settings;
        Defaults { drafter, limits, context: self.context }
    }
}

/// Routes of the service.
pub(super) fn router(service: Arc<Service>) -> Router {
    Router::new()
        .route("/v1/chat/completions", post(chat))
        .route("/v1/completions", post(completions))
        .route("/v1/responses", post(respond))
        .route("/v1/models", get(models))
        .route("/v1/models/{name}", get(model))
        .route("/health", get(health))
        .route("/metrics", get(metrics_text))
        .merge(about::router())
        .merge(choose::router())
        .merge(slots::router())
        .merge(tokens::router())
        .fallback(|| async {
            Refused::new(StatusCode::NOT_FOUND, "unknown path; GET / lists the available paths")
        })
        .method_not_allowed_fallback(|| async {
            Refused::new(StatusCode::METHOD_NOT_ALLOWED, "wrong method; GET / lists the method of each path")
        })
        .with_state(Arc::clone(&service))
        .layer(guests::cors(&service.settings))
        .layer(middleware::from_fn_with_state(service, guests::check))
}

/// Response to a request past its deadline.
pub(super) fn late() -> Refused {
    let what = "the request exceeded its timeout; ask for fewer tokens, or serve with a longer --timeout";
    Refused::new(StatusCode::GATEWAY_TIMEOUT, what).with_code("deadline_exceeded")
}

/// Response to a request that a drain cut off, or that arrived during one.
pub(super) fn drained() -> Refused {
    Refused::new(StatusCode::SERVICE_UNAVAILABLE, "the server is shutting down; retry later or elsewhere")
        .with_code("shutting_down")
}

async fn chat(State(service): State<Arc<Service>>, headers: HeaderMap, body: Body) -> Response {
    generate(&service, Endpoint::Chat, &headers, body).await
}

async fn completions(State(service): State<Arc<Service>>, headers: HeaderMap, body: Body) -> Response {
    generate(&service, Endpoint::Completions, &headers, body).await
}

async fn respond(State(service): State<Arc<Service>>, headers: HeaderMap, body: Body) -> Response {
    generate(&service, Endpoint::Responses, &headers, body).await
}

/// Answers a generating request and counts its end.
async fn generate(service: &Arc<Service>, endpoint: Endpoint, headers: &HeaderMap, body: Body) -> Response {
    let arrived = Instant::now();
    let mut ending = Ending::new(Arc::clone(service), endpoint, headers, arrived);
    let deadline = arrived + service.settings.limits.deadline;
    let asked = match asked(service, endpoint, headers, body, (deadline, ending.cancel())).await {
        Ok(asked) => asked,
        Err(refused) => {
            ending.end(refused.status);
            return refused.into_response();
        }
    };
    match begin(service, endpoint, asked, ending, (arrived, deadline)).await {
        Ok(response) => response,
        Err((refused, mut ending)) => {
            ending.end(refused.status);
            refused.into_response()
        }
    }
}

/// A request that is ready to be queued.
struct Prepared {
    owner: Owner,
    asked: Asked,
    form: Option<AnswerForm>,
    encoded: Encoded,
}

/// Authorises, reads and parses a request, encodes its prompts, which fit the limits, and compiles its constraint.
async fn asked(
    service: &Arc<Service>,
    endpoint: Endpoint,
    headers: &HeaderMap,
    body: Body,
    (deadline, cancel): (Instant, CancelHandle),
) -> Result<Prepared, Refused> {
    let encoding = move |service: &Service, body: &[u8]| {
        let Service { loaded, context, settings, options, .. } = service;
        let defaults = service.defaults();
        let mut asked = match endpoint {
            Endpoint::Chat => requests::chat(body, &defaults),
            Endpoint::Completions => requests::completion(body, &defaults),
            Endpoint::Responses => responses::asked(body, &defaults),
        }?;
        check_model(settings, asked.model.as_deref())?;
        check_drafter(options, &asked.drafter)?;
        let calls = structured::prepare(&mut asked, loaded)?;
        let field = match endpoint {
            Endpoint::Chat | Endpoint::Responses => "messages",
            Endpoint::Completions => "prompt",
        };
        let encoded = Encoded::new(&asked, loaded, &settings.limits, *context, field)?;
        let form = match endpoint {
            Endpoint::Completions => None,
            Endpoint::Chat | Endpoint::Responses => form(&asked, calls, &encoded, loaded)?,
        };
        Ok((asked, form, encoded))
    };
    let renamed = |refused: Refused| match endpoint {
        Endpoint::Chat | Endpoint::Completions => refused,
        Endpoint::Responses => responses::renamed(refused),
    };
    let (owner, encoded) = received(service, headers, body, deadline, encoding).await?;
    let (asked, form, mut encoded) = encoded.map_err(renamed)?;
    let field = if asked.tools.is_some() { "tools" } else { "response_format" };
    // The answers to a request have it in common.
    let constraint = encoded.requests.first().and_then(|request| request.constraint.clone());
    let compiled = compiling::compile(service, constraint, field, cancel, deadline).await.map_err(renamed)?;
    encoded.requests.iter_mut().for_each(|request| request.compiled = compiled.clone());
    Ok(Prepared { owner, asked, form, encoded })
}

/// How the answers of a chat are written. What a constraint makes is the answer itself, without thoughts.
fn form(
    asked: &Asked,
    calls: Option<CallFormat>,
    encoded: &Encoded,
    loaded: &Loaded,
) -> Result<Option<AnswerForm>, Refused> {
    let thinks = asked.tells_thoughts && asked.request.constraint.is_none();
    let prompt = match encoded.requests.first().map(|request| &request.prompt) {
        Some(Prompt::Tokens(ids)) => ids.as_slice(),
        _ => &[],
    };
    AnswerForm::new(loaded, prompt, calls.zip(asked.tools.as_ref()), thinks)
}

/// Authorises and reads a request for the decoder, and has it encoded on a thread of its own: a long text would block
/// the reactor. Gives its owner, and what `encode` made of its body.
pub(super) async fn received<T: Send + 'static>(
    service: &Arc<Service>,
    headers: &HeaderMap,
    body: Body,
    deadline: Instant,
    encode: impl FnOnce(&Service, &[u8]) -> T + Send + 'static,
) -> Result<(Owner, T), Refused> {
    let Service { settings, queue, metrics, .. } = &**service;
    let owner = authorise(settings, headers)?;
    if queue.is_closed() {
        return Err(drained());
    }
    if let Some(reason) = metrics.failure() {
        return Err(Refused::new(StatusCode::SERVICE_UNAVAILABLE, reason).with_code("device_failed"));
    }
    let body = tokio::select! {
        body = body::read(headers, body, settings.limits.body_bytes, deadline) => body?,
        () = queue.closed() => return Err(drained()),
    };
    let turn = tokio::select! {
        turn = timeout_at(deadline, body::turn(body.len())) => turn.map_err(|_| late())?,
        () = queue.closed() => return Err(drained()),
    };
    let service = Arc::clone(service);
    let encoded = spawn_blocking(move || {
        let _turn = turn;
        encode(&service, &body)
    });
    Ok((owner, encoded.await.map_err(|_| not_encoded())?))
}

/// Queues work for the decoder.
pub(super) fn queued(service: &Service, job: Job) -> Result<(), Refused> {
    match service.queue.push(job) {
        Ok(()) => Ok(()),
        Err(Refusal::Full) => {
            let (waiting, answered) = service.queue.lengths();
            let wait_s = service.metrics.retry_after_s(waiting + answered);
            let what = format!("{waiting} requests wait already, as many as may; try again in {wait_s} s");
            let refused = Refused::new(StatusCode::TOO_MANY_REQUESTS, what);
            Err(refused.with_code("queue_full").with_retry_after(wait_s))
        }
        Err(Refusal::Closed) => Err(drained()),
    }
}

/// Response to a text on which the tokenizer failed.
pub(super) fn not_encoded() -> Refused {
    let what = "the prompt could not be encoded; this is a fault of yggc, please report it";
    Refused::new(StatusCode::INTERNAL_SERVER_ERROR, what)
}

/// Queues a request and answers it.
async fn begin(
    service: &Service,
    endpoint: Endpoint,
    Prepared { owner, asked, form, encoded }: Prepared,
    ending: Ending,
    (arrived, deadline): (Instant, Instant),
) -> Result<Response, (Refused, Ending)> {
    let Asked { request, drafter, delivery, token_names, reading, response, .. } = asked;
    let Encoded { mut requests, echoes, each, prompt_tokens } = encoded;
    let reports_log_probs = request.log_probs.is_some();
    let cancel = ending.cancel();
    requests.iter_mut().for_each(|request| request.cancel = cancel.clone());
    let created = seconds_since_1970();
    static REQUESTS: AtomicU64 = AtomicU64::new(0);
    let number = REQUESTS.fetch_add(1, Ordering::Relaxed);
    let frame = Frame::new(endpoint, &service.settings.model_name, created, number);
    let frame = Frame { token_names, ..frame };
    let span = ending.span();
    span.asked(&frame, &requests, prompt_tokens);
    let (sender, events) = unbounded_channel();
    let reports_steps = matches!(delivery, Delivery::Stream { steps: true, .. });
    let reads = reading.map(|reading| reading.most());
    let answers = Answers { requests, each, reads, reports_steps, drafter, span, events: sender };
    let job = Job { work: Work::Answers(answers), owner, cancel, arrived };
    if let Err(refused) = queued(service, job) {
        return Err((refused, ending));
    }
    // Each answer runs its prompt, or reuses its keys and values.
    service.metrics.prompt(prompt_tokens * each);
    let mut answering = Answering {
        responding: response.map(|head| Responding::new(head, &frame)),
        frame,
        loaded: Arc::clone(&service.loaded),
        usage: Usage { prompt_tokens, ..Usage::default() },
        echoes,
        each,
        reports_log_probs,
        reading,
        read: None,
        offsets: Offsets::default(),
        reader: form.as_ref().map(AnswerForm::reader),
        form,
        events,
        deadline: Box::pin(sleep_until(deadline)),
        ending,
    };
    // The decoder may still refuse, with a status; so the response begins with the first event.
    match (next(&mut answering, deadline).await, delivery) {
        (Ok(Sent { event: Event::Finished { reason: FinishReason::Cancelled, .. }, .. }), _) => {
            Err((drained(), answering.ending))
        }
        (Ok(first), Delivery::Stream { usage, steps }) => {
            Ok(events::stream(answering, first, (usage, steps)))
        }
        (Ok(first), Delivery::Whole) => whole(answering, first, deadline).await,
        (Err(refused), _) => Err((refused, answering.ending)),
    }
}

/// The next event of a request.
async fn next(answering: &mut Answering, deadline: Instant) -> Result<Sent, Refused> {
    match timeout_at(deadline, answering.events.recv()).await {
        Ok(Some(delivery)) => delivery.map_err(|error: engine::Error| error.into()),
        Ok(None) => Err(drained()),
        Err(_) => Err(late()),
    }
}

/// Waits for all answers.
async fn whole(
    mut answering: Answering,
    first: Sent,
    deadline: Instant,
) -> Result<Response, (Refused, Ending)> {
    if answering.responding.is_some() {
        return whole_response(answering, first, deadline).await;
    }
    let mut choices = Vec::with_capacity(answering.echoes.len());
    // Of an answer that has begun.
    let mut begun = None;
    let mut sent = first;
    loop {
        answering.read = sent.read.take().or(answering.read);
        let (text, noted) = begun.get_or_insert_with(|| {
            let echo = std::mem::take(&mut answering.echoes[answering.frame.choice]);
            let noted = answering.note_prompt(&echo);
            (echo, noted)
        });
        match sent.event {
            Event::Token { .. } if answering.is_only_read() => {}
            Event::Token { id, text: piece, log_probs } => {
                match &mut answering.reader {
                    Some(reader) => reader.push(id, &piece, answering.loaded.tokenizer()),
                    None => text.push_str(&piece),
                }
                noted.extend(answering.note(id, log_probs));
            }
            Event::Finished { reason: FinishReason::Cancelled, .. } => {
                return Err((drained(), answering.ending));
            }
            Event::Finished { reason, text: rest, report } => {
                let reader = answering.reader.take().map(|mut reader| {
                    *text = reader.finish(&rest);
                    answering.usage.thought_tokens += reader.thought_tokens();
                    reader
                });
                let is_only_read = answering.is_only_read();
                if reader.is_none() && !is_only_read {
                    text.push_str(&rest);
                }
                let reason = if is_only_read { FinishReason::Length } else { reason };
                let said = answering.reports_log_probs.then_some(&noted[..]);
                let tokenizer = answering.loaded.tokenizer();
                let mut choice = answering.frame.choice(text, said, reason, tokenizer);
                if let Some(reader) = reader {
                    reader.put(&answering.frame, reason, &mut choice);
                }
                // Where vLLM has it.
                let (list, is_of_chat) =
                    (answering.prompt_list(), answering.frame.endpoint == Endpoint::Chat);
                if let Some(list) = list.as_ref().filter(|_| !is_of_chat) {
                    choice["prompt_logprobs"] = list.clone();
                }
                choices.push(choice);
                begun = None;
                if answering.finish_choice(&report) {
                    answering.ending.end(StatusCode::OK);
                    let mut whole = answering.frame.whole(choices, &answering.usage);
                    if let Some(list) = list.filter(|_| is_of_chat) {
                        whole["prompt_logprobs"] = list;
                    }
                    return Ok(Json(whole).into_response());
                }
            }
        }
        sent = match next(&mut answering, deadline).await {
            Ok(sent) => sent,
            Err(refused) => return Err((refused, answering.ending)),
        };
    }
}

/// Waits for an answer that is a response: what the last event of its stream would have.
async fn whole_response(
    mut answering: Answering,
    first: Sent,
    deadline: Instant,
) -> Result<Response, (Refused, Ending)> {
    let mut event = first.event;
    loop {
        match response_events::take(&mut answering, event) {
            Made { end: None, .. } => {}
            Made { mut events, end: Some(StatusCode::OK) } => {
                answering.ending.end(StatusCode::OK);
                let response = events.pop().map(|mut last| last["response"].take());
                return Ok(Json(response).into_response());
            }
            Made { end: Some(_), .. } => return Err((drained(), answering.ending)),
        }
        event = match next(&mut answering, deadline).await {
            Ok(sent) => sent.event,
            Err(refused) => return Err((refused, answering.ending)),
        };
    }
}

async fn models(State(service): State<Arc<Service>>, headers: HeaderMap) -> Result<Response, Refused> {
    authorise(&service.settings, &headers)?;
    Ok(Json(json!({"object": "list", "data": [described(&service)]})).into_response())
}

async fn model(
    State(service): State<Arc<Service>>,
    name: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
) -> Result<Response, Refused> {
    authorise(&service.settings, &headers)?;
    let Ok(Path(name)) = name else {
        let what = "the model's name is not UTF-8; /v1/models lists the served model";
        return Err(Refused::new(StatusCode::NOT_FOUND, what).with_code("model_not_found"));
    };
    check_model(&service.settings, Some(&name))?;
    Ok(Json(described(&service)).into_response())
}

fn described(service: &Service) -> serde_json::Value {
    json!({
        "id": service.settings.model_name,
        "object": "model",
        "created": 0,
        "owned_by": "yggc",
        "max_model_len": service.context,
    })
}

async fn health(State(service): State<Arc<Service>>) -> Response {
    if service.queue.is_closed() {
        return (StatusCode::SERVICE_UNAVAILABLE, Json(json!({"status": "draining"}))).into_response();
    }
    if let Some(reason) = service.metrics.failure() {
        let failed = json!({"status": "failed", "reason": reason});
        return (StatusCode::SERVICE_UNAVAILABLE, Json(failed)).into_response();
    }
    Json(json!({"status": "ok"})).into_response()
}

async fn metrics_text(State(service): State<Arc<Service>>, headers: HeaderMap) -> Response {
    let accepted = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let text = service.metrics.text(service.queue.lengths());
    if accepted.contains("application/openmetrics-text") {
        return ([(header::CONTENT_TYPE, metrics::OPEN_METRICS)], text).into_response();
    }
    ([(header::CONTENT_TYPE, metrics::TEXT)], metrics::plain(&text)).into_response()
}

/// Refuses a request without one of the keys, if there are any; gives the owner that its key says.
pub(super) fn authorise(settings: &Settings, headers: &HeaderMap) -> Result<Owner, Refused> {
    if settings.keys.is_empty() {
        return Ok(Owner::default());
    }
    let given = headers.get(header::AUTHORIZATION).map(axum::http::HeaderValue::as_bytes);
    let refused = || {
        let what = "the key is missing or wrong: expected one of the server's as `Authorization: Bearer KEY`";
        Refused::new(StatusCode::UNAUTHORIZED, what).with_code("invalid_api_key")
    };
    ApiKey::owner(&settings.keys, given).ok_or_else(refused)
}

/// Refuses a request for another model.
pub(super) fn check_model(settings: &Settings, asked: Option<&str>) -> Result<(), Refused> {
    let served = &settings.model_name;
    match asked.filter(|asked| asked != served) {
        None => Ok(()),
        Some(found) => {
            let what = format!("the model {found:?} is not served here: expected {served:?}; see /v1/models");
            Err(Refused::new(StatusCode::NOT_FOUND, what).with_code("model_not_found"))
        }
    }
}

/// Refuses a drafter that this service cannot draft with.
fn check_drafter(options: &Options, asked: &str) -> Result<(), Refused> {
    if asked == PLANNED || asked == NONE {
        return Ok(());
    }
    let refused = |error: engine::Error| {
        Refused::field(
            "drafter",
            format!("{}; `{PLANNED}` is the plan's own choice", answers::message(&error)),
        )
    };
    options.check_drafter(asked).map_err(refused)
}

/// Seconds since 1970, for the `created` field.
#[expect(clippy::disallowed_methods, reason = "answers say when they were made; nothing depends on it")]
pub(super) fn seconds_since_1970() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
