//! A model's Jinja template, which formats conversations.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::{panic, thread};

use chrono::NaiveDateTime;
use minijinja::value::Value;
use minijinja::{Environment, ErrorKind, State};

use super::chat::{Conversation, GenerationPrompt, Message};
use super::python::without_generation_tags;
use super::template::{Budget, compile, environment};
use super::{Json, TextError};

/// What a rendering may make, copy and compare, in bytes: what a template needs for itself, and for what is said.
const OWN_BYTES: u64 = 16 << 20;
const BYTES_PER_MESSAGE: u64 = 8 << 10;
const BYTES_PER_BYTE: u64 = 64;

/// Most bytes of a rendering beyond eight times those of the conversation.
const MAX_OUTPUT_BYTES: usize = 1 << 20;

/// Stack of the thread that compiles and renders. The deepest and widest template within the limits takes less than
/// half of it without optimisation (`templates_fit_half_of_the_stack`).
pub(super) const STACK_BYTES: usize = 4 << 20;

/// A compiled chat template, rendered as Hugging Face renders it: `trim_blocks`, `lstrip_blocks`, loop controls,
/// generation blocks, Python's string methods and `tojson`, `raise_exception`, `strftime_now` where the conversation
/// has a clock, and `documents` set to none, as are `tools` where there are none.
///
/// A template is untrusted: instructions, nesting, output, and what it makes, copies and compares are limited, it runs
/// on a stack of its own, and it reaches no file and no other template.
#[derive(Debug, Clone)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    source: String,
    /// The source as the engine reads it.
    plain_source: String,
}

impl ChatTemplate {
    /// Compiles the Jinja source.
    ///
    /// # Errors
    /// [`TextError::InvalidTemplate`] with the line that is wrong, or the limit that it goes beyond.
    pub fn compile(source: &str) -> Result<Self, TextError> {
        let plain_source = without_generation_tags(source);
        let compiled = on_own_stack(|| compile(&plain_source).map(|_| ()).map_err(|error| reason(&error)));
        compiled.map_err(|reason| TextError::InvalidTemplate { reason })?;
        Ok(Self { environment: environment(), source: source.to_owned(), plain_source })
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
        let mut said = 0_usize;
        conversation.clone().visit_texts(&mut |_, text| said = said.saturating_add(text.len()));
        let limit = said.saturating_mul(8).saturating_add(MAX_OUTPUT_BYTES);
        let budget = OWN_BYTES
            .saturating_add(BYTES_PER_MESSAGE.saturating_mul(conversation.messages.len() as u64))
            .saturating_add(BYTES_PER_BYTE.saturating_mul(said as u64));
        let rendered = on_own_stack(|| {
            let program = compile(&self.plain_source).map_err(|error| reason(&error))?;
            let variables = variables(conversation, bos, eos, Budget::new(budget));
            program.run(&self.environment, variables).map_err(|error| reason(&error))
        });
        match rendered {
            Ok(layout) if layout.len() <= limit => Ok(layout + &conversation.opening),
            Ok(_) => Err(TextError::Render { reason: format!("the output is longer than {limit} bytes") }),
            Err(reason) => Err(TextError::Render { reason }),
        }
    }
}

/// Runs `work` on a thread with a stack of [`STACK_BYTES`], whatever stack the caller has.
fn on_own_stack<T: Send>(work: impl FnOnce() -> Result<T, String> + Send) -> Result<T, String> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("chat template".to_owned()).stack_size(STACK_BYTES);
        let running = thread
            .spawn_scoped(scope, work)
            .map_err(|error| format!("the system starts no thread for it: {error}"))?;
        running.join().unwrap_or_else(|panicked| panic::resume_unwind(panicked))
    })
}

/// What a template may name.
fn variables(conversation: &Conversation, bos: &str, eos: &str, budget: Budget) -> Value {
    let Conversation { messages, tools, variables, generation_prompt, opening: _, now } = conversation;
    let mut values: BTreeMap<&str, Value> = BTreeMap::from([
        ("messages", messages.iter().map(message).collect()),
        ("add_generation_prompt", Value::from(*generation_prompt == GenerationPrompt::Add)),
        ("bos_token", Value::from(bos)),
        ("eos_token", Value::from(eos)),
        ("tools", if tools.is_empty() { Value::from(()) } else { Value::from_serialize(tools) }),
        ("documents", Value::from(())),
    ]);
    if let Some(now) = *now {
        let strftime_now = move |state: &State<'_, '_>, format: &str| {
            // The longest that stands for two characters is the name of a day with that of a month, and the time.
            Budget::of(state)?.charge((format.len() as u64).saturating_mul(32))?;
            strftime(now, format)
        };
        values.insert("strftime_now", Value::from_function(strftime_now));
    }
    // A name with a zero byte is the engine's own; no template can say it.
    let given = variables.iter().filter(|(name, _)| !name.contains('\0'));
    values.extend(given.map(|(name, value)| (name.as_str(), Value::from_serialize(value))));
    let (name, budget) = budget.into_variable();
    values.insert(name, budget);
    Value::from(values)
}

/// A message as a template sees it. Reasoning goes by each of its usual names, as in transformers
/// (`_alias_reasoning_fields`).
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
