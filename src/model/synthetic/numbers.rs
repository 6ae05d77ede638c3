//! A counter-based generator: number `i` of a stream is a function of seed, stream and `i` alone.
use ygg_profiler::Random;

/// Numbers of one tensor.
#[derive(Clone, Debug)]
pub(super) struct Stream(Random);

impl Stream {
    pub(super) fn new(seed: u64, stream: u64) -> Self {
        let of_stream = Random::new(0).after(stream.wrapping_sub(1)).bits();
        Self(Random::new(Random::new(seed).bits() ^ of_stream))
    }

    pub(super) fn bits(&self, index: u64) -> u64 {
        self.0.clone().after(index).bits()
    }

    /// Nearly normal, mean 0 and standard deviation 1: a sum of four uniform numbers, which needs no library function
    /// whose last bit could differ between machines.
    pub(super) fn normal(&self, index: u64) -> f32 {
        /// `sqrt(3) / 2^16`: one over the standard deviation of the sum.
        const SCALE: f32 = 2.642_883_4e-5;
        let bits = self.bits(index);
        let sum: i32 = (0..4).map(|i| (bits >> (16 * i) & 0xFFFF) as i32).sum();
        (sum - 2 * 0xFFFF) as f32 * SCALE
    }
}
