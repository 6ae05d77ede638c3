//! Matrix products over packed weights.

use crate::{
    Norm, Rows, RowsMut, WeightFormat,
    cpu::{
        Epilogue, PackedLinear, Prepared,
        activations::{Layout, floats},
        codes::{Array, Operands, Sums, int8, native},
        lanes::{Portable, Single, silu},
        packing::{BLOCK, TILE, block_bytes, dense_value},
        prepare::prepare as prepare_rows,
        rms_norm,
    },
    format::{Kind, Visitor},
};
use std::{ops::Range, slice};

/// Lays activations out, normalised first if asked.
pub(in crate::cpu) fn prepare(
    layout: Layout,
    group: usize,
    x: Rows<'_>,
    norm: Option<Norm<'_>>,
    scratch: &mut [u8],
) {
    let scale = |row: &[f32], eps| rms_norm::scale(Portable, row, eps);
    prepare_rows(Array::<TILE>, layout, group, x, norm, scale, scratch);
}

/// Plain products of the given tiles.
pub(in crate::cpu) fn linear(
    weights: &PackedLinear,
    x: &Prepared<'_>,
    tiles: Range<usize>,
    epilogue: Epilogue,
    out: &mut RowsMut<'_>,
) {
    let mut sums = Sums::ZERO;
    for tiles in x.tuning.passes(tiles) {
        for (tiles, first, rows, group) in x.meetings(tiles, 1) {
            let tile = tiles.start;
            products(weights, tile, x.layout, group, rows, &mut sums);
            for (r, sums) in sums.0[..rows].iter().enumerate() {
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
    let (mut gate, mut up) = (Sums::ZERO, Sums::ZERO);
    for tiles in x.tuning.passes(tiles) {
        for (tiles, first, rows, group) in x.meetings(tiles, 1) {
            let tile = tiles.start;
            products(weights, 2 * tile, x.layout, group, rows, &mut gate);
            products(weights, 2 * tile + 1, x.layout, group, rows, &mut up);
            for r in 0..rows {
                let out = out.span(first + r, outputs(weights, tile));
                for ((out, gate), up) in out.iter_mut().zip(&gate.0[r]).zip(&up.0[r]) {
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
fn products(weights: &PackedLinear, tile: usize, layout: Layout, group: &[u8], rows: usize, sums: &mut Sums) {
    let (format, tile) = (weights.format(), weights.tile(tile));
    if format.is_dense() {
        return accumulate(format, tile, floats(group), &mut sums.0[..rows]);
    }
    let operands =
        Operands { tile: tile.as_ptr(), blocks: weights.blocks(), x: group.as_ptr(), rows, ahead: 0 };
    format.visit(CodedProducts { operands, is_coded: layout != Layout::F32Sums, sums });
}

/// Products over weights of codes, of a tile that is stored and a group in the layout of the class.
struct CodedProducts<'a> {
    operands: Operands,
    is_coded: bool,
    sums: &'a mut Sums,
}

impl Visitor for CodedProducts<'_> {
    type Output = ();

    fn visit<K: Kind>(self) {
        // SAFETY: operands are as promised.
        unsafe {
            if self.is_coded {
                int8::<_, K>(Array::<TILE>, self.operands, slice::from_mut(self.sums));
            } else {
                native::<_, K>(Array::<TILE>, self.operands, slice::from_mut(self.sums));
            }
        }
    }
}

/// Sums over `k` in order, one chain per output.
fn accumulate(format: WeightFormat, tile: &[u8], x: &[f32], sums: &mut [[f32; TILE]]) {
    sums.fill([0.0; TILE]);
    let blocks = tile.chunks_exact(block_bytes(format));
    for (block, x) in blocks.zip(x.chunks_exact(sums.len() * BLOCK)) {
        for k in 0..BLOCK {
            let mut values = [0.0; TILE];
            for (n, value) in values.iter_mut().enumerate() {
                *value = dense_value(format, block, n, k);
            }
            for (sums, x) in sums.iter_mut().zip(x.chunks_exact(BLOCK)) {
                for (sum, value) in sums.iter_mut().zip(values) {
                    *sum += value * x[k];
                }
            }
        }
    }
}
