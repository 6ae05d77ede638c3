//! Answers of gpt-oss, whose every message has a channel (OpenAI's harmony format,
//! <https://cookbook.openai.com/articles/openai-harmony>): what the model thinks in `analysis`, its answer in `final`,
//! calls and what it says of them in `commentary`.

use serde_json::Value;

use super::{Piece, whole::Callable};

/// Marks of the format, all control tokens.
pub(in crate::serve) const MARKS: [&str; 7] =
    [START, CHANNEL, CONSTRAIN, MESSAGE, "<|end|>", "<|return|>", "<|call|>"];
const START: &str = "<|start|>";
const CHANNEL: &str = "<|channel|>";
const CONSTRAIN: &str = "<|constrain|>";
const MESSAGE: &str = "<|message|>";

/// Reads one answer, with marks as text.
#[derive(Debug)]
pub(super) struct Harmony {
    callable: Vec<Callable>,
    /// The head of a message that was not read to its end.
    head: String,
    /// The message that is read.
    message: Option<Message>,
    held: String,
    calls: usize,
}

/// Where the text of a message goes.
#[derive(Debug)]
enum Message {
    Thought,
    Answer,
    /// A call of this function, with its arguments so far.
    Call {
        name: String,
        arguments: String,
    },
}

impl Harmony {
    pub(super) fn new(callable: Vec<Callable>) -> Self {
        Self { callable, head: String::new(), message: None, held: String::new(), calls: 0 }
    }

    pub(super) fn has_calls(&self) -> bool {
        self.calls > 0
    }

    pub(super) fn is_thinking(&self) -> bool {
        matches!(self.message, Some(Message::Thought))
    }

    pub(super) fn push(&mut self, text: &str, out: &mut Vec<Piece>) {
        self.held.push_str(text);
        while let Some((at, mark)) =
            MARKS.iter().filter_map(|mark| Some((self.held.find(mark)?, *mark))).min()
        {
            let rest = self.held.split_off(at + mark.len());
            let mut before = std::mem::replace(&mut self.held, rest);
            before.truncate(at);
            self.text(before, out);
            self.mark(mark, out);
        }
        // A mark may have begun.
        let begun = |mark: &&str| (1..mark.len()).rev().find(|len| self.held.ends_with(&mark[..*len]));
        let kept = MARKS.iter().filter_map(begun).max().unwrap_or(0);
        let rest = self.held.split_off(self.held.len() - kept);
        let text = std::mem::replace(&mut self.held, rest);
        self.text(text, out);
    }

    pub(super) fn finish(&mut self, out: &mut Vec<Piece>) {
        let rest = std::mem::take(&mut self.held);
        self.text(rest, out);
        self.end(out);
        // A head alone is what the model said, if it has no mark.
        let head = std::mem::take(&mut self.head);
        if !(head.is_empty() || head.contains("<|") || head.trim() == "assistant") {
            out.push(Piece::Text(head));
        }
    }

    fn text(&mut self, text: String, out: &mut Vec<Piece>) {
        if text.is_empty() {
            return;
        }
        match &mut self.message {
            None => self.head.push_str(&text),
            Some(Message::Thought) => out.push(Piece::Thought(text)),
            Some(Message::Answer) => out.push(Piece::Text(text)),
            Some(Message::Call { arguments, .. }) => arguments.push_str(&text),
        }
    }

    fn mark(&mut self, mark: &str, out: &mut Vec<Piece>) {
        match mark {
            START => {
                self.end(out);
                self.head.clear();
            }
            MESSAGE => {
                let head = std::mem::take(&mut self.head);
                self.message = Some(self.begun(&head));
            }
            CHANNEL | CONSTRAIN if self.message.is_none() => self.head.push_str(mark),
            _ => self.end(out),
        }
    }

    /// The message of a head such as `assistant<|channel|>commentary to=functions.find <|constrain|>json`.
    fn begun(&self, head: &str) -> Message {
        let to = head.split_once("to=functions.").map(|(_, name)| name);
        let end = |c: char| c.is_whitespace() || c == '<';
        let name = to.and_then(|name| name.split(end).next()).unwrap_or_default();
        if self.callable.iter().any(|(known, _)| known == name) {
            return Message::Call { name: name.to_owned(), arguments: String::new() };
        }
        let channel = head.split_once(CHANNEL).map_or("", |(_, channel)| channel.trim_start());
        match channel.split(end).next() {
            Some("analysis") => Message::Thought,
            _ => Message::Answer,
        }
    }

    /// The message is over.
    fn end(&mut self, out: &mut Vec<Piece>) {
        let Some(Message::Call { name, arguments }) = self.message.take() else { return };
        let given = if arguments.trim().is_empty() { "{}" } else { arguments.trim() };
        if serde_json::from_str::<Value>(given).is_ok_and(|value| value.is_object()) {
            out.push(Piece::Call { index: self.calls, name });
            out.push(Piece::Arguments { index: self.calls, text: given.to_owned() });
            self.calls += 1;
        } else {
            out.push(Piece::Text(arguments));
        }
    }
}
