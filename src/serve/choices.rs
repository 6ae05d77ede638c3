//! The answers to one request: its prompts, and how many answers each gets. They are given in sequence.

use yggc::{
    engine::{Loaded, Prompt, Request},
    text::Tokenizer,
};

use super::{
    answers::Refused,
    fill_in,
    log_probs::MOST_OF_REQUEST,
    messages,
    numbers::{self, Numbers},
    requests::Asked,
    settings::Limits,
    tokens,
};

/// Most prompts of a request.
const MOST_PROMPTS: usize = 64;

/// What a request asks for in addition to one answer to its first prompt.
#[derive(Debug)]
pub(super) struct Choices {
    /// Answers to each prompt.
    each: u64,
    /// The prompts after the first.
    further: Vec<Prompt>,
    /// Whether each answer begins with its prompt.
    echoes: bool,
    /// The text after the answer, which is then filled in between.
    suffix: Option<String>,
}

impl Choices {
    /// For the fields `n` and `best_of`.
    pub(super) fn new(numbers: &Numbers) -> Result<Self, Refused> {
        let each = numbers.integer(&numbers::N).expect("it has a default");
        if let Some(found) = numbers.integer(&numbers::BEST_OF).filter(|best| *best != each) {
            let what = format!("expected it to equal `n`, {each}, found {found}: answers are not ranked");
            return Err(Refused::field("best_of", what));
        }
        let each = u64::try_from(each).expect("it is limited");
        Ok(Self { each, further: Vec::new(), echoes: false, suffix: None })
    }

    /// Whether there are prompts after the first.
    pub(super) fn has_further(&self) -> bool {
        !self.further.is_empty()
    }

    /// With the prompts after the first, and what a completion may ask for.
    pub(super) fn with(
        self,
        further: Vec<Prompt>,
        echoes: bool,
        suffix: Option<String>,
    ) -> Result<Self, Refused> {
        if further.len() >= MOST_PROMPTS {
            let what = format!("expected at most {MOST_PROMPTS} prompts, found {}", further.len() + 1);
            return Err(Refused::field("prompt", what));
        }
        let suffix = suffix.filter(|suffix| !suffix.is_empty());
        Ok(Self { further, echoes, suffix, ..self })
    }
}

/// The requests of an engine that answer one request of a client.
#[derive(Debug)]
pub(super) struct Encoded {
    /// One for each answer, of encoded prompts; at least one.
    pub(super) requests: Vec<Request>,
    /// Text before each answer: its prompt, if that is asked for.
    pub(super) echoes: Vec<String>,
    /// Answers to each prompt; those to one prompt are neighbours.
    pub(super) each: usize,
    /// Tokens of all prompts, each counted once.
    pub(super) prompt_tokens: usize,
}

impl Encoded {
    /// Encodes the prompts, which fit the limits. `field` is the one that has them.
    pub(super) fn new(
        asked: &Asked,
        loaded: &Loaded,
        limits: &Limits,
        context: usize,
        field: &'static str,
    ) -> Result<Self, Refused> {
        let Asked { request, choices, .. } = asked;
        let each = usize::try_from(choices.each).expect("it is limited");
        let mut encoded = Self { requests: Vec::new(), echoes: Vec::new(), each, prompt_tokens: 0 };
        for prompt in std::iter::once(&request.prompt).chain(&choices.further) {
            let ids = match &choices.suffix {
                Some(suffix) => fill_in::between(loaded.tokenizer(), prompt, suffix)?,
                None => messages::token_ids(prompt, loaded)?,
            };
            check_length(ids.len(), limits, context, field)?;
            encoded.prompt_tokens += ids.len();
            let echo = if choices.echoes { echo(loaded.tokenizer(), prompt)? } else { String::new() };
            for copy in 0..choices.each {
                let mut request = Request { prompt: Prompt::Tokens(ids.clone()), ..request.clone() };
                request.sampling.seed = request.sampling.seed.wrapping_add(copy);
                encoded.requests.push(request);
                encoded.echoes.push(echo.clone());
            }
        }
        if let Some(reading) = &asked.reading {
            let found = encoded.prompt_tokens * each * (reading.most() + 1);
            if found > MOST_OF_REQUEST {
                let what = format!(
                    "expected at most {MOST_OF_REQUEST} log-probabilities of prompts, found {found}; send fewer \
                     prompts or ask for fewer at each token"
                );
                return Err(Refused::field(reading.field(), what));
            }
        }
        Ok(encoded)
    }
}

pub(super) fn check_length(
    found: usize,
    limits: &Limits,
    context: usize,
    field: &'static str,
) -> Result<(), Refused> {
    if found == 0 {
        return Err(Refused::field(field, "expected a prompt of at least one token, found none"));
    }
    let most = limits.prompt_tokens.min(context - 1);
    if found <= most {
        return Ok(());
    }
    // Clients look for OpenAI's words.
    let what = format!(
        "this model's maximum context length is {context} tokens, of which a prompt may have {most}, but it has \
         {found}; send a shorter one"
    );
    Err(Refused::field(field, what).with_code("context_length_exceeded"))
}

fn echo(tokenizer: &Tokenizer, prompt: &Prompt) -> Result<String, Refused> {
    match prompt {
        Prompt::Raw(text) => Ok(text.clone()),
        Prompt::Tokens(ids) => tokens::text("prompt", tokenizer, ids),
        Prompt::Chat(_) => unreachable!("only a completion can ask for its prompt"),
    }
}
