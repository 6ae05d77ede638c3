//! Requests of clients as JSON, turned into requests of an engine.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher, RandomState},
};

use serde::Deserialize;
use serde_json::Value;
use yggc::{
    engine::{
        Adjustment, CancelHandle, Conversation, GenerationPrompt, Json, Parameter, Prompt, Request, Sampling,
        Variables,
    },
    storage::json_fault,
};

use super::{
    answers::{Endpoint, Refused},
    choices::Choices,
    foreign,
    log_probs::TokenNames,
    messages::MessageBody,
    numbers::{self, Numbers, Others},
    prefill,
    reading::is_wanted,
    settings::Limits,
    structured::ResponseFormat,
    tools::{ChoiceBody, Tools, ToolsBody},
};

/// Limits on stop strings: held-back text grows with them.
const MOST_STOPS: usize = 16;
const MOST_STOP_BYTES: usize = 512;
/// Tokens of a completion whose request has no `max_tokens`.
const COMPLETION_TOKENS: usize = 16;

/// The fields of a body, of either endpoint. Fields that OpenAI's clients send and that change nothing here are
/// ignored.
#[derive(Debug, Deserialize)]
struct Body {
    model: Option<String>,
    stop: Option<OneOrMore<String>>,
    logit_bias: Option<BTreeMap<String, Value>>,
    return_tokens_as_token_ids: Option<bool>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    drafter: Option<String>,
    response_format: Option<ResponseFormat>,
    // Of a chat.
    messages: Option<Vec<MessageBody>>,
    functions: Option<Vec<Value>>,
    chat_template_kwargs: Option<Variables>,
    add_generation_prompt: Option<bool>,
    continue_final_message: Option<bool>,
    tools: Option<Vec<Json>>,
    tool_choice: Option<ChoiceBody>,
    parallel_tool_calls: Option<bool>,
    reasoning_format: Option<Json>,
    separate_reasoning: Option<bool>,
    // Of a completion.
    prompt: Option<PromptBody>,
    echo: Option<bool>,
    suffix: Option<String>,
    #[serde(flatten)]
    others: Others,
}

#[derive(Debug, Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
    include_steps: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "a value of another form than one text or a list of them")]
enum OneOrMore<T> {
    One(T),
    More(Vec<T>),
}

impl<T> From<OneOrMore<T>> for Vec<T> {
    fn from(some: OneOrMore<T>) -> Self {
        match some {
            OneOrMore::One(one) => vec![one],
            OneOrMore::More(more) => more,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "a prompt that is neither a text, a list of token ids, nor a list of either")]
enum PromptBody {
    Text(String),
    Tokens(Vec<u32>),
    Texts(Vec<String>),
    TokenLists(Vec<Vec<u32>>),
}

/// A parsed request.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) request: Request,
    pub(super) model: Option<String>,
    /// Its name, which the service still has to know.
    pub(super) drafter: String,
    pub(super) choices: Choices,
    pub(super) delivery: Delivery,
    /// How log-probabilities name tokens.
    pub(super) token_names: TokenNames,
    /// What the answer may call.
    pub(super) tools: Option<Tools>,
    /// Whether what the model thinks is told from its answer.
    pub(super) tells_thoughts: bool,
    /// What is told of the tokens of its prompts.
    pub(super) reading: Option<PromptReading>,
    /// What a response of `/v1/responses` repeats of its request.
    pub(super) response: Option<Value>,
}

/// What is told of the tokens of a prompt: how many of the most probable ones at the place of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PromptReading {
    /// In the answer's own list, as those of the prompt that it begins with.
    pub(super) echoed: Option<usize>,
    /// In a list of their own, as vLLM has it.
    pub(super) listed: Option<usize>,
    /// Whether that is all that is asked for, and no answer.
    pub(super) is_all: bool,
}

impl PromptReading {
    /// As many as any list needs; `None` if nothing is asked for.
    fn new(echoed: Option<usize>, listed: Option<usize>, is_all: bool) -> Option<Self> {
        (echoed.is_some() || listed.is_some()).then_some(Self { echoed, listed, is_all })
    }

    /// The field that asks for it.
    pub(super) fn field(&self) -> &'static str {
        if self.listed.is_some() { numbers::PROMPT_LOG_PROBS.name() } else { numbers::LOG_PROBS.name() }
    }

    /// As many as the longest list has.
    pub(super) fn most(&self) -> usize {
        self.echoed.max(self.listed).unwrap_or(0)
    }
}

/// How an answer is delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Delivery {
    /// In one piece.
    Whole,
    /// As a stream of chunks, with or without what each step did, and token usage at its end.
    Stream { usage: bool, steps: bool },
}

/// Defaults and limits of the service.
#[derive(Debug, Clone, Copy)]
pub(super) struct Defaults<'a> {
    pub(super) drafter: &'a str,
    pub(super) limits: &'a Limits,
    pub(super) context: usize,
}

/// Parses a body of `/v1/chat/completions`.
pub(super) fn chat(body: &[u8], defaults: &Defaults<'_>) -> Result<Asked, Refused> {
    let mut body: Body = parse(body)?;
    let numbers = body.others.numbers(Endpoint::Chat)?;
    foreign::refuse(&body.others)?;
    let messages = body.messages.take().ok_or_else(|| absent("messages"))?;
    let (add_generation_prompt, continues) = (body.add_generation_prompt, body.continue_final_message);
    if body.functions.take().is_some_and(|functions| !functions.is_empty()) {
        return Err(Refused::field("functions", "this server knows them as `tools`; send those"));
    }
    let tools = ToolsBody {
        tools: body.tools.take(),
        tool_choice: body.tool_choice.take(),
        parallel_tool_calls: body.parallel_tool_calls,
    };
    let tools = tools.asked()?;
    let constraint = body.response_format.take().and_then(ResponseFormat::into_constraint);
    if tools.is_some()
        && (numbers.integer(&numbers::N) != Some(1)
            || body.stream_options.as_ref().is_some_and(|options| options.include_steps == Some(true)))
    {
        let what = "expected one answer with `tools` that may be called, without `include_steps`";
        return Err(Refused::field("tools", what));
    }
    if tools.is_some() && constraint.is_some() {
        let what = "expected none with `tools` that may be called, found one; set `tool_choice` to none";
        return Err(Refused::field("response_format", what));
    }
    let tells_thoughts = is_wanted(body.reasoning_format.as_ref(), body.separate_reasoning)
        .map_err(|what| Refused::field("reasoning_format", what))?;
    if messages.is_empty() {
        return Err(Refused::field("messages", "expected at least one message, found none"));
    }
    let continues =
        prefill::is_asked(messages.iter().map(MessageBody::is_prefix), continues, add_generation_prompt)?;
    let message = |(place, message): (usize, MessageBody)| {
        message.read().map_err(|what| Refused::field(format!("messages[{place}]"), what))
    };
    let messages = messages.into_iter().enumerate().map(message).collect::<Result<_, _>>()?;
    let log_probs =
        match (body.others.flag("logprobs")?.unwrap_or(false), numbers.integer(&numbers::TOP_LOG_PROBS)) {
            (true, most) => Some(most.unwrap_or(0)),
            (false, None | Some(0)) => None,
            (false, Some(_)) => {
                let what = "expected `logprobs` to be true with it, found it false or absent";
                return Err(Refused::field("top_logprobs", what));
            }
        };
    if tools.is_some() && log_probs.is_some() {
        return Err(Refused::field("logprobs", "expected none with `tools`, found some; leave one out"));
    }
    let conversation = Conversation {
        variables: body.chat_template_kwargs.take().unwrap_or_default(),
        tools: tools.as_ref().map(|tools| tools.definitions.clone()).unwrap_or_default(),
        ..match (continues, add_generation_prompt) {
            (true, _) => prefill::continued(messages)?,
            (false, None | Some(true)) => Conversation::new(messages, GenerationPrompt::Add),
            (false, Some(false)) => Conversation::new(messages, GenerationPrompt::Omit),
        }
    };
    let most = output_tokens(&numbers, defaults.limits.output_tokens, defaults)?;
    let request = Request {
        log_probs: log_probs.map(count),
        max_tokens: most,
        ..Request::new(Prompt::Chat(conversation))
    };
    let mut asked = body.asked(request, &numbers, defaults)?;
    asked.request.constraint = constraint;
    let reading = PromptReading::new(None, numbers.integer(&numbers::PROMPT_LOG_PROBS).map(count), false);
    Ok(Asked { tools, tells_thoughts, reading: whole(reading, asked.delivery)?, ..asked })
}

/// Parses a body of `/v1/completions`.
pub(super) fn completion(body: &[u8], defaults: &Defaults<'_>) -> Result<Asked, Refused> {
    let mut body: Body = parse(body)?;
    let echoes = body.echo == Some(true);
    let is_set = |name: &str| body.others.get(name).is_some();
    // Where a prompt is read, no answer may be asked for. It is given all the same, of one token, and not told.
    let reads = echoes && is_set(numbers::LOG_PROBS.name()) || is_set(numbers::PROMPT_LOG_PROBS.name());
    let is_all = reads && body.others.take_zero(numbers::MAX_TOKENS.name());
    let numbers = body.others.numbers(Endpoint::Completions)?;
    foreign::refuse(&body.others)?;
    let prompt = body.prompt.take().ok_or_else(|| absent("prompt"))?;
    let log_probs = numbers.integer(&numbers::LOG_PROBS);
    let listed = numbers.integer(&numbers::PROMPT_LOG_PROBS).map(count);
    let reading = PromptReading::new(log_probs.filter(|_| echoes).map(count), listed, is_all);
    let mut prompts: Vec<Prompt> = match prompt {
        PromptBody::Text(text) => vec![Prompt::Raw(text)],
        PromptBody::Tokens(ids) => vec![Prompt::Tokens(ids)],
        PromptBody::Texts(texts) => texts.into_iter().map(Prompt::Raw).collect(),
        PromptBody::TokenLists(lists) => lists.into_iter().map(Prompt::Tokens).collect(),
    };
    let further = prompts.split_off(1);
    let prompt = prompts.remove(0);
    let most = if is_all { 1 } else { output_tokens(&numbers, COMPLETION_TOKENS, defaults)? };
    let request = Request { log_probs: log_probs.map(count), max_tokens: most, ..Request::new(prompt) };
    let (suffix, response_format) = (body.suffix.take(), body.response_format.take());
    if reading.is_some() && suffix.as_ref().is_some_and(|suffix| !suffix.is_empty()) {
        let what =
            "expected none with log-probabilities of the prompt, whose layout it changes; leave one out";
        return Err(Refused::field("suffix", what));
    }
    let mut asked = body.asked(request, &numbers, defaults)?;
    asked.request.constraint = response_format.and_then(ResponseFormat::into_constraint);
    let reading = whole(reading, asked.delivery)?;
    Ok(Asked { choices: asked.choices.with(further, echoes, suffix)?, reading, ..asked })
}

/// Refuses to tell of prompts in a stream, which has no place for it.
fn whole(reading: Option<PromptReading>, delivery: Delivery) -> Result<Option<PromptReading>, Refused> {
    if reading.is_some() && delivery != Delivery::Whole {
        let what = "expected false with log-probabilities of the prompt, found true; leave one out";
        return Err(Refused::field("stream", what));
    }
    Ok(reading)
}

/// Parses the fields of `T`; other fields belong to other structs.
pub(super) fn parse<'b, T: Deserialize<'b>>(body: &'b [u8]) -> Result<T, Refused> {
    let refused = |found: &str| {
        Refused::request(format!("the body is no such request: expected a JSON object, found {found}"))
    };
    // serde would also accept a list for a struct.
    if body.trim_ascii_start().first() != Some(&b'{') {
        return Err(refused("something else"));
    }
    let mut json = serde_json::Deserializer::from_slice(body);
    let parsed =
        serde_path_to_error::deserialize(&mut json).map_err(|error| match error.path().to_string() {
            path if path == "." => refused(&json_fault(error.inner())),
            path => Refused::field(path, format!("found {}", json_fault(error.inner()))),
        })?;
    json.end().map_err(|error| refused(&json_fault(&error)))?;
    Ok(parsed)
}

/// The refusal of a body without a field that it has to have.
fn absent(field: &'static str) -> Refused {
    Refused::field(field, format!("found no field `{field}`; send it"))
}

/// A number of the table that counts.
fn count(number: i128) -> usize {
    usize::try_from(number).expect("its range is one of counts")
}

impl Body {
    /// The request with its sampling and stop strings.
    fn asked(self, request: Request, numbers: &Numbers, defaults: &Defaults<'_>) -> Result<Asked, Refused> {
        let request = Request {
            sampling: sampling(numbers)?,
            adjustment: self.adjustment(numbers)?,
            stop: stops(self.stop)?,
            cancel: CancelHandle::new(),
            ..request
        };
        let delivery = match (self.stream.unwrap_or(false), self.stream_options) {
            (true, Some(StreamOptions { include_usage, include_steps })) => Delivery::Stream {
                usage: include_usage.unwrap_or(false),
                steps: include_steps.unwrap_or(false),
            },
            (true, None) => Delivery::Stream { usage: false, steps: false },
            (false, _) => Delivery::Whole,
        };
        let drafter = self.drafter.unwrap_or_else(|| defaults.drafter.to_owned());
        let choices = Choices::new(numbers)?;
        let token_names = match self.return_tokens_as_token_ids {
            Some(true) => TokenNames::Ids,
            Some(false) | None => TokenNames::Texts,
        };
        Ok(Asked {
            request,
            model: self.model,
            drafter,
            choices,
            delivery,
            token_names,
            tools: None,
            tells_thoughts: false,
            reading: None,
            response: None,
        })
    }

    fn adjustment(&self, numbers: &Numbers) -> Result<Adjustment, Refused> {
        let mut bias = Vec::new();
        for (token, added) in self.logit_bias.iter().flatten() {
            let id = token
                .parse()
                .map_err(|_| Refused::field("logit_bias", format!("expected token ids, found {token:?}")))?;
            bias.push((id, numbers::decimal(&Parameter::LOGIT_BIAS, added)?));
        }
        Ok(Adjustment {
            bias,
            repetition: numbers.decimal(&numbers::REPETITION_PENALTY),
            frequency: numbers.decimal(&numbers::FREQUENCY_PENALTY),
            presence: numbers.decimal(&numbers::PRESENCE_PENALTY),
        })
    }
}

fn sampling(numbers: &Numbers) -> Result<Sampling, Refused> {
    let seed = match numbers.integer(&numbers::SEED) {
        None => RandomState::new().hash_one(()),
        // OpenAI accepts negative seeds.
        Some(seed) => seed as u64,
    };
    let sampling = Sampling {
        temperature: numbers.decimal(&numbers::TEMPERATURE),
        // Below 0 is vLLM's way to keep all.
        top_k: numbers.integer(&numbers::TOP_K).and_then(|k| u32::try_from(k).ok()).unwrap_or(0),
        // Of any probability above 0, the most probable token alone has enough where it has the least that there is.
        top_p: numbers.decimal(&numbers::TOP_P).max(f32::MIN_POSITIVE),
        min_p: numbers.decimal(&numbers::MIN_P),
        seed,
    };
    sampling.validate().map_err(|error| Refused::request(error.to_string()))?;
    Ok(sampling)
}

/// Most tokens of the answer; `otherwise` where the request does not say.
fn output_tokens(numbers: &Numbers, otherwise: usize, defaults: &Defaults<'_>) -> Result<usize, Refused> {
    let fields = [&numbers::MAX_COMPLETION_TOKENS, &numbers::MAX_TOKENS];
    let asked = fields.into_iter().find_map(|field| Some((field, numbers.integer(field)?)));
    let most = defaults.limits.output_tokens;
    match asked {
        None => Ok(otherwise.min(most).min(defaults.context)),
        // More than the context holds is no error: the context ends the answer.
        Some((_, asked)) if asked <= most as i128 => Ok(count(asked)),
        Some((field, asked)) => {
            let what = format!("expected at most {most} tokens of output, found {asked}; ask for fewer");
            Err(Refused::field(field.name(), what))
        }
    }
}

fn stops(stop: Option<OneOrMore<String>>) -> Result<Vec<String>, Refused> {
    let stops: Vec<String> = stop.map(Into::into).unwrap_or_default();
    if stops.len() > MOST_STOPS {
        let what = format!("expected at most {MOST_STOPS} strings, found {}", stops.len());
        return Err(Refused::field("stop", what));
    }
    if let Some(bad) = stops.iter().find(|stop| stop.is_empty() || stop.len() > MOST_STOP_BYTES) {
        let what = format!("expected strings of 1 to {MOST_STOP_BYTES} bytes, found one of {}", bad.len());
        return Err(Refused::field("stop", what));
    }
    Ok(stops)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;
    use yggc::engine::{Message, Role};

    use super::*;
    use crate::serve::check::DEFAULTS;

    fn asked(body: &Value) -> Asked {
        chat(body.to_string().as_bytes(), &DEFAULTS).unwrap()
    }

    #[test]
    fn what_is_not_said_is_as_openai_has_it() {
        let body = json!({"messages": [{"role": "user", "content": "x"}], "user": "ignored", "tools": null});
        let Asked { request, model, drafter, delivery, tools, .. } = asked(&body);
        assert!(tools.is_none() && request.constraint.is_none());
        assert_eq!((model, drafter.as_str(), delivery), (None, "plan", Delivery::Whole));
        assert_eq!((request.max_tokens, request.log_probs, request.stop.len()), (40, None, 0));
        assert_eq!((request.sampling.temperature, request.sampling.top_p), (1.0, 1.0));
        assert!(request.adjustment.is_none());
        let again = asked(&body).request.sampling.seed;
        assert_ne!(request.sampling.seed, again, "another seed every time");
        let Asked { request, .. } = completion(b"{\"prompt\": \"x\"}", &DEFAULTS).unwrap();
        assert_eq!(request.max_tokens, 16);
    }

    #[test]
    fn fields_mean_what_they_say() {
        let body = json!({
            "messages": [
                {"role": "developer", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
                {"role": "user", "content": "c"},
            ],
            "max_tokens": 7, "max_completion_tokens": 9, "seed": -1, "top_k": -1, "stop": "s", "stream": true,
            "stream_options": {"include_usage": true}, "logit_bias": {"5": -1.5}, "drafter": "layer_skip_v8192",
            "chat_template_kwargs": {"enable_thinking": false},
        });
        let Asked { request, drafter, delivery, .. } = asked(&body);
        let Prompt::Chat(Conversation { messages, variables, .. }) = &request.prompt else {
            panic!("{request:?}")
        };
        assert_eq!(messages[0], Message::new(Role::System, "ab"));
        assert_eq!(variables.to_string(), r#"{"enable_thinking":false}"#);
        assert_eq!((request.max_tokens, request.sampling.seed, request.sampling.top_k), (9, u64::MAX, 0));
        assert_eq!((request.stop, request.adjustment.bias), (vec!["s".to_owned()], vec![(5, -1.5)]));
        assert_eq!(
            (drafter.as_str(), delivery),
            ("layer_skip_v8192", Delivery::Stream { usage: true, steps: false })
        );
    }

    #[test]
    fn a_field_of_another_type_is_named() {
        for (body, field) in [
            (json!({"messages": [], "temperature": "hot"}), "temperature"),
            (json!({"messages": [{"role": 3}]}), "messages[0].role"),
            (json!({"messages": [{"role": "user", "content": "x"}], "logit_bias": {"1": "x"}}), "logit_bias"),
            (json!({"messages": [], "chat_template_kwargs": {"messages": []}}), "chat_template_kwargs"),
        ] {
            let refused = chat(body.to_string().as_bytes(), &DEFAULTS).unwrap_err();
            let said = refused.body()["error"]["param"].as_str().unwrap_or_default().to_owned();
            assert!(said.starts_with(field) && refused.message.contains("found"), "{refused:?}");
        }
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            (-3..30_i64).prop_map(Value::from),
            "[a-z\u{e9}]{0,8}".prop_map(Value::from),
            prop::sample::select(vec!["user", "text", "plan", "none"]).prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 12, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec((any_field(), inner), 0..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    fn any_field() -> impl Strategy<Value = String> {
        let fields = "model messages prompt role content type text max_tokens max_completion_tokens temperature top_p \
                      top_k min_p seed stop presence_penalty frequency_penalty repetition_penalty logit_bias n \
                      best_of stream stream_options include_usage drafter logprobs top_logprobs tools tool_choice \
                      function name arguments parameters tool_calls tool_call_id response_format schema echo suffix \
                      prefix include_steps continue_final_message return_tokens_as_token_ids refusal \
                      reasoning_content 7";
        prop::sample::select(fields.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    proptest! {
        #[test]
        fn bodies_of_any_kind_are_understood_or_refused(
            fields in prop::collection::vec((any_field(), any_value()), 0..8),
            noise in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let mut body = json!({"messages": [{"role": "user", "content": "x"}], "prompt": "x"});
            for (field, value) in fields {
                body[field] = value;
            }
            let text = body.to_string();
            let cut = &text.as_bytes()[..noise.len().min(text.len())];
            for body in [text.as_bytes(), &noise, cut] {
                for result in [chat(body, &DEFAULTS), completion(body, &DEFAULTS)] {
                    match result {
                        Ok(Asked { request, .. }) => {
                            prop_assert!((1..=50).contains(&request.max_tokens));
                            prop_assert!(request.sampling.validate().is_ok());
                            prop_assert!(request.stop.iter().all(|stop| !stop.is_empty()));
                        }
                        Err(refused) => prop_assert_eq!(refused.status.as_u16(), 400),
                    }
                }
            }
        }
    }
}
