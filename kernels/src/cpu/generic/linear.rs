//! Matrix products over packed weights.

use super::int8::{accumulate_codes, write_codes};
use crate::{
    Norm, Rows, RowsMut, WeightFormat,
    cpu::{
        Epilogue, PackedLinear, Prepared,
        activations::{GROUP, Layout, floats, floats_mut, row_place},
        lanes::{Portable, Single, silu},
        packing::{
            BLOCK, TILE, block_bytes, block_columns, nibble_at, pair_at,
            superblocks::{q4_k_values, q6_k_values},
        },
        rms_norm,
    },
    format::{bf16_to_f32, f16_to_f32},
};
use std::{array, ops::Range};

/// Results of a stored tile: `[row][output]`.
pub(super) type Sums = [[f32; TILE]; GROUP];

/// Lays activations out as f32 or as codes.
pub(in crate::cpu) fn prepare(
    layout: Layout,
    group: usize,
    x: Rows<'_>,
    norm: Option<Norm<'_>>,
    scratch: &mut [u8],
) {
    let blocks = x.columns().div_ceil(BLOCK);
    for w in 0..x.width() {
        let (start, step) = row_place(layout, group, x.width(), blocks, w);
        let row = x.row(w);
        let scale = norm.map(|norm| rms_norm::scale(Portable, row, norm.eps));
        for (b, source) in row.chunks(BLOCK).enumerate() {
            let mut block = [0.0; BLOCK];
            block[..source.len()].copy_from_slice(source);
            if let (Some(norm), Some(scale)) = (norm, scale) {
                for (x, weight) in block.iter_mut().zip(&norm.weight[b * BLOCK..]) {
                    *x = *x * scale * weight;
                }
            }
            let place = &mut scratch[start + b * step..][..layout.block_bytes()];
            match layout {
                Layout::F32 => floats_mut(place).copy_from_slice(&block),
                Layout::Int8 => write_codes(layout, &block, place),
                Layout::F32Unplaced | Layout::Bf16 | Layout::Bf16Tiles | Layout::Int8Nibbles => {
                    unreachable!("a layout of another tier")
                }
            }
        }
    }
}

/// Plain products of the given tiles.
pub(in crate::cpu) fn linear(
    weights: &PackedLinear,
    x: &Prepared<'_>,
    tiles: Range<usize>,
    epilogue: Epilogue,
    out: &mut RowsMut<'_>,
) {
    for tiles in x.tuning.passes(tiles) {
        for (tile, first, rows, group) in x.meetings(tiles) {
            let sums = products(weights, tile, x.layout, group, rows);
            for (r, sums) in sums[..rows].iter().enumerate() {
                let out = out.span(first + r, outputs(weights, tile));
                match epilogue {
                    Epilogue::Store => out.copy_from_slice(&sums[..out.len()]),
                    Epilogue::AddInto => out.iter_mut().zip(sums).for_each(|(out, sum)| *out += sum),
                }
            }
        }
    }
}

/// Gated products of the given tiles.
pub(in crate::cpu) fn linear_gated(
    weights: &PackedLinear,
    x: &Prepared<'_>,
    tiles: Range<usize>,
    out: &mut RowsMut<'_>,
) {
    for tiles in x.tuning.passes(tiles) {
        for (tile, first, rows, group) in x.meetings(tiles) {
            let [gate, up] = [0, 1].map(|i| products(weights, 2 * tile + i, x.layout, group, rows));
            for r in 0..rows {
                let out = out.span(first + r, outputs(weights, tile));
                for ((out, gate), up) in out.iter_mut().zip(&gate[r]).zip(&up[r]) {
                    *out = silu(Single, *gate) * up;
                }
            }
        }
    }
}

fn outputs(weights: &PackedLinear, tile: usize) -> Range<usize> {
    tile * TILE..weights.outputs().min((tile + 1) * TILE)
}

/// Results of a stored tile for the rows of a group.
fn products(weights: &PackedLinear, tile: usize, layout: Layout, group: &[u8], rows: usize) -> Sums {
    let (format, tile) = (weights.format(), weights.tile(tile));
    match layout {
        Layout::F32 => accumulate(format, tile, floats(group), rows),
        Layout::Int8 => accumulate_codes(format, tile, group, rows),
        Layout::F32Unplaced | Layout::Bf16 | Layout::Bf16Tiles | Layout::Int8Nibbles => {
            unreachable!("a layout of another tier")
        }
    }
}

/// Sums over `k` in order, one chain per output.
fn accumulate(format: WeightFormat, tile: &[u8], x: &[f32], rows: usize) -> Sums {
    let mut sums = [[0.0; TILE]; GROUP];
    let mut values = [[0.0; TILE]; BLOCK];
    let per_block = block_columns(format) / BLOCK;
    for (b, x) in x.chunks_exact(rows * BLOCK).enumerate() {
        let block = &tile[b / per_block * block_bytes(format)..][..block_bytes(format)];
        match format {
            WeightFormat::Q4_K => unpack_outputs(&mut values, |n| q4_k_values(block, b % per_block, n)),
            WeightFormat::Q6_K => unpack_outputs(&mut values, |n| {
                let [first, second] = [0, 1].map(|i| q6_k_values(block, 2 * (b % per_block) + i, n));
                first.chain(second)
            }),
            WeightFormat::F32
            | WeightFormat::F16
            | WeightFormat::BF16
            | WeightFormat::Q8_0
            | WeightFormat::Q4_0
            | WeightFormat::Q4_1 => unpack(format, block, &mut values),
        }
        for (sums, x) in sums.iter_mut().zip(x.chunks_exact(BLOCK)) {
            for (values, x) in values.iter().zip(x) {
                for (sum, value) in sums.iter_mut().zip(values) {
                    *sum += value * x;
                }
            }
        }
    }
    sums
}

/// The f32 values of 32 columns, `[k][n]`, output by output.
fn unpack_outputs<I: Iterator<Item = f32>>(values: &mut [[f32; TILE]; BLOCK], output: impl Fn(usize) -> I) {
    for n in 0..TILE {
        values.iter_mut().zip(output(n)).for_each(|(values, value)| values[n] = value);
    }
}

/// The f32 values of a packed block of 32 columns, `[k][n]`.
fn unpack(format: WeightFormat, block: &[u8], values: &mut [[f32; TILE]; BLOCK]) {
    let half = |at: usize| f16_to_f32(u16::from_le_bytes([block[at], block[at + 1]]));
    let halves = |at: usize| -> [f32; TILE] { array::from_fn(|n| half(at + 2 * n)) };
    for (k, values) in values.iter_mut().enumerate() {
        *values = match format {
            WeightFormat::F32 => array::from_fn(|n| {
                let at = 4 * (k * TILE + n);
                f32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
            }),
            WeightFormat::F16 => halves(2 * k * TILE),
            WeightFormat::BF16 => array::from_fn(|n| {
                let at = 2 * pair_at(n, k);
                bf16_to_f32(u16::from_le_bytes([block[at], block[at + 1]]))
            }),
            WeightFormat::Q8_0 => {
                let d = halves(0);
                array::from_fn(|n| f32::from(block[2 * TILE + pair_at(n, k)].cast_signed()) * d[n])
            }
            WeightFormat::Q4_0 => {
                let d = halves(0);
                array::from_fn(|n| {
                    let (at, shift) = nibble_at(n, k);
                    (f32::from(block[2 * TILE + at] >> shift & 15) - 8.0) * d[n]
                })
            }
            WeightFormat::Q4_1 => {
                let (d, m) = (halves(0), halves(2 * TILE));
                array::from_fn(|n| {
                    let (at, shift) = nibble_at(n, k);
                    f32::from(block[4 * TILE + at] >> shift & 15) * d[n] + m[n]
                })
            }
            WeightFormat::Q4_K | WeightFormat::Q6_K => unreachable!("a format of longer blocks"),
        };
    }
}
