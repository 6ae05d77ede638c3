//! Word wrap of streamed text.

use terminal_size::{Width, terminal_size_of};
use unicode_width::UnicodeWidthChar;

/// Breaks lines between words at the terminal's width. A word is held back until its end is known.
#[derive(Debug)]
pub(super) struct Wrap {
    /// Columns of a line; `None` leaves the text as it is.
    columns: Option<usize>,
    /// Columns of the line that are taken.
    taken: usize,
    spaces: usize,
    word: String,
    word_columns: usize,
}

impl Wrap {
    pub(super) fn new(columns: Option<usize>) -> Self {
        Self { columns, taken: 0, spaces: 0, word: String::new(), word_columns: 0 }
    }

    /// At the width of the terminal that stdout is, if it is one.
    pub(super) fn of_stdout() -> Self {
        Self::new(terminal_size_of(std::io::stdout()).map(|(Width(columns), _)| usize::from(columns)))
    }

    /// What can be written once `text` has come.
    pub(super) fn push(&mut self, text: &str) -> String {
        let Some(columns) = self.columns else { return text.to_owned() };
        let mut out = String::new();
        for c in text.chars() {
            let width = c.width().unwrap_or(0);
            match c {
                '\n' => {
                    self.end_word(&mut out);
                    out.push('\n');
                    (self.taken, self.spaces) = (0, 0);
                }
                ' ' => {
                    self.end_word(&mut out);
                    self.spaces += 1;
                }
                // Scripts of wide characters put no spaces between words.
                c if width > 1 => {
                    self.end_word(&mut out);
                    if self.taken + self.spaces + width > columns {
                        out.push('\n');
                        (self.taken, self.spaces) = (0, 0);
                    }
                    (self.word_columns, self.word) = (width, c.to_string());
                    self.end_word(&mut out);
                }
                c => {
                    self.word.push(c);
                    self.word_columns += width;
                    if self.word_columns >= columns {
                        self.end_word(&mut out);
                    }
                }
            }
        }
        out
    }

    /// What is left when the text has ended.
    pub(super) fn finish(&mut self) -> String {
        let mut out = String::new();
        self.end_word(&mut out);
        (self.taken, self.spaces) = (0, 0);
        out
    }

    fn end_word(&mut self, out: &mut String) {
        let Some(columns) = self.columns.filter(|_| !self.word.is_empty()) else { return };
        // Without spaces it goes on with a word that is longer than a line, which the terminal breaks.
        if self.spaces > 0 && self.taken > 0 && self.taken + self.spaces + self.word_columns > columns {
            out.push('\n');
            self.taken = 0;
        } else {
            out.extend(std::iter::repeat_n(' ', self.spaces));
            self.taken += self.spaces;
        }
        out.push_str(&self.word);
        self.taken += self.word_columns;
        self.word.clear();
        (self.spaces, self.word_columns) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text, given in pieces of `length` characters.
    fn wrapped(text: &str, columns: Option<usize>, length: usize) -> String {
        let mut wrap = Wrap::new(columns);
        let characters: Vec<char> = text.chars().collect();
        let pieces = characters.chunks(length).map(|piece| wrap.push(&piece.iter().collect::<String>()));
        let mut out: String = pieces.collect();
        out.push_str(&wrap.finish());
        out
    }

    #[test]
    fn lines_break_between_words_and_nothing_else_changes() {
        for length in [1, 2, 5, 100] {
            for (text, expected) in [
                ("one two three four", "one two\nthree four"),
                ("one two\n  indented", "one two\n  indented"),
                ("a  b\n\nc", "a  b\n\nc"),
                ("unbreakableword", "unbreakableword"),
                ("see unbreakableword", "see\nunbreakableword"),
                (
                    "\u{65e5}\u{672c}\u{8a9e}\u{6587}\u{7ae0}\u{3067}",
                    "\u{65e5}\u{672c}\u{8a9e}\u{6587}\u{7ae0}\n\u{3067}",
                ),
            ] {
                assert_eq!(wrapped(text, Some(10), length), expected, "{length}");
                assert_eq!(wrapped(text, None, length), text);
            }
        }
    }
}
