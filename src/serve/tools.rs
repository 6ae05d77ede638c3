//! `tools` and `tool_choice`: which calls a client lets the model make, and how the model's family writes them.

use serde::Deserialize;
use serde_json::json;
use yggc::{
    engine::{Constraint, Json, Loaded},
    text::Tokenizer,
};

use super::{answers::Refused, messages::member, told_tools};

/// Most tools of a request.
const MOST_TOOLS: usize = 128;
/// Longest name of a tool, as OpenAI has it.
const LONGEST_NAME: usize = 64;

/// The fields of a request that are about tools.
#[derive(Debug, Deserialize)]
pub(super) struct ToolsBody {
    pub(super) tools: Option<Vec<Json>>,
    pub(super) tool_choice: Option<ChoiceBody>,
    pub(super) parallel_tool_calls: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "another `tool_choice` than none, auto, required, or one function by name")]
pub(super) enum ChoiceBody {
    Word(ChoiceWord),
    Named { function: NameBody },
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ChoiceWord {
    None,
    Auto,
    Required,
}

#[derive(Debug, Deserialize)]
pub(super) struct NameBody {
    name: String,
}

/// A tool, as far as the server reads it; templates get it as it was sent.
#[derive(Debug, Deserialize)]
struct ToolBody {
    r#type: String,
    function: FunctionBody,
}

#[derive(Debug, Deserialize)]
struct FunctionBody {
    name: String,
    parameters: Option<Json>,
}

/// Calls that an answer may make.
#[derive(Debug)]
pub(super) struct Tools {
    /// The tools as they were sent, for the template.
    pub(super) definitions: Vec<Json>,
    /// Name and schema of the parameters of those that may be called.
    callable: Vec<(String, Option<Json>)>,
    must: Must,
    /// Whether an answer may make more than one.
    several: bool,
}

/// Whether an answer has to be a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Must {
    /// The model decides.
    No,
    /// One call.
    One,
    /// One or more.
    Some,
}

/// How a family writes calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallFormat {
    /// `<tool_call>{"name": .., "arguments": ..}</tool_call>`: Hermes, Qwen, and models that are told of tools in this
    /// form.
    Hermes,
    /// `{"name": .., "parameters": ..}`: Llama 3.
    Llama3,
    /// `[TOOL_CALLS][{"name": .., "arguments": ..}]`: Mistral.
    Mistral,
    /// `[TOOL_CALLS]NAME[ARGS]{..}`: Mistral since Small 3.2.
    MistralArgs,
    /// `<tool_call><function=NAME><parameter=KEY>..</parameter></function></tool_call>`: Qwen 3 Coder, Qwen 3.5.
    Xml,
    /// `<|tool_call>call:NAME{KEY:<|"|>..<|"|>}<tool_call|>`: Gemma 4.
    Gemma,
    /// A message to `functions.NAME`: gpt-oss.
    Harmony,
}

impl ToolsBody {
    /// What they ask for; `None` without tools, or where none may be called.
    pub(super) fn asked(self) -> Result<Option<Tools>, Refused> {
        let Self { tools, tool_choice, parallel_tool_calls } = self;
        let definitions = tools.unwrap_or_default();
        if definitions.is_empty() {
            return match tool_choice {
                None | Some(ChoiceBody::Word(ChoiceWord::None | ChoiceWord::Auto)) => Ok(None),
                Some(ChoiceBody::Word(ChoiceWord::Required) | ChoiceBody::Named { .. }) => {
                    Err(Refused::field("tool_choice", "expected `tools` with it, found none"))
                }
            };
        }
        if definitions.len() > MOST_TOOLS {
            let what = format!("expected at most {MOST_TOOLS}, found {}", definitions.len());
            return Err(Refused::field("tools", what));
        }
        let mut callable = definitions.iter().map(callable).collect::<Result<Vec<_>, _>>()?;
        let several = parallel_tool_calls.unwrap_or(true);
        let must = match tool_choice.unwrap_or(ChoiceBody::Word(ChoiceWord::Auto)) {
            ChoiceBody::Word(ChoiceWord::None) => return Ok(None),
            ChoiceBody::Word(ChoiceWord::Auto) => Must::No,
            ChoiceBody::Word(ChoiceWord::Required) => {
                if several {
                    Must::Some
                } else {
                    Must::One
                }
            }
            ChoiceBody::Named { function: NameBody { name } } => {
                callable.retain(|(known, _)| *known == name);
                if callable.is_empty() {
                    let what = format!("expected the name of one of `tools`, found {name:?}");
                    return Err(Refused::field("tool_choice", what));
                }
                Must::One
            }
        };
        Ok(Some(Tools { definitions, callable, must, several: several && must != Must::One }))
    }
}

/// Name and parameters of a tool.
fn callable(tool: &Json) -> Result<(String, Option<Json>), Refused> {
    let refused = |what: String| Refused::field("tools", what);
    let ToolBody { r#type, function: FunctionBody { name, parameters } } =
        serde_json::from_str(&tool.to_string())
            .map_err(|fault| refused(format!("expected functions with a name, found one with {fault}")))?;
    if r#type != "function" {
        return Err(refused(format!("expected tools of type function, found {type:?}")));
    }
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if name.is_empty() || name.len() > LONGEST_NAME || !name.chars().all(is_plain) {
        let what =
            format!("expected names of 1 to {LONGEST_NAME} letters, digits, `_`, `-` or `.`, found {name:?}");
        return Err(refused(what));
    }
    Ok((name, parameters))
}

impl CallFormat {
    /// How the model of a template writes calls.
    pub(super) fn of_model(loaded: &Loaded) -> Result<Self, Refused> {
        let template = loaded.chat_template().map_err(Refused::from)?;
        let source = template.map(|template| template.source()).unwrap_or_default();
        let unknown = |found: &str| {
            let what = format!(
                "expected a model whose chat template writes calls as Hermes, Qwen, Llama 3, Mistral, Gemma 4 or \
                 gpt-oss, found {found}; leave tools out"
            );
            Err(Refused::field("tools", what))
        };
        match source {
            "" => unknown("a model without a template"),
            _ if !told_tools::knows_tools(source) => Ok(Self::Hermes),
            _ if Self::is_harmony(source) => Ok(Self::Harmony),
            _ if source.contains("<|tool_call>") => Ok(Self::Gemma),
            _ if source.contains("<function=") => Ok(Self::Xml),
            _ if source.contains("[ARGS]") => Ok(Self::MistralArgs),
            _ if source.contains("[TOOL_CALLS]") => Ok(Self::Mistral),
            _ if source.contains("<tool_call>") => Ok(Self::Hermes),
            _ if source.contains("<|python_tag|>") || source.contains("ipython") => Ok(Self::Llama3),
            _ => unknown("another format"),
        }
    }

    /// Whether messages of a template have channels.
    pub(super) fn is_harmony(template: &str) -> bool {
        template.contains("<|channel|>") && template.contains("<|message|>")
    }

    /// What calls begin with and end with; `None` where a call stands alone.
    pub(super) const fn marks(self) -> (Option<&'static str>, &'static str) {
        match self {
            Self::Hermes | Self::Xml => (Some("<tool_call>"), "</tool_call>"),
            Self::Llama3 | Self::Harmony => (None, ""),
            Self::Mistral => (Some("[TOOL_CALLS]"), "]"),
            Self::MistralArgs => (Some("[TOOL_CALLS]"), ""),
            Self::Gemma => (Some("<|tool_call>"), "<tool_call|>"),
        }
    }

    /// The key of a call's arguments, where calls are JSON objects.
    pub(super) const fn arguments(self) -> &'static str {
        match self {
            Self::Llama3 => "parameters",
            _ => "arguments",
        }
    }

    /// Marks that may be control tokens, which have no text in an answer.
    pub(super) fn controls(self) -> Vec<&'static str> {
        let (begin, end) = self.marks();
        let within: &[&str] = match self {
            Self::MistralArgs => &["[CALL_ID]", "[ARGS]"],
            Self::Gemma => &["<|\"|>"],
            _ => &[],
        };
        begin.into_iter().chain([end]).chain(within.iter().copied()).filter(|mark| !mark.is_empty()).collect()
    }
}

impl Tools {
    /// Names of the functions that may be called, and the schemas of their parameters.
    pub(super) fn callable(&self) -> &[(String, Option<Json>)] {
        &self.callable
    }

    /// Most calls of an answer.
    pub(super) fn most_calls(&self) -> usize {
        if self.several { usize::MAX } else { 1 }
    }

    /// What an answer has to be; `None` where the model decides.
    ///
    /// # Errors
    /// [`Refused`] for a form that no grammar is written for.
    pub(super) fn constraint(
        &self,
        format: CallFormat,
        tokenizer: &Tokenizer,
    ) -> Result<Option<Constraint>, Refused> {
        if self.must == Must::No {
            return Ok(None);
        }
        let mark = |mark: &str| {
            let ids = tokenizer.encode(mark, yggc::text::Special::Parse);
            match ids[..] {
                [id] if tokenizer.is_control(id) => format!("<[{id}]>"),
                _ => json!(mark).to_string(),
            }
        };
        let (begin, end) = format.marks();
        let begin = begin.map(mark).unwrap_or_default();
        let several = |separator: &str| match self.must {
            Must::Some => format!("call ({separator} call)*"),
            Must::No | Must::One => "call".to_owned(),
        };
        let one_of = |call: &dyn Fn(&str, Option<&Json>) -> String| {
            let calls: Vec<String> =
                self.callable.iter().map(|(name, parameters)| call(name, parameters.as_ref())).collect();
            calls.join("\n    | ")
        };
        // Each schema is a document of its own: its references stay as they are.
        let object = |name: &str, parameters: Option<&Json>| {
            let head = json!(format!("{{\"name\": \"{name}\", \"{}\": ", format.arguments()));
            format!("{head} %json {} \"}}\"", of_objects(parameters))
        };
        Ok(Some(Constraint::Lark(match format {
            CallFormat::Llama3 => format!("start: {}\n", one_of(&object)),
            CallFormat::Mistral => {
                let call = one_of(&object);
                format!("start: {begin} \"[\" {} \"]\"\ncall: {call}\n", several("\", \""))
            }
            CallFormat::Hermes => {
                let (all, end, call) = (several("\"\\n\""), mark(end), one_of(&object));
                format!("start: {all}\ncall: {begin} \"\\n\" one \"\\n\" {end}\none: {call}\n")
            }
            CallFormat::MistralArgs => {
                let args = mark("[ARGS]");
                let named = |name: &str, parameters: Option<&Json>| {
                    format!("\"{name}\" {args} %json {}", of_objects(parameters))
                };
                format!("start: {}\ncall: {begin} one\none: {}\n", several(""), one_of(&named))
            }
            // The token that ends a call ends the answer, so there is one.
            CallFormat::Harmony => {
                let [channel, constrain, message] = ["<|channel|>", "<|constrain|>", "<|message|>"].map(mark);
                let sent = |name: &str, parameters: Option<&Json>| {
                    let to = json!(format!("commentary to=functions.{name} "));
                    format!("{to} {constrain} \"json\" {message} %json {}", of_objects(parameters))
                };
                format!("start: {channel} one\none: {}\n", one_of(&sent))
            }
            CallFormat::Xml => {
                let (all, end) = (several("\"\\n\""), mark(end));
                let tagged = |name: &str, parameters: Option<&Json>| {
                    let head = json!(format!("<function={name}>\n"));
                    format!("{head} {} \"</function>\"", tags(parameters))
                };
                format!(
                    "start: {all}\ncall: {begin} \"\\n\" one \"\\n\" {end}\none: {}\n\
                     text[suffix=\"\\n</parameter>\\n\"]: /(?s:.*)/\n",
                    one_of(&tagged)
                )
            }
            CallFormat::Gemma => {
                let what = "expected none or auto of a model that writes calls as Gemma 4 does, found one that must \
                            be made";
                return Err(Refused::field("tool_choice", what));
            }
        })))
    }
}

/// The parameters of a function, one tag each, in the order of its schema.
fn tags(parameters: Option<&Json>) -> String {
    let Some(Json::Object(schema)) = parameters else { return String::new() };
    let part = |name: &str| schema.iter().find(|(key, _)| key == name).map(|(_, value)| value);
    let Some(Json::Object(properties)) = part("properties") else { return String::new() };
    let required = |name: &str| match part("required") {
        Some(Json::Array(names)) => names.iter().any(|each| *each == Json::String(name.to_owned())),
        _ => false,
    };
    let tag = |(name, value): &(String, Json)| {
        let head = json!(format!("<parameter={name}>\n"));
        let value = match is_text(value) {
            true => "text".to_owned(),
            false => format!("%json {} \"\\n</parameter>\\n\"", with_definitions(value, schema)),
        };
        let mark = if required(name) { "" } else { "?" };
        format!("({head} {value}){mark}")
    };
    properties.iter().map(tag).collect::<Vec<_>>().join(" ")
}

/// Whether a parameter is a text, written as it is.
fn is_text(schema: &Json) -> bool {
    matches!(member(schema, "type"), Some(Json::String(kind)) if kind == "string")
}

/// A part of a schema with what it may refer to.
fn with_definitions(part: &Json, whole: &[(String, Json)]) -> String {
    let Json::Object(own) = part else { return part.to_string() };
    let is_definition = |(key, _): &&(String, Json)| matches!(key.as_str(), "$defs" | "definitions");
    Json::Object(own.iter().chain(whole.iter().filter(is_definition)).cloned().collect()).to_string()
}

/// The schema of a call's arguments, which are an object whether it says so or not.
fn of_objects(parameters: Option<&Json>) -> String {
    let object = || ("type".to_owned(), Json::String("object".to_owned()));
    match parameters {
        None | Some(Json::Null) => Json::Object(vec![object()]).to_string(),
        Some(Json::Object(entries)) if entries.iter().all(|(keyword, _)| keyword != "type") => {
            Json::Object([object()].into_iter().chain(entries.iter().cloned()).collect()).to_string()
        }
        Some(schema) => schema.to_string(),
    }
}

#[cfg(test)]
#[path = "tools/tests.rs"]
pub(super) mod tests;
