//! Requests of `/v1/responses`, translated into those of `/v1/chat/completions`: the same conversation, constraint and
//! tools by the other names. What the endpoint has in addition needs stored responses or tools of the server, of which
//! there are none.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{self, SeqAccess, Visitor},
};
use serde_json::{Value, json};
use yggc::engine::Json;

use super::{
    answers::Refused,
    requests::{self, Asked, Defaults, parse},
};

/// Fields of the chat, by what this endpoint has for them.
const OF_CHAT: [(&str, &str); 11] = [
    ("messages", "send `input`"),
    ("max_tokens", "send `max_output_tokens`"),
    ("max_completion_tokens", "send `max_output_tokens`"),
    ("response_format", "send `text.format`"),
    ("functions", "send `tools`"),
    ("n", "ask /v1/chat/completions for several answers"),
    ("best_of", "ask /v1/chat/completions for several answers"),
    ("logprobs", "ask /v1/chat/completions for log-probabilities"),
    ("top_logprobs", "ask /v1/chat/completions for log-probabilities"),
    ("prompt_logprobs", "ask /v1/chat/completions for log-probabilities"),
    ("prompt", "send `input`: no prompts are stored here"),
];
/// What a refusal of the chat is about, and the field of this endpoint that it stands for.
const NAMES: [(&str, &str); 4] = [
    ("messages", "input"),
    ("max_tokens", "max_output_tokens"),
    ("max_completion_tokens", "max_output_tokens"),
    ("response_format", "text.format"),
];

/// Fields that are read here; all others are the chat's too.
#[derive(Debug, Deserialize)]
struct ResponsesBody {
    input: InputBody,
    instructions: Option<String>,
    max_output_tokens: Option<Json>,
    text: Option<TextBody>,
    tools: Option<Vec<Json>>,
    tool_choice: Option<ChoiceBody>,
    include: Option<Vec<String>>,
    previous_response_id: Option<Value>,
    conversation: Option<Value>,
    background: Option<bool>,
    truncation: Option<String>,
    reasoning: Option<ReasoningBody>,
}

/// Fields that an answer repeats, as they were sent.
#[derive(Debug, Deserialize)]
struct EchoBody {
    instructions: Option<Value>,
    max_output_tokens: Option<Value>,
    metadata: Option<Value>,
    parallel_tool_calls: Option<bool>,
    temperature: Option<Value>,
    text: Option<Value>,
    tool_choice: Option<Value>,
    tools: Option<Value>,
    top_p: Option<Value>,
    user: Option<Value>,
}

#[derive(Debug)]
enum InputBody {
    Text(String),
    Items(Vec<ItemBody>),
}

impl<'de> Deserialize<'de> for InputBody {
    /// Read from the text itself, as JSON in it wants: serde's own choice among forms reads it through another.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrItems;
        impl<'de> Visitor<'de> for TextOrItems {
            type Value = InputBody;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a list of items")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<InputBody, E> {
                Ok(InputBody::Text(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<InputBody, A::Error> {
                let mut all = Vec::new();
                while let Some(item) = items.next_element()? {
                    all.push(item);
                }
                Ok(InputBody::Items(all))
            }
        }
        deserializer.deserialize_any(TextOrItems)
    }
}

/// An item of any type.
#[derive(Debug, Deserialize)]
struct ItemBody {
    r#type: Option<String>,
    role: Option<String>,
    content: Option<ContentBody>,
    call_id: Option<String>,
    name: Option<String>,
    arguments: Option<Json>,
    output: Option<ContentBody>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "a content that is neither a text nor a list of parts")]
enum ContentBody {
    Text(String),
    Parts(Vec<PartBody>),
}

#[derive(Debug, Deserialize)]
struct PartBody {
    r#type: String,
    text: Option<String>,
    refusal: Option<String>,
}

#[derive(Debug, Deserialize)]
struct TextBody {
    format: Option<Json>,
    verbosity: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "another `tool_choice` than none, auto, required, or one function by name")]
enum ChoiceBody {
    Word(String),
    Named { name: String },
}

#[derive(Debug, Deserialize)]
struct ReasoningBody {
    effort: Option<String>,
}

/// Parses a body of `/v1/responses`. A refusal may name a field of the chat: [`renamed`] gives it this endpoint's name.
pub(super) fn asked(body: &[u8], defaults: &Defaults<'_>) -> Result<Asked, Refused> {
    let parsed: ResponsesBody = parse(body)?;
    let Json::Object(fields) = parse(body)? else { unreachable!("it was parsed as an object") };
    check(&parsed, &fields)?;
    let ResponsesBody { input, instructions, max_output_tokens, text, tools, tool_choice, .. } = parsed;
    let mut chat = vec![("messages".to_owned(), Json::Array(messages(input, instructions)?))];
    let mut put = |name: &str, value: Json| chat.push((name.to_owned(), value));
    if let Some(most) = max_output_tokens {
        put("max_completion_tokens", most);
    }
    if let Some(format) = text.and_then(|text| text.format) {
        put("response_format", response_format(format));
    }
    if let Some(tools) = tools {
        put("tools", Json::Array(tools.into_iter().map(tool).collect::<Result<_, _>>()?));
    }
    match tool_choice {
        None => {}
        Some(ChoiceBody::Word(word)) => put("tool_choice", string(word)),
        Some(ChoiceBody::Named { name }) => {
            put("tool_choice", object([("function", object([("name", string(name))]))]));
        }
    }
    let read_here = [
        "input",
        "instructions",
        "max_output_tokens",
        "text",
        "tools",
        "tool_choice",
        "include",
        "truncation",
        "reasoning",
        "stream_options",
    ];
    chat.extend(
        fields.into_iter().filter(|(name, value)| !read_here.contains(&&**name) && *value != Json::Null),
    );
    let chat = Json::Object(chat).to_string();
    // Items and messages are not numbered alike.
    let asked =
        requests::chat(chat.as_bytes(), defaults).map_err(|refused| refused.without_place("messages"))?;
    Ok(Asked { response: Some(head(body)?), ..asked })
}

/// Whether a field is the chat's alone.
#[cfg(test)]
pub(super) fn is_of_chat(name: &str) -> bool {
    OF_CHAT.iter().any(|(known, _)| *known == name)
}

/// A refusal by the names of this endpoint.
pub(super) fn renamed(refused: Refused) -> Refused {
    NAMES.into_iter().fold(refused, |refused, (chat, own)| refused.renamed(chat, own))
}

/// Refuses what only a server with stored responses or tools of its own can do, and fields that would change the answer
/// elsewhere.
fn check(body: &ResponsesBody, fields: &[(String, Json)]) -> Result<(), Refused> {
    let is_set =
        |name: &str| fields.iter().any(|(field, value)| field == name && !matches!(value, Json::Null));
    if let Some((name, instead)) = OF_CHAT.into_iter().find(|(name, _)| is_set(name)) {
        return Err(Refused::field(name, format!("`{name}` is no field of /v1/responses; {instead}")));
    }
    if body.previous_response_id.is_some() {
        let what = "no response is stored here; send the items of the earlier ones in `input`";
        return Err(Refused::field("previous_response_id", what).with_code("previous_response_not_found"));
    }
    if body.conversation.is_some() {
        let what = "no conversation is stored here; send its items in `input`";
        return Err(Refused::field("conversation", what));
    }
    if body.background == Some(true) {
        let what = "no response is stored here to be asked for later; leave it out, and use `stream`";
        return Err(Refused::field("background", what));
    }
    if let Some(found) = body.truncation.as_deref().filter(|found| *found != "disabled") {
        let what = format!("expected disabled, found {found:?}: nothing is left out of an input here");
        return Err(Refused::field("truncation", what));
    }
    if body.reasoning.as_ref().is_some_and(|reasoning| reasoning.effort.is_some()) {
        let what = "this server has no such setting; leave it out, or set `chat_template_kwargs`";
        return Err(Refused::field("reasoning.effort", what));
    }
    let verbosity = body.text.as_ref().and_then(|text| text.verbosity.as_deref());
    if let Some(found) = verbosity.filter(|found| *found != "medium") {
        let what = format!("this server has no such setting, found {found:?}; leave it out");
        return Err(Refused::field("text.verbosity", what));
    }
    if body.include.iter().flatten().any(|include| include == "message.output_text.logprobs") {
        let what = "log-probabilities are given by /v1/chat/completions; ask there";
        return Err(Refused::field("include", what));
    }
    Ok(())
}

/// The conversation of an input.
fn messages(input: InputBody, instructions: Option<String>) -> Result<Vec<Json>, Refused> {
    let system = instructions.map(|instructions| said("system", instructions));
    let mut messages: Vec<Message> = system.into_iter().collect();
    match input {
        InputBody::Text(text) => messages.push(said("user", text)),
        InputBody::Items(items) => {
            for (place, item) in items.into_iter().enumerate() {
                add(item, &mut messages).map_err(|what| Refused::field(format!("input[{place}]"), what))?;
            }
        }
    }
    Ok(messages.into_iter().map(Message::json).collect())
}

/// A message of the chat.
#[derive(Debug)]
struct Message {
    role: String,
    content: Option<String>,
    calls: Vec<Json>,
    answered: Option<String>,
    thought: Option<String>,
}

impl Message {
    /// Whether it is what an answer thought, and no more so far.
    fn is_thought(&self) -> bool {
        self.thought.is_some() && self.content.is_none() && self.calls.is_empty()
    }

    fn json(self) -> Json {
        let Self { role, content, calls, answered, thought } = self;
        let mut entries = vec![("role".to_owned(), string(role))];
        entries.push(("content".to_owned(), content.map_or(Json::Null, Json::String)));
        if !calls.is_empty() {
            entries.push(("tool_calls".to_owned(), Json::Array(calls)));
        }
        entries.extend(answered.map(|id| ("tool_call_id".to_owned(), string(id))));
        entries.extend(thought.map(|text| ("reasoning_content".to_owned(), string(text))));
        Json::Object(entries)
    }
}

fn said(role: impl Into<String>, content: String) -> Message {
    Message { role: role.into(), content: Some(content), calls: Vec::new(), answered: None, thought: None }
}

/// Adds an item to the conversation. A call belongs to the assistant's message before it.
fn add(item: ItemBody, messages: &mut Vec<Message>) -> Result<(), String> {
    let ItemBody { r#type, role, content, call_id, name, arguments, output } = item;
    let lacks = |field: &str| format!("expected `{field}`, found none");
    match r#type.as_deref().unwrap_or("message") {
        "message" => {
            let role = role.ok_or_else(|| lacks("role"))?;
            // An answer of nothing, as in a chat.
            let content = match content {
                None if role == "assistant" => String::new(),
                content => text(content.ok_or_else(|| lacks("content"))?)?,
            };
            match messages.last_mut().filter(|last| role == "assistant" && last.is_thought()) {
                Some(thought) => thought.content = Some(content),
                None => messages.push(said(role, content)),
            }
        }
        // What an answer thought comes before its message and calls. One that is told nowhere but to its maker says
        // nothing here.
        "reasoning" => {
            if let Some(content) = content {
                let thought = Some(text(content)?);
                messages.push(Message { content: None, thought, ..said("assistant", String::new()) });
            }
        }
        "function_call" => {
            let function = object([
                ("name", string(name.ok_or_else(|| lacks("name"))?)),
                ("arguments", arguments.unwrap_or(Json::Null)),
            ]);
            let id = string(call_id.ok_or_else(|| lacks("call_id"))?);
            let call = object([("id", id), ("type", string("function")), ("function", function)]);
            match messages.last_mut() {
                Some(last) if last.role == "assistant" => last.calls.push(call),
                _ => {
                    let role = "assistant".to_owned();
                    messages.push(Message { content: None, calls: vec![call], ..said(role, String::new()) });
                }
            }
        }
        "function_call_output" => {
            let content = text(output.ok_or_else(|| lacks("output"))?)?;
            let answered = Some(call_id.ok_or_else(|| lacks("call_id"))?);
            messages.push(Message { answered, ..said("tool", content) });
        }
        other => {
            return Err(format!(
                "expected a message, reasoning, function_call or function_call_output, found {other:?}; leave it out"
            ));
        }
    }
    Ok(())
}

/// The text of a content.
fn text(content: ContentBody) -> Result<String, String> {
    match content {
        ContentBody::Text(text) => Ok(text),
        ContentBody::Parts(parts) => parts
            .into_iter()
            .map(|PartBody { r#type, text, refusal }| match (r#type.as_str(), text, refusal) {
                ("input_text" | "output_text" | "reasoning_text" | "text", Some(text), _) => Ok(text),
                ("refusal", _, Some(refusal)) => Ok(refusal),
                ("input_text" | "output_text" | "reasoning_text" | "text", None, _) => {
                    Err(format!("expected `text` in a part of type {type}, found none"))
                }
                (other, ..) => {
                    Err(format!("expected parts of type input_text or output_text, found {other:?}"))
                }
            })
            .collect(),
    }
}

/// `text.format` as the chat has it: what describes a schema is a member of its own there.
fn response_format(format: Json) -> Json {
    match format {
        Json::Object(entries)
            if entries.iter().any(|(name, kind)| name == "type" && *kind == string("json_schema")) =>
        {
            let schema = Json::Object(entries.into_iter().filter(|(name, _)| name != "type").collect());
            object([("type", string("json_schema")), ("json_schema", schema)])
        }
        other => other,
    }
}

/// A tool as the chat has it: what describes a function is a member of its own there.
fn tool(tool: Json) -> Result<Json, Refused> {
    let refused = |found: &str| {
        let what = format!("expected tools of type function, found {found}; leave it out: none runs here");
        Err(Refused::field("tools", what))
    };
    let Json::Object(entries) = tool else { return refused("another JSON value") };
    let (kind, function): (Vec<_>, Vec<_>) = entries.into_iter().partition(|(name, _)| name == "type");
    match kind.first() {
        Some((_, Json::String(kind))) if kind == "function" => {
            Ok(object([("type", string("function")), ("function", Json::Object(function))]))
        }
        Some((_, found)) => refused(&found.to_string()),
        None => refused("one without a type"),
    }
}

fn string(text: impl Into<String>) -> Json {
    Json::String(text.into())
}

fn object<const N: usize>(entries: [(&str, Json); N]) -> Json {
    Json::Object(entries.map(|(name, value)| (name.to_owned(), value)).into())
}

/// What every form of the response says of its request.
fn head(body: &[u8]) -> Result<Value, Refused> {
    let EchoBody {
        instructions,
        max_output_tokens,
        metadata,
        parallel_tool_calls,
        temperature,
        text,
        tool_choice,
        tools,
        top_p,
        user,
    } = parse(body)?;
    Ok(json!({
        "object": "response",
        "background": false,
        "error": null,
        "incomplete_details": null,
        "instructions": instructions,
        "max_output_tokens": max_output_tokens,
        "metadata": metadata.unwrap_or_else(|| json!({})),
        "parallel_tool_calls": parallel_tool_calls.unwrap_or(true),
        "previous_response_id": null,
        "reasoning": {"effort": null, "summary": null},
        "store": false,
        "temperature": temperature.unwrap_or_else(|| json!(1.0)),
        "text": text.unwrap_or_else(|| json!({"format": {"type": "text"}})),
        "tool_choice": tool_choice.unwrap_or_else(|| json!("auto")),
        "tools": tools.unwrap_or_else(|| json!([])),
        "top_p": top_p.unwrap_or_else(|| json!(1.0)),
        "truncation": "disabled",
        "usage": null,
        "user": user,
    }))
}

#[cfg(test)]
#[path = "responses/tests.rs"]
mod tests;
