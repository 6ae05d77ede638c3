//! `/slots`: the text of the cache under a name of the client's, as in llama.cpp's server: saved, restored, erased.
//!
//! A file has the text, as token ids, and what model they are of; keys and values are where those of all texts are
//! kept, and what is no longer there is computed. So a restored slot is the one that was saved, to the bit, whatever
//! became of either. Slot 0 is the only one: other texts are found by their beginnings, without a name.

use std::{fs, io, path::PathBuf, sync::Arc};

use axum::{
    Json, Router,
    body::Body,
    extract::{Path, RawQuery, State},
    http::{HeaderMap, StatusCode},
    response::Response,
    routing::{get, post},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::{
    sync::oneshot,
    task::spawn_blocking,
    time::{Instant, timeout_at},
};
use yggc::{
    prefix::Owner,
    storage::{json_fault, replace_file},
};

use super::{
    answers::Refused,
    ending::Ending,
    queue::{CachedText, Job, TextAct, TextWork, Work},
    requests,
    routes::{Service, authorise, drained, late, queued, received},
    spans::Span,
};

const PATH: &str = "/slots";
/// Most characters of the name of a file: such names may have 255 bytes.
const MOST_NAME: usize = 200;

/// Routes of these paths.
pub(super) fn router() -> Router<Arc<Service>> {
    Router::new().route(PATH, get(list)).route("/slots/{slot}", post(act))
}

#[derive(Debug, Deserialize)]
struct Named {
    filename: String,
}

/// What a file holds.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    /// Digest of the model whose tokens they are.
    model: String,
    tokens: Vec<u32>,
}

/// What is asked for.
#[derive(Debug)]
enum Action {
    Save(PathBuf),
    Restore(PathBuf, Saved),
    Erase,
}

/// The slot, without its text, which is its owner's.
async fn list(State(service): State<Arc<Service>>, headers: HeaderMap) -> Result<Json<Value>, Refused> {
    authorise(&service.settings, &headers)?;
    let (_, answered) = service.queue.lengths();
    Ok(Json(json!([{"id": 0, "n_ctx": service.context, "is_processing": answered > 0}])))
}

async fn act(
    State(service): State<Arc<Service>>,
    Path(slot): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let arrived = Instant::now();
    let ending = Ending::of_route(Arc::clone(&service), PATH, Span::default(), arrived);
    let answer = acted(&service, (&slot, query), (&headers, body), arrived, &ending).await;
    ending.with(answer)
}

async fn acted(
    service: &Arc<Service>,
    (slot, query): (&str, Option<String>),
    (headers, body): (&HeaderMap, Body),
    arrived: Instant,
    ending: &Ending,
) -> Result<Value, Refused> {
    // Whose it is decides which file is meant.
    let owner = authorise(&service.settings, headers)?;
    if slot != "0" {
        let what = format!("there is no slot {slot:?}: expected 0, the only one");
        return Err(Refused::new(StatusCode::NOT_FOUND, what));
    }
    let deadline = arrived + service.settings.limits.deadline;
    let read = move |service: &Service, body: &[u8]| action(service, query.as_deref(), body, owner);
    let (owner, action) = received(service, headers, body, deadline, read).await?;
    let (act, action) = match action? {
        Action::Restore(path, saved) => {
            (TextAct::Read(saved.tokens), Action::Restore(path, Saved { tokens: Vec::new(), ..saved }))
        }
        Action::Save(path) => (TextAct::Tell, Action::Save(path)),
        Action::Erase => (TextAct::Forget, Action::Erase),
    };
    let (cancel, (done, receiver)) = (ending.cancel(), oneshot::channel());
    queued(service, Job { work: Work::Text(TextWork { act, done }), owner, cancel, arrived })?;
    let text = match timeout_at(deadline, receiver).await {
        Ok(Ok(text)) => text?.ok_or_else(drained)?,
        Ok(Err(_)) => return Err(drained()),
        Err(_) => return Err(late()),
    };
    let count = text.tokens.len();
    let took = || arrived.elapsed().as_secs_f64() * 1e3;
    match action {
        Action::Erase => Ok(json!({"id_slot": 0, "n_erased": count})),
        Action::Restore(path, _) => Ok(json!({
            "id_slot": 0,
            "filename": file_name(&path),
            "n_restored": count,
            "n_kept": text.kept,
            "timings": {"restore_ms": took()},
        })),
        Action::Save(_) if count == 0 => {
            Err(Refused::request("there is no text to save: expected a request before; ask something first"))
        }
        Action::Save(path) => {
            let model = model_of(service);
            let name = file_name(&path);
            let bytes = spawn_blocking(move || save(&path, text, model))
                .await
                .map_err(|_| not_saved("a panic"))??;
            Ok(json!({
                "id_slot": 0,
                "filename": name,
                "n_saved": count,
                "n_written": bytes,
                "timings": {"save_ms": took()},
            }))
        }
    }
}

/// Parses a request, and reads the file that is to be restored.
fn action(service: &Service, query: Option<&str>, body: &[u8], owner: Owner) -> Result<Action, Refused> {
    let mut fields = query.unwrap_or_default().split('&');
    let action = fields.find_map(|field| field.strip_prefix("action="));
    let known = "expected `save`, `restore` or `erase`, as in POST /slots/0?action=save";
    match action {
        Some("erase") => Ok(Action::Erase),
        Some("save") => file(service, body, owner).map(Action::Save),
        Some("restore") => {
            let path = file(service, body, owner)?;
            let saved = restore(&path, &model_of(service))?;
            Ok(Action::Restore(path, saved))
        }
        Some(other) => Err(Refused::field("action", format!("{known}, found {other:?}"))),
        None => Err(Refused::field("action", format!("{known}, found none"))),
    }
}

/// The file that a body names, of this owner.
fn file(service: &Service, body: &[u8], owner: Owner) -> Result<PathBuf, Refused> {
    let Some(folder) = &service.settings.slots else {
        let what = "this server saves no slots; serve with --slot-save-path DIR";
        return Err(Refused::new(StatusCode::NOT_IMPLEMENTED, what).with_code("not_supported"));
    };
    let Named { filename } = requests::parse(body)?;
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "-_.".contains(character);
    let is_name = filename.chars().all(is_plain) && !filename.starts_with('.');
    if !is_name || !(1..=MOST_NAME).contains(&filename.len()) {
        let what = format!(
            "expected 1 to {MOST_NAME} letters, digits, `-`, `_` and `.`, not `.` first, found {filename:?}"
        );
        return Err(Refused::field("filename", what));
    }
    Ok(owner.label().map_or_else(|| folder.clone(), |label| folder.join(label)).join(filename))
}

fn file_name(path: &std::path::Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn model_of(service: &Service) -> String {
    service.loaded.model_digest()
}

fn not_saved(why: impl std::fmt::Display) -> Refused {
    let what = format!("the slot could not be saved: {why}; check the folder of --slot-save-path");
    Refused::new(StatusCode::INTERNAL_SERVER_ERROR, what)
}

/// Writes a text; gives the bytes of its file.
fn save(path: &std::path::Path, text: CachedText, model: String) -> Result<usize, Refused> {
    let saved = Saved { model, tokens: text.tokens };
    let bytes = serde_json::to_vec(&saved).expect("numbers are JSON");
    let made = path.parent().map_or(Ok(()), fs::create_dir_all);
    made.and_then(|()| replace_file(path, &bytes)).map_err(not_saved)?;
    Ok(bytes.len())
}

/// Reads a text of this model.
fn restore(path: &std::path::Path, model: &str) -> Result<Saved, Refused> {
    let name = file_name(path);
    let refused = |found: String| {
        Refused::field("filename", format!("expected a saved slot of this model, found {found}: {name:?}"))
    };
    let bytes = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let what = format!("no slot was saved as {name:?}");
            return Err(Refused::new(StatusCode::NOT_FOUND, what));
        }
        other => other.map_err(|error| refused(error.to_string()))?,
    };
    let saved: Saved = serde_json::from_slice(&bytes).map_err(|error| refused(json_fault(&error)))?;
    match saved.model == model {
        true if saved.tokens.is_empty() => Err(refused("an empty text".to_owned())),
        true => Ok(saved),
        false => Err(refused("one of another model".to_owned())),
    }
}
