//! Finds fixed strings in text: at the leftmost place, the longest of them. A string may take the white space next to
//! it along, or stand for whole words only (`lstrip`, `rstrip` and `single_word` of Hugging Face's added tokens).

use std::collections::BTreeMap;
use std::sync::LazyLock;

use tokenizers::utils::SysRegex;

/// What the crate takes for a part of a word: other than letters, digits and underscores, marks and joiners.
static WORD: LazyLock<SysRegex> = LazyLock::new(|| SysRegex::new(r"\w").expect("the pattern is a constant"));

/// What a string demands of the text around it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Edges {
    /// White space before belongs to it.
    pub(super) strips_left: bool,
    /// White space after it belongs to it.
    pub(super) strips_right: bool,
    /// No part of a word is next to it.
    pub(super) is_word: bool,
}

/// A set of non-empty strings, each with its token id.
#[derive(Debug, Clone, Default)]
pub(super) struct Matcher {
    ids: BTreeMap<String, u32>,
    /// Of the strings that demand something.
    edges: BTreeMap<u32, Edges>,
    /// Distinct lengths in bytes, longest first.
    lengths: Vec<usize>,
    /// The bytes that strings start with, ascending.
    starts: Vec<u8>,
}

/// A part of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Piece<'t> {
    /// One of the strings, as its id, and the length in bytes of what it took.
    Token(u32, usize),
    /// Text between matches; never empty.
    Text(&'t str),
}

impl Matcher {
    /// # Panics
    /// If a string is empty: the caller has checked them.
    pub(super) fn new(ids: BTreeMap<String, u32>, edges: BTreeMap<u32, Edges>) -> Self {
        let mut lengths: Vec<usize> = ids.keys().map(String::len).collect();
        lengths.sort_unstable_by_key(|&length| std::cmp::Reverse(length));
        lengths.dedup();
        let first = |text: &String| *text.as_bytes().first().expect("strings to match are not empty");
        let mut starts: Vec<u8> = ids.keys().map(first).collect();
        starts.dedup();
        Self { ids, edges, lengths, starts }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Every string, in order.
    pub(super) fn strings(&self) -> impl Iterator<Item = &str> {
        self.ids.keys().map(String::as_str)
    }

    /// The id of `text` if it is one of the strings.
    pub(super) fn id(&self, text: &str) -> Option<u32> {
        self.ids.get(text).copied()
    }

    /// The longest string that starts at byte `at` of `text`: its length in bytes and its id.
    pub(super) fn match_at(&self, text: &str, at: usize) -> Option<(usize, u32)> {
        self.starts.binary_search(text.as_bytes().get(at)?).ok()?;
        self.lengths.iter().find_map(|&length| Some((length, self.id(text.get(at..at + length)?)?)))
    }

    /// Cuts `text` at the strings. The lengths of the pieces add up to that of `text`.
    pub(super) fn split<'t>(&self, text: &'t str) -> Vec<Piece<'t>> {
        let mut pieces = Vec::new();
        let (mut at, mut plain) = (0, 0);
        while at < text.len() {
            let Some((length, id)) = self.match_at(text, at) else {
                at += 1;
                continue;
            };
            let edges = self.edges.get(&id).copied().unwrap_or_default();
            let (mut start, mut end) = (at, at + length);
            at = end;
            if edges.is_word && !stands_alone(text, start, end) {
                continue;
            }
            if edges.strips_left {
                start = plain + text[plain..start].trim_end().len();
            }
            if edges.strips_right {
                end = text.len() - text[end..].trim_start().len();
            }
            if plain < start {
                pieces.push(Piece::Text(&text[plain..start]));
            }
            pieces.push(Piece::Token(id, end - start));
            (at, plain) = (end, end);
        }
        if plain < text.len() {
            pieces.push(Piece::Text(&text[plain..]));
        }
        pieces
    }
}

/// Whether no part of a word is next to the place in `text`.
fn stands_alone(text: &str, start: usize, end: usize) -> bool {
    let is_word = |character: Option<char>| {
        character.is_some_and(|it| WORD.find_iter(it.encode_utf8(&mut [0; 4])).next().is_some())
    };
    !is_word(text[..start].chars().next_back()) && !is_word(text[end..].chars().next())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matcher(strings: &[&str]) -> Matcher {
        with_edges(strings, BTreeMap::new())
    }

    fn with_edges(strings: &[&str], edges: BTreeMap<u32, Edges>) -> Matcher {
        Matcher::new(strings.iter().zip(0..).map(|(text, id)| ((*text).to_owned(), id)).collect(), edges)
    }

    #[test]
    fn leftmost_then_longest() {
        use Piece::{Text, Token};
        let found = matcher(&["ab", "abc", "bcd", "é"]);
        let expected = [Text("x"), Token(1, 3), Text("d"), Token(3, 2), Text("-"), Token(0, 2)];
        assert_eq!(found.split("xabcdé-ab"), expected);
        assert_eq!(found.split(""), []);
        assert_eq!(found.split("ñè"), [Text("ñè")]);
    }

    #[test]
    fn a_string_cut_by_a_character_border_is_no_match() {
        assert_eq!(matcher(&["a"]).match_at("é", 1), None);
        assert_eq!(matcher(&["aé", "a"]).match_at("aè", 0), Some((1, 1)));
    }

    #[test]
    fn a_string_takes_the_white_space_beside_it_along() {
        use Piece::{Text, Token};
        let left = Edges { strips_left: true, ..Edges::default() };
        let right = Edges { strips_right: true, ..Edges::default() };
        let found = with_edges(&["<l>", "<r>"], BTreeMap::from([(0, left), (1, right)]));
        assert_eq!(found.split("a <l> b"), [Text("a"), Token(0, 4), Text(" b")]);
        assert_eq!(found.split("a <r>\n\u{3000}b"), [Text("a "), Token(1, 7), Text("b")]);
        assert_eq!(found.split(" <r> <l> "), [Text(" "), Token(1, 4), Token(0, 3), Text(" ")]);
    }

    #[test]
    fn a_word_stands_alone() {
        use Piece::{Text, Token};
        let word = Edges { is_word: true, ..Edges::default() };
        let found = with_edges(&["ab"], BTreeMap::from([(0, word)]));
        assert_eq!(found.split("ab cab ab_ (ab)"), [Token(0, 2), Text(" cab ab_ ("), Token(0, 2), Text(")")]);
        assert_eq!(
            found.split("²ab ab\u{301} ab\u{200d}"),
            [Text("²"), Token(0, 2), Text(" ab\u{301} ab\u{200d}")]
        );
    }
}
