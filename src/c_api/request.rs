//! Requests, as C gives them.

use std::ffi::c_char;

use yggc::engine::{
    Adjustment, Constraint, Conversation, GenerationPrompt, Message, Prompt, Request, Reuse, Role, Sampling,
    Speculation, Variables,
};

use super::{
    cancel::Cancel,
    pointers::{self, Growing},
    status::Failure,
};

/// One message of a conversation.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct ChatMessage {
    /// `system`, `user`, `assistant` or `tool`.
    pub role: *const c_char,
    /// UTF-8 text that ends with a NUL. Nothing in it becomes a control token.
    pub content: *const c_char,
}

/// A request: `ygg_request request = {.size = sizeof request, .messages = &question, .message_count = 1};`. Exactly one
/// of `messages`, `prompt` and `tokens` is given; other fields that are zero or `NULL` have their defaults, and a
/// request with defaults only is greedy. All pointers must stay valid until `ygg_generate()` returns.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct GenerateRequest {
    /// `sizeof(ygg_request)`.
    pub size: usize,
    /// A conversation, formatted by the model's chat template.
    pub messages: *const ChatMessage,
    /// Messages of the conversation.
    pub message_count: usize,
    /// Raw text, UTF-8 that ends with a NUL; control tokens in it are recognised.
    pub prompt: *const c_char,
    /// Token ids of the prompt.
    pub tokens: *const u32,
    /// How many.
    pub token_count: usize,
    /// Strings that end the answer and are not part of it, found across token borders; none is empty.
    pub stop: *const *const c_char,
    /// How many.
    pub stop_count: usize,
    /// Handle that cancels the request.
    pub cancel: *const Cancel,
    /// Seed of sampling; the same seed gives the same answer.
    pub seed: u64,
    /// Most tokens of the answer; 0: 256.
    pub max_tokens: u32,
    /// Sampling temperature; 0: greedy.
    pub temperature: f32,
    /// Samples among this many of the most probable tokens; 0: all.
    pub top_k: u32,
    /// Samples among the most probable tokens whose probabilities sum to this; 0 and 1: all.
    pub top_p: f32,
    /// Samples among tokens of at least this many times the highest probability; 0: all.
    pub min_p: f32,
    /// Divides positive logits, and multiplies others, of tokens that prompt or answer contain; 0 and 1: unchanged.
    pub repetition_penalty: f32,
    /// Subtracted from a token's logit for each time that the answer contains it; from -2 to 2.
    pub frequency_penalty: f32,
    /// Subtracted once from the logit of each token that the answer contains; from -2 to 2.
    pub presence_penalty: f32,
    /// Not 0: plain decoding, with the same tokens.
    pub no_spec: u32,
    /// Not 0: reuses nothing of the previous request, so the whole prompt is run.
    pub no_reuse: u32,
    /// Variables of the model's chat template as a JSON object, such as `{"enable_thinking": false}`; only with
    /// `messages`.
    pub chat_template_kwargs: *const c_char,
    /// A JSON schema, as JSON, that the answer fits; `{"type": "object"}` for any JSON object. At most one of this and
    /// the next two is given. An answer that reaches `max_tokens` is cut before it is whole.
    pub json_schema: *const c_char,
    /// A regular expression that the whole answer matches.
    pub regex: *const c_char,
    /// A grammar in Lark's form that the whole answer fits.
    pub grammar: *const c_char,
}

// SAFETY: plain data of C that begins with its size; null pointers and zeros are values.
unsafe impl Growing for GenerateRequest {
    const NAME: &'static str = "ygg_request";
    const FIRST_BYTES: usize = 120;
}

const _: () = assert!(GenerateRequest::FIRST_BYTES <= size_of::<GenerateRequest>());

/// The request for the engine.
///
/// # Errors
/// Of kind usage for values that are missing, contradictory, unknown or out of range, and of kind input for text that
/// is not UTF-8.
///
/// # Safety
/// `given` is null or points to a `ygg_request`; its arrays have as many elements as it says, its texts end with a NUL,
/// its cancel handle is null or was not freed.
pub(super) unsafe fn request(given: *const GenerateRequest) -> Result<Request, Failure> {
    // SAFETY: as the caller's.
    let given = unsafe { pointers::growing(given)? };
    // SAFETY: as the caller's.
    let prompt = unsafe { prompt(&given)? };
    let sampling = Sampling {
        temperature: given.temperature,
        top_k: given.top_k,
        top_p: one_if_zero(given.top_p),
        min_p: given.min_p,
        seed: given.seed,
    };
    sampling.validate().map_err(|error| Failure::usage(error.to_string()))?;
    let adjustment = Adjustment {
        bias: Vec::new(),
        repetition: one_if_zero(given.repetition_penalty),
        frequency: given.frequency_penalty,
        presence: given.presence_penalty,
    };
    adjustment.validate(0).map_err(|error| Failure::usage(error.to_string()))?;
    // SAFETY: as the caller's.
    let stop = unsafe { pointers::elements(given.stop, given.stop_count, "stop")? };
    let stop = stop.iter().map(|text| {
        // SAFETY: as the caller's.
        let text = unsafe { pointers::text(*text, "a stop string")? }.unwrap_or_default();
        let empty = || {
            Failure::usage("a stop string is NULL or empty: expected at least one character; leave it out")
        };
        (!text.is_empty()).then(|| text.to_owned()).ok_or_else(empty)
    });
    let mut request = Request {
        // SAFETY: as the caller's.
        constraint: unsafe { constraint(&given)? },
        sampling,
        adjustment,
        stop: stop.collect::<Result<_, _>>()?,
        speculation: if given.no_spec == 0 { Speculation::AsOpened } else { Speculation::Off },
        reuse: if given.no_reuse == 0 { Reuse::Prefix } else { Reuse::Nothing },
        ..Request::new(prompt)
    };
    if given.max_tokens != 0 {
        request.max_tokens = given.max_tokens as usize;
    }
    if !given.cancel.is_null() {
        // SAFETY: as the caller's.
        request.cancel = unsafe { pointers::handle(given.cancel, "cancel")? }.handle();
    }
    Ok(request)
}

/// What the answer must be.
///
/// # Safety
/// As [`request`].
unsafe fn constraint(given: &GenerateRequest) -> Result<Option<Constraint>, Failure> {
    // SAFETY: as the caller's.
    let text = |field, what| unsafe { pointers::text(field, what) };
    let schema = text(given.json_schema, "json_schema")?.map(|text| Constraint::JsonSchema(text.to_owned()));
    let regex = text(given.regex, "regex")?.map(|text| Constraint::Regex(text.to_owned()));
    let grammar = text(given.grammar, "grammar")?.map(|text| Constraint::Lark(text.to_owned()));
    let mut asked = schema.into_iter().chain(regex).chain(grammar);
    let constraint = asked.next();
    match asked.count() {
        0 => Ok(constraint),
        more => Err(Failure::usage(format!(
            "expected at most one of json_schema, regex and grammar, found {}",
            more + 1
        ))),
    }
}

fn one_if_zero(number: f32) -> f32 {
    if number == 0.0 { 1.0 } else { number }
}

/// The one prompt of a request.
///
/// # Safety
/// As [`request`].
unsafe fn prompt(given: &GenerateRequest) -> Result<Prompt, Failure> {
    // SAFETY: as the caller's.
    let messages = unsafe { pointers::elements(given.messages, given.message_count, "messages")? };
    // SAFETY: as the caller's.
    let text = unsafe { pointers::text(given.prompt, "prompt")? };
    // SAFETY: as the caller's.
    let tokens = unsafe { pointers::elements(given.tokens, given.token_count, "tokens")? };
    // SAFETY: as the caller's.
    let variables = unsafe { pointers::text(given.chat_template_kwargs, "chat_template_kwargs")? };
    if variables.is_some() && messages.is_empty() {
        return Err(Failure::usage("chat_template_kwargs without messages: expected both or neither"));
    }
    match (messages, text, tokens) {
        ([_, ..], None, []) => {
            // SAFETY: as the caller's.
            let messages = messages.iter().map(|given| unsafe { message(given) });
            let variables = variables.map_or(Ok(Variables::default()), str::parse);
            Ok(Prompt::Chat(Conversation {
                variables: variables
                    .map_err(|error| Failure::usage(format!("chat_template_kwargs: {error}")))?,
                ..Conversation::new(messages.collect::<Result<_, _>>()?, GenerationPrompt::Add)
            }))
        }
        ([], Some(text), []) => Ok(Prompt::Raw(text.to_owned())),
        ([], None, [_, ..]) => Ok(Prompt::Tokens(tokens.to_vec())),
        (messages, text, tokens) => Err(Failure::usage(format!(
            "expected exactly one of messages, prompt and tokens, found {} messages, {} prompt and {} tokens",
            messages.len(),
            if text.is_some() { "a" } else { "no" },
            tokens.len()
        ))),
    }
}

/// # Safety
/// The texts are null or end with a NUL.
unsafe fn message(given: &ChatMessage) -> Result<Message, Failure> {
    // SAFETY: as the caller's.
    let (role, content) =
        unsafe { (pointers::text(given.role, "role")?, pointers::text(given.content, "content")?) };
    let roles = "system, user, assistant or tool";
    let role =
        role.ok_or_else(|| Failure::usage(format!("the role of a message is NULL: expected {roles}")))?;
    let role: Role = role
        .parse()
        .map_err(|_| Failure::usage(format!("the role of a message is `{role}`: expected {roles}")))?;
    let content = content.ok_or_else(|| Failure::usage("the content of a message is NULL: expected text"))?;
    Ok(Message::new(role, content))
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;
    use crate::{cancel, status::Status};

    fn given() -> GenerateRequest {
        GenerateRequest {
            size: size_of::<GenerateRequest>(),
            messages: ptr::null(),
            message_count: 0,
            prompt: ptr::null(),
            tokens: ptr::null(),
            token_count: 0,
            stop: ptr::null(),
            stop_count: 0,
            cancel: ptr::null(),
            seed: 0,
            max_tokens: 0,
            temperature: 0.0,
            top_k: 0,
            top_p: 0.0,
            min_p: 0.0,
            repetition_penalty: 0.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            no_spec: 0,
            no_reuse: 0,
            chat_template_kwargs: ptr::null(),
            json_schema: ptr::null(),
            regex: ptr::null(),
            grammar: ptr::null(),
        }
    }

    fn read(given: GenerateRequest) -> Result<Request, Failure> {
        // SAFETY: the tests' texts end with a NUL, and their counts are right or refused.
        unsafe { request(&given) }
    }

    #[test]
    fn what_is_left_out_is_the_librarys_default() {
        let found = read(GenerateRequest { prompt: c"ab".as_ptr(), ..given() }).unwrap();
        let expected = Request::new(Prompt::Raw("ab".to_owned()));
        assert_eq!((found.prompt, found.max_tokens), (expected.prompt, expected.max_tokens));
        assert_eq!((found.sampling, found.adjustment), (Sampling::GREEDY, Adjustment::NONE));
        assert_eq!((found.speculation, found.reuse), (expected.speculation, expected.reuse));
        assert!(found.stop.is_empty() && !found.cancel.is_cancelled() && found.constraint.is_none());
    }

    #[test]
    fn what_is_said_is_taken() {
        let handle = cancel::ygg_cancel_new();
        let messages = [
            ChatMessage { role: c"system".as_ptr(), content: c"Be kind.".as_ptr() },
            ChatMessage { role: c"user".as_ptr(), content: c"".as_ptr() },
        ];
        let stop = [c"6.".as_ptr(), c"\n".as_ptr()];
        let found = read(GenerateRequest {
            messages: messages.as_ptr(),
            message_count: 2,
            stop: stop.as_ptr(),
            stop_count: 2,
            cancel: handle,
            seed: 7,
            max_tokens: 9,
            temperature: 0.5,
            top_k: 4,
            top_p: 0.75,
            min_p: 0.25,
            repetition_penalty: 1.5,
            frequency_penalty: -1.0,
            presence_penalty: 2.0,
            no_spec: 1,
            no_reuse: 2,
            chat_template_kwargs: c"{\"enable_thinking\": false}".as_ptr(),
            ..given()
        });
        let found = found.unwrap();
        let said = vec![Message::new(Role::System, "Be kind."), Message::new(Role::User, "")];
        let conversation = Conversation {
            variables: r#"{"enable_thinking": false}"#.parse().unwrap(),
            ..Conversation::new(said, GenerationPrompt::Add)
        };
        assert_eq!((found.prompt, found.max_tokens), (Prompt::Chat(conversation), 9));
        let sampling = Sampling { temperature: 0.5, top_k: 4, top_p: 0.75, min_p: 0.25, seed: 7 };
        assert_eq!(found.sampling, sampling);
        let adjustment = Adjustment { bias: Vec::new(), repetition: 1.5, frequency: -1.0, presence: 2.0 };
        assert_eq!((found.adjustment, found.stop), (adjustment, vec!["6.".to_owned(), "\n".to_owned()]));
        assert_eq!((found.speculation, found.reuse), (Speculation::Off, Reuse::Nothing));
        // SAFETY: the handle is here until it is freed.
        unsafe {
            assert_eq!(cancel::ygg_cancel_now(handle), Status::Ok);
            cancel::ygg_cancel_free(handle);
        }
        assert!(found.cancel.is_cancelled(), "the request keeps what the handle stood for");
        let asked = || GenerateRequest { prompt: c"ab".as_ptr(), ..given() };
        for (given, expected) in [
            (
                GenerateRequest { json_schema: c"true".as_ptr(), ..asked() },
                Constraint::JsonSchema("true".to_owned()),
            ),
            (GenerateRequest { regex: c"a+".as_ptr(), ..asked() }, Constraint::Regex("a+".to_owned())),
            (
                GenerateRequest { grammar: c"start: \"a\"".as_ptr(), ..asked() },
                Constraint::Lark("start: \"a\"".to_owned()),
            ),
        ] {
            assert_eq!(read(given).unwrap().constraint, Some(expected));
        }
        let tokens = [3, 5];
        let found = read(GenerateRequest { tokens: tokens.as_ptr(), token_count: 2, ..given() }).unwrap();
        assert_eq!(found.prompt, Prompt::Tokens(vec![3, 5]));
    }

    #[test]
    fn what_means_nothing_is_refused_with_what_was_expected() {
        let asked = || GenerateRequest { prompt: c"ab".as_ptr(), ..given() };
        let message = |role, content| ChatMessage { role, content };
        let (role, text) = (c"user".as_ptr(), c"ab".as_ptr());
        let [no_role, other_role, no_content] =
            [message(ptr::null(), text), message(c"robot".as_ptr(), text), message(role, ptr::null())];
        let good = message(role, text);
        let of_message =
            |message: &ChatMessage| GenerateRequest { messages: message, message_count: 1, ..given() };
        let [null, empty] = [ptr::null(), c"".as_ptr()];
        for (bad, expected) in [
            (given(), "exactly one of"),
            (GenerateRequest { tokens: &5, token_count: 1, ..asked() }, "a prompt and 1 tokens"),
            (GenerateRequest { message_count: 3, ..given() }, "messages is NULL"),
            (of_message(&no_role), "role of a message is NULL"),
            (of_message(&other_role), "`robot`"),
            (of_message(&no_content), "content of a message is NULL"),
            (GenerateRequest { stop: &null, stop_count: 1, ..asked() }, "stop string"),
            (GenerateRequest { stop: &empty, stop_count: 1, ..asked() }, "stop string"),
            (GenerateRequest { chat_template_kwargs: text, ..asked() }, "without messages"),
            (GenerateRequest { chat_template_kwargs: text, ..of_message(&good) }, "JSON object"),
            (GenerateRequest { temperature: -1.0, ..asked() }, "temperature"),
            (GenerateRequest { top_p: 1.5, ..asked() }, "top_p"),
            (GenerateRequest { min_p: f32::NAN, ..asked() }, "min_p"),
            (GenerateRequest { repetition_penalty: -1.0, ..asked() }, "repetition"),
            (GenerateRequest { presence_penalty: f32::INFINITY, ..asked() }, "presence"),
            (
                GenerateRequest { frequency_penalty: -2.5, ..asked() },
                "frequency_penalty: expected a number from -2 to 2",
            ),
            (
                GenerateRequest { regex: text, json_schema: text, ..asked() },
                "at most one of json_schema, regex",
            ),
            (GenerateRequest { size: 8, ..asked() }, "sizeof(ygg_request)"),
        ] {
            let failure = read(bad).unwrap_err();
            assert_eq!(failure.status, Status::Usage, "{expected}");
            assert!(failure.text.contains(expected), "{}", failure.text);
        }
        let failure = read(GenerateRequest { prompt: c"\xff".as_ptr(), ..given() }).unwrap_err();
        assert_eq!(failure.status, Status::Input);
    }
}
