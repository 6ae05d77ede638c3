//! What is asked of an engine, and what it answers with.

use crate::{
    sample::Sampling,
    text::{GenerationPrompt, Message},
};

use super::{Error, Loaded, Report};

/// What the text continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prompt {
    /// A conversation laid out by the model's chat template; nothing in a message becomes a control token.
    Chat(Vec<Message>),
    /// Text as it is; control tokens in it are recognised.
    Raw(String),
    /// Token ids as they are.
    Tokens(Vec<u32>),
}

impl Prompt {
    /// The prompt's token ids.
    ///
    /// # Errors
    /// [`Error`] of kind `Input` when the model has no chat template or the template refuses.
    pub fn token_ids(&self, loaded: &Loaded) -> Result<Vec<u32>, Error> {
        match self {
            Prompt::Chat(messages) => {
                let template = loaded.chat_template()?.ok_or_else(|| {
                    Error::input(
                        "the model has no chat template: expected one in its metadata, found none; give the whole prompt with --raw",
                    )
                })?;
                Ok(loaded.tokenizer().encode_chat(template, messages, GenerationPrompt::Add)?)
            }
            Prompt::Raw(text) => Ok(loaded.tokenizer().encode_prompt(text)),
            Prompt::Tokens(ids) => Ok(ids.clone()),
        }
    }
}

/// One request.
///
/// ```
/// use yggc::engine::{Message, Prompt, Request, Role, Sampling};
///
/// let question = Message::new(Role::User, "Name five rivers.");
/// let request = Request {
///     prompt: Prompt::Chat(vec![question]),
///     max_tokens: 64,
///     sampling: Sampling { temperature: 0.7, seed: 3, ..Sampling::GREEDY },
/// };
/// assert!(request.sampling.validate().is_ok());
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// What is continued.
    pub prompt: Prompt,
    /// Most tokens to emit, at least 1; fewer if the context ends.
    pub max_tokens: usize,
    /// How tokens are chosen.
    pub sampling: Sampling,
}

/// Why a text ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// The model ended it.
    Stop,
    /// The token limit or the context ended it.
    Length,
}

impl FinishReason {
    /// Name as HTTP clients expect it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
        }
    }
}

/// What a generation yields.
#[derive(Clone, Debug)]
pub enum Event {
    /// A token and the text it completes: empty in the middle of a character and for control tokens.
    Token {
        /// Token id.
        id: u32,
        /// Text that became whole.
        text: String,
    },
    /// The end; nothing follows.
    Finished {
        /// Why.
        reason: FinishReason,
        /// Text held back for a character that never came.
        text: String,
        /// The request's numbers.
        report: Box<Report>,
    },
}

/// A whole answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Token ids of the prompt.
    pub prompt_token_ids: Vec<u32>,
    /// Token ids emitted, the end token included.
    pub token_ids: Vec<u32>,
    /// Their text.
    pub text: String,
    /// Why it ended.
    pub finish_reason: FinishReason,
    /// The request's numbers.
    pub report: Report,
}
