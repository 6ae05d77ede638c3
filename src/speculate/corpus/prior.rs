//! Prior tables: what the model usually offers after one, two and three tokens.
//!
//! An entry is a context, its last token first, and the mean distribution that the model gave wherever the corpus has
//! the context, cut to the most probable tokens: its own opinion, where texts tell only what their authors wrote next.
//!
//! A longer context that stands nowhere but where the next shorter one does has no entry: the shorter one's says the
//! same. Of more than fit, those that occur most often are kept, and of equals the shorter.

use std::{cmp::Ordering, ops::Range};

use crate::sample::Candidate;

use super::layout::{END, PRIOR_BYTES, PRIOR_OFFERS, PRIOR_TOKENS};

/// Log-probabilities are kept in so many parts of a nat below 0: 32 nats fit 16 bits, and the error is below a
/// thousandth.
const PARTS: f32 = 2048.0;
/// Stands for a continuation that is not there: no vocabulary has this token.
const NONE: u32 = u32::MAX;

/// What the model offered at one place: its most probable tokens with their log-probabilities at temperature 1, the
/// most probable first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Offer {
    tokens: [u32; PRIOR_OFFERS],
    /// How many [`PARTS`] of a nat the log-probabilities are below 0.
    below: [u16; PRIOR_OFFERS],
}

impl Offer {
    /// Bytes of [`to_bytes`](Self::to_bytes).
    pub const BYTES: usize = (4 + 2) * PRIOR_OFFERS;
    /// Nothing.
    pub const EMPTY: Self = Self { tokens: [NONE; PRIOR_OFFERS], below: [u16::MAX; PRIOR_OFFERS] };

    /// The first of these candidates, which are the most probable first.
    pub fn of(candidates: &[Candidate]) -> Self {
        let mut this = Self::EMPTY;
        for (i, candidate) in candidates.iter().take(PRIOR_OFFERS).enumerate() {
            this.tokens[i] = candidate.token;
            // Beyond the ends it saturates; of what is no number the larger one is taken.
            this.below[i] = (-candidate.log_prob.max(f32::MIN) * PARTS).round() as u16;
        }
        this
    }

    /// The tokens, the most probable first.
    pub fn candidates(&self) -> impl Iterator<Item = Candidate> {
        let all = self.tokens.into_iter().zip(self.below);
        all.map(|(token, below)| Candidate { token, log_prob: -f32::from(below) / PARTS })
            .take_while(|candidate| candidate.token != NONE)
    }

    /// Tokens, then how far each is below 0, little-endian.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let (tokens, all_below) = bytes.split_at_mut(4 * PRIOR_OFFERS);
        for (place, token) in tokens.as_chunks_mut().0.iter_mut().zip(self.tokens) {
            *place = token.to_le_bytes();
        }
        for (place, below) in all_below.as_chunks_mut().0.iter_mut().zip(self.below) {
            *place = below.to_le_bytes();
        }
        bytes
    }

    /// What [`to_bytes`](Self::to_bytes) wrote.
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        let (tokens, all_below) = bytes.split_at(4 * PRIOR_OFFERS);
        let mut this = Self::EMPTY;
        for (token, bytes) in this.tokens.iter_mut().zip(tokens.as_chunks().0) {
            *token = u32::from_le_bytes(*bytes);
        }
        for (below, bytes) in this.below.iter_mut().zip(all_below.as_chunks().0) {
            *below = u16::from_le_bytes(*bytes);
        }
        this
    }
}

/// A context with the places of it, among the sorted ones.
struct Entry {
    tokens: usize,
    places: Range<usize>,
}

/// The bytes of the tables over `symbols`, where `offers` are what the model offered after the symbols at the given
/// places, and how many entries each has; at most `most_bytes` in all. The same corpus gives the same bytes.
pub(super) fn encode(
    symbols: &[u32],
    offers: &[(u32, Offer)],
    most_bytes: usize,
) -> (Vec<u8>, [u64; PRIOR_TOKENS]) {
    let context = |at: usize| -> [u32; PRIOR_TOKENS] { context_at(symbols, offers[at].0 as usize) };
    let mut order: Vec<usize> = (0..offers.len()).collect();
    order.sort_unstable_by_key(|at| (context(*at), *at));
    let mut entries = Vec::new();
    add_entries(&mut entries, &order, 0..order.len(), 0, &context);
    let count = |entry: &Entry| entry.places.len();
    let often = |a: &Entry, b: &Entry| -> Ordering {
        let by_count = count(b).cmp(&count(a)).then(a.tokens.cmp(&b.tokens));
        by_count.then(a.places.start.cmp(&b.places.start))
    };
    entries.sort_unstable_by(often);
    entries.truncate(most_bytes / PRIOR_BYTES);
    entries.sort_unstable_by_key(|entry| (entry.tokens, entry.places.start));
    let mut numbers = [0; PRIOR_TOKENS];
    let mut bytes = Vec::with_capacity(entries.len() * PRIOR_BYTES);
    let mut sums = Vec::new();
    for Entry { tokens, places } in entries {
        numbers[tokens - 1] += 1;
        let context = context(order[places.start]);
        let known = context.iter().enumerate().map(|(i, symbol)| if i < tokens { symbol - 1 } else { NONE });
        bytes.extend(known.flat_map(u32::to_le_bytes));
        let mean = mean(order[places].iter().map(|at| &offers[*at].1), &mut sums);
        bytes.extend(mean.to_bytes());
    }
    (bytes, numbers)
}

/// The last symbols up to a place, the last first; [`END`] from where a snippet begins.
fn context_at(symbols: &[u32], place: usize) -> [u32; PRIOR_TOKENS] {
    let mut context = [END; PRIOR_TOKENS];
    for (known, symbol) in context.iter_mut().zip(symbols[..=place].iter().rev()) {
        if *symbol == END {
            break;
        }
        *known = *symbol;
    }
    context
}

/// Adds the contexts of more than `tokens` tokens that stand in `within`, whose places have those tokens alike.
fn add_entries(
    entries: &mut Vec<Entry>,
    order: &[usize],
    within: Range<usize>,
    tokens: usize,
    context: &impl Fn(usize) -> [u32; PRIOR_TOKENS],
) {
    if tokens == PRIOR_TOKENS {
        return;
    }
    let mut start = within.start;
    while start < within.end {
        let symbol = context(order[start])[tokens];
        let alike = order[start..within.end].iter().take_while(|at| context(**at)[tokens] == symbol);
        let places = start..start + alike.count();
        start = places.end;
        if symbol == END {
            continue;
        }
        if tokens == 0 || places != within {
            entries.push(Entry { tokens: tokens + 1, places: places.clone() });
        }
        add_entries(entries, order, places, tokens + 1, context);
    }
}

/// The mean of distributions, of which tokens that are not offered have nothing.
fn mean<'a>(offers: impl ExactSizeIterator<Item = &'a Offer>, sums: &mut Vec<(u32, f64)>) -> Offer {
    let all = offers.len() as f64;
    sums.clear();
    for candidate in offers.flat_map(Offer::candidates) {
        sums.push((candidate.token, f64::from(candidate.log_prob).exp()));
    }
    // Stable, so that equal tokens are summed in the order of their places.
    sums.sort_by_key(|(token, _)| *token);
    sums.dedup_by(|later, earlier| {
        let same = later.0 == earlier.0;
        if same {
            earlier.1 += later.1;
        }
        same
    });
    sums.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let mean = |(token, sum): &(u32, f64)| Candidate { token: *token, log_prob: (sum / all).ln() as f32 };
    let best: Vec<Candidate> = sums.iter().take(PRIOR_OFFERS).map(mean).collect();
    Offer::of(&best)
}

/// The tables of a mapped store.
#[derive(Clone, Copy, Debug)]
pub(super) struct PriorTables<'a> {
    pub(super) entries: &'a [[u8; PRIOR_BYTES]],
    pub(super) numbers: [usize; PRIOR_TOKENS],
}

impl PriorTables<'_> {
    /// What is known of the longest known context at the end of a text, of which `last` is the last token first, with
    /// how many tokens that context has.
    pub(super) fn find(&self, last: &[u32]) -> Option<(usize, Offer)> {
        let last = &last[..last.len().min(PRIOR_TOKENS)];
        (1..=last.len()).rev().find_map(|tokens| {
            let from: usize = self.numbers[..tokens - 1].iter().sum();
            let table = self.entries.get(from..from + self.numbers[tokens - 1])?;
            let found = table.binary_search_by(|entry| compare(entry, &last[..tokens])).ok()?;
            let offer = table[found][4 * PRIOR_TOKENS..].first_chunk().expect("an entry ends with an offer");
            Some((tokens, Offer::from_bytes(offer)))
        })
    }
}

const _: () = assert!(4 * PRIOR_TOKENS + Offer::BYTES == PRIOR_BYTES, "an entry is a context and an offer");

fn compare(entry: &[u8; PRIOR_BYTES], context: &[u32]) -> Ordering {
    let known = entry.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes));
    known
        .zip(context)
        .map(|(known, token)| known.cmp(token))
        .find(|order| order.is_ne())
        .unwrap_or(Ordering::Equal)
}
