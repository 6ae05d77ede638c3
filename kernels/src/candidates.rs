//! Candidates of a row of logits: its best tokens, and their log-probabilities if requested.
//!
//! The meaning, which every implementation has to the last bit. `V` logits are cut into ranges of [`RANGE`] ids:
//!
//! 1. *Order.* Higher logit first, then lower id. NaN is never chosen.
//! 2. *Range.* `m` is the largest logit of a range that is not NaN, or negative infinity. Its sum has 16 lanes, by id
//!    modulo 16: each adds [`weight`] of its logits relative to `m` in order of ids; the lanes are joined by halves.
//! 3. *Row.* `S` adds the ranges' sums in order, each times the [`weight`] of its `m` relative to the largest of the
//!    row.
//! 4. *Log-probability.* [`scaled`] of the logit relative to the largest, minus [`ln S`](ln_positive).
//!
//! *Under noise* ([`RowNoise`]) a token's value is not its logit but the logit over the noise's temperature plus the
//! [noise](crate::noise) of the token, in f32; the order is that of values, and nothing is summed.
//!
//! All of it is in f32, products and sums rounded apart. So the sum's relative error stays below some hundred roundings
//! at any vocabulary, and nothing depends on how ranges are dealt to threads. Log-probabilities rank drafts and never
//! decide a token that is emitted.

mod exp;
mod ln;

use crate::noise::NoiseKey;

pub use exp::exp_nonpositive;
pub use ln::ln_positive;

/// Ids that are summed together: 16 tiles of a linear. A range of logits takes 1 KiB a row, so the head's are folded
/// before they leave the near caches.
pub const RANGE: usize = 256;

/// Lanes of a range's sum.
pub const LANES: usize = 16;

/// How many candidates every row of logits gives, and whether with log-probabilities.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// Tokens, at least 1.
    pub k: usize,
    /// Divides the logits before they become log-probabilities, finite and positive; without it, logits are kept as
    /// they are and nothing is summed.
    pub temperature: Option<f32>,
}

impl Choice {
    /// The best token alone.
    pub const ARGMAX: Self = Self { k: 1, temperature: None };

    /// # Panics
    /// If a field is out of its range.
    pub(crate) fn check(&self, most: usize) {
        assert!((1..=most).contains(&self.k), "{} candidates of at most {most}", self.k);
        let Some(temperature) = self.temperature else { return };
        assert!(
            temperature.is_finite() && temperature > 0.0,
            "a draft temperature of {temperature} is not positive"
        );
    }

    /// One by the temperature, if there is one.
    #[inline(always)]
    pub(crate) fn inverse(&self) -> Option<f32> {
        self.temperature.map(|temperature| 1.0 / temperature)
    }
}

/// The noise by which candidates of rows are ranked, if they are to be the likely winners of a draw.
#[derive(Clone, Copy, Debug)]
pub struct RowNoise<'a> {
    /// The key of every row, `[R]`: of the place of the token that follows it.
    pub keys: &'a [NoiseKey],
    /// Divides the logits, positive.
    pub temperature: f32,
    /// The tokens of a trimmed head by their places in it; without it a logit's place is its token.
    pub tokens: Option<&'a [u32]>,
}

impl<'a> RowNoise<'a> {
    /// The noise of row `r`.
    pub(crate) fn of_row(&self, r: usize) -> TokenNoise<'a> {
        TokenNoise { key: self.keys[r], inverse: 1.0 / self.temperature, tokens: self.tokens }
    }
}

/// The noise of one row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TokenNoise<'a> {
    pub(crate) key: NoiseKey,
    pub(crate) inverse: f32,
    pub(crate) tokens: Option<&'a [u32]>,
}

impl TokenNoise<'_> {
    /// The token of a place.
    #[inline(always)]
    pub(crate) fn token(&self, place: usize) -> u32 {
        self.tokens.map_or(place as u32, |tokens| tokens[place])
    }

    /// The value of a logit.
    #[inline(always)]
    pub(crate) fn value(&self, logit: f32, place: usize) -> f32 {
        logit * self.inverse + self.key.gumbel(self.token(place)) as f32
    }
}

/// `(logit - largest) / temperature` by the inverse of the temperature: 0 for the largest itself, infinite or not.
#[inline(always)]
pub fn scaled(logit: f32, largest: f32, inverse: f32) -> f32 {
    // Infinity minus itself is NaN.
    if logit == largest { 0.0 } else { (logit - largest) * inverse }
}

/// `exp` of [`scaled`]: 1 for the largest, 0 for NaN.
#[inline(always)]
pub fn weight(logit: f32, largest: f32, inverse: f32) -> f32 {
    exp_nonpositive(scaled(logit, largest, inverse))
}

/// Ranges of `vocabulary` logits.
pub const fn ranges(vocabulary: usize) -> usize {
    vocabulary.div_ceil(RANGE)
}

/// Columns of a row of candidates of which there may be `most`: how many there are, their ids, their values.
pub const fn candidate_columns(most: usize) -> usize {
    1 + 2 * most
}

/// The candidates of one row, best first: `[count, ids, values]`, counts and ids by their bits.
#[derive(Clone, Copy, Debug)]
pub struct Candidates<'a> {
    ids: &'a [f32],
    values: &'a [f32],
}

impl<'a> Candidates<'a> {
    /// Reads a row of [`candidate_columns`].
    ///
    /// # Panics
    /// If it cannot be one.
    pub fn new(row: &'a [f32]) -> Self {
        let (count, rest) = row.split_first().expect("a row of candidates starts with their number");
        let (ids, values) = rest.split_at(rest.len() / 2);
        let count = count.to_bits() as usize;
        Self { ids: &ids[..count], values: &values[..count] }
    }

    /// How many there are: fewer than wanted if the row has fewer numbers.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether the row has nothing but NaN.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// The best token; 0 if there is none, as an argmax says.
    pub fn best(&self) -> u32 {
        self.ids.first().map_or(0, |id| id.to_bits())
    }

    /// Tokens and their values: log-probabilities if the choice had a temperature, else logits.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u32, f32)> + 'a {
        self.ids.iter().zip(self.values).map(|(id, value)| (id.to_bits(), *value))
    }
}

/// Completes a row of [`candidate_columns`] that has its `count` ids and their logits: values become log-probabilities
/// if the row's sum and the inverse of the temperature are given.
///
/// # Panics
/// If the row is none of candidates.
pub fn finish_row(row: &mut [f32], count: usize, sum: Option<(f32, f32)>) {
    let most = row.len() / 2;
    row[0] = f32::from_bits(u32::try_from(count).expect("few candidates"));
    let values = &mut row[1 + most..][..count];
    if let (Some((sum, inverse)), Some(&largest)) = (sum, values.first()) {
        let log_sum = ln_positive(sum);
        values.iter_mut().for_each(|value| *value = scaled(*value, largest, inverse) - log_sum);
    }
}
