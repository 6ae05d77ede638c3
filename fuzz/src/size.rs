//! Sizes by two bytes: most are small, so that millions are tried; few are as large as any limit.

use ygg_profiler::Random;

/// A size below `most`: 1 half of the time, 2 to 3 a quarter of it, 4 to 7 an eighth, and so on. What takes a second at
/// the largest size takes a millisecond in the mean.
pub(crate) fn size(bytes: [u8; 2], most: usize) -> usize {
    let mut random = Random::new(u64::from(u16::from_le_bytes(bytes)));
    let least = 1 << random.bits().trailing_zeros().min(most.ilog2());
    (least + random.below(least)).min(most - 1)
}
