//! Stop strings, found across token borders.

/// Result of a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard<'a> {
    /// Text that cannot be part of a stop string.
    Text(&'a str),
    /// The text before the stop string with this number, which ended it.
    Stopped(&'a str, usize),
}

/// Finds stop strings in a text that arrives in pieces, and holds back text that may be the beginning of one.
///
/// Law: however a text is cut into pieces, the output joined together is the same: the text before the stop string that
/// ends first, the longest of those that end there. The time of a push grows with the number of stop strings and of
/// held-back bytes; at most one byte less than the longest stop string is held back.
#[derive(Debug, Clone, Default)]
pub struct StopStrings {
    stops: Vec<String>,
    /// Bytes of the longest stop string.
    longest: usize,
    /// The end of the text; the bytes before `given` were already returned.
    held: String,
    given: usize,
}

impl StopStrings {
    /// Finds these strings; an empty one is never found.
    #[must_use]
    pub fn new(stops: Vec<String>) -> Self {
        let longest = stops.iter().map(String::len).max().unwrap_or(0);
        Self { stops, longest, held: String::new(), given: 0 }
    }

    /// Takes the next piece of the text.
    ///
    /// After a stop string the text is over: do not push again.
    pub fn push(&mut self, piece: &str) -> Heard<'_> {
        self.held.drain(..self.given);
        self.held.push_str(piece);
        let found = self.stops.iter().enumerate().filter(|(_, stop)| !stop.is_empty());
        let found = found.filter_map(|(number, stop)| {
            let start = self.held.find(stop.as_str())?;
            Some((start + stop.len(), start, number))
        });
        if let Some((_, start, number)) = found.min() {
            self.given = self.held.len();
            return Heard::Stopped(&self.held[..start], number);
        }
        self.given = self.sure();
        Heard::Text(&self.held[..self.given])
    }

    /// The text held back, at the end of the text.
    pub fn finish(&mut self) -> &str {
        let start = std::mem::replace(&mut self.given, self.held.len());
        &self.held[start..]
    }

    /// Number of held bytes in which no stop string can begin.
    fn sure(&self) -> usize {
        let shortest = (self.held.len() + 1).saturating_sub(self.longest);
        (shortest..self.held.len())
            .filter(|at| self.held.is_char_boundary(*at))
            .find(|at| self.stops.iter().any(|stop| stop.starts_with(&self.held[*at..])))
            .unwrap_or(self.held.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// All output, and the stop string that ended it.
    fn heard(stops: &[&str], pieces: &[&str]) -> (String, Option<usize>) {
        let mut matcher = StopStrings::new(stops.iter().map(|stop| (*stop).to_owned()).collect());
        let mut text = String::new();
        for piece in pieces {
            match matcher.push(piece) {
                Heard::Text(piece) => text.push_str(piece),
                Heard::Stopped(piece, number) => return (text + piece, Some(number)),
            }
        }
        (text + matcher.finish(), None)
    }

    #[test]
    fn a_stop_string_is_found_across_pieces_and_its_beginning_is_held_back() {
        let mut matcher = StopStrings::new(vec!["</s>".to_owned(), "END".to_owned()]);
        assert_eq!(matcher.push("a</"), Heard::Text("a"));
        assert_eq!(matcher.push("b EN"), Heard::Text("</b "));
        assert_eq!(matcher.push("D and on"), Heard::Stopped("", 1));
        assert_eq!(heard(&["\n\n"], &["one\n", "two\n", "\nthree"]), ("one\ntwo".to_owned(), Some(0)));
        assert_eq!(heard(&["END"], &["the EN"]), ("the EN".to_owned(), None));
        assert_eq!(heard(&[], &["a", "b"]), ("ab".to_owned(), None));
        assert_eq!(heard(&["", "b"], &["a", "b"]), ("a".to_owned(), Some(1)));
    }

    #[test]
    fn the_one_that_ends_first_wins_and_of_those_the_longest() {
        assert_eq!(heard(&["abc", "b"], &["xabc"]), ("xa".to_owned(), Some(1)));
        assert_eq!(heard(&["c", "abc"], &["xabc"]), ("x".to_owned(), Some(1)));
        assert_eq!(heard(&["é!", "é"], &["caf", "é!"]), ("caf".to_owned(), Some(1)));
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(
            text in "[ab\u{e9}]{0,24}",
            stops in prop::collection::vec("[ab\u{e9}]{1,4}", 0..4),
            cuts in prop::collection::vec(0..25_usize, 0..8),
        ) {
            let stops: Vec<&str> = stops.iter().map(String::as_str).collect();
            // The judge: the shortest beginning of the text that ends with a stop string.
            let ends = text.char_indices().map(|(at, c)| at + c.len_utf8());
            let by_judge = ends.filter_map(|end| {
                let longest = stops.iter().filter(|stop| text[..end].ends_with(**stop)).max_by_key(|stop| stop.len())?;
                Some(text[..end - longest.len()].to_owned())
            }).next();
            let mut cuts: Vec<usize> = cuts.into_iter().filter(|at| *at <= text.len() && text.is_char_boundary(*at)).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&str> = cuts.windows(2).map(|ends| &text[ends[0]..ends[1]]).collect();
            let (found, stopped) = heard(&stops, &pieces);
            prop_assert_eq!(stopped.is_some(), by_judge.is_some());
            prop_assert_eq!(found, by_judge.unwrap_or(text));
        }
    }
}
