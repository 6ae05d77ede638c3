//! Inputs for tests of kernels: reproducible numbers and matrices. Needs the feature `testing`.

use crate::WeightFormat;

/// A small generator of reproducible numbers (SplitMix64).
#[derive(Debug)]
pub struct Noise(u64);

impl Noise {
    /// Equal seeds give equal numbers.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Between -1 and 1.
    pub fn value(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    /// `len` numbers between -1 and 1.
    pub fn values(&mut self, len: usize) -> Vec<f32> {
        (0..len).map(|_| self.value()).collect()
    }

    /// Below `limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.bits() % limit as u64) as usize
    }

    /// Every order is as likely as any other, but for the bias of [`Noise::below`].
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}

/// Bytes of a matrix of values between -1 and 1. Sub-blocks of the K formats differ in size, so that their scales do.
pub fn matrix(format: WeightFormat, rows: usize, columns: usize, noise: &mut Noise) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..rows {
        let mut values = noise.values(columns);
        if format.block_len() == 256 {
            for part in values.chunks_mut(16) {
                let size = noise.value();
                part.iter_mut().for_each(|value| *value *= size);
            }
        }
        format.quantise_row(&values, &mut bytes);
    }
    bytes
}

/// The bits of values, so that a comparison is exact and tells -0 from 0.
pub fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Bytes on a vector boundary, poisoned with NaN.
#[derive(Debug)]
pub struct Scratch(Vec<Line>);

impl AsRef<[u8]> for Scratch {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: a `Line` is 64 plain bytes without padding.
        unsafe { self.0.as_slice().align_to::<u8>().1 }
    }
}

#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Line([u8; 64]);

impl Scratch {
    /// At least `bytes` bytes.
    pub fn new(bytes: usize) -> Self {
        Self(vec![Line([0xff; 64]); bytes.div_ceil(64)])
    }

    /// All of them.
    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: a `Line` is 64 plain bytes without padding.
        unsafe { self.0.as_mut_slice().align_to_mut::<u8>().1 }
    }
}
