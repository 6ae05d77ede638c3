//! Calls between marks, in text: JSON objects, whose arguments are told while they arrive, and other forms, which are told
//! as a whole.

use super::{
    Piece,
    whole::{self, Callable},
};
use crate::serve::tools::CallFormat;

/// Tells calls from text by their marks.
#[derive(Debug)]
pub(super) struct CallReader {
    format: CallFormat,
    callable: Vec<Callable>,
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
    /// In a call that is a JSON object.
    Call(Call),
    /// In a call of another form, all of which is held.
    Whole,
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
    pub(super) fn new(format: CallFormat, callable: Vec<Callable>) -> Self {
        let place = match format.marks().0 {
            Some(_) => Place::Text,
            // An answer of such a family is a call or a text from its first character on.
            None => Place::Between,
        };
        Self { format, callable, place, held: String::new(), lead: String::new(), calls: 0, has_text: false }
    }

    /// Whether a call was told.
    pub(super) fn has_calls(&self) -> bool {
        self.calls > 0
    }

    /// The next part of the text.
    pub(super) fn push(&mut self, text: &str, out: &mut Vec<Piece>) {
        self.held.push_str(text);
        while self.advance(out) {}
    }

    /// The text is over.
    pub(super) fn finish(&mut self, out: &mut Vec<Piece>) {
        let rest = std::mem::take(&mut self.held);
        match std::mem::replace(&mut self.place, Place::Text) {
            Place::Text => self.text(rest, out),
            Place::Between if self.calls == 0 || !self.lead.is_empty() => self.no_call(&rest, out),
            Place::Between => {}
            Place::Call(call) if call.is_told => self.calls += 1,
            Place::Call(call) => self.no_call(&call.text, out),
            Place::Whole => self.no_call(&rest, out),
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
                    Some('{') if self.format.is_json() => {
                        self.place = Place::Call(Call::default());
                        (skipped, false)
                    }
                    Some(_) if self.format.begins_with(rest) == Some(true) => {
                        self.place = Place::Whole;
                        (skipped, false)
                    }
                    Some(_) if self.format.begins_with(rest).is_none() => return false,
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
                let read = call.read(&self.held, self.format.arguments(), &self.callable);
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
            Place::Whole => {
                let Some(end) = self.format.end_of_whole(&self.held) else { return false };
                let text: String = self.held.drain(..end).collect();
                let Some((name, arguments)) = self.format.whole(&text, &self.callable) else {
                    self.no_call(&text, out);
                    return true;
                };
                out.push(Piece::Call { index: self.calls, name });
                out.push(Piece::Arguments { index: self.calls, text: arguments });
                self.calls += 1;
                self.lead.clear();
                // Another call has a mark of its own, where none ends this one.
                self.place = if self.format.marks().1.is_empty() { Place::Text } else { Place::Between };
                true
            }
        }
    }
}

impl CallFormat {
    /// Whether calls are JSON objects.
    fn is_json(self) -> bool {
        matches!(self, Self::Hermes | Self::Llama3 | Self::Mistral)
    }

    /// Whether a call of another form begins so, after its mark; `None` if that is not decided yet.
    fn begins_with(self, rest: &str) -> Option<bool> {
        let begin = match self {
            Self::Xml => "<function=",
            Self::Gemma => "call:",
            Self::MistralArgs => {
                return Some(rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_'));
            }
            Self::Hermes | Self::Llama3 | Self::Mistral | Self::Harmony => return Some(false),
        };
        if begin.len() > rest.len() && begin.starts_with(rest) { None } else { Some(rest.starts_with(begin)) }
    }

    /// The bytes of a call of another form, if it has ended.
    fn end_of_whole(self, held: &str) -> Option<usize> {
        const END: &str = "</function>";
        match self {
            Self::Xml => held.find(END).map(|at| at + END.len()),
            Self::MistralArgs => whole::end_of_mistral(held),
            _ => held.find(self.marks().1),
        }
    }

    /// Function and arguments of such a call.
    fn whole(self, text: &str, callable: &[Callable]) -> Option<(String, String)> {
        match self {
            Self::Xml => whole::of_xml(text, callable),
            Self::MistralArgs => whole::of_mistral(text, callable),
            _ => whole::of_gemma(text, callable),
        }
    }
}

impl Call {
    /// Reads until the call ends, or shows that it is none; the bytes that were read.
    fn read(&mut self, held: &str, arguments: &str, callable: &[Callable]) -> usize {
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
                                let is_known =
                                    |name: &String| callable.iter().any(|(known, _)| known == name);
                                self.is_none = !self.name.as_ref().is_some_and(is_known);
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
