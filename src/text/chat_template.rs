//! A model's Jinja template, which formats conversations.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;

use chrono::NaiveDateTime;
use minijinja::value::{Kwargs, Value};
use minijinja::{AutoEscape, Environment, ErrorKind};

use super::chat::{Conversation, GenerationPrompt, Message};
use super::python::{to_json, without_generation_tags};
use super::{Json, TextError};

/// Most instructions of one rendering.
const FUEL: u64 = 5_000_000;

/// Most nested calls, loops and conditions of one rendering.
const RECURSION_LIMIT: usize = 200;

/// Most bytes of a rendering beyond eight times those of the conversation.
const MAX_OUTPUT_BYTES: usize = 1 << 20;

const NAME: &str = "chat_template";

/// A compiled chat template, rendered as Hugging Face renders it: `trim_blocks`, `lstrip_blocks`, loop controls, generation blocks,
/// Python's string methods and `tojson`, `raise_exception`, `strftime_now` where the conversation has a clock, and `documents` set to
/// none, as are `tools` where there are none.
///
/// A template is untrusted: instructions, nesting and output are limited, and it reaches no file.
#[derive(Debug, Clone)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    source: String,
}

impl ChatTemplate {
    /// Compiles the Jinja source.
    ///
    /// # Errors
    /// [`TextError::InvalidTemplate`] with the line that is wrong.
    pub fn compile(source: &str) -> Result<Self, TextError> {
        let mut environment = Environment::new();
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.set_recursion_limit(RECURSION_LIMIT);
        environment.set_fuel(Some(FUEL));
        environment.add_function("raise_exception", raise_exception);
        environment.add_filter("tojson", |value: Value, options: Kwargs| to_json(&value, options));
        environment
            .add_template_owned(NAME, without_generation_tags(source))
            .map_err(|error| TextError::InvalidTemplate { reason: reason(&error) })?;
        Ok(Self { environment, source: source.to_owned() })
    }

    /// The template as it was given.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The conversation as one text, `bos` and `eos` being the names of those tokens (empty for none).
    ///
    /// The result does not distinguish text of messages from text of the template: to get tokens, use
    /// [`Tokenizer::encode_chat`](super::Tokenizer::encode_chat).
    ///
    /// # Errors
    /// [`TextError::Render`] if the template refuses the conversation, fails, or runs past its limits.
    pub fn render(&self, conversation: &Conversation, bos: &str, eos: &str) -> Result<String, TextError> {
        let Conversation { messages, tools, variables, generation_prompt, opening, now } = conversation;
        let mut said = 0_usize;
        conversation.clone().visit_texts(&mut |_, text| said = said.saturating_add(text.len()));
        let mut output =
            Limited { bytes: Vec::new(), limit: said.saturating_mul(8).saturating_add(MAX_OUTPUT_BYTES) };
        let mut values: BTreeMap<&str, Value> = BTreeMap::from([
            ("messages", messages.iter().map(message).collect()),
            ("add_generation_prompt", Value::from(*generation_prompt == GenerationPrompt::Add)),
            ("bos_token", Value::from(bos)),
            ("eos_token", Value::from(eos)),
            ("tools", if tools.is_empty() { Value::from(()) } else { Value::from_serialize(tools) }),
            ("documents", Value::from(())),
        ]);
        if let Some(now) = *now {
            values.insert("strftime_now", Value::from_function(move |format: &str| strftime(now, format)));
        }
        values.extend(variables.iter().map(|(name, value)| (name.as_str(), Value::from_serialize(value))));
        let template = self.environment.get_template(NAME).expect("it was compiled under this name");
        template
            .render_captured_to(values, &mut output)
            .map_err(|error| TextError::Render { reason: reason(&error) })?;
        let layout = String::from_utf8(output.bytes).expect("a template writes text");
        Ok(layout + opening)
    }
}

/// A message as a template sees it. Reasoning goes by each of its usual names, as in transformers (`_alias_reasoning_fields`).
fn message(message: &Message) -> Value {
    let mut entries: Vec<(&str, Value)> = vec![
        ("role", Value::from(message.role.as_str())),
        ("content", Value::from(message.content.as_str())),
    ];
    let mut set = |name, value| match entries.iter_mut().find(|(known, _)| *known == name) {
        Some(entry) => entry.1 = value,
        None => entries.push((name, value)),
    };
    for (name, value) in &message.fields {
        set(name.as_str(), Value::from_serialize(value));
    }
    let field =
        |name: &str| message.fields.iter().find(|(known, value)| known == name && *value != Json::Null);
    if let Some((_, reasoning)) = ["reasoning_content", "thinking", "reasoning"].into_iter().find_map(field) {
        set("reasoning_content", Value::from_serialize(reasoning));
        if field("thinking").is_none() {
            set("thinking", Value::from_serialize(reasoning));
        }
    }
    entries.into_iter().collect()
}

fn strftime(now: NaiveDateTime, format: &str) -> Result<String, minijinja::Error> {
    let mut text = String::new();
    write!(text, "{}", now.format(format)).map_err(|_| {
        minijinja::Error::new(ErrorKind::InvalidOperation, format!("strftime_now: {format:?} is no format"))
    })?;
    Ok(text)
}

/// Collects output up to a limit.
struct Limited {
    bytes: Vec<u8>,
    limit: usize,
}

impl io::Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > self.limit - self.bytes.len() {
            return Err(io::Error::other(format!("the output is longer than {} bytes", self.limit)));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn raise_exception(message: String) -> Result<String, minijinja::Error> {
    Err(minijinja::Error::new(ErrorKind::InvalidOperation, message))
}

/// An error and its causes in one line.
fn reason(error: &minijinja::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}
