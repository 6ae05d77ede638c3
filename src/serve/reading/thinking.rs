//! What a model thinks before it answers, told from the answer while both arrive.

use yggc::engine::Json;

/// How a family marks what it thinks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::serve) struct ThinkingMarks {
    pub(in crate::serve) begin: &'static str,
    pub(in crate::serve) end: &'static str,
}

/// Those of Qwen 3 and later, DeepSeek R1 and its distilled models, SmolLM 3; of Magistral; and of Gemma 4.
const ALL: [ThinkingMarks; 3] = [
    ThinkingMarks { begin: "<think>", end: "</think>" },
    ThinkingMarks { begin: "[THINK]", end: "[/THINK]" },
    ThinkingMarks { begin: "<|channel>thought", end: "<channel|>" },
];

impl ThinkingMarks {
    /// Those of a model whose chat template takes thoughts out of former answers or lays them out.
    pub(in crate::serve) fn of_template(template: &str) -> Option<Self> {
        ALL.into_iter().find(|marks| template.contains(marks.end))
    }

    /// What of them may be control tokens, which have no text in an answer.
    pub(in crate::serve) fn control(self) -> [&'static str; 2] {
        [self.begin.strip_suffix("thought").unwrap_or(self.begin), self.end]
    }
}

/// Text of an answer, by what it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::serve) enum Spoken {
    Thought(String),
    Answer(String),
}

/// Reads one answer. An answer thinks at its beginning or not at all.
#[derive(Debug)]
pub(in crate::serve) struct Thinking {
    marks: ThinkingMarks,
    place: Place,
    /// Text that is not decided yet.
    held: String,
    has_thought: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Before the first character that is no space.
    Begin,
    Thought,
    /// After a thought, before the answer's first character that is no space.
    Between,
    Answer,
}

impl Thinking {
    /// `is_begun`: the prompt ends with the mark that begins a thought.
    pub(in crate::serve) fn new(marks: ThinkingMarks, is_begun: bool) -> Self {
        let place = if is_begun { Place::Thought } else { Place::Begin };
        Self { marks, place, held: String::new(), has_thought: false }
    }

    /// Whether a thought is not over yet.
    pub(in crate::serve) fn is_thinking(&self) -> bool {
        self.place == Place::Thought
    }

    /// The next part of the text.
    pub(in crate::serve) fn push(&mut self, text: &str, out: &mut Vec<Spoken>) {
        self.held.push_str(text);
        while self.advance(out) {}
    }

    /// The text is over.
    pub(in crate::serve) fn finish(&mut self, out: &mut Vec<Spoken>) {
        let rest = std::mem::take(&mut self.held);
        match self.place {
            // A thought that was cut off.
            Place::Thought => self.think(rest.trim_end(), out),
            Place::Begin | Place::Answer if !rest.is_empty() => out.push(Spoken::Answer(rest)),
            Place::Begin | Place::Answer | Place::Between => {}
        }
    }

    fn think(&mut self, text: &str, out: &mut Vec<Spoken>) {
        let text = if self.has_thought { text } else { text.trim_start() };
        if !text.is_empty() {
            self.has_thought = true;
            out.push(Spoken::Thought(text.to_owned()));
        }
    }

    /// Goes on as far as the held text decides; whether it may go on further.
    fn advance(&mut self, out: &mut Vec<Spoken>) -> bool {
        match self.place {
            Place::Begin => {
                let said = self.held.trim_start();
                if let Some(rest) = said.strip_prefix(self.marks.begin) {
                    self.held = rest.to_owned();
                    self.place = Place::Thought;
                } else if !self.marks.begin.starts_with(said) {
                    self.place = Place::Answer;
                } else {
                    return false;
                }
                true
            }
            Place::Thought => {
                let end = self.marks.end;
                if let Some(at) = self.held.find(end) {
                    let rest = self.held.split_off(at + end.len());
                    let thought = std::mem::replace(&mut self.held, rest);
                    self.think(thought[..at].trim_end(), out);
                    self.place = Place::Between;
                    return true;
                }
                // The mark, and the space before it, may have begun.
                let begun = (1..end.len()).rev().find(|len| self.held.ends_with(&end[..*len])).unwrap_or(0);
                let sure = self.held[..self.held.len() - begun].trim_end().len();
                let rest = self.held.split_off(sure);
                let thought = std::mem::replace(&mut self.held, rest);
                self.think(&thought, out);
                false
            }
            Place::Between => {
                let answer = self.held.trim_start();
                if answer.is_empty() {
                    self.held.clear();
                    return false;
                }
                self.held = answer.to_owned();
                self.place = Place::Answer;
                true
            }
            Place::Answer => {
                if !self.held.is_empty() {
                    out.push(Spoken::Answer(std::mem::take(&mut self.held)));
                }
                false
            }
        }
    }
}

/// Whether a request wants thoughts told from answers: `reasoning_format` of llama.cpp, `separate_reasoning` of SGLang.
///
/// # Errors
/// What was expected, and what was found.
pub(in crate::serve) fn is_wanted(format: Option<&Json>, separate: Option<bool>) -> Result<bool, String> {
    let by_format = match format {
        None | Some(Json::Null) => true,
        Some(Json::String(format)) => match format.as_str() {
            "auto" | "deepseek" => true,
            "none" => false,
            other => return Err(format!("expected none, auto or deepseek, found {other:?}")),
        },
        Some(_) => return Err("expected none, auto or deepseek, found no text".to_owned()),
    };
    Ok(by_format && separate != Some(false))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(is_begun: bool, text: &str, len: usize) -> (String, String) {
        let mut reader = Thinking::new(ALL[0], is_begun);
        let mut spoken = Vec::new();
        for part in text.as_bytes().chunks(len) {
            reader.push(std::str::from_utf8(part).unwrap(), &mut spoken);
        }
        reader.finish(&mut spoken);
        let (mut thought, mut answer) = (String::new(), String::new());
        for part in spoken {
            match part {
                Spoken::Thought(text) => thought.push_str(&text),
                Spoken::Answer(text) => answer.push_str(&text),
            }
        }
        (thought, answer)
    }

    #[test]
    fn thoughts_are_told_from_answers_however_the_text_is_cut() {
        for (is_begun, text, thought, answer) in [
            (false, "Hello <think> you.", "", "Hello <think> you."),
            (false, "  Hello ", "", "  Hello "),
            (false, "<think>\nSo be it.\n</think>\n\nYes. \n", "So be it.", "Yes. \n"),
            (true, "\nSo\n\nbe </it>.\n</think>\nYes.", "So\n\nbe </it>.", "Yes."),
            (true, "cut off </thi", "cut off </thi", ""),
            (true, "</think>", "", ""),
            (false, "<think>\n\n</think>\n\nNo </think> thought.", "", "No </think> thought."),
            (false, "<thin", "", "<thin"),
            (false, "", "", ""),
        ] {
            for len in [1, 2, 3, 7, 1000] {
                let expected = (thought.to_owned(), answer.to_owned());
                assert_eq!(read(is_begun, text, len), expected, "{text:?} by {len}");
            }
        }
    }

    #[test]
    fn templates_say_how_their_models_think() {
        let of = |template: &str| ThinkingMarks::of_template(template).map(|marks| marks.begin);
        assert_eq!(of("{{ content.split('</think>')[-1] }}"), Some("<think>"));
        assert_eq!(of("{%- if thinking -%}[THINK]{{ it }}[/THINK]"), Some("[THINK]"));
        assert_eq!(of("<|channel>thought\n{{ thought }}<channel|>"), Some("<|channel>thought"));
        assert_eq!(of("{{ message.content }}"), None);
    }

    #[test]
    fn a_request_may_have_thoughts_stay_where_they_are() {
        let text = |text: &str| Json::String(text.to_owned());
        assert_eq!(is_wanted(None, None), Ok(true));
        assert_eq!(is_wanted(Some(&text("auto")), Some(true)), Ok(true));
        assert_eq!(is_wanted(Some(&text("none")), None), Ok(false));
        assert_eq!(is_wanted(None, Some(false)), Ok(false));
        assert!(is_wanted(Some(&text("tags")), None).unwrap_err().contains("\"tags\""));
        assert!(is_wanted(Some(&Json::Bool(true)), None).is_err());
    }
}
