//! Matrix products over packed weights: preparation, walk over tiles, epilogues.

mod dense;

use dense::{BF16, F16, F32, dense};

use super::{
    rms_norm,
    vector::{VnniYmm, Ymm},
};
use crate::{
    Nonlinearity, Norm, Rows, RowsMut, WeightFormat,
    cpu::{
        Avx2, Epilogue, PackedLinear, Prepared,
        activations::{Layout, ProductOperands},
        codes::{Operands, Sums, int8, native},
        generic,
        prepare::prepare as prepare_rows,
    },
    format::{Kind, Visitor},
};
use std::{marker::PhantomData, ops::Range};

/// Rows of dense products that share the unpacking of a weight: as many as registers hold.
const ROWS: usize = 4;

/// How bytes are multiplied.
pub(super) trait Arithmetic {
    /// # Safety
    /// The processor has the instructions, and the operands are of the kind, in a layout of codes.
    unsafe fn int8<K: Kind>(operands: Operands, sums: &mut [Sums]);
}

/// By AVX2.
pub(super) struct Split;

/// By AVX-VNNI.
pub(super) struct Vnni;

impl Arithmetic for Split {
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn int8<K: Kind>(operands: Operands, sums: &mut [Sums]) {
        // SAFETY: promised by the caller.
        unsafe { int8::<Ymm, K>(Ymm::assume(), operands, sums) }
    }
}

impl Arithmetic for Vnni {
    #[target_feature(enable = "avx2,fma,f16c,avxvnni")]
    unsafe fn int8<K: Kind>(operands: Operands, sums: &mut [Sums]) {
        // SAFETY: promised by the caller.
        unsafe { int8::<VnniYmm, K>(VnniYmm::assume(), operands, sums) }
    }
}

/// Lays activations out, normalised first if asked.
#[target_feature(enable = "avx2,fma,f16c")]
pub(in crate::cpu) fn prepare(
    layout: Layout,
    group: usize,
    x: Rows<'_>,
    norm: Option<Norm<'_>>,
    scratch: &mut [u8],
) {
    // SAFETY: the features of the tier are enabled.
    let v = unsafe { Ymm::assume() };
    prepare_rows(v, layout, group, x, norm, |row, eps| rms_norm::scale(row, eps), scratch);
}

/// Plain products of the given tiles.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn linear<A: Arithmetic>(
    weights: &PackedLinear,
    x: &Prepared<'_>,
    tiles: Range<usize>,
    epilogue: Epilogue,
    out: &mut RowsMut<'_>,
) {
    // SAFETY: the features of the tier are enabled.
    let s = unsafe { Avx2::assume() };
    let products = |product: &ProductOperands<'_>, sums: &mut [Sums]| products::<A>(product, sums);
    generic::linear_by(s, products, weights, x, tiles, epilogue, out);
}

/// Gated products of the given tiles.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn linear_gated<A: Arithmetic>(
    function: Nonlinearity,
    weights: &PackedLinear,
    x: &Prepared<'_>,
    tiles: Range<usize>,
    out: &mut RowsMut<'_>,
) {
    // SAFETY: the features of the tier are enabled.
    let s = unsafe { Avx2::assume() };
    let products = |product: &ProductOperands<'_>, sums: &mut [Sums]| products::<A>(product, sums);
    generic::linear_gated_by(s, products, function, weights, x, tiles, out);
}

/// Results of the stored tiles of a product; of dense weights four rows at a time.
#[target_feature(enable = "avx2,fma,f16c")]
fn products<A: Arithmetic>(product: &ProductOperands<'_>, sums: &mut [Sums]) {
    let format = product.weights.format();
    if !format.is_dense() {
        let is_coded = matches!(product.layout, Layout::Coded(_));
        return format.visit_coding(CodedProducts::<A> {
            operands: product.operands(0),
            is_coded,
            sums,
            arithmetic: PhantomData,
        });
    }
    for (t, sums) in sums.iter_mut().enumerate() {
        for (i, sums) in sums.0[..product.rows].chunks_mut(ROWS).enumerate() {
            let x = product.group[i * ROWS * product.layout.block_bytes()..].as_ptr();
            let operands = Operands { x, ..product.operands(t) };
            macro_rules! by_rows {
                ($format:ty) => {
                    match sums.len() {
                        1 => dense::<$format, 1>(operands, sums),
                        2 => dense::<$format, 2>(operands, sums),
                        3 => dense::<$format, 3>(operands, sums),
                        _ => dense::<$format, ROWS>(operands, sums),
                    }
                };
            }
            // SAFETY: the tile is stored, and every block of the group holds these rows in the class's layout.
            unsafe {
                match format {
                    WeightFormat::BF16 => by_rows!(BF16),
                    WeightFormat::F16 => by_rows!(F16),
                    _ => by_rows!(F32),
                }
            }
        }
    }
}

/// Products over weights of codes, of tiles that are stored and a group in the layout of the class.
struct CodedProducts<'a, A> {
    operands: Operands,
    is_coded: bool,
    sums: &'a mut [Sums],
    arithmetic: PhantomData<A>,
}

impl<A: Arithmetic> Visitor for CodedProducts<'_, A> {
    type Output = ();

    fn visit<K: Kind>(self) {
        // SAFETY: only code of this tier makes one; operands are as promised.
        unsafe {
            if self.is_coded {
                A::int8::<K>(self.operands, self.sums);
            } else {
                uncoded::<K>(self.operands, self.sums);
            }
        }
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn uncoded<K: Kind>(operands: Operands, sums: &mut [Sums]) {
    // SAFETY: promised by the caller.
    unsafe { native::<Ymm, K>(Ymm::assume(), operands, sums) }
}
