//! Reproducible numbers: everything that is drawn follows from a seed.
use serde::{Deserialize, Serialize};

/// Distance of neighbouring states: 2^64 over the golden ratio, made odd.
const STRIDE: u64 = 0x9E37_79B9_7F4A_7C15;

/// A stream of numbers that look random: SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
/// generators", OOPSLA 2014, <https://doi.org/10.1145/2714064.2660195>).
///
/// Its state is a counter, so that number `i` is a function of the seed and `i` alone. Limits are met by remainders:
/// their bias is below 2^-40 for the limits in use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Random(u64);

impl Random {
    /// Equal seeds give equal numbers.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The stream of this seed with its first `count` numbers left out.
    pub const fn after(self, count: u64) -> Self {
        Self(self.0.wrapping_add(count.wrapping_mul(STRIDE)))
    }

    /// 64 bits.
    pub const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STRIDE);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    /// In `[0, 1)`.
    pub fn uniform(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// In `[-1, 1)`.
    pub fn signed(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u32 << 23) as f32 - 1.0
    }

    /// Below `limit`, which is not 0.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.bits() % limit as u64) as usize
    }

    /// `low..=high`.
    pub fn within(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    /// True `percent` times of a hundred.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of `items`, of which there is one at least.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    /// Puts `items` into an order that any other is as likely as.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }

    /// Token ids below `vocabulary`, at times of few kinds, so that they repeat.
    pub fn tokens(&mut self, len: usize, vocabulary: usize) -> Vec<u32> {
        let kinds = if self.chance(50) { vocabulary } else { self.within(2, 8).min(vocabulary) };
        (0..len).map(|_| self.below(kinds) as u32).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_other_implementations() {
        // Of the reference implementation (<https://prng.di.unimi.it/splitmix64.c>), which other generators are seeded
        // by.
        let mut random = Random::new(1_234_567);
        let numbers = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!([(); 3].map(|()| random.bits()), numbers);
        assert_eq!(Random::new(1_234_567).after(2).bits(), numbers[2]);
    }

    #[test]
    fn shuffling_loses_nothing() {
        let mut items: Vec<u32> = (0..100).collect();
        Random::new(7).shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
