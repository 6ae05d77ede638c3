//! What an answer is made of, read while it arrives: what the model thinks, text, and tool calls.
//!
//! The law: however the text is cut, the pieces are the same but for how text and arguments are cut. What looks like a
//! call and is none is text: that of a function which may not be called, and one whose arguments are no object. `null`
//! and no arguments at all are the empty object.

mod harmony;
mod marked;
mod thinking;
mod whole;

use serde_json::{Value, json};
use yggc::{
    engine::{FinishReason, Loaded},
    text::Tokenizer,
};

use self::{
    harmony::Harmony,
    marked::CallReader,
    thinking::{Spoken, Thinking},
    whole::Callable,
};
use super::{
    answers::{Frame, Refused},
    tools::{CallFormat, Tools},
};

pub(super) use harmony::MARKS as HARMONY_MARKS;
pub(super) use thinking::{ThinkingMarks, is_wanted};

/// What became known of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    /// What the model thinks before it answers.
    Thought(String),
    /// Text that is no call.
    Text(String),
    /// The call of this number began.
    Call {
        /// Which, from 0.
        index: usize,
        /// The tool.
        name: String,
    },
    /// More of the arguments of the call of this number, as JSON.
    Arguments {
        /// Which, from 0.
        index: usize,
        /// What follows.
        text: String,
    },
}

/// How the answers to one request are written, where they may be more than text.
#[derive(Debug)]
pub(super) struct AnswerForm {
    /// Marks of thoughts, and whether the prompt ends with the first.
    thinking: Option<(ThinkingMarks, bool)>,
    is_harmony: bool,
    /// How calls are written, of which functions, and how many may be made.
    calls: Option<(CallFormat, Vec<Callable>, usize)>,
}

impl AnswerForm {
    /// That of the answers to a prompt of these tokens, which may call the functions of `tools`; `thinks`: thoughts are
    /// to be told from the answer, which is no constraint's.
    pub(super) fn new(
        loaded: &Loaded,
        prompt: &[u32],
        calls: Option<(CallFormat, &Tools)>,
        thinks: bool,
    ) -> Result<Option<Self>, Refused> {
        let template = loaded.chat_template().map_err(Refused::from)?;
        let source = template.map(|template| template.source()).unwrap_or_default();
        let is_harmony = CallFormat::is_harmony(source) && (thinks || calls.is_some());
        let marks = ThinkingMarks::of_template(source).filter(|_| thinks && !is_harmony);
        let thinking = marks.map(|marks| (marks, ends_with(prompt, marks.begin, loaded.tokenizer())));
        let calls = calls.map(|(format, tools)| (format, tools.callable().to_vec(), tools.most_calls()));
        let has_form = thinking.is_some() || is_harmony || calls.is_some();
        Ok(has_form.then_some(Self { thinking, is_harmony, calls }))
    }

    /// The reader of an answer.
    pub(super) fn reader(&self) -> AnswerReader {
        let callable = || self.calls.as_ref().map(|(_, callable, _)| callable.clone()).unwrap_or_default();
        let thinking = self.thinking.map(|(marks, is_begun)| Thinking::new(marks, is_begun));
        let calls = match &self.calls {
            _ if self.is_harmony => Calls::Harmony(Harmony::new(callable())),
            Some((format, callable, _)) => Calls::Marked(CallReader::new(*format, callable.clone())),
            None => Calls::None,
        };
        let mut marks: Vec<&'static str> = Vec::new();
        marks.extend(self.thinking.into_iter().flat_map(|(marks, _)| marks.control()));
        marks.extend(self.calls.iter().flat_map(|(format, ..)| format.controls()));
        marks.extend(HARMONY_MARKS.iter().filter(|_| self.is_harmony));
        let most = self.calls.as_ref().map_or(usize::MAX, |(_, _, most)| *most);
        AnswerReader { marks, thinking, calls, most, pieces: Vec::new(), thought_tokens: 0 }
    }
}

/// Whether a prompt ends with a mark, and perhaps space after it.
fn ends_with(prompt: &[u32], mark: &str, tokenizer: &Tokenizer) -> bool {
    // A mark is a token, or is spelled by as many as it has characters.
    let last = prompt.iter().rev().take(mark.len() + 4).rev();
    last.map(|id| tokenizer.spelling(*id)).collect::<String>().trim_end().ends_with(mark)
}

/// What one answer is made of, as its response has it.
#[derive(Debug)]
pub(super) struct AnswerReader {
    /// Control tokens that mean something here.
    marks: Vec<&'static str>,
    thinking: Option<Thinking>,
    calls: Calls,
    /// Calls beyond so many are left out, as `parallel_tool_calls` asks.
    most: usize,
    pieces: Vec<Piece>,
    /// Tokens of thoughts.
    thought_tokens: usize,
}

/// What tells calls from text.
#[derive(Debug)]
enum Calls {
    /// There are none.
    None,
    Marked(CallReader),
    Harmony(Harmony),
}

impl AnswerReader {
    /// The next token, and the text that is sure with it.
    pub(super) fn push(&mut self, id: u32, text: &str, tokenizer: &Tokenizer) {
        let was_thinking = self.is_thinking();
        self.read(text);
        if tokenizer.is_control(id) {
            let name = tokenizer.spelling(id);
            if let Some(mark) = self.marks.iter().copied().find(|mark| *mark == name) {
                self.read(mark);
            }
        }
        self.thought_tokens += usize::from(was_thinking || self.is_thinking());
        self.leave_out();
    }

    fn is_thinking(&self) -> bool {
        match &self.calls {
            Calls::Harmony(reader) => reader.is_thinking(),
            Calls::None | Calls::Marked(_) => self.thinking.as_ref().is_some_and(Thinking::is_thinking),
        }
    }

    fn read(&mut self, text: &str) {
        match &mut self.thinking {
            None => self.answer(text),
            Some(thinking) => {
                let mut spoken = Vec::new();
                thinking.push(text, &mut spoken);
                self.spoken(spoken);
            }
        }
    }

    fn spoken(&mut self, spoken: Vec<Spoken>) {
        for part in spoken {
            match part {
                Spoken::Thought(text) => self.pieces.push(Piece::Thought(text)),
                Spoken::Answer(text) => self.answer(&text),
            }
        }
    }

    fn answer(&mut self, text: &str) {
        match &mut self.calls {
            Calls::Marked(reader) => reader.push(text, &mut self.pieces),
            Calls::Harmony(reader) => reader.push(text, &mut self.pieces),
            Calls::None if text.is_empty() => {}
            Calls::None => self.pieces.push(Piece::Text(text.to_owned())),
        }
    }

    fn leave_out(&mut self) {
        let most = self.most;
        self.pieces.retain(|piece| match piece {
            Piece::Thought(_) | Piece::Text(_) => true,
            Piece::Call { index, .. } | Piece::Arguments { index, .. } => *index < most,
        });
    }

    /// The answer is over, with this last text.
    pub(super) fn end(&mut self, rest: &str) {
        self.read(rest);
        let mut spoken = Vec::new();
        if let Some(thinking) = &mut self.thinking {
            thinking.finish(&mut spoken);
        }
        self.spoken(spoken);
        match &mut self.calls {
            Calls::None => {}
            Calls::Marked(reader) => reader.finish(&mut self.pieces),
            Calls::Harmony(reader) => reader.finish(&mut self.pieces),
        }
        self.leave_out();
    }

    /// As [`end`](Self::end); the whole text outside the calls.
    pub(super) fn finish(&mut self, rest: &str) -> String {
        self.end(rest);
        self.all(|piece| if let Piece::Text(text) = piece { Some(text) } else { None })
    }

    fn all(&self, of: impl Fn(&Piece) -> Option<&String>) -> String {
        self.pieces.iter().filter_map(of).map(String::as_str).collect()
    }

    /// Tokens of thoughts so far.
    pub(super) fn thought_tokens(&self) -> usize {
        self.thought_tokens
    }

    /// Why the answer ended, in OpenAI's words.
    pub(super) fn reason(&self, reason: FinishReason) -> &'static str {
        let has_calls = match &self.calls {
            Calls::None => false,
            Calls::Marked(reader) => reader.has_calls(),
            Calls::Harmony(reader) => reader.has_calls(),
        };
        if reason == FinishReason::Stop && has_calls { "tool_calls" } else { reason.name() }
    }

    /// The deltas of what is new.
    pub(super) fn deltas(&mut self, frame: &Frame) -> Vec<Value> {
        let of_call = |index: usize, more: Value| {
            let mut call = json!({"index": index});
            if let (Value::Object(call), Value::Object(more)) = (&mut call, more) {
                call.extend(more);
            }
            json!({"tool_calls": [call]})
        };
        let delta = |piece| match piece {
            Piece::Thought(text) => json!({"reasoning_content": text}),
            Piece::Text(text) => json!({"content": text}),
            Piece::Call { index, name } => {
                let function = json!({"name": name, "arguments": ""});
                of_call(index, json!({"id": call_id(frame, index), "type": "function", "function": function}))
            }
            Piece::Arguments { index, text } => of_call(index, json!({"function": {"arguments": text}})),
        };
        self.pieces.drain(..).map(delta).collect()
    }

    /// Puts thoughts and calls into a whole choice whose text is there.
    pub(super) fn put(self, frame: &Frame, reason: FinishReason, choice: &mut Value) {
        choice["finish_reason"] = self.reason(reason).into();
        let thoughts = self.all(|piece| if let Piece::Thought(text) = piece { Some(text) } else { None });
        if !thoughts.is_empty() {
            choice["message"]["reasoning_content"] = thoughts.into();
        }
        let mut calls: Vec<(String, String)> = Vec::new();
        for piece in self.pieces {
            match piece {
                Piece::Thought(_) | Piece::Text(_) => {}
                Piece::Call { name, .. } => calls.push((name, String::new())),
                Piece::Arguments { index, text } => calls[index].1.push_str(&text),
            }
        }
        if calls.is_empty() {
            return;
        }
        let calls = calls.into_iter().enumerate().map(|(index, (name, arguments))| {
            let function = json!({"name": name, "arguments": arguments});
            json!({"id": call_id(frame, index), "type": "function", "function": function})
        });
        let message = &mut choice["message"];
        message["tool_calls"] = calls.collect();
        if message["content"] == "" {
            message["content"] = Value::Null;
        }
    }
}

/// The id of a call, which is no other's.
fn call_id(frame: &Frame, index: usize) -> String {
    format!("call_{}_{index}", frame.number)
}

#[cfg(test)]
#[path = "reading/tests.rs"]
mod tests;
