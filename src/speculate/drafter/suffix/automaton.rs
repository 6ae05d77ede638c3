//! A suffix automaton over a bounded text, with counts of how often short strings occur.
//!
//! Blumer et al., *The smallest automaton recognizing the subwords of a text* (1985), built online. A state stands for
//! all strings that end at the same places of the text, so the longest suffix of the text that occurs earlier is at
//! hand without a search: it is the longest string of the suffix link of the whole text. Occurrences are counted of
//! strings of at most `longest` tokens, for which a second place in the automaton, that of the last `longest` tokens,
//! is moved along. All storage is reserved at creation. A full text drops its oldest requests, and the automaton is
//! built again of the rest.

/// Ends every request; no token of a model.
const SEPARATOR: u32 = u32::MAX;
const NONE: u32 = u32::MAX;
const ROOT: u32 = 0;

/// A string that occurs in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    state: u32,
    length: u32,
}

#[derive(Clone, Copy, Debug)]
struct State {
    /// Tokens of its longest string.
    length: u32,
    /// The state of the longest suffix that occurs at more places.
    link: u32,
    newest_edge: u32,
    /// Occurrences, if its shortest string is short enough to be counted.
    count: u32,
}

#[derive(Clone, Copy, Debug)]
struct Edge {
    from: u32,
    token: u32,
    to: u32,
    /// The next older edge of the same state.
    older: u32,
}

/// The automaton and its text.
#[derive(Clone, Debug)]
pub(super) struct Automaton {
    capacity: usize,
    longest: u32,
    text: Vec<u32>,
    states: Vec<State>,
    edges: Vec<Edge>,
    /// Edges by hash of state and token, open addressing; a power of two of places.
    table: Vec<u32>,
    /// The state of the whole text.
    last: u32,
    /// The last `longest` tokens.
    counted: Place,
}

impl Automaton {
    /// An empty text with room for `capacity` tokens, separators included, of which strings of `longest` tokens are
    /// counted.
    ///
    /// # Panics
    /// If `capacity` is below 4, does not fit 30 bits, or `longest` is 0.
    pub(super) fn with_capacity(capacity: usize, longest: u32) -> Self {
        assert!((4..1 << 28).contains(&capacity) && longest > 0, "room for a text and strings to count");
        let edges = 3 * capacity;
        let mut automaton = Self {
            capacity,
            longest,
            text: Vec::with_capacity(capacity),
            states: Vec::with_capacity(2 * capacity + 1),
            edges: Vec::with_capacity(edges),
            table: vec![NONE; (2 * edges).next_power_of_two()],
            last: ROOT,
            counted: Place { state: ROOT, length: 0 },
        };
        automaton.clear();
        automaton
    }

    /// Forgets the text.
    pub(super) fn clear(&mut self) {
        self.text.clear();
        self.forget_states();
    }

    /// Tokens held, separators included.
    pub(super) fn len(&self) -> usize {
        self.text.len()
    }

    /// Ends the request at the end of the text and makes room for `tokens` more, of the oldest requests and as far as
    /// there can be room.
    pub(super) fn begin(&mut self, tokens: usize) {
        let room = self.capacity - self.text.len();
        if room < tokens.saturating_add(1) {
            let most = self.capacity.saturating_sub(tokens.saturating_add(1));
            self.keep_newest(most.min(self.capacity / 2));
        }
        if !self.text.is_empty() {
            self.push(SEPARATOR);
        }
    }

    /// Appends a token. A full text first drops its older half, whole requests if there are any.
    pub(super) fn push(&mut self, token: u32) {
        if self.text.len() == self.capacity {
            self.keep_newest(self.capacity / 2);
        }
        self.text.push(token);
        self.enter(token);
    }

    /// Drops the oldest requests so that at most `most` tokens stay; the beginning of a request that is longer.
    fn keep_newest(&mut self, most: usize) {
        let cut = self.text.len().saturating_sub(most);
        let end = self.text[cut..].iter().position(|token| *token == SEPARATOR);
        let cut = end.map_or(cut, |end| cut + end + 1);
        self.text.copy_within(cut.., 0);
        self.text.truncate(self.text.len() - cut);
        self.forget_states();
        for i in 0..self.text.len() {
            self.enter(self.text[i]);
        }
    }

    fn forget_states(&mut self) {
        self.states.clear();
        self.edges.clear();
        self.table.fill(NONE);
        self.add_state(State { length: 0, link: NONE, newest_edge: NONE, count: 0 });
        self.last = ROOT;
        self.counted = Place { state: ROOT, length: 0 };
    }

    /// The longest suffix of the text that occurs earlier in it, and the shorter ones that occur at yet more places,
    /// longest first, each with at most one token less than is counted; the empty one is not among them.
    pub(super) fn matches(&self) -> impl Iterator<Item = Match> {
        let mut state = self.states[self.last as usize].link;
        std::iter::from_fn(move || {
            let State { length, link, .. } = *self.states.get(state as usize)?;
            if length == 0 {
                return None;
            }
            let found = Match { length, context: self.shortened(Place { state, length }) };
            state = link;
            Some(found)
        })
    }

    /// What follows a string and how often, what followed newly for the first time before the rest. Ends of requests
    /// are left out.
    pub(super) fn continuations(&self, context: Place) -> impl Iterator<Item = (u32, u32)> {
        let mut edge = self.states[context.state as usize].newest_edge;
        let edges = std::iter::from_fn(move || {
            let Edge { token, to, older, .. } = *self.edges.get(edge as usize)?;
            edge = older;
            Some((token, self.states[to as usize].count))
        });
        edges.filter(|(token, _)| *token != SEPARATOR)
    }

    /// The string with a token appended, without its beginning if it would grow longer than can be asked for
    /// continuations; `None` where it does not occur.
    pub(super) fn follow(&self, context: Place, token: u32) -> Option<Place> {
        let edge = self.edge(context.state, token)?;
        let place = Place { state: self.edges[edge].to, length: context.length + 1 };
        Some(self.shortened(place))
    }

    /// The longest suffix of a string whose continuations are counted.
    fn shortened(&self, place: Place) -> Place {
        self.suffix(place, place.length.min(self.longest - 1))
    }

    /// The suffix of `length` tokens, in its own state.
    fn suffix(&self, Place { mut state, .. }: Place, length: u32) -> Place {
        while let State { link, .. } = self.states[state as usize]
            && link != NONE
            && self.states[link as usize].length >= length
        {
            state = link;
        }
        Place { state, length }
    }

    /// Extends the automaton by the text's next token.
    fn enter(&mut self, token: u32) {
        let length = self.states[self.last as usize].length + 1;
        let new = self.add_state(State { length, link: ROOT, newest_edge: NONE, count: 0 });
        let mut from = self.last;
        while from != NONE && self.edge(from, token).is_none() {
            self.add_edge(from, token, new);
            from = self.states[from as usize].link;
        }
        if from != NONE {
            let to = self.edges[self.edge(from, token).expect("the walk ended at an edge")].to;
            self.states[new as usize].link = self.split(from, token, to);
        }
        self.last = new;
        self.count(token);
    }

    /// The state of the longest string of `from` with `token` appended, which leads to `to`: a state of its own if `to`
    /// has longer strings.
    fn split(&mut self, from: u32, token: u32, to: u32) -> u32 {
        let length = self.states[from as usize].length + 1;
        if self.states[to as usize].length == length {
            return to;
        }
        let State { link, newest_edge, count, .. } = self.states[to as usize];
        let half = self.add_state(State { length, link, newest_edge: NONE, count });
        let mut edge = newest_edge;
        while let Some(Edge { token, to, older, .. }) = self.edges.get(edge as usize).copied() {
            self.add_edge(half, token, to);
            edge = older;
        }
        self.states[to as usize].link = half;
        let mut from = from;
        while from != NONE
            && let Some(edge) = self.edge(from, token)
            && self.edges[edge].to == to
        {
            self.edges[edge].to = half;
            from = self.states[from as usize].link;
        }
        half
    }

    /// Counts the suffixes of at most `longest` tokens of the text, whose last token is new.
    fn count(&mut self, token: u32) {
        let before = self.suffix(self.counted, self.counted.length.min(self.longest - 1));
        let edge = self.edge(before.state, token).expect("every suffix of the text was extended");
        self.counted = Place { state: self.edges[edge].to, length: before.length + 1 };
        let mut state = self.counted.state;
        while state != ROOT {
            let State { link, count, .. } = &mut self.states[state as usize];
            *count += 1;
            state = *link;
        }
    }

    fn add_state(&mut self, state: State) -> u32 {
        let place = self.states.len() as u32;
        self.states.push(state);
        place
    }

    fn add_edge(&mut self, from: u32, token: u32, to: u32) {
        let place = self.probe(from, token);
        let State { newest_edge, .. } = &mut self.states[from as usize];
        let edge = self.edges.len() as u32;
        self.edges.push(Edge { from, token, to, older: *newest_edge });
        *newest_edge = edge;
        self.table[place] = edge;
    }

    fn edge(&self, from: u32, token: u32) -> Option<usize> {
        let edge = self.table[self.probe(from, token)];
        (edge != NONE).then_some(edge as usize)
    }

    /// The place of an edge in the table, or the free one where it would be.
    fn probe(&self, from: u32, token: u32) -> usize {
        let mask = self.table.len() - 1;
        let key = (u64::from(from) << 32 | u64::from(token)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut place = (key >> 32) as usize & mask;
        loop {
            match self.edges.get(self.table[place] as usize) {
                Some(edge) if edge.from != from || edge.token != token => place = (place + 1) & mask,
                Some(_) | None => return place,
            }
        }
    }
}

/// A suffix of the text that occurs earlier.
#[derive(Clone, Copy, Debug)]
pub(super) struct Match {
    /// Tokens that match.
    pub(super) length: u32,
    /// Its end, as much of it as continuations are counted for.
    pub(super) context: Place,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn built(tokens: impl IntoIterator<Item = u32>, capacity: usize, longest: u32) -> Automaton {
        let mut automaton = Automaton::with_capacity(capacity, longest);
        tokens.into_iter().for_each(|token| automaton.push(token));
        automaton
    }

    /// How often each token follows `context` in `text`, by looking everywhere.
    fn counted(text: &[u32], context: &[u32]) -> BTreeMap<u32, u32> {
        let mut counts = BTreeMap::new();
        for place in text.windows(context.len() + 1) {
            let (next, before) = place.split_last().expect("windows are not empty");
            if before == context && *next != SEPARATOR {
                *counts.entry(*next).or_default() += 1;
            }
        }
        counts
    }

    /// Suffixes of `text` that occur earlier, longest first, leaving out those that occur nowhere else than the one
    /// before.
    fn matches(text: &[u32]) -> Vec<usize> {
        let occurrences = |length: usize| text.windows(length).filter(|w| text.ends_with(w)).count();
        let mut found: Vec<(usize, usize)> = Vec::new();
        for length in (1..text.len()).rev() {
            let count = occurrences(length);
            if count > 1 && found.last().is_none_or(|(_, last)| *last < count) {
                found.push((length, count));
            }
        }
        found.into_iter().map(|(length, _)| length).collect()
    }

    fn check(automaton: &Automaton, longest: u32) {
        let text = &automaton.text;
        let found: Vec<Match> = automaton.matches().collect();
        let lengths: Vec<usize> = found.iter().map(|m| m.length as usize).collect();
        assert_eq!(lengths, matches(text), "{text:?}");
        for Match { length, context } in found {
            assert_eq!(context.length, length.min(longest - 1), "{text:?}");
            let end = &text[text.len() - context.length as usize..];
            let counts: BTreeMap<u32, u32> = automaton.continuations(context).collect();
            assert_eq!(counts, counted(text, end), "{end:?} in {text:?}");
            for token in counts.keys() {
                let longer = automaton.follow(context, *token).expect("it occurs");
                let string = [end, &[*token]].concat();
                let kept = &string[string.len() - longer.length as usize..];
                assert_eq!(longer.length, (context.length + 1).min(longest - 1));
                let counts: BTreeMap<u32, u32> = automaton.continuations(longer).collect();
                assert_eq!(counts, counted(text, kept), "{kept:?} in {text:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn matches_and_counts_are_those_of_looking_everywhere(
            tokens in prop::collection::vec(0..3_u32, 1..40),
            longest in 2..6_u32,
            ends in prop::collection::vec(0..40_usize, 0..3),
        ) {
            let mut automaton = Automaton::with_capacity(64, longest);
            for (i, token) in tokens.iter().enumerate() {
                if ends.contains(&i) {
                    automaton.begin(0);
                }
                automaton.push(*token);
                check(&automaton, longest);
            }
        }

        #[test]
        fn a_text_that_dropped_requests_is_as_if_they_had_never_been(
            tokens in prop::collection::vec(0..4_u32, 1..120),
            capacity in 8..30_usize,
            every in 3..20_usize,
        ) {
            let mut automaton = Automaton::with_capacity(capacity, 4);
            for (i, token) in tokens.iter().enumerate() {
                if i % every == 0 {
                    automaton.begin(every);
                }
                automaton.push(*token);
                prop_assert!(automaton.len() <= capacity);
                check(&automaton, 4);
            }
            prop_assert!(tokens.ends_with(&automaton.text[automaton.text.len().saturating_sub(every)..])
                || automaton.text.contains(&SEPARATOR));
        }
    }

    #[test]
    fn memory_is_reserved_once_for_any_text() {
        let capacity = 1 << 12;
        let mut automaton = Automaton::with_capacity(capacity, 24);
        let reserved =
            |a: &Automaton| [a.text.capacity(), a.states.capacity(), a.edges.capacity(), a.table.capacity()];
        let before = reserved(&automaton);
        let mut state = 7_u32;
        for i in 0..200_000_u32 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // Runs of one token, texts of few tokens, and texts of many, in turn.
            let token = [5, state >> 30, state >> 20][(i / 10_000 % 3) as usize];
            automaton.push(token);
        }
        assert_eq!(reserved(&automaton), before);
        assert!(automaton.len() > capacity / 2 && automaton.len() <= capacity);
    }

    #[test]
    fn a_new_request_takes_the_room_of_the_oldest_tokens() {
        let mut automaton = built([1, 2, 3, 4, 5], 12, 4);
        automaton.begin(7);
        [7, 8, 7, 8, 7].into_iter().for_each(|token| automaton.push(token));
        assert_eq!(automaton.text, [2, 3, 4, 5, SEPARATOR, 7, 8, 7, 8, 7]);
        check(&automaton, 4);
    }
}
