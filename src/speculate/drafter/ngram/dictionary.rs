//! A dictionary of n-grams in memory that is reserved once: by their first token, or by all tokens but the last.
//!
//! N-grams live in sets of [`WAYS`] places, chosen by their key, newest first. A repeated n-gram moves to the front; a
//! full set drops its least recently seen. So a lookup reads one set, whatever the size of the dictionary.

use crate::plan::MOST_ORDER;

/// N-grams in a set, and so at most of a key.
const WAYS: usize = 16;

/// What n-grams are found by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// Their first token; each n-gram is kept (SPECTRA's forward dictionary).
    First,
    /// All of their tokens but the last, of which the newest is kept (its backward dictionary).
    AllButLast,
}

/// An n-gram; of no tokens where the place is free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Gram {
    len: u8,
    tokens: [u32; MOST_ORDER],
}

impl Gram {
    fn tokens(&self) -> &[u32] {
        &self.tokens[..usize::from(self.len)]
    }
}

/// The dictionary.
#[derive(Clone, Debug)]
pub(super) struct Dictionary {
    key: Key,
    /// `[sets][WAYS]`, free places last; a power of two of sets.
    grams: Vec<Gram>,
}

impl Dictionary {
    /// An empty dictionary of at least `entries` places.
    pub(super) fn with_capacity(key: Key, entries: usize) -> Self {
        let sets = entries.div_ceil(WAYS).next_power_of_two();
        Self { key, grams: vec![Gram::default(); sets * WAYS] }
    }

    /// Places, free ones among them.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.grams.capacity()
    }

    /// Records an n-gram as the newest of its key.
    ///
    /// # Panics
    /// If it is not of 2 to [`MOST_ORDER`] tokens.
    pub(super) fn record(&mut self, tokens: &[u32]) {
        assert!((2..=MOST_ORDER).contains(&tokens.len()), "an n-gram of {} tokens", tokens.len());
        let len = u8::try_from(tokens.len()).expect("n-grams are short");
        let mut gram = Gram { len, tokens: [0; MOST_ORDER] };
        gram.tokens[..tokens.len()].copy_from_slice(tokens);
        let key = self.key;
        let start = self.set(key_of(key, tokens));
        let set = &mut self.grams[start..start + WAYS];
        let same = |old: &Gram| match key {
            Key::First => old.tokens() == tokens,
            Key::AllButLast => old.len == len && key_of(key, old.tokens()) == key_of(key, tokens),
        };
        let place = set.iter().position(same).unwrap_or(WAYS - 1);
        set[..=place].rotate_right(1);
        set[0] = gram;
    }

    /// What followed the key in the n-grams found by it, newest first.
    pub(super) fn after<'s>(&'s self, key: &'s [u32]) -> impl Iterator<Item = &'s [u32]> {
        let start = self.set(key);
        let grams = self.grams[start..start + WAYS].iter().take_while(|gram| gram.len > 0);
        let found = grams.filter(move |gram| key_of(self.key, gram.tokens()) == key);
        found.map(|gram| &gram.tokens()[key.len()..])
    }

    /// All n-grams, of each set the oldest first: recorded again in this order they make the same dictionary.
    pub(super) fn oldest_first(&self) -> impl Iterator<Item = &[u32]> {
        let sets = self.grams.chunks_exact(WAYS);
        sets.flat_map(|set| set.iter().rev()).filter(|gram| gram.len > 0).map(Gram::tokens)
    }

    /// Where the set of a key begins. Single tokens are spread one by one.
    fn set(&self, key: &[u32]) -> usize {
        let mix = |hash: u64, token: &u32| {
            (hash.rotate_left(23) ^ u64::from(*token)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        };
        let hash = match key {
            [token] => u64::from(*token),
            tokens => tokens.iter().fold(0, mix) >> 20,
        };
        (hash as usize & (self.grams.len() / WAYS - 1)) * WAYS
    }
}

/// The forward and the backward dictionary of the same n-grams.
#[derive(Clone, Debug)]
pub(super) struct Dictionaries {
    pub(super) forward: Dictionary,
    pub(super) backward: Dictionary,
    /// Whether they hold the parts of n-grams too.
    parts: bool,
}

impl Dictionaries {
    /// Empty dictionaries of at least `entries` places each.
    pub(super) fn new(entries: usize, parts: bool) -> Self {
        Self {
            forward: Dictionary::with_capacity(Key::First, entries),
            backward: Dictionary::with_capacity(Key::AllButLast, entries),
            parts,
        }
    }

    /// Forgets all n-grams.
    pub(super) fn clear(&mut self) {
        for dictionary in [&mut self.forward, &mut self.backward] {
            dictionary.grams.fill(Gram::default());
        }
    }

    /// Records one n-gram in both.
    pub(super) fn record(&mut self, gram: &[u32]) {
        self.forward.record(gram);
        self.backward.record(gram);
    }

    /// Records an n-gram, and before it all of its parts if those are held: shorter ones first, so that the whole is
    /// newest.
    pub(super) fn record_all(&mut self, gram: &[u32]) {
        let shortest = if self.parts { 2 } else { gram.len() };
        for length in shortest..=gram.len() {
            gram.windows(length).for_each(|part| self.record(part));
        }
    }
}

fn key_of(key: Key, tokens: &[u32]) -> &[u32] {
    match key {
        Key::First => &tokens[..1],
        Key::AllButLast => &tokens[..tokens.len() - 1],
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn grams() -> impl Strategy<Value = Vec<Vec<u32>>> {
        prop::collection::vec(prop::collection::vec(0..4_u32, 2..=4), 1..120)
    }

    proptest! {
        /// Against lists that are searched from end to end.
        #[test]
        fn the_forward_dictionary_is_a_list_of_the_newest_of_every_token(grams in grams()) {
            let mut dictionary = Dictionary::with_capacity(Key::First, 16 * WAYS);
            let mut judge: Vec<Vec<u32>> = Vec::new();
            for gram in grams {
                dictionary.record(&gram);
                judge.retain(|old| *old != gram);
                judge.insert(0, gram);
                for token in 0..4 {
                    let expected: Vec<&[u32]> =
                        judge.iter().filter(|g| g[0] == token).map(|g| &g[1..]).take(WAYS).collect();
                    let key = [token];
                    prop_assert_eq!(dictionary.after(&key).collect::<Vec<_>>(), expected);
                }
            }
        }

        /// Against a map of all keys: the newest token, or nothing where sets were full.
        #[test]
        fn the_backward_dictionary_knows_the_newest_token_of_every_key(grams in grams()) {
            let mut dictionary = Dictionary::with_capacity(Key::AllButLast, 64 * WAYS);
            let mut small = Dictionary::with_capacity(Key::AllButLast, WAYS);
            let mut judge: BTreeMap<Vec<u32>, u32> = BTreeMap::new();
            for gram in grams {
                dictionary.record(&gram);
                small.record(&gram);
                let (last, key) = gram.split_last().unwrap();
                judge.insert(key.to_vec(), *last);
                prop_assert_eq!(small.after(key).collect::<Vec<_>>(), [&[*last][..]]);
            }
            for (key, last) in &judge {
                let found: Vec<u32> = dictionary.after(key).map(|rest| rest[0]).collect();
                prop_assert!(found == [*last] || judge.len() > WAYS && found.is_empty());
                let found: Vec<u32> = small.after(key).map(|rest| rest[0]).collect();
                prop_assert!(found == [*last] || judge.len() > WAYS && found.is_empty());
            }
            let known = judge.keys().filter(|key| small.after(key).next().is_some()).count();
            prop_assert_eq!(known, judge.len().min(WAYS), "one set holds the newest keys");
        }
    }

    #[test]
    fn parts_of_an_n_gram_are_recorded_only_where_they_are_held() {
        let known = |parts| {
            let mut dictionaries = Dictionaries::new(256, parts);
            dictionaries.record_all(&[1, 2, 3, 4]);
            let after = |dictionary: &Dictionary, key: &[u32]| -> Vec<Vec<u32>> {
                dictionary.after(key).map(<[u32]>::to_vec).collect()
            };
            let forward = [1, 2, 3].map(|token| after(&dictionaries.forward, &[token])).concat();
            let keys: [&[u32]; 6] = [&[1], &[2], &[3], &[1, 2], &[2, 3], &[1, 2, 3]];
            let backward = keys.map(|key| after(&dictionaries.backward, key)).concat().concat();
            (forward, backward)
        };
        let all = vec![vec![2, 3, 4], vec![2, 3], vec![2], vec![3, 4], vec![3], vec![4]];
        assert_eq!(known(true), (all, vec![2, 3, 4, 3, 4, 4]));
        assert_eq!(known(false), (vec![vec![2, 3, 4]], vec![4]));
    }

    #[test]
    fn what_is_not_known_is_not_found() {
        let dictionary = Dictionary::with_capacity(Key::First, 100);
        assert_eq!(dictionary.after(&[5]).count(), 0);
        assert_eq!(dictionary.capacity(), 128);
    }
}
