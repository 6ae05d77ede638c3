//! What a request asks for, as Python's keywords say it.

use pyo3::prelude::*;
use yggc::engine::{
    Adjustment, CancelHandle, ChooseRequest, Constraint, Continuation, Conversation, GenerationPrompt, Json,
    Message, Normalisation, Prompt, Request, Reuse, Role, Sampling, Speculation, Variables,
};

use super::error::{exception, input};

/// The keywords of `generate` and `chat`.
#[derive(Clone, Debug, FromPyObject)]
pub(super) struct Given {
    #[pyo3(item)]
    max_tokens: usize,
    #[pyo3(item)]
    temperature: f32,
    #[pyo3(item)]
    top_k: u32,
    #[pyo3(item)]
    top_p: f32,
    #[pyo3(item)]
    min_p: f32,
    #[pyo3(item)]
    seed: u64,
    #[pyo3(item)]
    stop: Vec<String>,
    #[pyo3(item)]
    log_probs: Option<usize>,
    #[pyo3(item)]
    logit_bias: Vec<(u32, f32)>,
    #[pyo3(item)]
    repetition_penalty: f32,
    #[pyo3(item)]
    frequency_penalty: f32,
    #[pyo3(item)]
    presence_penalty: f32,
    #[pyo3(item)]
    speculation: bool,
    #[pyo3(item)]
    reuse: bool,
    /// What the answer must be: a kind and its text.
    #[pyo3(item)]
    constraint: Option<(String, String)>,
}

impl Given {
    /// The request for `prompt`, which `cancel` ends.
    pub(super) fn read(self, prompt: Prompt, cancel: CancelHandle) -> PyResult<Request> {
        let Self { temperature, top_k, top_p, min_p, seed, .. } = self;
        let sampling = Sampling { temperature, top_k, top_p, min_p, seed };
        sampling.validate().map_err(|error| input(error.to_string()))?;
        let adjustment = Adjustment {
            bias: self.logit_bias,
            repetition: self.repetition_penalty,
            frequency: self.frequency_penalty,
            presence: self.presence_penalty,
        };
        let constraint = constraint(self.constraint)?;
        Ok(Request {
            max_tokens: self.max_tokens,
            constraint,
            sampling,
            adjustment,
            stop: self.stop,
            log_probs: self.log_probs,
            speculation: if self.speculation { Speculation::AsOpened } else { Speculation::Off },
            reuse: reuse(self.reuse),
            cancel,
            ..Request::new(prompt)
        })
    }
}

/// A constraint of a kind and its text.
fn constraint(given: Option<(String, String)>) -> PyResult<Option<Constraint>> {
    let Some((kind, text)) = given else { return Ok(None) };
    Ok(Some(match kind.as_str() {
        "json_schema" => Constraint::JsonSchema(text),
        "json_object" => Constraint::JsonObject,
        "regex" => Constraint::Regex(text),
        "grammar" => Constraint::Lark(text),
        found => return Err(input(format!("a constraint of kind {found:?}: expected a known one"))),
    }))
}

fn reuse(keeps: bool) -> Reuse {
    if keeps { Reuse::Prefix } else { Reuse::Nothing }
}

/// The keywords of `choose`.
#[derive(Clone, Debug, FromPyObject)]
pub(super) struct ChooseGiven {
    #[pyo3(item)]
    options: Vec<PromptGiven>,
    #[pyo3(item)]
    normalize: String,
    #[pyo3(item)]
    reuse: bool,
    #[pyo3(item)]
    constraint: Option<(String, String)>,
}

impl ChooseGiven {
    /// The request for `prompt`, which `cancel` ends.
    pub(super) fn read(self, prompt: Prompt, cancel: CancelHandle) -> PyResult<ChooseRequest> {
        let normalisation = match self.normalize.as_str() {
            "none" => Normalisation::None,
            "length" => Normalisation::Length,
            found => {
                return Err(input(format!("normalize is {found:?}: expected \"none\" or \"length\"")));
            }
        };
        let options = self.options.into_iter().map(|option| match option {
            PromptGiven::Text(text) => Continuation::Text(text),
            PromptGiven::Tokens(ids) => Continuation::Tokens(ids),
        });
        Ok(ChooseRequest {
            normalisation,
            constraint: constraint(self.constraint)?,
            reuse: reuse(self.reuse),
            cancel,
            ..ChooseRequest::new(prompt, options.collect())
        })
    }
}

/// Text or token ids.
#[derive(Clone, Debug, FromPyObject)]
pub(super) enum PromptGiven {
    Text(String),
    Tokens(Vec<u32>),
}

impl From<PromptGiven> for Prompt {
    fn from(given: PromptGiven) -> Self {
        match given {
            PromptGiven::Text(text) => Self::Raw(text),
            PromptGiven::Tokens(ids) => Self::Tokens(ids),
        }
    }
}

/// A conversation of messages, tools and the template's variables, each as JSON.
pub(super) fn conversation(
    messages: &str,
    tools: &str,
    variables: &str,
    generation_prompt: bool,
) -> PyResult<Conversation> {
    let json = |what: &str, text: &str| {
        serde_json::from_str::<Json>(text)
            .map_err(|error| input(format!("{what}: expected JSON, found {error}")))
    };
    let (Json::Array(messages), Json::Array(tools)) = (json("messages", messages)?, json("tools", tools)?)
    else {
        return Err(input("messages and tools: expected lists of objects"));
    };
    let ends = if generation_prompt { GenerationPrompt::Add } else { GenerationPrompt::Omit };
    let messages = messages.into_iter().map(message).collect::<PyResult<_>>()?;
    let variables = Variables::try_from(json("template_variables", variables)?)
        .map_err(|error| exception(&error.into()))?;
    Ok(Conversation { tools, variables, ..Conversation::new(messages, ends) })
}

fn message(object: Json) -> PyResult<Message> {
    let Json::Object(entries) = object else {
        return Err(input("a message: expected an object with `role` and `content`, found another value"));
    };
    let (mut role, mut content, mut fields) = (None, None, Vec::new());
    for (name, value) in entries {
        match (name.as_str(), value) {
            ("role", Json::String(name)) => {
                role = Some(name.parse::<Role>().map_err(|error| exception(&error.into()))?);
            }
            ("content", Json::String(text)) => content = Some(text),
            ("content", Json::Null) => {
                content = Some(String::new());
                fields.push((name, Json::Null));
            }
            ("role" | "content", _) => {
                return Err(input(format!("`{name}` of a message: expected text, found another value")));
            }
            (_, value) => fields.push((name, value)),
        }
    }
    let role =
        role.ok_or_else(|| input("a message without `role`: expected \"user\", \"assistant\", ..."))?;
    let content = match content {
        Some(content) => content,
        // An answer of calls alone, or of nothing.
        None if role == Role::Assistant => String::new(),
        None => return Err(input("a message without `content`: expected text")),
    };
    Ok(Message { fields, ..Message::new(role, content) })
}
