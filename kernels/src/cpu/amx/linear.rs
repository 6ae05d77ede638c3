//! Matrix products over packed weights in tiles: preparation, walk over chunks of rows and tiles, epilogues.
//!
//! Over dense weights, activations lie as tiles of up to 16 rows. Up to four of them, a chunk, share one walk over the
//! weights.

mod codes;
mod dense;
mod operands;

use codes::InTiles;
use dense::dense;
use operands::{GROUPS, Operands};

use super::tiles::{ROW_BYTES, ROWS, Tiles};
use crate::{
    Nonlinearity, Norm, Rows, RowsMut,
    cpu::{
        Avx512, Epilogue, PackedLinear, Prepared,
        activations::{Layout, ProductOperands},
        avx512::{
            self,
            lanes::{gated, load, store, store_bf16},
            rms_norm::{normed, scale},
        },
        codes::Sums,
        generic,
        packing::{BLOCK, TILE},
        tuning::Tuning,
    },
};
use std::{arch::x86_64::*, ops::Range};

/// Rows that share a walk over the weights, at most.
const CHUNK: usize = GROUPS * ROWS;

/// Results of one stored tile for a chunk: `[row][output]`.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Totals([[f32; TILE]; CHUNK]);

impl Totals {
    const ZERO: Self = Self([[0.0; TILE]; CHUNK]);
}

/// Lays activations out, normalised first if asked: see [`Layout::Bf16Tiles`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
pub(in crate::cpu) fn prepare(
    layout: Layout,
    group: usize,
    x: Rows<'_>,
    norm: Option<Norm<'_>>,
    scratch: &mut [u8],
) {
    match layout {
        Layout::Bf16Tiles => prepare_tiles(x, norm, scratch),
        Layout::F32 | Layout::F32Sums | Layout::Bf16 | Layout::Coded(_) => {
            avx512::prepare(layout, group, x, norm, scratch);
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
fn prepare_tiles(x: Rows<'_>, norm: Option<Norm<'_>>, scratch: &mut [u8]) {
    let blocks = x.columns().div_ceil(BLOCK);
    for w in 0..x.width() {
        let row = x.row(w);
        let norm = norm.map(|norm| (scale(row, norm.eps), norm.weight));
        let first = w / ROWS * ROWS;
        let rows = ROWS.min(x.width() - first);
        for b in 0..blocks {
            let (mut low, mut high) = (load(row, b * BLOCK), load(row, b * BLOCK + 16));
            if let Some((scale, weight)) = norm {
                low = normed(low, scale, load(weight, b * BLOCK));
                high = normed(high, scale, load(weight, b * BLOCK + 16));
            }
            let place = first * blocks + b * rows + (w - first);
            store_bf16(scratch[place * ROW_BYTES..].first_chunk_mut().expect("a row"), low, high);
        }
    }
}

/// Plain products of the given tiles.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
pub(super) fn linear<T: Tiles>(
    weights: &PackedLinear,
    x: &Prepared<'_>,
    tiles: Range<usize>,
    epilogue: Epilogue,
    out: &mut RowsMut<'_>,
) {
    match x.layout {
        Layout::Bf16Tiles => {}
        Layout::Coded(_) => {
            // SAFETY: whoever runs this tier holds a proof of all of its features.
            let (s, mut by) = (unsafe { Avx512::assume() }, InTiles::<T>::new());
            let products = |product: &ProductOperands<'_>, sums: &mut [Sums]| by.products(product, sums);
            return generic::linear_by(s, products, weights, x, tiles, epilogue, out);
        }
        Layout::F32 | Layout::F32Sums | Layout::Bf16 => {
            return avx512::linear(weights, x, tiles, epilogue, out);
        }
    }
    let mut totals = Totals::ZERO;
    for chunk in chunks(x) {
        let mut registers = chunk.registers::<T>();
        for tile in tiles.clone() {
            products(&mut registers, weights, tile, &chunk, &mut totals);
            for (r, totals) in totals.0[..chunk.rows].iter().enumerate() {
                let out = out.span(chunk.first_row + r, outputs(weights, tile));
                let result = load(totals, 0);
                match epilogue {
                    Epilogue::Store => store(out, 0, result),
                    Epilogue::AddInto => store(out, 0, _mm512_add_ps(load(out, 0), result)),
                }
            }
        }
    }
}

/// Gated products of the given tiles.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
pub(super) fn linear_gated<T: Tiles>(
    function: Nonlinearity,
    weights: &PackedLinear,
    x: &Prepared<'_>,
    tiles: Range<usize>,
    out: &mut RowsMut<'_>,
) {
    match x.layout {
        Layout::Bf16Tiles => {}
        Layout::Coded(_) => {
            // SAFETY: as above.
            let (s, mut by) = (unsafe { Avx512::assume() }, InTiles::<T>::new());
            let products = |product: &ProductOperands<'_>, sums: &mut [Sums]| by.products(product, sums);
            return generic::linear_gated_by(s, products, function, weights, x, tiles, out);
        }
        Layout::F32 | Layout::F32Sums | Layout::Bf16 => {
            return avx512::linear_gated(function, weights, x, tiles, out);
        }
    }
    let (mut gate, mut up) = (Totals::ZERO, Totals::ZERO);
    for chunk in chunks(x) {
        let mut registers = chunk.registers::<T>();
        for tile in tiles.clone() {
            products(&mut registers, weights, 2 * tile, &chunk, &mut gate);
            products(&mut registers, weights, 2 * tile + 1, &chunk, &mut up);
            for (r, (gate, up)) in gate.0.iter().zip(&up.0).take(chunk.rows).enumerate() {
                let out = out.span(chunk.first_row + r, outputs(weights, tile));
                store(out, 0, gated(function, load(gate, 0), load(up, 0)));
            }
        }
    }
}

fn outputs(weights: &PackedLinear, tile: usize) -> Range<usize> {
    tile * TILE..weights.outputs().min((tile + 1) * TILE)
}

/// Prepared rows that share a walk over the weights.
struct Chunk<'x> {
    first_row: usize,
    rows: usize,
    /// Their tiles.
    x: &'x [u8],
    tuning: Tuning,
}

impl Chunk<'_> {
    /// Groups of 16 rows, the last perhaps of fewer.
    fn groups(&self) -> usize {
        self.rows.div_ceil(ROWS)
    }

    /// Rows of the last group.
    fn last(&self) -> usize {
        self.rows - (self.groups() - 1) * ROWS
    }

    /// Tiles with the rows that the chunk's products need.
    #[inline]
    fn registers<T: Tiles>(&self) -> T {
        // SAFETY: whoever may call a linear on the processor's tiles holds a proof that they can be used.
        unsafe { T::configured(operands::shapes(self.groups(), self.last() as u8)) }
    }
}

fn chunks<'x>(x: &Prepared<'x>) -> impl Iterator<Item = Chunk<'x>> {
    let (width, blocks, tuning) = (x.width, x.columns.div_ceil(BLOCK), x.tuning);
    let tiles = x.bytes;
    (0..width).step_by(CHUNK).map(move |first_row| {
        let rows = CHUNK.min(width - first_row);
        let places = first_row * blocks..(first_row + rows) * blocks;
        let x = &tiles[places.start * ROW_BYTES..places.end * ROW_BYTES];
        Chunk { first_row, rows, x, tuning }
    })
}

/// Results of one stored tile for one chunk, by the kernel made for as many groups.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
fn products<T: Tiles>(
    registers: &mut T,
    weights: &PackedLinear,
    tile: usize,
    chunk: &Chunk<'_>,
    totals: &mut Totals,
) {
    let operands = Operands {
        tile: weights.tile(tile).as_ptr(),
        blocks: weights.blocks(),
        ahead: chunk.tuning.reading(weights, Layout::Bf16Tiles, chunk.rows).ahead,
        x: chunk.x.as_ptr(),
        last: chunk.last(),
    };
    // SAFETY: the tile is stored, the chunk holds its groups of all blocks, and the registers were configured for it.
    unsafe {
        match chunk.groups() {
            1 => dense::<T, 1>(registers, operands, totals),
            2 => dense::<T, 2>(registers, operands, totals),
            3 => dense::<T, 3>(registers, operands, totals),
            4 => dense::<T, 4>(registers, operands, totals),
            groups => unreachable!("no kernel for {groups} groups of rows"),
        }
    }
}
