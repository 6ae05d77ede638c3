//! Tool calls in the text of an answer, read while it arrives.
//!
//! The law: however the text is cut, the pieces are the same but for how text and arguments are cut. What looks like a call and is
//! none is text.

use serde_json::{Value, json};
use yggc::{engine::FinishReason, text::Tokenizer};

use super::{answers::Frame, tools::CallFormat};

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
    pieces: Vec<Piece>,
}

impl CallsOfAnswer {
    pub(super) fn new(format: CallFormat) -> Self {
        Self { format, reader: CallReader::new(format), pieces: Vec::new() }
    }

    /// The next token, and the text that is sure with it.
    pub(super) fn push(&mut self, id: u32, text: &str, tokenizer: &Tokenizer) {
        self.reader.push(text, &mut self.pieces);
        if let Some(mark) = self.format.mark_of(tokenizer, id) {
            self.reader.push(mark, &mut self.pieces);
        }
    }

    /// The answer is over, with this last text.
    pub(super) fn end(&mut self, rest: &str) {
        self.reader.push(rest, &mut self.pieces);
        self.reader.finish(&mut self.pieces);
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
    place: Place,
    /// Text that is not decided yet.
    held: String,
    calls: usize,
    has_text: bool,
}

#[derive(Debug)]
enum Place {
    /// In text.
    Text,
    /// Behind the mark of a call, or behind a call, where another may begin.
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
    /// Whether its beginning was told.
    is_told: bool,
    /// Bytes of it whose arguments were told.
    told: usize,
}

impl CallReader {
    fn new(format: CallFormat) -> Self {
        let place = match format.marks().0 {
            Some(_) => Place::Text,
            // An answer of such a family is a call or a text from its first character on.
            None => Place::Between,
        };
        Self { format, place, held: String::new(), calls: 0, has_text: false }
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
            Place::Between if self.calls == 0 => self.text(rest, out),
            Place::Between => {}
            Place::Call(call) if call.is_told => self.calls += 1,
            Place::Call(call) => {
                let begin = self.format.marks().0.unwrap_or_default();
                self.text(format!("{begin}{}", call.text), out);
            }
        }
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
                    let before = std::mem::replace(&mut self.held, rest);
                    let before = before[..at].trim_end().to_owned();
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
                match rest.chars().next() {
                    None => false,
                    Some('{') => {
                        self.held.drain(..skipped);
                        self.place = Place::Call(Call::default());
                        true
                    }
                    Some('[' | ',') if self.format == CallFormat::Mistral => {
                        self.held.drain(..=skipped);
                        true
                    }
                    Some(_) if !end.is_empty() && rest.starts_with(end) => {
                        self.held.drain(..skipped + end.len());
                        self.place = Place::Text;
                        true
                    }
                    Some(_) if !end.is_empty() && end.starts_with(rest) => false,
                    Some(_) => {
                        if let (Some(begin), 0) = (begin, self.calls) {
                            self.text(begin.to_owned(), out);
                        }
                        self.place = Place::Text;
                        true
                    }
                }
            }
            Place::Call(call) => {
                let read = call.read(&self.held, self.format.arguments());
                self.held.drain(..read);
                let is_over = call.depth == 0 && !call.text.is_empty();
                call.tell(self.calls, out);
                if !is_over {
                    return false;
                }
                if call.is_told {
                    self.calls += 1;
                    self.place = Place::Between;
                } else {
                    let text = format!("{}{}", begin.unwrap_or_default(), call.text);
                    self.place = Place::Text;
                    self.text(text, out);
                }
                !self.held.is_empty()
            }
        }
    }
}

impl Call {
    /// Reads until the call ends; the bytes that were read.
    fn read(&mut self, held: &str, arguments: &str) -> usize {
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
                            if self.key.as_deref() == Some("name") {
                                self.name.clone_from(&self.last);
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

    /// Tells what is sure of it.
    fn tell(&mut self, index: usize, out: &mut Vec<Piece>) {
        let Some(name) = &self.name else { return };
        let is_over = self.depth == 0 && !self.text.is_empty();
        let Some((begin, end)) = self.arguments.or(is_over.then_some((0, Some(0)))) else { return };
        if !self.is_told {
            self.is_told = true;
            self.told = begin;
            out.push(Piece::Call { index, name: name.clone() });
        }
        let end = end.unwrap_or(self.text.len());
        let text = self.text[self.told..end.max(self.told)].trim_end();
        // Space at the end may be behind the arguments.
        if !text.is_empty() {
            out.push(Piece::Arguments { index, text: text.to_owned() });
            self.told += text.len();
        }
        if is_over && end == begin {
            // Without arguments there are none to give.
            out.push(Piece::Arguments { index, text: "{}".to_owned() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Text, and calls with their arguments, of an answer cut into parts of `len` bytes.
    fn read(format: CallFormat, text: &str, len: usize) -> (String, Vec<(String, String)>) {
        let mut reader = CallReader::new(format);
        let mut pieces = Vec::new();
        for part in text.as_bytes().chunks(len) {
            reader.push(std::str::from_utf8(part).unwrap(), &mut pieces);
        }
        reader.finish(&mut pieces);
        let (mut said, mut calls) = (String::new(), Vec::<(String, String)>::new());
        for piece in pieces {
            match piece {
                Piece::Text(text) => said.push_str(&text),
                Piece::Call { index, name } => {
                    assert_eq!(index, calls.len());
                    calls.push((name, String::new()));
                }
                Piece::Arguments { index, text } => calls[index].1.push_str(&text),
            }
        }
        assert_eq!(reader.has_calls(), !calls.is_empty());
        (said, calls)
    }

    #[test]
    fn calls_of_every_family_are_read_however_they_are_cut() {
        let call = |name: &str, arguments: &str| (name.to_owned(), arguments.to_owned());
        for (format, text, said, calls) in [
            (CallFormat::Hermes, "Just text, a < b.", "Just text, a < b.", vec![]),
            (
                CallFormat::Hermes,
                "I look.\n<tool_call>\n{\"name\": \"find\", \"arguments\": {\"q\": \"a}\\\"{\", \"n\": [1, {}]}}\n</tool_call>",
                "I look.",
                vec![call("find", "{\"q\": \"a}\\\"{\", \"n\": [1, {}]}")],
            ),
            (
                CallFormat::Hermes,
                "<tool_call>\n{\"name\": \"a\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n{\"arguments\": {\"x\": 1 } , \"name\": \"b\"}\n</tool_call>\n",
                "",
                vec![call("a", "{}"), call("b", "{\"x\": 1 }")],
            ),
            (
                CallFormat::Hermes,
                "<tool_call>\n{\"name\": \"now\"}\n</tool_call>",
                "",
                vec![call("now", "{}")],
            ),
            (CallFormat::Hermes, "<tool_call>no", "<tool_call>no", vec![]),
            (
                CallFormat::Hermes,
                "<tool_call>\n{\"x\": 1}\n</tool_call>",
                "<tool_call>{\"x\": 1}\n</tool_call>",
                vec![],
            ),
            (
                CallFormat::Llama3,
                " {\"name\": \"find\", \"parameters\": {\"q\": \"x\"}}",
                "",
                vec![call("find", "{\"q\": \"x\"}")],
            ),
            (CallFormat::Llama3, "{\"answer\": 3} it is", "{\"answer\": 3} it is", vec![]),
            (CallFormat::Llama3, "Hello {\"name\": 1}", "Hello {\"name\": 1}", vec![]),
            (
                CallFormat::Mistral,
                "[TOOL_CALLS] [{\"name\": \"a\", \"arguments\": {\"x\": [2]}}, {\"name\": \"b\", \"arguments\": {}}]",
                "",
                vec![call("a", "{\"x\": [2]}"), call("b", "{}")],
            ),
        ] {
            for len in [1, 2, 3, 7, 1000] {
                assert_eq!(read(format, text, len), (said.to_owned(), calls.clone()), "{text} by {len}");
            }
        }
    }

    #[test]
    fn a_call_that_is_cut_off_gives_what_there_is() {
        let cut = "<tool_call>\n{\"name\": \"find\", \"arguments\": {\"q\": \"ab";
        assert_eq!(
            read(CallFormat::Hermes, cut, 4),
            (String::new(), vec![("find".to_owned(), "{\"q\": \"ab".to_owned())])
        );
        let early = "<tool_call>\n{\"name\": \"fi";
        assert_eq!(read(CallFormat::Hermes, early, 4), ("<tool_call>{\"name\": \"fi".to_owned(), vec![]));
    }
}
