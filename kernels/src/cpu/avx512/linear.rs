//! Matrix products over packed weights: preparation, walk over tiles, epilogues.

mod dense;

use dense::{BF16, BF16Pairs, F16, F32, dense, dense_pairs};

use super::{
    lanes::{load, store_bf16},
    rms_norm,
    vector::Zmm,
};
use crate::{
    Nonlinearity, Norm, Rows, RowsMut, WeightFormat,
    cpu::{
        Avx512, Epilogue, PackedLinear, Prepared,
        activations::{Layout, Place, ProductOperands},
        codes::{Operands, Sums, int8, native},
        generic,
        packing::BLOCK,
        prepare::prepare as prepare_rows,
    },
    format::{Kind, Visitor},
};
use std::ops::Range;

/// Lays activations out, normalised first if asked.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
pub(in crate::cpu) fn prepare(
    layout: Layout,
    group: usize,
    x: Rows<'_>,
    norm: Option<Norm<'_>>,
    scratch: &mut [u8],
) {
    if layout != Layout::Bf16 {
        // SAFETY: whoever runs this tier holds a proof of VNNI too.
        let v = unsafe { Zmm::assume() };
        return prepare_rows(v, layout, group, x, norm, |row, eps| rms_norm::scale(row, eps), scratch);
    }
    for w in 0..x.width() {
        let row = x.row(w);
        let scale = norm.map(|norm| (rms_norm::scale(row, norm.eps), norm.weight));
        let value = |at| match scale {
            Some((scale, weight)) => rms_norm::normed(load(row, at), scale, load(weight, at)),
            None => load(row, at),
        };
        let place = Place::new(layout, group, x.width(), x.columns(), w);
        for b in 0..x.columns().div_ceil(BLOCK) {
            let to = scratch[place.block(b)].first_chunk_mut().expect("64 bytes");
            store_bf16(to, value(b * BLOCK), value(b * BLOCK + 16));
        }
    }
}

/// Plain products of the given tiles.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
pub(in crate::cpu) fn linear(
    weights: &PackedLinear,
    x: &Prepared<'_>,
    tiles: Range<usize>,
    epilogue: Epilogue,
    out: &mut RowsMut<'_>,
) {
    // SAFETY: whoever runs this tier holds a proof of all of its features.
    let s = unsafe { Avx512::assume() };
    let products = |product: &ProductOperands<'_>, sums: &mut [Sums]| products(product, sums);
    generic::linear_by(s, products, weights, x, tiles, epilogue, out);
}

/// Gated products of the given tiles.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
pub(in crate::cpu) fn linear_gated(
    function: Nonlinearity,
    weights: &PackedLinear,
    x: &Prepared<'_>,
    tiles: Range<usize>,
    out: &mut RowsMut<'_>,
) {
    // SAFETY: as above.
    let s = unsafe { Avx512::assume() };
    let products = |product: &ProductOperands<'_>, sums: &mut [Sums]| products(product, sums);
    generic::linear_gated_by(s, products, function, weights, x, tiles, out);
}

/// Results of the stored tiles of a product.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
pub(in crate::cpu) fn products(product: &ProductOperands<'_>, sums: &mut [Sums]) {
    let format = product.weights.format();
    if !format.is_dense() {
        let is_coded = matches!(product.layout, Layout::Coded(_));
        return format.visit_coding(CodedProducts { operands: product.operands(0), is_coded, sums });
    }
    for (t, sums) in sums.iter_mut().enumerate() {
        let operands = product.operands(t);
        macro_rules! by_rows {
            ($dense:ident, $format:ty) => {
                match product.rows {
                    1 => $dense::<$format, 1>(operands, &mut sums.0),
                    2 => $dense::<$format, 2>(operands, &mut sums.0),
                    3 => $dense::<$format, 3>(operands, &mut sums.0),
                    4 => $dense::<$format, 4>(operands, &mut sums.0),
                    5 => $dense::<$format, 5>(operands, &mut sums.0),
                    6 => $dense::<$format, 6>(operands, &mut sums.0),
                    7 => $dense::<$format, 7>(operands, &mut sums.0),
                    8 => $dense::<$format, 8>(operands, &mut sums.0),
                    _ => unreachable!("no kernel for a group of {} rows", product.rows),
                }
            };
        }
        // SAFETY: the tile is stored, and the group holds `rows` rows of all blocks in the class's layout. Only a
        // processor with BF16 has activations in bf16.
        unsafe {
            match (format, product.layout) {
                (WeightFormat::BF16, Layout::Bf16) => by_rows!(dense_pairs, BF16Pairs),
                (WeightFormat::BF16, _) => by_rows!(dense, BF16),
                (WeightFormat::F16, _) => by_rows!(dense, F16),
                _ => by_rows!(dense, F32),
            }
        }
    }
}

/// Products over weights of codes, of tiles that are stored and a group in the layout of the class.
struct CodedProducts<'a> {
    operands: Operands,
    is_coded: bool,
    sums: &'a mut [Sums],
}

impl Visitor for CodedProducts<'_> {
    type Output = ();

    fn visit<K: Kind>(self) {
        // SAFETY: only code of this tier makes one, and whoever runs it holds a proof of VNNI too; operands are as
        // promised.
        unsafe { if self.is_coded { coded::<K>(self) } else { uncoded::<K>(self) } }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
unsafe fn coded<K: Kind>(products: CodedProducts<'_>) {
    // SAFETY: promised by the caller.
    unsafe { int8::<Zmm, K>(Zmm::assume(), products.operands, products.sums) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
unsafe fn uncoded<K: Kind>(products: CodedProducts<'_>) {
    // SAFETY: promised by the caller.
    unsafe { native::<Zmm, K>(Zmm::assume(), products.operands, products.sums) }
}
