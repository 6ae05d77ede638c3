//! Matrix products over packed weights: preparation, walk over tiles, epilogues.

mod blocks;
mod formats;
mod int8;
mod superblocks;

use blocks::product;
use formats::{BF16, F16, F32, Q4_0, Q4_1, Q4_K, Q6_K, Q8_0};
use int8::int8_product;
use superblocks::superblock_product;

use super::{
    lanes::{LANES, load, silu, store, sum},
    rms_norm,
};
use crate::{
    Norm, Rows, RowsMut, WeightFormat,
    cpu::{
        Epilogue, PackedLinear, Prepared,
        activations::{GROUP, Layout, row_place},
        generic::write_codes,
        packing::{BLOCK, TILE, nibble_at},
    },
};
use std::{arch::x86_64::*, ops::Range};

/// Rows that share the unpacking of a weight: as many as registers hold.
const ROWS: usize = 4;

/// Results of one stored tile: `[row][output]`.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Sums([[f32; TILE]; GROUP]);

impl Sums {
    const ZERO: Self = Self([[0.0; TILE]; GROUP]);
}

/// What a register-blocked kernel reads.
#[derive(Clone, Copy)]
struct Operands {
    tile: *const u8,
    blocks: usize,
    /// First of the kernel's rows in block 0 of a prepared group.
    x: *const u8,
    /// Bytes from a block of the group to the next.
    x_step: usize,
    /// Distance from a weight to the one to fetch ahead of its use.
    ahead: usize,
}

/// Place of the 4-bit code of column `k` in the 32-bit word of its output.
const fn place_of_nibble(k: usize) -> i32 {
    let (byte, shift) = nibble_at(0, k);
    (8 * (byte % 4)) as i32 + shift as i32
}

/// The place where a code would count as a sign: kernels shift it down to 0, and leave the others where they are.
const SIGN_PLACE: i32 = 28;

/// What undoes the place values of the codes of columns `8 i .. 8 i + 8`.
const UNPLACE: [f32; LANES] = {
    let mut factors = [0.0; LANES];
    let mut k = 0;
    while k < LANES {
        let place = place_of_nibble(k);
        factors[k] = if place == SIGN_PLACE { 1.0 } else { 1.0 / (1u32 << place) as f32 };
        k += 1;
    }
    factors
};

/// Lays activations out, normalised first if asked.
#[target_feature(enable = "avx2,fma,f16c")]
pub(in crate::cpu) fn prepare(
    layout: Layout,
    group: usize,
    x: Rows<'_>,
    norm: Option<Norm<'_>>,
    scratch: &mut [u8],
) {
    let blocks = x.columns().div_ceil(BLOCK);
    let unplace = load(&UNPLACE, 0);
    for w in 0..x.width() {
        let row = x.row(w);
        let scale = norm.map(|norm| (rms_norm::scale(row, norm.eps), norm.weight));
        let (start, step) = row_place(layout, group, x.width(), blocks, w);
        for b in 0..blocks {
            let mut values = [_mm256_setzero_ps(); BLOCK / LANES];
            for (i, lanes) in values.iter_mut().enumerate() {
                let at = b * BLOCK + i * LANES;
                *lanes = match scale {
                    Some((scale, weight)) => rms_norm::normed(load(row, at), scale, load(weight, at)),
                    None => load(row, at),
                };
            }
            let place = &mut scratch[start + b * step..][..layout.block_bytes()];
            match layout {
                Layout::F32 => {}
                Layout::F32Unplaced => {
                    let [a, b, c, d] = values;
                    let all = sum(_mm256_add_ps(_mm256_add_ps(a, b), _mm256_add_ps(c, d)));
                    place[4 * BLOCK..].copy_from_slice(&all.to_ne_bytes());
                    for lanes in &mut values {
                        *lanes = _mm256_mul_ps(*lanes, unplace);
                    }
                }
                Layout::Int8 | Layout::Int8Nibbles => {
                    let mut block = [0.0; BLOCK];
                    for (i, lanes) in values.into_iter().enumerate() {
                        store(&mut block, i * LANES, lanes);
                    }
                    write_codes(layout, &block, place);
                    continue;
                }
                Layout::Bf16 | Layout::Bf16Tiles => unreachable!("a layout of another tier"),
            }
            let to = place.as_mut_ptr().cast::<f32>();
            for (i, lanes) in values.into_iter().enumerate() {
                // SAFETY: both layouts of f32 begin with 128 bytes of values.
                unsafe { _mm256_storeu_ps(to.add(i * LANES), lanes) };
            }
        }
    }
}

/// Plain products of the given tiles.
#[target_feature(enable = "avx2,fma,f16c")]
pub(in crate::cpu) fn linear(
    weights: &PackedLinear,
    x: &Prepared<'_>,
    tiles: Range<usize>,
    epilogue: Epilogue,
    out: &mut RowsMut<'_>,
) {
    let ahead = x.tuning.ahead(weights);
    let mut sums = Sums::ZERO;
    for tiles in x.tuning.passes(tiles) {
        for (tile, first_row, rows, group) in x.meetings(tiles) {
            products(weights, ahead, x.layout, tile, rows, group, &mut sums);
            for (r, sums) in sums.0[..rows].iter().enumerate() {
                let out = out.span(first_row + r, outputs(weights, tile));
                for at in [0, LANES] {
                    let result = load(sums, at);
                    match epilogue {
                        Epilogue::Store => store(out, at, result),
                        Epilogue::AddInto => store(out, at, _mm256_add_ps(load(out, at), result)),
                    }
                }
            }
        }
    }
}

/// Gated products of the given tiles.
#[target_feature(enable = "avx2,fma,f16c")]
pub(in crate::cpu) fn linear_gated(
    weights: &PackedLinear,
    x: &Prepared<'_>,
    tiles: Range<usize>,
    out: &mut RowsMut<'_>,
) {
    let ahead = x.tuning.ahead(weights);
    let (mut gate, mut up) = (Sums::ZERO, Sums::ZERO);
    for tiles in x.tuning.passes(tiles) {
        for (tile, first_row, rows, group) in x.meetings(tiles) {
            products(weights, ahead, x.layout, 2 * tile, rows, group, &mut gate);
            products(weights, ahead, x.layout, 2 * tile + 1, rows, group, &mut up);
            for (r, (gate, up)) in gate.0.iter().zip(&up.0).take(rows).enumerate() {
                let out = out.span(first_row + r, outputs(weights, tile));
                for at in [0, LANES] {
                    store(out, at, _mm256_mul_ps(silu(load(gate, at)), load(up, at)));
                }
            }
        }
    }
}

fn outputs(weights: &PackedLinear, tile: usize) -> Range<usize> {
    tile * TILE..weights.outputs().min((tile + 1) * TILE)
}

/// Results of one stored tile for one group of rows, four rows at a time by the kernel made for as many.
#[target_feature(enable = "avx2,fma,f16c")]
fn products(
    weights: &PackedLinear,
    ahead: usize,
    layout: Layout,
    tile: usize,
    rows: usize,
    group: &[u8],
    sums: &mut Sums,
) {
    let row_bytes = layout.block_bytes();
    let coded = match layout {
        Layout::Int8 | Layout::Int8Nibbles => true,
        Layout::F32 | Layout::F32Unplaced | Layout::Bf16 | Layout::Bf16Tiles => false,
    };
    for (i, sums) in sums.0[..rows].chunks_mut(ROWS).enumerate() {
        let operands = Operands {
            tile: weights.tile(tile).as_ptr(),
            blocks: weights.blocks(),
            x: group[i * ROWS * row_bytes..].as_ptr(),
            x_step: rows * row_bytes,
            ahead,
        };
        macro_rules! by_rows {
            ($product:ident, $format:ty) => {
                match sums.len() {
                    1 => $product::<$format, 1, 2>(operands, sums),
                    2 => $product::<$format, 2, 2>(operands, sums),
                    3 => $product::<$format, 3, 1>(operands, sums),
                    _ => $product::<$format, ROWS, 1>(operands, sums),
                }
            };
        }
        macro_rules! coded_by_rows {
            ($format:ty) => {
                match sums.len() {
                    1 => int8_product::<$format, 1>(operands, sums),
                    2 => int8_product::<$format, 2>(operands, sums),
                    3 => int8_product::<$format, 3>(operands, sums),
                    _ => int8_product::<$format, ROWS>(operands, sums),
                }
            };
        }
        // SAFETY: the tile is stored, and every block of the group holds these rows in the class's layout.
        unsafe {
            match (weights.format(), coded) {
                (WeightFormat::Q4_0, true) => coded_by_rows!(Q4_0),
                (WeightFormat::Q4_1, true) => coded_by_rows!(Q4_1),
                (WeightFormat::Q8_0, true) => coded_by_rows!(Q8_0),
                (WeightFormat::Q4_K, true) => coded_by_rows!(Q4_K),
                (WeightFormat::Q4_0, false) => by_rows!(product, Q4_0),
                (WeightFormat::Q4_1, false) => by_rows!(product, Q4_1),
                (WeightFormat::Q8_0, false) => by_rows!(product, Q8_0),
                (WeightFormat::Q4_K, false) => by_rows!(superblock_product, Q4_K),
                (WeightFormat::Q6_K, _) => by_rows!(superblock_product, Q6_K),
                (WeightFormat::BF16, _) => by_rows!(product, BF16),
                (WeightFormat::F16, _) => by_rows!(product, F16),
                (WeightFormat::F32, _) => by_rows!(product, F32),
            }
        }
    }
}
