//! Reproducible choices of a check: everything that a case tries follows from its seed.

/// A stream of choices (SplitMix64, Steele et al., <https://doi.org/10.1145/2714064.2660195>).
#[derive(Clone, Debug)]
pub(super) struct CaseSeed(u64);

impl CaseSeed {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    /// In `[0, 1)`.
    pub(super) fn uniform(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Below `limit`, which is not 0.
    pub(super) fn below(&mut self, limit: usize) -> usize {
        (self.bits() % limit as u64) as usize
    }

    /// `low..=high`.
    pub(super) fn within(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    /// True `percent` times of a hundred.
    pub(super) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub(super) fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    pub(super) fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }

    /// Token ids below `vocabulary`, at times of few kinds, so that they repeat.
    pub(super) fn tokens(&mut self, len: usize, vocabulary: usize) -> Vec<u32> {
        let kinds = if self.chance(50) { vocabulary } else { self.within(2, 8).min(vocabulary) };
        (0..len).map(|_| self.below(kinds) as u32).collect()
    }
}
