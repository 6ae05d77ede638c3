//! A counter-based generator: number `i` of a stream is a function of seed, stream and `i` alone.

/// Numbers of one tensor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream(u64);

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// Finaliser of SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

impl Stream {
    pub(super) fn new(seed: u64, stream: u64) -> Self {
        Self(mix(seed.wrapping_add(GOLDEN)) ^ mix(stream.wrapping_mul(GOLDEN)))
    }

    pub(super) fn bits(self, index: u64) -> u64 {
        mix(self.0.wrapping_add(index.wrapping_add(1).wrapping_mul(GOLDEN)))
    }

    /// Nearly normal, mean 0 and standard deviation 1: a sum of four uniform numbers, which needs no library function
    /// whose last bit could differ between machines.
    pub(super) fn normal(self, index: u64) -> f32 {
        /// `sqrt(3) / 2^16`: one over the standard deviation of the sum.
        const SCALE: f32 = 2.642_883_4e-5;
        let bits = self.bits(index);
        let sum: i32 = (0..4).map(|i| (bits >> (16 * i) & 0xFFFF) as i32).sum();
        (sum - 2 * 0xFFFF) as f32 * SCALE
    }
}
