//! Finds fixed strings in text: at the leftmost place, the longest of them.

use std::collections::BTreeMap;

/// A set of non-empty strings, each with its token id.
#[derive(Debug, Clone)]
pub(super) struct Matcher {
    ids: BTreeMap<String, u32>,
    /// Distinct lengths in bytes, longest first.
    lengths: Vec<usize>,
    /// Whether a string starts with this byte.
    starts: [bool; 256],
}

/// A part of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Piece<'t> {
    /// One of the strings, as its id.
    Token(u32),
    /// Text between matches; never empty.
    Text(&'t str),
}

impl Matcher {
    /// # Panics
    /// If a string is empty: the caller has checked them.
    pub(super) fn new(ids: BTreeMap<String, u32>) -> Self {
        let mut starts = [false; 256];
        let mut lengths: Vec<usize> = ids.keys().map(String::len).collect();
        for text in ids.keys() {
            starts[usize::from(*text.as_bytes().first().expect("strings to match are not empty"))] = true;
        }
        lengths.sort_unstable_by_key(|&length| std::cmp::Reverse(length));
        lengths.dedup();
        Self { ids, lengths, starts }
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
        if !self.starts[usize::from(*text.as_bytes().get(at)?)] {
            return None;
        }
        self.lengths.iter().find_map(|&length| Some((length, self.id(text.get(at..at + length)?)?)))
    }

    /// Cuts `text` at the strings; the pieces joined are `text`.
    pub(super) fn split<'t>(&self, text: &'t str) -> Vec<Piece<'t>> {
        let mut pieces = Vec::new();
        let (mut at, mut plain) = (0, 0);
        while at < text.len() {
            let Some((length, id)) = self.match_at(text, at) else {
                at += 1;
                continue;
            };
            if plain < at {
                pieces.push(Piece::Text(&text[plain..at]));
            }
            pieces.push(Piece::Token(id));
            at += length;
            plain = at;
        }
        if plain < text.len() {
            pieces.push(Piece::Text(&text[plain..]));
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matcher(strings: &[&str]) -> Matcher {
        Matcher::new(strings.iter().zip(0..).map(|(text, id)| ((*text).to_owned(), id)).collect())
    }

    #[test]
    fn leftmost_then_longest() {
        use Piece::{Text, Token};
        let found = matcher(&["ab", "abc", "bcd", "é"]);
        assert_eq!(found.split("xabcdé-ab"), [Text("x"), Token(1), Text("d"), Token(3), Text("-"), Token(0)]);
        assert_eq!(found.split(""), []);
        assert_eq!(found.split("ñè"), [Text("ñè")]);
    }

    #[test]
    fn a_string_cut_by_a_character_border_is_no_match() {
        assert_eq!(matcher(&["a"]).match_at("é", 1), None);
        assert_eq!(matcher(&["aé", "a"]).match_at("aè", 0), Some((1, 1)));
    }
}
