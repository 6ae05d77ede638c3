//! What the formats of 1 to 3 bits share: numbers that choose the values of eight or four elements at once from a grid.
//!
//! The files of `grids` are those of ggml's `iq2xxs_grid` and its like, which define the formats: an entry is a
//! little-endian u16, element `i` of which is the number of a level at bit `2 i` (grids of eight) or `4 i` (of four).

use super::{Block, coding::in_units};
use half::f16;

/// Integers of IQ2, by code of 3 bits: levels 0 to 2 are codes 3 to 5, and 2 to 0 below zero.
pub(super) const IQ2_STEPS: [i8; 16] = [-43, -25, -8, 8, 25, 43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
/// Integers of IQ1, by code of 3 bits: level `l`, which is -1, 0 or 1, in eighths, is code `2 l` if it is an eighth less,
/// and `2 l + 1` if it is an eighth more.
pub(super) const IQ1_STEPS: [i8; 16] = [-9, -7, -1, 1, 7, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// A grid whose entries are of `N` elements.
pub(super) struct Grid<const N: usize>(pub(super) &'static [u8]);

impl<const N: usize> Grid<N> {
    const BITS: usize = 16 / N;

    /// The levels of an entry.
    #[inline(always)]
    fn levels(&self, number: usize) -> [usize; N] {
        let entry = u16::from_le_bytes([self.0[2 * number], self.0[2 * number + 1]]);
        std::array::from_fn(|i| usize::from(entry >> (Self::BITS * i)) & ((1 << Self::BITS) - 1))
    }

    /// The entry nearest to `x`, as levels stand for `values`, and the square of its distance.
    fn nearest(&self, x: &[f32; N], values: &[f32]) -> (usize, f32) {
        // By byte, of half an entry: a grid has thousands of entries.
        let distances = [0, N / 2].map(|first| -> [f32; 256] {
            std::array::from_fn(|byte| {
                let square = |i: usize| {
                    let level = byte >> (Self::BITS * i) & ((1 << Self::BITS) - 1);
                    values.get(level).map_or(f32::INFINITY, |value| (value - x[first + i]).powi(2))
                };
                (0..N / 2).map(square).sum()
            })
        });
        let distance =
            |entry: &[u8]| distances[0][usize::from(entry[0])] + distances[1][usize::from(entry[1])];
        let all = self.0.chunks_exact(2).map(distance).enumerate();
        all.min_by(|(_, a), (_, b)| a.total_cmp(b)).expect("a grid has entries")
    }
}

/// Seven signs as eight: the last makes the number of those below zero even.
#[inline(always)]
pub(super) fn eighth_sign(seven: u32) -> u8 {
    let seven = (seven & 127) as u8;
    seven | (seven.count_ones() as u8 & 1) << 7
}

/// Codes of eight elements of IQ2: those with a sign bit are below zero.
#[inline(always)]
pub(super) fn iq2(grid: &Grid<8>, number: usize, signs: u8, codes: &mut [u8]) {
    for (i, (code, level)) in codes.iter_mut().zip(grid.levels(number)).enumerate() {
        *code = if signs >> i & 1 == 0 { 3 + level as u8 } else { 2 - level as u8 };
    }
}

/// Codes of eight elements of IQ1, an eighth less or more than their levels.
#[inline(always)]
pub(super) fn iq1(grid: &Grid<8>, number: usize, is_more: bool, codes: &mut [u8]) {
    for (code, level) in codes.iter_mut().zip(grid.levels(number)) {
        *code = 2 * level as u8 + u8::from(is_more);
    }
}

/// Codes of eight elements of IQ3 by two entries: of sixteen values, the upper eight are above zero.
#[inline(always)]
pub(super) fn iq3(grid: &Grid<4>, numbers: [usize; 2], signs: u8, codes: &mut [u8]) {
    let levels = numbers.map(|number| grid.levels(number));
    for (i, (code, level)) in codes.iter_mut().zip(levels.as_flattened()).enumerate() {
        *code = if signs >> i & 1 == 0 { 8 + *level as u8 } else { 7 - *level as u8 };
    }
}

/// A block's unit, and the four or three bits `s` by which each `len` values are scaled: `unit * (2 s + 1)`.
pub(super) struct Steps {
    pub(super) d: f16,
    pub(super) bits: Vec<u8>,
    /// What a value is divided by to be in the grid's integers, by group.
    pub(super) inverse: Vec<f32>,
}

impl Steps {
    /// Steps of which the largest, of `most` bits' value `s`, reaches the largest magnitude of all by the integer
    /// `largest`; `over` is what the unit of the block is divided by.
    pub(super) fn new(values: &[f32], len: usize, most: u8, largest: f32, over: f32) -> Self {
        let greatest = |values: &[f32]| values.iter().fold(0.0, |a: f32, b| a.max(b.abs()));
        let times = |s: u8| f32::from(2 * s + 1);
        let d = f16::from_f32(greatest(values) * over / (largest * times(most)));
        let unit = d.to_f32() / over;
        let nearest = |values: &[f32]| {
            let odd = in_units(greatest(values) / largest - unit, 2.0 * unit);
            odd.clamp(0.0, f32::from(most)) as u8
        };
        let bits: Vec<u8> = values.chunks_exact(len).map(nearest).collect();
        let inverse = bits.iter().map(|s| if unit == 0.0 { 0.0 } else { 1.0 / (unit * times(*s)) }).collect();
        Self { d, bits, inverse }
    }

    /// The eight values from `8 i` on in the grid's integers.
    pub(super) fn eight(&self, values: &[f32], i: usize) -> [f32; 8] {
        let groups_of = values.len() / self.inverse.len();
        std::array::from_fn(|j| values[8 * i + j] * self.inverse[(8 * i + j) / groups_of])
    }
}

/// Magnitudes and signs of eight elements. If their signs must be even, the smallest may take another.
fn signs_of(x: &mut [f32; 8], must_be_even: bool) -> u8 {
    let mut signs = (0..8).fold(0, |signs, i| signs | u8::from(x[i] < 0.0) << i);
    *x = x.map(f32::abs);
    if must_be_even && signs.count_ones() % 2 == 1 {
        let least = (0..8).min_by(|a, b| x[*a].total_cmp(&x[*b])).expect("eight");
        signs ^= 1 << least;
        x[least] = -x[least];
    }
    signs
}

/// Entry and signs of the nearest elements of IQ2.
pub(super) fn to_iq2(grid: &Grid<8>, mut x: [f32; 8], must_be_even: bool) -> (usize, u8) {
    let signs = signs_of(&mut x, must_be_even);
    (grid.nearest(&x, &[3, 4, 5].map(|code| f32::from(IQ2_STEPS[code]))).0, signs)
}

/// Two entries and signs of the nearest elements of IQ3, whose levels stand for `values`.
pub(super) fn to_iq3(
    grid: &Grid<4>,
    mut x: [f32; 8],
    values: &[f32; 8],
    must_be_even: bool,
) -> ([usize; 2], u8) {
    let signs = signs_of(&mut x, must_be_even);
    let of = |first: usize| grid.nearest(&std::array::from_fn(|i| x[first + i]), values).0;
    ([of(0), of(4)], signs)
}

/// The nearest entry of IQ1 for elements that are all an eighth more than their levels, or less; and how far it is.
pub(super) fn to_iq1(grid: &Grid<8>, x: &[f32; 8], is_more: bool) -> (usize, f32) {
    grid.nearest(x, &[0, 2, 4].map(|code| f32::from(IQ1_STEPS[code + usize::from(is_more)])))
}

/// Takes the bits of two scales of a byte.
#[inline(always)]
pub(super) fn two_scales(byte: u8, block: &mut Block, first: usize) {
    block.scales[first] = 2 * (byte & 15) + 1;
    block.scales[first + 1] = 2 * (byte >> 4) + 1;
}
