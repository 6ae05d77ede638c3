//! What several formats of 256 codes share: 12 bytes of 6-bit scales and minima, and grids without a search.

use super::{
    Block,
    coding::{extreme, in_units},
};

/// Scales and minima of eight sub-blocks, of 6 bits each, from 12 bytes.
#[inline(always)]
pub(super) fn unpack(packed: &[u8], block: &mut Block) {
    for s in 0..8 {
        (block.scales[s], block.mins[s]) = if s < 4 {
            (packed[s] & 63, packed[s + 4] & 63)
        } else {
            (packed[s + 4] & 15 | packed[s - 4] >> 6 << 4, packed[s + 4] >> 4 | packed[s] >> 6 << 4)
        };
    }
}

/// Appends them as [`unpack`] reads them.
pub(super) fn push(scales: &[u8], mins: &[u8], out: &mut Vec<u8>) {
    out.extend((0..4).map(|s| scales[s] | scales[s + 4] >> 4 << 6));
    out.extend((0..4).map(|s| mins[s] | mins[s + 4] >> 4 << 6));
    out.extend((4..8).map(|s| scales[s] & 15 | mins[s] << 4));
}

/// A grid for each sub-block, and the codes of its values.
pub(super) struct Grids {
    pub(super) d: half::f16,
    pub(super) dmin: half::f16,
    pub(super) scales: Vec<u8>,
    pub(super) mins: Vec<u8>,
    pub(super) codes: Vec<u8>,
}

impl Grids {
    /// Grids of `steps` steps that span the extremes of `len` values and zero or below; scales and minima at most
    /// `most`.
    pub(super) fn with_mins(values: &[f32], len: usize, steps: f32, most: f32) -> Self {
        let bounds = values.chunks_exact(len).map(|values| {
            let min = values.iter().copied().fold(0.0, f32::min);
            (min, values.iter().copied().fold(min, f32::max))
        });
        let (sizes, floors): (Vec<f32>, Vec<f32>) =
            bounds.map(|(min, max)| ((max - min) / steps, -min)).unzip();
        let unit = |all: &[f32]| half::f16::from_f32(all.iter().copied().fold(0.0, f32::max) / most);
        let (d, dmin) = (unit(&sizes), unit(&floors));
        let small = |all: &[f32], unit: half::f16| -> Vec<u8> {
            all.iter().map(|x| in_units(*x, unit.to_f32()).min(most) as u8).collect()
        };
        let (scales, mins) = (small(&sizes, d), small(&floors, dmin));
        let code = |(i, x): (usize, &f32)| {
            let (scale, min) = (scales[i / len], mins[i / len]);
            let above = x + dmin.to_f32() * f32::from(min);
            in_units(above, d.to_f32() * f32::from(scale)).clamp(0.0, steps) as u8
        };
        let codes = values.iter().enumerate().map(code).collect();
        Self { d, dmin, scales, mins, codes }
    }
}

/// Unit and signed scales of `len` values each, whose extreme becomes `lowest` (below zero) of a scale that is stored
/// in `-most..most`.
pub(super) fn signed_scales(values: &[f32], len: usize, lowest: f32, most: f32) -> (half::f16, Vec<i8>) {
    let sizes: Vec<f32> = values.chunks_exact(len).map(|values| extreme(values) / lowest).collect();
    let d = half::f16::from_f32(extreme(&sizes) / -most);
    let scale = |size: &f32| in_units(*size, d.to_f32()).clamp(-most, most - 1.0) as i8;
    (d, sizes.iter().map(scale).collect())
}
