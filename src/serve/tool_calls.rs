//! Tool calls in the text of an answer, read while it arrives.
//!
//! The law: however the text is cut, the pieces are the same but for how text and arguments are cut. What looks like a
//! call and is none is text: that of a function which may not be called, and one whose arguments are no object. `null`
//! and no arguments at all are the empty object.

use serde_json::{Value, json};
use yggc::{engine::FinishReason, text::Tokenizer};

use super::{
    answers::Frame,
    tools::{CallFormat, Tools},
};

/// What became known of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
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

/// Text and calls of one answer, as its response has them.
#[derive(Debug)]
pub(super) struct CallsOfAnswer {
    format: CallFormat,
    reader: CallReader,
    /// Calls beyond so many are left out, as `parallel_tool_calls` asks.
    most: usize,
    pieces: Vec<Piece>,
}

impl CallsOfAnswer {
    /// Of an answer that may call the functions of `tools`.
    pub(super) fn new(format: CallFormat, tools: &Tools) -> Self {
        let reader = CallReader::new(format, tools.names());
        Self { format, reader, most: tools.most_calls(), pieces: Vec::new() }
    }

    /// The next token, and the text that is sure with it.
    pub(super) fn push(&mut self, id: u32, text: &str, tokenizer: &Tokenizer) {
        self.reader.push(text, &mut self.pieces);
        if let Some(mark) = self.format.mark_of(tokenizer, id) {
            self.reader.push(mark, &mut self.pieces);
        }
        self.leave_out();
    }

    fn leave_out(&mut self) {
        let most = self.most;
        self.pieces.retain(|piece| match piece {
            Piece::Text(_) => true,
            Piece::Call { index, .. } | Piece::Arguments { index, .. } => *index < most,
        });
    }

    /// The answer is over, with this last text.
    pub(super) fn end(&mut self, rest: &str) {
        self.reader.push(rest, &mut self.pieces);
        self.reader.finish(&mut self.pieces);
        self.leave_out();
    }

    /// As [`end`](Self::end); the whole text outside the calls.
    pub(super) fn finish(&mut self, rest: &str) -> String {
        self.end(rest);
        let text = self.pieces.iter().filter_map(|piece| match piece {
            Piece::Text(text) => Some(text.as_str()),
            Piece::Call { .. } | Piece::Arguments { .. } => None,
        });
        text.collect()
    }

    /// Why the answer ended, in OpenAI's words.
    pub(super) fn reason(&self, reason: FinishReason) -> &'static str {
        if reason == FinishReason::Stop && self.reader.has_calls() { "tool_calls" } else { reason.name() }
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
            Piece::Text(text) => json!({"content": text}),
            Piece::Call { index, name } => {
                let function = json!({"name": name, "arguments": ""});
                of_call(index, json!({"id": call_id(frame, index), "type": "function", "function": function}))
            }
            Piece::Arguments { index, text } => of_call(index, json!({"function": {"arguments": text}})),
        };
        self.pieces.drain(..).map(delta).collect()
    }

    /// Puts the calls into a whole choice whose text is there.
    pub(super) fn put(self, frame: &Frame, reason: FinishReason, choice: &mut Value) {
        choice["finish_reason"] = self.reason(reason).into();
        let mut calls: Vec<(String, String)> = Vec::new();
        for piece in self.pieces {
            match piece {
                Piece::Text(_) => {}
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

/// Reads the answer of one request.
#[derive(Debug)]
struct CallReader {
    format: CallFormat,
    /// Functions that may be called.
    names: Vec<String>,
    place: Place,
    /// Text that is not decided yet.
    held: String,
    /// What was read since the mark of a call, it and the space before it included, or after the last call: text, if no
    /// call follows.
    lead: String,
    calls: usize,
    has_text: bool,
}

#[derive(Debug)]
enum Place {
    /// In text.
    Text,
    /// After the mark of a call, or after a call, where another may begin.
    Between,
    /// In a call.
    Call(Call),
}

/// A call as far as it was read: a JSON object.
#[derive(Debug, Default)]
struct Call {
    /// All of it.
    text: String,
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// Where the last string at the object's own level began.
    string_at: usize,
    /// The key whose value comes or is read.
    key: Option<String>,
    /// The last string at the object's own level, which is a key if a colon follows.
    last: Option<String>,
    name: Option<String>,
    /// Where the arguments begin, and where they end, if they have.
    arguments: Option<(usize, Option<usize>)>,
    /// Whether it is a call of none of the functions, or its arguments are no object.
    is_none: bool,
    /// Whether its beginning was told.
    is_told: bool,
    /// Bytes of it whose arguments were told.
    told: usize,
}

impl CallReader {
    fn new(format: CallFormat, names: Vec<String>) -> Self {
        let place = match format.marks().0 {
            Some(_) => Place::Text,
            // An answer of such a family is a call or a text from its first character on.
            None => Place::Between,
        };
        Self { format, names, place, held: String::new(), lead: String::new(), calls: 0, has_text: false }
    }

    /// Whether a call was told.
    fn has_calls(&self) -> bool {
        self.calls > 0
    }

    /// The next part of the text.
    fn push(&mut self, text: &str, out: &mut Vec<Piece>) {
        self.held.push_str(text);
        while self.advance(out) {}
    }

    /// The text is over.
    fn finish(&mut self, out: &mut Vec<Piece>) {
        let rest = std::mem::take(&mut self.held);
        match std::mem::replace(&mut self.place, Place::Text) {
            Place::Text => self.text(rest, out),
            Place::Between if self.calls == 0 || !self.lead.is_empty() => self.no_call(&rest, out),
            Place::Between => {}
            Place::Call(call) if call.is_told => self.calls += 1,
            Place::Call(call) => self.no_call(&call.text, out),
        }
    }

    /// What was read as a call up to here is none.
    fn no_call(&mut self, rest: &str, out: &mut Vec<Piece>) {
        self.place = Place::Text;
        let text = std::mem::take(&mut self.lead) + rest;
        self.text(text, out);
    }

    fn text(&mut self, text: String, out: &mut Vec<Piece>) {
        // What stands around calls to lay them out is no content.
        let text = if self.has_text { text } else { text.trim_start().to_owned() };
        let is_layout = self.calls > 0 && text.trim().is_empty();
        if !(text.is_empty() || is_layout) {
            self.has_text = true;
            out.push(Piece::Text(text));
        }
    }

    /// Goes on as far as the held text decides; whether it may go on further.
    fn advance(&mut self, out: &mut Vec<Piece>) -> bool {
        let (begin, end) = self.format.marks();
        match &mut self.place {
            Place::Text => {
                let Some(begin) = begin else {
                    let text = std::mem::take(&mut self.held);
                    self.text(text, out);
                    return false;
                };
                if let Some(at) = self.held.find(begin) {
                    let rest = self.held.split_off(at + begin.len());
                    let mut before = std::mem::replace(&mut self.held, rest);
                    self.lead = before.split_off(before[..at].trim_end().len());
                    self.text(before, out);
                    self.place = Place::Between;
                    return true;
                }
                // A mark, and the space before it, may have begun.
                let kept =
                    (1..begin.len()).rev().find(|len| self.held.ends_with(&begin[..*len])).unwrap_or(0);
                let sure = self.held.len() - kept;
                let sure = self.held[..sure].trim_end().len();
                let rest = self.held.split_off(sure);
                let text = std::mem::replace(&mut self.held, rest);
                self.text(text, out);
                false
            }
            Place::Between => {
                let rest = self.held.trim_start();
                let skipped = self.held.len() - rest.len();
                let (read, is_over) = match rest.chars().next() {
                    None => return false,
                    Some('{') => {
                        self.place = Place::Call(Call::default());
                        (skipped, false)
                    }
                    Some('[' | ',') if self.format == CallFormat::Mistral => (skipped + 1, false),
                    Some(_) if !end.is_empty() && rest.starts_with(end) => (skipped + end.len(), true),
                    Some(_) if !end.is_empty() && end.starts_with(rest) => return false,
                    Some(_) => {
                        self.no_call("", out);
                        return true;
                    }
                };
                let read: String = self.held.drain(..read).collect();
                // After a call that was told, what closes it and the space around it lay it out.
                let is_layout = self.lead.is_empty() && (is_over || read.trim().is_empty());
                if !is_layout {
                    self.lead.push_str(&read);
                }
                if is_over {
                    self.no_call("", out);
                }
                true
            }
            Place::Call(call) => {
                let read = call.read(&self.held, self.format.arguments(), &self.names);
                self.held.drain(..read);
                if call.is_none {
                    let text = std::mem::take(&mut call.text);
                    self.no_call(&text, out);
                    return true;
                }
                call.tell(self.calls, out);
                if call.is_told {
                    self.lead.clear();
                }
                if !call.is_over() {
                    return false;
                }
                if call.is_told {
                    self.calls += 1;
                    self.place = Place::Between;
                } else {
                    let text = std::mem::take(&mut call.text);
                    self.no_call(&text, out);
                }
                !self.held.is_empty()
            }
        }
    }
}

impl Call {
    /// Reads until the call ends, or shows that it is none; the bytes that were read.
    fn read(&mut self, held: &str, arguments: &str, names: &[String]) -> usize {
        for (at, c) in held.char_indices() {
            let here = self.text.len();
            self.text.push(c);
            if self.in_string {
                match c {
                    _ if self.escaped => self.escaped = false,
                    '\\' => self.escaped = true,
                    '"' => {
                        self.in_string = false;
                        if self.depth == 1 {
                            self.last = serde_json::from_str(&self.text[self.string_at..]).ok();
                            if self.key.as_deref() == Some("name") && self.name.is_none() {
                                self.name.clone_from(&self.last);
                                self.is_none = self.name.as_ref().is_none_or(|name| !names.contains(name));
                                if self.is_none {
                                    return at + c.len_utf8();
                                }
                            }
                        }
                    }
                    _ => {}
                }
                continue;
            }
            let is_value = self.depth == 1 && self.key.as_deref() == Some(arguments);
            if is_value && self.arguments.is_none() && !c.is_whitespace() {
                self.arguments = Some((here, None));
                self.is_none = !matches!(c, '{' | 'n');
                if self.is_none {
                    return at + c.len_utf8();
                }
            }
            match c {
                '"' => {
                    self.in_string = true;
                    self.string_at = here;
                }
                '{' | '[' => self.depth += 1,
                '}' | ']' | ',' if self.depth == 1 => {
                    if let Some((_, end @ None)) = &mut self.arguments {
                        *end = Some(here);
                    }
                    self.key = None;
                    if c != ',' {
                        self.depth = 0;
                        return at + c.len_utf8();
                    }
                }
                '}' | ']' => self.depth = self.depth.saturating_sub(1),
                ':' if self.depth == 1 && self.key.is_none() => self.key = self.last.take(),
                _ => {}
            }
        }
        held.len()
    }

    /// Whether all of it was read.
    fn is_over(&self) -> bool {
        self.depth == 0 && !self.text.is_empty()
    }

    /// Tells what is sure of it.
    fn tell(&mut self, index: usize, out: &mut Vec<Piece>) {
        let Some(name) = &self.name else { return };
        let (begin, end) = match self.arguments {
            Some((begin, end)) if self.text[begin..].starts_with('{') => (begin, end),
            // `null` is known by its end, and no arguments by that of the call.
            Some((begin, Some(end))) if self.text[begin..end].trim_end() == "null" => (end, Some(end)),
            None if self.is_over() => (0, Some(0)),
            Some(_) | None => return,
        };
        if !self.is_told {
            self.is_told = true;
            self.told = begin;
            out.push(Piece::Call { index, name: name.clone() });
            if end == Some(begin) {
                // Without arguments there are none to give.
                out.push(Piece::Arguments { index, text: "{}".to_owned() });
            }
        }
        let end = end.unwrap_or(self.text.len());
        let text = self.text[self.told..end.max(self.told)].trim_end();
        // Space at the end may follow the arguments.
        if !text.is_empty() {
            out.push(Piece::Arguments { index, text: text.to_owned() });
            self.told += text.len();
        }
    }
}

#[cfg(test)]
#[path = "tool_calls/tests.rs"]
mod tests;
