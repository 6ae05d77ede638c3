//! Conversations, and their encoding.

use std::fmt;
use std::str::FromStr;

use chrono::NaiveDateTime;
use serde::{Deserialize, Serialize, Serializer};

use super::disguise::Disguise;
use super::{ChatTemplate, Json, TextError, Tokenizer};
use crate::storage::json_fault;

/// Variables that templates have of the conversation.
const OWN_VARIABLES: [&str; 5] = ["messages", "tools", "documents", "add_generation_prompt", "strftime_now"];

/// The author of a message. A closed set: templates build control tokens from roles, so a role is never free text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Instructions for the whole conversation.
    System,
    /// Instructions of whoever built the application, where a model tells them from the system's.
    Developer,
    /// The user.
    User,
    /// The model.
    Assistant,
    /// The result of a tool the model called.
    Tool,
}

impl Role {
    /// Its name in templates.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Developer => "developer",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Role {
    type Err = TextError;

    fn from_str(name: &str) -> Result<Self, TextError> {
        [Self::System, Self::Developer, Self::User, Self::Assistant, Self::Tool]
            .into_iter()
            .find(|role| role.as_str() == name)
            .ok_or_else(|| TextError::UnknownRole { found: name.to_owned() })
    }
}

impl Serialize for Role {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Its author.
    pub role: Role,
    /// Its text; nothing in it is a control token.
    pub content: String,
    /// What else templates read of it, in order: `tool_calls`, `tool_call_id`, `name`, `reasoning_content`. One of the
    /// names above takes its place (`content` may be null).
    pub fields: Vec<(String, Json)>,
}

impl Message {
    /// A message.
    pub fn new(role: Role, content: impl Into<String>) -> Self {
        Self { role, content: content.into(), fields: Vec::new() }
    }
}

/// Whether the layout ends with the opening of the model's turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GenerationPrompt {
    /// Yes: the model answers next.
    Add,
    /// No: it ends with the last message.
    Omit,
}

/// Variables of a template in addition to those that every conversation has, in order, as an object in JSON. Other
/// programs call them `chat_template_kwargs`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Json")]
pub struct Variables(Vec<(String, Json)>);

impl Variables {
    /// Names and values.
    pub(super) fn iter(&self) -> impl Iterator<Item = &(String, Json)> {
        self.0.iter()
    }
}

impl TryFrom<Json> for Variables {
    type Error = TextError;

    fn try_from(value: Json) -> Result<Self, TextError> {
        let refused = |found: &str| TextError::TemplateVariables { found: found.to_owned() };
        let Json::Object(entries) = value else { return Err(refused("another JSON value")) };
        match entries.iter().find(|(name, _)| OWN_VARIABLES.contains(&name.as_str())) {
            Some((name, _)) => Err(refused(&format!("`{name}`, which the conversation itself sets"))),
            None => Ok(Self(entries)),
        }
    }
}

impl FromStr for Variables {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        let refused = |error: serde_json::Error| TextError::TemplateVariables { found: json_fault(&error) };
        Self::try_from(serde_json::from_str::<Json>(text).map_err(refused)?)
    }
}

impl fmt::Display for Variables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = Json::Object(self.0.clone()).to_string();
        f.write_str(&text)
    }
}

/// All that a template lays out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conversation {
    /// The messages, the first said first.
    pub messages: Vec<Message>,
    /// Definitions of the tools that the model may call, as JSON schemas; empty for none.
    pub tools: Vec<Json>,
    /// Further variables of the template, such as `enable_thinking`.
    pub variables: Variables,
    /// Whether the model answers next.
    pub generation_prompt: GenerationPrompt,
    /// What the model's turn begins with, after the generation prompt; empty for nothing. The model continues it.
    pub opening: String,
    /// The local time, for templates that print a date; without it they have no clock.
    pub now: Option<NaiveDateTime>,
}

impl Conversation {
    /// Messages alone: no tools, variables or clock.
    #[must_use]
    pub fn new(messages: Vec<Message>, generation_prompt: GenerationPrompt) -> Self {
        Self {
            messages,
            tools: Vec::new(),
            variables: Variables::default(),
            generation_prompt,
            opening: String::new(),
            now: None,
        }
    }

    /// Calls `visit` for every text of it.
    pub(super) fn visit_texts(&mut self, visit: &mut impl FnMut(Place, &mut String)) {
        for message in &mut self.messages {
            visit(Place::Content, &mut message.content);
            message.fields.iter_mut().for_each(|(_, value)| value.visit_texts(visit));
        }
        visit(Place::Content, &mut self.opening);
        self.tools.iter_mut().for_each(|tool| tool.visit_texts(visit));
        self.variables.0.iter_mut().for_each(|(_, value)| value.visit_texts(visit));
    }
}

/// Where a text of a conversation stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// In the content of a message.
    Content,
    /// In a structured value.
    Value,
    /// As a key of one.
    Key,
}

impl Tokenizer {
    /// The tokens of a conversation laid out by the model's template.
    ///
    /// Control tokens come from the template alone: a message or tool that spells one, alone or together with adjacent
    /// template text, stays text. Text between two control tokens is encoded in one piece, whether from a message or
    /// the template. No BOS token is added; a template that wants one prints it.
    ///
    /// # Errors
    /// [`TextError::Render`] if the template refuses the conversation or fails on it.
    pub fn encode_chat(
        &self,
        template: &ChatTemplate,
        conversation: &Conversation,
    ) -> Result<Vec<u32>, TextError> {
        let (disguise, disguised) = Disguise::of(conversation, template.source(), &self.lexicon.controls)?;
        let layout = template.render(&disguised, &self.name(self.bos()), &self.name(self.eos()))?;
        let mut ids = Vec::new();
        let literal = |text: &str, is_start: bool, ids: &mut Vec<u32>| {
            self.push_literal(&disguise.removed_from(text), is_start, ids);
        };
        self.push_pieces(&layout, literal, &mut ids);
        Ok(ids)
    }
}
