//! `tools` and `tool_choice`: which calls a client lets the model make, and how the model's family writes them.

use serde::Deserialize;
use serde_json::json;
use yggc::{
    engine::{Constraint, Json, Loaded},
    text::Tokenizer,
};

use super::{answers::Refused, told_tools};

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
                "expected a model whose chat template writes calls as Hermes, Qwen, Llama 3 or Mistral, found \
                 {found}; leave tools out"
            );
            Err(Refused::field("tools", what))
        };
        match source {
            "" => unknown("a model without a template"),
            _ if !told_tools::knows_tools(source) => Ok(Self::Hermes),
            _ if source.contains("<function=") => unknown("calls in XML"),
            _ if source.contains("[ARGS]") => unknown("Mistral's calls with [ARGS]"),
            _ if source.contains("[TOOL_CALLS]") => Ok(Self::Mistral),
            _ if source.contains("<tool_call>") => Ok(Self::Hermes),
            _ if source.contains("<|python_tag|>") || source.contains("ipython") => Ok(Self::Llama3),
            _ => unknown("another format"),
        }
    }

    /// What calls begin with and end with; `None` where a call stands alone.
    pub(super) const fn marks(self) -> (Option<&'static str>, &'static str) {
        match self {
            Self::Hermes => (Some("<tool_call>"), "</tool_call>"),
            Self::Llama3 => (None, ""),
            Self::Mistral => (Some("[TOOL_CALLS]"), "]"),
        }
    }

    /// The key of a call's arguments.
    pub(super) const fn arguments(self) -> &'static str {
        match self {
            Self::Hermes | Self::Mistral => "arguments",
            Self::Llama3 => "parameters",
        }
    }

    /// The text of a token in an answer, that of a control token that marks calls included.
    pub(super) fn mark_of(self, tokenizer: &Tokenizer, id: u32) -> Option<&'static str> {
        if !tokenizer.is_control(id) {
            return None;
        }
        let name = tokenizer.spelling(id);
        let (begin, end) = self.marks();
        begin.into_iter().chain([end]).find(|mark| *mark == name)
    }
}

impl Tools {
    /// Names of the functions that may be called.
    pub(super) fn names(&self) -> Vec<String> {
        self.callable.iter().map(|(name, _)| name.clone()).collect()
    }

    /// Most calls of an answer.
    pub(super) fn most_calls(&self) -> usize {
        if self.several { usize::MAX } else { 1 }
    }

    /// What an answer has to be; `None` where the model decides.
    pub(super) fn constraint(&self, format: CallFormat, tokenizer: &Tokenizer) -> Option<Constraint> {
        let Self { callable, must, definitions: _, several: _ } = self;
        if *must == Must::No {
            return None;
        }
        let key = format.arguments();
        let calls: Vec<String> = callable
            .iter()
            .map(|(name, parameters)| {
                // Each schema is a document of its own: its references stay as they are.
                let head = json!(format!("{{\"name\": \"{name}\", \"{key}\": "));
                format!("{head} %json {} \"}}\"", of_objects(parameters.as_ref()))
            })
            .collect();
        let call = calls.join("\n    | ");
        let mark = |mark: &str| {
            let ids = tokenizer.encode(mark, yggc::text::Special::Parse);
            match ids[..] {
                [id] if tokenizer.is_control(id) => format!("<[{id}]>"),
                _ => json!(mark).to_string(),
            }
        };
        let (begin, end) = format.marks();
        let begin = begin.map(mark).unwrap_or_default();
        let several = |separator: &str| match must {
            Must::Some => format!("call ({separator} call)*"),
            Must::No | Must::One => "call".to_owned(),
        };
        Some(Constraint::Lark(match format {
            CallFormat::Llama3 => format!("start: {call}\n"),
            CallFormat::Mistral => {
                format!("start: {begin} \"[\" {} \"]\"\ncall: {call}\n", several("\", \""))
            }
            CallFormat::Hermes => {
                let (all, end) = (several("\"\\n\""), mark(end));
                format!("start: {all}\ncall: {begin} \"\\n\" one \"\\n\" {end}\none: {call}\n")
            }
        }))
    }
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
