//! Matrix products over packed weights: preparation, walk over tiles, epilogues.

mod dense;

use dense::{BF16, F16, F32, dense};

use super::{
    lanes::{LANES, load, silu, store},
    rms_norm,
    vector::{VnniYmm, Ymm},
};
use crate::{
    Norm, Rows, RowsMut, WeightFormat,
    cpu::{
        Epilogue, PackedLinear, Prepared,
        activations::{Layout, Meeting},
        codes::{Operands, Sums, TOGETHER, int8, native},
        prepare::prepare as prepare_rows,
    },
    format::{Kind, Visitor},
};
use std::{arch::x86_64::*, marker::PhantomData, ops::Range};

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
    let mut sums = [Sums::ZERO; TOGETHER];
    for meeting in x.meetings(weights, tiles) {
        let sums = &mut sums[..meeting.tiles.len()];
        products::<A>(&meeting, sums);
        for (tile, sums) in meeting.tiles.clone().zip(sums) {
            for (r, sums) in sums.0[..meeting.rows].iter().enumerate() {
                let out = out.span(meeting.first_row + r, meeting.outputs(tile));
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
pub(super) fn linear_gated<A: Arithmetic>(
    weights: &PackedLinear,
    x: &Prepared<'_>,
    tiles: Range<usize>,
    out: &mut RowsMut<'_>,
) {
    let mut sums = [Sums::ZERO; 2];
    for meeting in x.meetings(weights, tiles) {
        products::<A>(&meeting, &mut sums);
        let [gate, up] = &sums;
        for (r, (gate, up)) in gate.0.iter().zip(&up.0).take(meeting.rows).enumerate() {
            let out = out.span(meeting.first_row + r, meeting.outputs(meeting.tiles.start));
            for at in [0, LANES] {
                store(out, at, _mm256_mul_ps(silu(load(gate, at)), load(up, at)));
            }
        }
    }
}

/// Results of the stored tiles of a meeting; of dense weights four rows at a time.
#[target_feature(enable = "avx2,fma,f16c")]
fn products<A: Arithmetic>(meeting: &Meeting<'_>, sums: &mut [Sums]) {
    let format = meeting.weights.format();
    if !format.is_dense() {
        let is_coded = matches!(meeting.layout, Layout::Coded(_));
        return format.visit(CodedProducts::<A> {
            operands: meeting.operands(0),
            is_coded,
            sums,
            arithmetic: PhantomData,
        });
    }
    for (t, sums) in sums.iter_mut().enumerate() {
        for (i, sums) in sums.0[..meeting.rows].chunks_mut(ROWS).enumerate() {
            let x = meeting.group[i * ROWS * meeting.layout.block_bytes()..].as_ptr();
            let operands = Operands { x, ..meeting.operands(t) };
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
