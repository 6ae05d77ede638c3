//! From snippets to the bytes of a store.

use std::cmp::Ordering;

use super::{
    Offer, StoreError,
    layout::{END, HEADER_BYTES, Header, PRIOR_TOKENS, SORTED_TOKENS},
    prior,
};

/// Bytes of prior tables at most: a million contexts, which is what a corpus of a million tokens has, and what a small
/// machine has to spare.
const MOST_PRIOR_BYTES: usize = 64 << 20;

/// Snippets on their way into a store: 56 bytes a token, and 24 more while it is sorted and encoded.
#[derive(Clone, Debug, Default)]
pub struct Corpus {
    symbols: Vec<u32>,
    snippets: u64,
    /// What the model offered after the symbols at some places, ascending.
    offers: Vec<(u32, Offer)>,
}

impl Corpus {
    /// Adds a snippet, and what the model offered after each of its first tokens, as far as that is known (not
    /// [empty](Offer::EMPTY)); a snippet without tokens is none.
    ///
    /// # Panics
    /// If a token is `u32::MAX`, which no vocabulary has.
    pub fn push(&mut self, snippet: &[u32], offers: &[Offer]) {
        if snippet.is_empty() {
            return;
        }
        // More symbols than 32 bits count are refused when they are encoded.
        let places = self.symbols.len()..self.symbols.len() + snippet.len();
        let places = places.map(|place| u32::try_from(place).unwrap_or(u32::MAX));
        self.offers.extend(places.zip(offers.iter().copied()).filter(|(_, offer)| *offer != Offer::EMPTY));
        let symbol = |token: &u32| token.checked_add(1).expect("vocabularies have fewer than 2^32 tokens");
        self.symbols.extend(snippet.iter().map(symbol));
        self.symbols.push(END);
        self.snippets += 1;
    }

    /// Tokens of all snippets.
    pub fn tokens(&self) -> u64 {
        self.symbols.len() as u64 - self.snippets
    }

    /// Snippets added.
    pub fn snippets(&self) -> u64 {
        self.snippets
    }

    /// The bytes of a store for a model of `vocabulary` tokens and the given digest, and how many contexts of one
    /// token, two and three its prior tables have. The same snippets give the same bytes.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`] from 2^32 symbols on.
    ///
    /// # Panics
    /// If a token is outside the vocabulary.
    pub fn encode(
        &self,
        vocabulary: u32,
        model: [u8; 32],
    ) -> Result<(Vec<u8>, [u64; PRIOR_TOKENS]), StoreError> {
        let found = self.symbols.len() as u64;
        let last = u32::try_from(found)
            .map_err(|_| StoreError::TooLarge { expected: u64::from(u32::MAX), found })?;
        let known = self.symbols.iter().all(|symbol| *symbol <= vocabulary);
        assert!(known, "tokens of a vocabulary of {vocabulary}");
        let (tables, priors) = prior::encode(&self.symbols, &self.offers, MOST_PRIOR_BYTES);
        let header = Header { vocabulary, tokens: self.tokens(), snippets: self.snippets, priors, model };
        let mut places: Vec<u32> = (0..last).filter(|p| self.symbols[*p as usize] != END).collect();
        places.sort_unstable_by(|a, b| self.compare(*a, *b));
        let words = self.symbols.len() + places.len();
        let mut file = Vec::with_capacity(HEADER_BYTES + 4 * words + tables.len());
        file.resize(HEADER_BYTES, 0);
        file.extend(self.symbols.iter().flat_map(|symbol| symbol.to_le_bytes()));
        file.extend(places.iter().flat_map(|place| place.to_le_bytes()));
        file.extend(tables);
        header.seal(&mut file);
        Ok((file, priors))
    }

    /// By the symbols from each place to the end of its snippet, [`SORTED_TOKENS`] at most; then by place.
    fn compare(&self, a: u32, b: u32) -> Ordering {
        let from = |place: u32| {
            let rest = &self.symbols[place as usize..];
            rest[..rest.len().min(SORTED_TOKENS)].iter()
        };
        for (x, y) in from(a).zip(from(b)) {
            match x.cmp(y) {
                Ordering::Equal if *x == END => break,
                Ordering::Equal => {}
                unequal @ (Ordering::Less | Ordering::Greater) => return unequal,
            }
        }
        a.cmp(&b)
    }
}
