//! What is asked of an engine, and what it answers with.

use crate::{
    grammar::{Constraint, Matcher},
    prefix::Owner,
    sample::{Adjustment, Candidate, Sampling},
    speculate::{Reuse, Speculation},
    text::{Conversation, GenerationPrompt, Message, TextError},
};

use super::{CancelHandle, Error, Loaded, Report};

/// What the text continues. Laying it out and encoding it costs time in proportion to its length, and no forward.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prompt {
    /// A conversation laid out by the model's chat template; nothing in a message becomes a control token. Where it
    /// says no time, it is now.
    Chat(Conversation),
    /// Text as it is; control tokens in it are recognised.
    Raw(String),
    /// Token ids as they are.
    Tokens(Vec<u32>),
}

impl Prompt {
    /// A conversation that the model answers, of messages alone.
    pub fn chat(messages: Vec<Message>) -> Self {
        Self::Chat(Conversation::new(messages, GenerationPrompt::Add))
    }

    /// The prompt's token ids.
    ///
    /// # Errors
    /// [`Error`] of kind `Input` when the model has no chat template or the template refuses.
    pub fn token_ids(&self, loaded: &Loaded) -> Result<Vec<u32>, Error> {
        match self {
            Prompt::Chat(conversation) => {
                let template =
                    loaded.chat_template()?.ok_or_else(|| Error::from(TextError::NoChatTemplate))?;
                let now = conversation.now.or_else(|| Some(chrono::Local::now().naive_local()));
                let conversation = Conversation { now, ..conversation.clone() };
                Ok(loaded.tokenizer().encode_chat(template, &conversation)?)
            }
            Prompt::Raw(text) => Ok(loaded.tokenizer().encode_prompt(text)),
            Prompt::Tokens(ids) => Ok(ids.clone()),
        }
    }
}

/// One request. Start from [`Request::new`] and change fields.
///
/// Whatever it asks for, its tokens are those of plain decoding. Greedy requests, and those that only filter and draw,
/// cost what the plan says; an [`Adjustment`](super::Adjustment) or log-probabilities cost a pass over the vocabulary
/// for every token, and draft no heads ahead.
///
/// ```
/// use yggc::engine::{Adjustment, Message, Prompt, Request, Role, Sampling};
///
/// let question = Message::new(Role::User, "Name five rivers.");
/// let request = Request {
///     max_tokens: 64,
///     sampling: Sampling { temperature: 0.7, seed: 3, ..Sampling::GREEDY },
///     adjustment: Adjustment { presence: 0.5, ..Adjustment::NONE },
///     stop: vec!["6.".to_owned()],
///     ..Request::new(Prompt::chat(vec![question]))
/// };
/// assert!(request.sampling.validate().is_ok());
/// ```
#[derive(Clone, Debug)]
pub struct Request {
    /// What is continued.
    pub prompt: Prompt,
    /// Most tokens to emit, at least 1; fewer if the context ends.
    pub max_tokens: usize,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// What is changed in logits before.
    pub adjustment: Adjustment,
    /// What the answer must be; `None` for anything. The text ends where it is whole, with no end token. Costs a mask
    /// for every token, and what the model's tokens cost once ([`GrammarTokens`](crate::grammar::GrammarTokens)).
    pub constraint: Option<Constraint>,
    /// The same compiled, by [`Loaded::matcher`] of the same model; `None` has it compiled when the request begins,
    /// which may take seconds. Who lets requests wait for an engine compiles theirs meanwhile.
    pub compiled: Option<Matcher>,
    /// Strings that end the text, wherever tokens are cut; none is part of the text. Not empty ones.
    pub stop: Vec<String>,
    /// How many log-probabilities of other tokens each token comes with, in addition to its own; `None` for none at
    /// all.
    pub log_probs: Option<usize>,
    /// Whether it drafts.
    pub speculation: Speculation,
    /// What it takes of requests before it.
    pub reuse: Reuse,
    /// Whose request it is: it takes nothing of those of others, as the time of an answer would tell what they asked.
    pub owner: Owner,
    /// Ends it from another thread.
    pub cancel: CancelHandle,
}

impl Request {
    /// A greedy request of at most 256 tokens that takes what it can of those before.
    pub fn new(prompt: Prompt) -> Self {
        Self {
            prompt,
            max_tokens: 256,
            sampling: Sampling::GREEDY,
            adjustment: Adjustment::NONE,
            constraint: None,
            compiled: None,
            stop: Vec::new(),
            log_probs: None,
            speculation: Speculation::AsOpened,
            reuse: Reuse::Prefix,
            owner: Owner::default(),
            cancel: CancelHandle::new(),
        }
    }
}

/// Why a text ended. Plain data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// The model ended it, or its constraint allowed nothing more.
    Stop,
    /// A stop string of the request ended it; its last token is the one that completed the string.
    StopString {
        /// Which of the request's.
        index: usize,
    },
    /// The token limit or the context ended it.
    Length,
    /// Its [`CancelHandle`] ended it.
    Cancelled,
}

impl FinishReason {
    /// Name as HTTP clients expect it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stop | Self::StopString { index: _ } => "stop",
            Self::Length => "length",
            Self::Cancelled => "cancelled",
        }
    }
}

/// Log-probabilities of a token and its rivals, by the logits as the model gives them: before any bias, penalty,
/// temperature or filter. A token's cost an exponential for every token of the vocabulary.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogProbs {
    /// The token's own.
    pub log_prob: f32,
    /// The most probable tokens at its position with theirs, the first first, as many as the request asked for.
    pub best: Vec<(u32, f32)>,
}

impl TokenLogProbs {
    pub(super) fn new((log_prob, best): (f32, &[Candidate])) -> Self {
        Self { log_prob, best: best.iter().map(|candidate| (*candidate).into()).collect() }
    }
}

/// What a generation yields. A token costs a `String` of its text, and two short lists where log-probabilities are
/// asked for.
#[derive(Clone, Debug)]
pub enum Event {
    /// A token and the text that is sure with it: nothing in the middle of a character, for control tokens, and while a
    /// stop string may have begun.
    Token {
        /// Token id.
        id: u32,
        /// Text that became whole.
        text: String,
        /// Its log-probabilities, if the request asked for any.
        log_probs: Option<TokenLogProbs>,
    },
    /// The end; nothing follows.
    Finished {
        /// Why.
        reason: FinishReason,
        /// Text held back for a stop string that never came, or U+FFFD for a character that the model left unfinished.
        /// Of a character that a limit or a cancellation cut, nothing.
        text: String,
        /// The request's numbers.
        report: Box<Report>,
    },
}

/// A whole answer: copies of everything that its events had.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Token ids of the prompt.
    pub prompt_token_ids: Vec<u32>,
    /// Token ids emitted, the end token included, and those of a stop string.
    pub token_ids: Vec<u32>,
    /// Their text, up to a stop string.
    pub text: String,
    /// Log-probabilities of each of them; empty unless the request asked for any.
    pub log_probs: Vec<TokenLogProbs>,
    /// Why it ended.
    pub finish_reason: FinishReason,
    /// The request's numbers.
    pub report: Report,
}
