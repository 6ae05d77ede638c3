//! Messages of a conversation, as clients send them back: with calls, results and what else answers have.

use serde::Deserialize;
use yggc::engine::{Conversation, Json, Loaded, Message, Prompt, Role};

use super::answers::Refused;

/// A message. Other fields that clients repeat of an answer (`annotations`, ids) say nothing to a template and are
/// ignored.
#[derive(Debug, Deserialize)]
pub(super) struct MessageBody {
    role: String,
    content: Option<Content>,
    prefix: Option<bool>,
    tool_calls: Option<Vec<CallBody>>,
    tool_call_id: Option<String>,
    name: Option<String>,
    refusal: Option<String>,
    reasoning_content: Option<Json>,
    reasoning: Option<Json>,
    function_call: Option<Json>,
    audio: Option<Json>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "a content that is neither a text nor a list of parts")]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Debug, Deserialize)]
struct Part {
    r#type: String,
    text: Option<String>,
    refusal: Option<String>,
}

/// A call that the model made.
#[derive(Debug, Deserialize)]
struct CallBody {
    id: Option<String>,
    function: CalledBody,
}

#[derive(Debug, Deserialize)]
struct CalledBody {
    name: String,
    arguments: Option<Json>,
}

impl MessageBody {
    /// Whether the model continues it.
    pub(super) fn is_prefix(&self) -> bool {
        self.prefix == Some(true)
    }

    /// The message as templates read it.
    pub(super) fn read(self) -> Result<Message, String> {
        let Self { role, content, prefix: _, tool_calls, tool_call_id, .. } = self;
        let role = match role.as_str() {
            // OpenAI's newer name for `system`.
            "developer" => Role::System,
            name => name.parse::<Role>().map_err(|error| error.to_string())?,
        };
        for (field, value, instead) in [
            ("function_call", self.function_call, "send it in `tool_calls`"),
            ("audio", self.audio, "send its text as `content`"),
        ] {
            if value.is_some() {
                return Err(format!(
                    "expected no `{field}`, which this server does not know, found one; {instead}"
                ));
            }
        }
        let content = match content {
            Some(content) => content.text(role)?,
            // An answer that is nothing, or calls alone, or that the model refused to give.
            None if role == Role::Assistant => self.refusal.unwrap_or_default(),
            None => return Err(format!("expected a message of role {role} to have content, found none")),
        };
        let mut message = Message::new(role, content);
        let mut set = |name: &str, value: Json| message.fields.push((name.to_owned(), value));
        if let Some(calls) = tool_calls.filter(|calls| !calls.is_empty()) {
            if role != Role::Assistant {
                return Err(format!("expected `tool_calls` of the assistant, found some of role {role}"));
            }
            set("tool_calls", Json::Array(calls.into_iter().map(called).collect::<Result<_, _>>()?));
        }
        if let Some(id) = tool_call_id {
            if role != Role::Tool {
                return Err(format!("expected `tool_call_id` of role tool, found one of role {role}"));
            }
            set("tool_call_id", Json::String(id));
        }
        if let Some(name) = self.name {
            set("name", Json::String(name));
        }
        if let Some(reasoning @ Json::String(_)) = self.reasoning_content.or(self.reasoning) {
            set("reasoning_content", reasoning);
        }
        Ok(message)
    }
}

impl Content {
    fn text(self, role: Role) -> Result<String, String> {
        let parts = match self {
            Self::Text(text) => return Ok(text),
            Self::Parts(parts) => parts,
        };
        let text = |Part { r#type, text, refusal }| match (r#type.as_str(), text, refusal) {
            ("text", Some(text), _) => Ok(text),
            ("refusal", _, Some(refusal)) if role == Role::Assistant => Ok(refusal),
            ("text", None, _) => Err("expected `text` in a part of type text, found none".to_owned()),
            (other, ..) => Err(format!("expected parts of type text, found {other:?}")),
        };
        parts.into_iter().map(text).collect()
    }
}

/// A call as templates read it.
fn called(CallBody { id, function: CalledBody { name, arguments } }: CallBody) -> Result<Json, String> {
    let string = |text: &str| Json::String(text.to_owned());
    let arguments = arguments_read(&name, arguments)?;
    let function =
        Json::Object(vec![("name".to_owned(), Json::String(name)), ("arguments".to_owned(), arguments)]);
    let mut entries = vec![("type".to_owned(), string("function")), ("function".to_owned(), function)];
    if let Some(id) = id {
        entries.insert(0, ("id".to_owned(), Json::String(id)));
    }
    Ok(Json::Object(entries))
}

/// Arguments as templates read them: an object, which is empty where a client has nothing to say. Text that is no JSON
/// object, such as that of an answer that was cut, stays the text that it is: templates that tell texts from objects
/// print it as the model wrote it.
fn arguments_read(name: &str, sent: Option<Json>) -> Result<Json, String> {
    let none = || Json::Object(Vec::new());
    match sent {
        None | Some(Json::Null) => Ok(none()),
        Some(object @ Json::Object(_)) => Ok(object),
        Some(Json::String(text)) if text.trim().is_empty() => Ok(none()),
        Some(Json::String(text)) => Ok(match serde_json::from_str(&text) {
            Ok(object @ Json::Object(_)) => object,
            Ok(Json::Null) => none(),
            _ => Json::String(text),
        }),
        Some(Json::Bool(_) | Json::Number(_) | Json::Array(_)) => Err(format!(
            "expected the arguments of the call of {name:?} as a text of JSON or as an object, found another value"
        )),
    }
}

/// The tokens of a prompt.
pub(super) fn token_ids(prompt: &Prompt, loaded: &Loaded) -> Result<Vec<u32>, Refused> {
    prompt.token_ids(loaded).map_err(|error| {
        let refused = Refused::from(error);
        let name = if let Prompt::Chat(conversation) = prompt { call_with_text(conversation) } else { None };
        match name {
            Some(name) => refused.with_remark(&format!(
                "the arguments of the call of {name:?} in `messages` are no JSON object, which the model's chat \
                 template may need: send one"
            )),
            None => refused,
        }
    })
}

/// The name of the first function that a conversation calls with arguments that are text.
fn call_with_text(conversation: &Conversation) -> Option<&str> {
    let fields = conversation.messages.iter().flat_map(|message| &message.fields);
    let calls = fields.filter_map(|(name, value)| match value {
        Json::Array(calls) if name == "tool_calls" => Some(calls),
        _ => None,
    });
    calls.flatten().find_map(|call| {
        let function = member(call, "function")?;
        match (member(function, "name"), member(function, "arguments")) {
            (Some(Json::String(name)), Some(Json::String(_))) => Some(name.as_str()),
            _ => None,
        }
    })
}

/// The value of a key of an object.
pub(super) fn member<'j>(value: &'j Json, name: &str) -> Option<&'j Json> {
    let Json::Object(entries) = value else { return None };
    entries.iter().find(|(known, _)| known == name).map(|(_, value)| value)
}

#[cfg(test)]
#[path = "messages/tests.rs"]
mod tests;
