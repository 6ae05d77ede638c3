//! Matrix products over packed weights.

use crate::{
    Nonlinearity, Norm, Rows, RowsMut, WeightFormat,
    cpu::{
        Epilogue, PackedLinear, Prepared,
        activations::{Layout, ProductOperands, floats},
        codes::{Array, Operands, Sums, TOGETHER, int8, native},
        lanes::{LANES, Lanes, Portable, gated},
        packing::{BLOCK, TILE, block_bytes, dense_block},
        prepare::prepare as prepare_rows,
        rms_norm,
    },
    format::{Kind, Visitor},
};
use std::ops::Range;

const _: () = assert!(LANES == TILE);

/// Lays activations out, normalised first if asked.
pub(in crate::cpu) fn prepare(
    layout: Layout,
    group: usize,
    x: Rows<'_>,
    norm: Option<Norm<'_>>,
    scratch: &mut [u8],
) {
    let scale = |row: &[f32], eps| rms_norm::scale(Portable, row, eps);
    prepare_rows(Array::<TILE, 0>, layout, group, x, norm, scale, scratch);
}

/// Plain products of the given tiles.
pub(in crate::cpu) fn linear(
    weights: &PackedLinear,
    x: &Prepared<'_>,
    tiles: Range<usize>,
    epilogue: Epilogue,
    out: &mut RowsMut<'_>,
) {
    linear_by(Portable, products, weights, x, tiles, epilogue, out);
}

/// Gated products of the given tiles.
pub(in crate::cpu) fn linear_gated(
    function: Nonlinearity,
    weights: &PackedLinear,
    x: &Prepared<'_>,
    tiles: Range<usize>,
    out: &mut RowsMut<'_>,
) {
    linear_gated_by(Portable, products, function, weights, x, tiles, out);
}

/// As [`linear`], with results that `products` writes, on the lanes of a tier.
#[inline(always)]
pub(in crate::cpu) fn linear_by<S: Lanes>(
    s: S,
    mut products: impl FnMut(&ProductOperands<'_>, &mut [Sums]),
    weights: &PackedLinear,
    x: &Prepared<'_>,
    tiles: Range<usize>,
    epilogue: Epilogue,
    out: &mut RowsMut<'_>,
) {
    let mut sums = [Sums::ZERO; TOGETHER];
    for product in x.products_with(weights, tiles) {
        let sums = &mut sums[..product.tiles.len()];
        products(&product, sums);
        for (tile, sums) in product.tiles.clone().zip(sums) {
            for (r, sums) in sums.0[..product.rows].iter().enumerate() {
                let out = out.span(product.first_row + r, product.outputs(tile));
                let result = s.load_part(sums, 0);
                match epilogue {
                    Epilogue::Store => s.store_part(out, 0, result),
                    Epilogue::AddInto => s.store_part(out, 0, s.add(s.load_part(out, 0), result)),
                }
            }
        }
    }
}

/// As [`linear_gated`], with results that `products` writes, on the lanes of a tier.
#[inline(always)]
pub(in crate::cpu) fn linear_gated_by<S: Lanes>(
    s: S,
    mut products: impl FnMut(&ProductOperands<'_>, &mut [Sums]),
    function: Nonlinearity,
    weights: &PackedLinear,
    x: &Prepared<'_>,
    tiles: Range<usize>,
    out: &mut RowsMut<'_>,
) {
    let mut sums = [Sums::ZERO; 2];
    for product in x.products_with(weights, tiles) {
        products(&product, &mut sums);
        let [gate, up] = &sums;
        for (r, (gate, up)) in gate.0.iter().zip(&up.0).take(product.rows).enumerate() {
            let out = out.span(product.first_row + r, product.outputs(product.tiles.start));
            s.store_part(out, 0, gated(s, function, s.load_part(gate, 0), s.load_part(up, 0)));
        }
    }
}

/// Results of the stored tiles of a product.
fn products(product: &ProductOperands<'_>, sums: &mut [Sums]) {
    let format = product.weights.format();
    if !format.is_dense() {
        let is_coded = product.layout != Layout::F32Sums;
        return format.visit_coding(CodedProducts { operands: product.operands(0), is_coded, sums });
    }
    for (t, sums) in sums.iter_mut().enumerate() {
        accumulate(format, product.stored(t), floats(product.group), &mut sums.0[..product.rows]);
    }
}

/// Products over weights of codes, of a tile that is stored and a group in the layout of the class.
struct CodedProducts<'a> {
    operands: Operands,
    is_coded: bool,
    sums: &'a mut [Sums],
}

impl Visitor for CodedProducts<'_> {
    type Output = ();

    fn visit<K: Kind>(self) {
        // SAFETY: operands are as promised.
        unsafe {
            if self.is_coded {
                int8::<_, K>(Array::<TILE, 0>, self.operands, self.sums);
            } else {
                native::<_, K>(Array::<TILE, 0>, self.operands, self.sums);
            }
        }
    }
}

/// Sums over `k` in order, one chain per output.
fn accumulate(format: WeightFormat, tile: &[u8], x: &[f32], sums: &mut [[f32; TILE]]) {
    sums.fill([0.0; TILE]);
    let blocks = tile.chunks_exact(block_bytes(format));
    let mut values = [[0.0; TILE]; BLOCK];
    for (block, x) in blocks.zip(x.chunks_exact(sums.len() * BLOCK)) {
        dense_block(format, block, &mut values);
        for (sums, x) in sums.iter_mut().zip(x.chunks_exact(BLOCK)) {
            for (values, x) in values.iter().zip(x) {
                for (sum, value) in sums.iter_mut().zip(values) {
                    *sum += value * x;
                }
            }
        }
    }
}
