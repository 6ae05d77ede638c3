//! Matrix products over packed weights.

mod dense;

use dense::dense;

use super::vector::{Assumed, Quads};
use crate::{
    Nonlinearity, Norm, Rows, RowsMut,
    cpu::{
        Epilogue, Neon, PackedLinear, Prepared,
        activations::{Layout, ProductOperands},
        codes::{Operands, Sums, Vector, int8, native},
        generic,
        prepare::prepare as prepare_rows,
        rms_norm,
    },
    format::{Kind, Visitor},
};
use std::ops::Range;

/// Lays activations out, normalised first if asked.
#[target_feature(enable = "neon,dotprod")]
pub(in crate::cpu) fn prepare(
    layout: Layout,
    group: usize,
    x: Rows<'_>,
    norm: Option<Norm<'_>>,
    scratch: &mut [u8],
) {
    // SAFETY: the features of the tier are enabled.
    let (v, s) = unsafe { (Quads::<false>::assume(), Neon::assume()) };
    prepare_rows(v, layout, group, x, norm, |row, eps| rms_norm::scale(s, row, eps), scratch);
}

/// Plain products of the given tiles.
#[target_feature(enable = "neon,dotprod")]
pub(super) fn linear<V: Assumed>(
    weights: &PackedLinear,
    x: &Prepared<'_>,
    tiles: Range<usize>,
    epilogue: Epilogue,
    out: &mut RowsMut<'_>,
) {
    // SAFETY: the features of the tier are enabled.
    let s = unsafe { Neon::assume() };
    let products = |product: &ProductOperands<'_>, sums: &mut [Sums]| products::<V>(product, sums);
    generic::linear_by(s, products, weights, x, tiles, epilogue, out);
}

/// Gated products of the given tiles.
#[target_feature(enable = "neon,dotprod")]
pub(super) fn linear_gated<V: Assumed>(
    function: Nonlinearity,
    weights: &PackedLinear,
    x: &Prepared<'_>,
    tiles: Range<usize>,
    out: &mut RowsMut<'_>,
) {
    // SAFETY: the features of the tier are enabled.
    let s = unsafe { Neon::assume() };
    let products = |product: &ProductOperands<'_>, sums: &mut [Sums]| products::<V>(product, sums);
    generic::linear_gated_by(s, products, function, weights, x, tiles, out);
}

/// Results of the stored tiles of a product.
#[target_feature(enable = "neon,dotprod")]
fn products<V: Assumed>(product: &ProductOperands<'_>, sums: &mut [Sums]) {
    let format = product.weights.format();
    if format.is_dense() {
        for (t, sums) in sums.iter_mut().enumerate() {
            dense(format, product, t, sums);
        }
        return;
    }
    let is_coded = matches!(product.layout, Layout::Coded(_));
    // SAFETY: callers of a tier's linear have the instructions of its vectors.
    let v = unsafe { V::assume() };
    format.visit_coding(CodedProducts { v, operands: product.operands(0), is_coded, sums });
}

/// Products over weights of codes, of tiles that are stored and a group in the layout of the class.
struct CodedProducts<'a, V> {
    v: V,
    operands: Operands,
    is_coded: bool,
    sums: &'a mut [Sums],
}

impl<V: Vector> Visitor for CodedProducts<'_, V> {
    type Output = ();

    fn visit<K: Kind>(self) {
        // SAFETY: only code of this tier makes one; operands are as promised.
        unsafe {
            if self.is_coded {
                coded::<V, K>(self);
            } else {
                uncoded::<K>(self.operands, self.sums);
            }
        }
    }
}

#[target_feature(enable = "neon,dotprod")]
unsafe fn coded<V: Vector, K: Kind>(products: CodedProducts<'_, V>) {
    // SAFETY: promised by the caller.
    unsafe { int8::<V, K>(products.v, products.operands, products.sums) }
}

#[target_feature(enable = "neon,dotprod")]
unsafe fn uncoded<K: Kind>(operands: Operands, sums: &mut [Sums]) {
    // SAFETY: promised by the caller.
    unsafe { native::<Quads<false>, K>(Quads::assume(), operands, sums) }
}
