//! Conversations, and their encoding.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use super::disguise::Disguise;
use super::{ChatTemplate, TextError, Tokenizer};

/// The author of a message. A closed set: templates build control tokens from roles, so a role is never free text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Instructions for the whole conversation.
    System,
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
        [Self::System, Self::User, Self::Assistant, Self::Tool]
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
}

impl Message {
    /// A message.
    pub fn new(role: Role, content: impl Into<String>) -> Self {
        Self { role, content: content.into() }
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

impl Tokenizer {
    /// The tokens of a conversation laid out by the model's template.
    ///
    /// Control tokens come from the template alone: a message that spells one, alone or together with adjacent template
    /// text, stays text. Text between two control tokens is encoded in one piece, whether from a message or the template. No BOS token is added; a template that wants one prints it.
    ///
    /// # Errors
    /// [`TextError::Render`] if the template refuses the conversation or fails on it.
    pub fn encode_chat(
        &self,
        template: &ChatTemplate,
        messages: &[Message],
        generation_prompt: GenerationPrompt,
    ) -> Result<Vec<u32>, TextError> {
        let controls = &self.lexicon.controls;
        let (disguise, disguised) = Disguise::of(messages, template.source(), controls)?;
        let layout =
            template.render(&disguised, generation_prompt, &self.name(self.bos()), &self.name(self.eos()))?;
        let mut ids = Vec::new();
        let literal = |text: &str, is_start: bool, ids: &mut Vec<u32>| {
            self.push_literal(&disguise.removed_from(text), is_start, ids);
        };
        self.push_pieces(&layout, literal, &mut ids);
        Ok(ids)
    }
}
