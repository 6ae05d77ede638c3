//! A model's Jinja template, which formats conversations.

use std::io;

use minijinja::{AutoEscape, Environment, ErrorKind, context};
use serde::Serialize;

use super::TextError;
use super::chat::{GenerationPrompt, Message, Role};

/// Most instructions of one rendering.
const FUEL: u64 = 5_000_000;

/// Most nested calls, loops and conditions of one rendering.
const RECURSION_LIMIT: usize = 200;

/// Most bytes of a rendering beyond eight times those of the conversation.
const MAX_OUTPUT_BYTES: usize = 1 << 20;

const NAME: &str = "chat_template";

/// A compiled chat template, rendered as Hugging Face renders it: `trim_blocks`, `lstrip_blocks`, loop controls,
/// Python's string methods, `raise_exception`, and `tools` and `documents` set to none. Templates have no clock
/// (`strftime_now` is not defined; templates that use it bring a fixed date for that case).
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
        environment
            .add_template_owned(NAME, source.to_owned())
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
    pub fn render(
        &self,
        messages: &[Message],
        generation_prompt: GenerationPrompt,
        bos: &str,
        eos: &str,
    ) -> Result<String, TextError> {
        let entries: Vec<Entry<'_>> =
            messages.iter().map(|message| Entry { role: message.role, content: &message.content }).collect();
        let said: usize = messages.iter().map(|message| message.content.len()).sum();
        let mut output =
            Limited { bytes: Vec::new(), limit: said.saturating_mul(8).saturating_add(MAX_OUTPUT_BYTES) };
        let template = self.environment.get_template(NAME).expect("it was compiled under this name");
        let values = context! {
            messages => entries,
            add_generation_prompt => generation_prompt == GenerationPrompt::Add,
            bos_token => bos,
            eos_token => eos,
            tools => (),
            documents => (),
        };
        template
            .render_captured_to(values, &mut output)
            .map_err(|error| TextError::Render { reason: reason(&error) })?;
        Ok(String::from_utf8(output.bytes).expect("a template writes text"))
    }
}

/// A message as a template sees it.
#[derive(Serialize)]
struct Entry<'m> {
    role: Role,
    content: &'m str,
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
