//! A mapped store: how texts of the corpus went on after given tokens.

use std::{cmp::Ordering, path::Path};

use crate::storage::MappedFile;

use super::{
    LONGEST_MATCH, Offer, PRIOR_TOKENS, SORTED_TOKENS, StoreError,
    layout::{END, HEADER_BYTES, Header, hex},
    prior::PriorTables,
};

/// Occurrences that are looked at one by one when continuations are listed; of more, as many evenly spaced ones.
pub const PROBES: usize = 32;

/// A corpus store, mapped and checked. Clones share the map.
#[derive(Clone, Debug)]
pub struct CorpusStore {
    file: MappedFile,
    header: Header,
    digest: [u8; 32],
}

/// Places of the corpus that begin with the same tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Occurrences {
    /// Rank of the first among the sorted places.
    first: usize,
    /// Rank after the last.
    end: usize,
}

impl Occurrences {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.end - self.first
    }
}

/// The longest suffix of a text that the corpus has with something after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Match {
    /// Its tokens.
    pub length: usize,
    /// Where it stands.
    pub occurrences: Occurrences,
}

impl CorpusStore {
    /// Maps the store at `path` and checks all of it.
    ///
    /// # Errors
    /// [`StoreError`] says in what the file is not a whole, unchanged store of this format.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let file = MappedFile::open(path)?;
        let (header, digest) = Header::check(file.bytes(), path)?;
        Ok(Self { file, header, digest })
    }

    /// Maps the store at `path`, which must be the one of this digest.
    ///
    /// # Errors
    /// As [`open`](Self::open), and [`StoreError::OtherStore`].
    pub fn open_expecting(path: &Path, digest: &str) -> Result<Self, StoreError> {
        let store = Self::open(path)?;
        let found = store.digest();
        if found == digest {
            return Ok(store);
        }
        Err(StoreError::OtherStore { path: path.to_owned(), expected: digest.to_owned(), found })
    }

    /// Refuses a store that was not scored by the model of this digest.
    ///
    /// # Errors
    /// [`StoreError::OtherModel`].
    pub fn expect_model(&self, model: &[u8; 32]) -> Result<(), StoreError> {
        if self.header.model == *model {
            return Ok(());
        }
        let (expected, found) = (hex(model), hex(&self.header.model));
        Err(StoreError::OtherModel { path: self.file.path().to_owned(), expected, found })
    }

    /// Refuses a store that may hold tokens beyond those of a model of `vocabulary` tokens.
    ///
    /// # Errors
    /// [`StoreError::Vocabulary`].
    pub fn expect_vocabulary(&self, vocabulary: usize) -> Result<(), StoreError> {
        let found = self.header.vocabulary;
        if found as usize <= vocabulary {
            return Ok(());
        }
        Err(StoreError::Vocabulary { path: self.file.path().to_owned(), expected: vocabulary, found })
    }

    /// What the store is known by: 64 hexadecimal digits that follow from every byte of it.
    pub fn digest(&self) -> String {
        hex(&self.digest)
    }

    /// Tokens of all snippets.
    pub fn tokens(&self) -> u64 {
        self.header.tokens
    }

    /// Snippets.
    pub fn snippets(&self) -> u64 {
        self.header.snippets
    }

    /// Contexts of one, two and three tokens after which it knows what the model usually offers.
    pub fn priors(&self) -> [u64; PRIOR_TOKENS] {
        self.header.priors
    }

    /// What the model usually offers after a text, of which `last` are the last tokens, the very last first: of the
    /// longest of its ends that the store knows, with how many tokens that has. A file that was overwritten while it
    /// was mapped may give tokens beyond the vocabulary.
    pub fn prior(&self, last: &[u32]) -> Option<(usize, Offer)> {
        let from = HEADER_BYTES + 4 * (self.symbols() + self.ranks());
        let entries = self.file.bytes().get(from..)?.as_chunks().0;
        let numbers = self.header.priors.map(|entries| usize::try_from(entries).unwrap_or(usize::MAX));
        PriorTables { entries, numbers }.find(last)
    }

    /// Tokens in the vocabulary of the model that scored it.
    pub fn vocabulary(&self) -> u32 {
        self.header.vocabulary
    }

    /// The longest suffix of `text` of `shortest..=longest` tokens that goes on somewhere in the corpus: with a suffix
    /// its own suffixes are there too, so the length is found by bisection, in `O(longest * log(tokens))` steps at
    /// most.
    ///
    /// # Panics
    /// If `longest` exceeds [`LONGEST_MATCH`].
    pub fn longest_match(&self, text: &[u32], longest: usize, shortest: usize) -> Option<Match> {
        let (mut below, mut above) = (shortest.max(1), longest.min(text.len()) + 1);
        let mut best = None;
        while below < above {
            let length = below + (above - below) / 2;
            let occurrences = self.find(&text[text.len() - length..]);
            if occurrences.count() > 0 {
                best = Some(Match { length, occurrences });
                below = length + 1;
            } else {
                above = length;
            }
        }
        best
    }

    /// Where `pattern` stands with something after it: two binary searches.
    ///
    /// # Panics
    /// If `pattern` is longer than [`LONGEST_MATCH`].
    pub fn find(&self, pattern: &[u32]) -> Occurrences {
        assert!(pattern.len() <= LONGEST_MATCH, "a pattern of {LONGEST_MATCH} tokens at most");
        let all = self.ranks();
        let first = partition(0, all, |rank| self.compare(rank, pattern) == Ordering::Less);
        let end = partition(first, all, |rank| self.compare(rank, pattern) != Ordering::Greater);
        Occurrences { first, end }
    }

    /// Shows every token that stands `offset` tokens after the beginning of the `occurrences`, which must be alike so
    /// far, with the occurrences it stands in: tokens in ascending order. Of more than [`PROBES`] occurrences, tokens
    /// that stand in less than one of [`PROBES`] may go unseen; counts are exact all the same.
    ///
    /// # Panics
    /// If `offset` is not below [`SORTED_TOKENS`].
    pub fn continuations(
        &self,
        occurrences: Occurrences,
        offset: usize,
        mut visit: impl FnMut(u32, Occurrences),
    ) {
        assert!(offset < SORTED_TOKENS, "places are sorted by {SORTED_TOKENS} tokens");
        let Occurrences { first, end } = occurrences;
        let stride = (occurrences.count() / PROBES).max(1);
        let mut seen_to = first;
        for rank in (first..end).step_by(stride) {
            if rank < seen_to {
                continue;
            }
            let symbol = self.symbol_behind(rank, offset);
            let run_from = partition(seen_to, rank, |r| self.symbol_behind(r, offset) < symbol);
            seen_to = partition(rank + 1, end, |r| self.symbol_behind(r, offset) <= symbol);
            if let Some(token) = self.token(symbol) {
                visit(token, Occurrences { first: run_from, end: seen_to });
            }
        }
    }

    /// How what stands at a rank compares with the pattern; a text that ends with it comes before those that go on.
    fn compare(&self, rank: usize, pattern: &[u32]) -> Ordering {
        let place = self.place(rank);
        for (i, token) in pattern.iter().enumerate() {
            let order = self.symbol(place.saturating_add(i)).cmp(&token.saturating_add(1));
            if order != Ordering::Equal {
                return order;
            }
        }
        if self.symbol(place.saturating_add(pattern.len())) == END { Ordering::Less } else { Ordering::Equal }
    }

    fn symbol_behind(&self, rank: usize, offset: usize) -> u32 {
        self.symbol(self.place(rank).saturating_add(offset))
    }

    /// The token of a symbol, unless it is none of the vocabulary, as in a file that was overwritten.
    fn token(&self, symbol: u32) -> Option<u32> {
        symbol.checked_sub(1).filter(|token| *token < self.header.vocabulary)
    }

    /// Number of sorted places; as many as fit the map, which was checked against the header.
    fn ranks(&self) -> usize {
        usize::try_from(self.header.tokens).expect("a mapped file fits the address space")
    }

    fn symbols(&self) -> usize {
        self.ranks() + usize::try_from(self.header.snippets).expect("a mapped file fits the address space")
    }

    fn place(&self, rank: usize) -> usize {
        self.word(self.symbols() + rank).map_or(usize::MAX, |place| place as usize)
    }

    /// The symbol at a place; [`END`] where there is none.
    fn symbol(&self, place: usize) -> u32 {
        if place < self.symbols() { self.word(place).unwrap_or(END) } else { END }
    }

    fn word(&self, index: usize) -> Option<u32> {
        let at = index.checked_mul(4)?.checked_add(HEADER_BYTES)?;
        let bytes = self.file.bytes().get(at..)?.first_chunk()?;
        Some(u32::from_le_bytes(*bytes))
    }
}

/// The first of `from..to` that is not `before`, which holds for a beginning of them; some place of them if it does
/// not.
fn partition(from: usize, to: usize, before: impl Fn(usize) -> bool) -> usize {
    let (mut from, mut to) = (from, to);
    while from < to {
        let middle = from + (to - from) / 2;
        if before(middle) { from = middle + 1 } else { to = middle }
    }
    from
}
