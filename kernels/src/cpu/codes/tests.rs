//! Kernels of other tiers, emulated: over eight outputs as by AVX-VNNI, over sixteen as by AVX-512, each with sums of
//! few rows in registers. They have the bits of the portable tier, which has no such kernels. And where fetching leads.

use super::{Array, ByteProducts, CodeLayout, Distances, Fetching, Operands, Sums, int8, native};
use crate::{
    Activations, Matrix, Rows, RowsMut, Tier, WeightFormat,
    cpu::{Epilogue, PackedLinear, Prepared, TILE, Tuning, activations::Layout, generic},
    format::{Kind, Visitor, kinds},
    testing::{Noise, Scratch, bits, matrix},
};

/// One format of each way to lay codes out. The tiers of this processor are tested with all of them, and compiling
/// kernels takes long.
const FORMATS: [WeightFormat; 5] =
    [WeightFormat::Q4_1, WeightFormat::Q5_0, WeightFormat::Q2_K, WeightFormat::Q4_K, WeightFormat::Q6_K];

/// [`WeightFormat::visit`] of one of them.
fn visit<V: Visitor>(format: WeightFormat, visitor: V) -> V::Output {
    match format {
        WeightFormat::Q4_1 => visitor.visit::<kinds::Q4_1>(),
        WeightFormat::Q5_0 => visitor.visit::<kinds::Q5_0>(),
        WeightFormat::Q2_K => visitor.visit::<kinds::Q2_K>(),
        WeightFormat::Q4_K => visitor.visit::<kinds::Q4_K>(),
        WeightFormat::Q6_K => visitor.visit::<kinds::Q6_K>(),
        other => unreachable!("{other} is none of {FORMATS:?}"),
    }
}

/// Few rows of `N` outputs at a time.
struct Few<'a, const N: usize> {
    operands: Operands,
    activations: Activations,
    sums: &'a mut [Sums],
}

impl<const N: usize> Visitor for Few<'_, N> {
    type Output = ();

    fn visit<K: Kind>(self) {
        // SAFETY: the operands are of a stored tile and a prepared group.
        unsafe {
            match self.activations {
                Activations::Int8 => int8::<_, K>(Array::<N, 4>, self.operands, self.sums),
                Activations::Native => native::<_, K>(Array::<N, 4>, self.operands, self.sums),
            }
        }
    }
}

fn layout(format: WeightFormat, activations: Activations) -> Layout {
    Layout::of(format, activations, Tier::Portable, ByteProducts::Unsigned)
}

/// Prepared activations, and what the portable tier makes of them: its functions themselves, for a dispatch would have
/// those of every tier compiled here, too.
fn portable<'s>(
    weights: &PackedLinear,
    activations: Activations,
    x: Rows<'_>,
    scratch: &'s mut [u8],
) -> (Prepared<'s>, Vec<f32>) {
    let (layout, tuning) = (layout(weights.format(), activations), Tuning::DEFAULT);
    let (width, columns) = (x.width(), x.columns());
    generic::prepare(layout, tuning.rows(layout), x, None, scratch);
    let prepared = Prepared { layout, width, columns, tuning, bytes: scratch };
    let mut out = vec![f32::NAN; width * weights.outputs()];
    let view = &mut RowsMut::new(&mut out, weights.outputs());
    generic::linear(weights, &prepared, 0..weights.tiles(), Epilogue::Store, view);
    (prepared, out)
}

#[test]
fn kernels_of_few_rows_have_the_bits_of_the_portable_tier() {
    let mut noise = Noise::new(31);
    for format in FORMATS {
        let columns = 3 * format.block_len();
        let bytes = matrix(format, 2 * TILE, columns, &mut noise);
        let packed = PackedLinear::stack(&[Matrix::new(format, 2 * TILE, columns, &bytes).unwrap()]).unwrap();
        let x = noise.values(64 * columns);
        for (activations, rows) in
            Activations::ALL.into_iter().flat_map(|way| [1, 2, 3, 4, 5, 9, 64].map(|w| (way, w)))
        {
            let x = Rows::new(&x[..rows * columns], columns);
            let mut scratch = Scratch::new(rows * layout(format, activations).row_bytes(columns));
            let (prepared, expected) = portable(&packed, activations, x, scratch.bytes());
            let operands = Operands {
                tile: packed.tile(0).as_ptr(),
                blocks: packed.blocks(),
                x: prepared.bytes.as_ptr(),
                rows,
                streams: 1,
                fetching: Fetching { ahead: 0, in_pairs: false },
            };
            for (tiles, streams) in [(1, 1), (2, 1), (2, 2)] {
                let mut sums = [Sums::ZERO; 2];
                let operands = Operands { streams, ..operands };
                let mut others = [Sums::ZERO; 2];
                visit(format, Few::<8> { operands, activations, sums: &mut sums[..tiles] });
                visit(format, Few::<16> { operands, activations, sums: &mut others[..tiles] });
                for (lanes, sums) in [(8, sums), (16, others)] {
                    for (t, sums) in sums[..tiles].iter().enumerate() {
                        for (r, sums) in sums.0[..rows].iter().enumerate() {
                            assert_eq!(
                                bits(sums),
                                bits(&expected[(2 * r + t) * TILE..][..TILE]),
                                "{format}, {activations}, {lanes} outputs, row {r} of {rows}, tile {t} of {tiles}"
                            );
                        }
                    }
                }
            }
        }
    }
}

/// What is fetched lies as far on in the stream, block by block, as the distance says.
#[test]
fn fetching_stays_in_its_stream() {
    let coding = WeightFormat::Q4_1.coding().expect("codes");
    let layout = CodeLayout::of(coding);
    for blocks in [1, 2, 7, 18] {
        let tile = blocks * layout.bytes;
        for streams in [1, 2] {
            // Bytes of one stream among those of consecutive tiles.
            let place = |t: usize, at: usize| (at / tile * streams + t) * tile + at % tile;
            for ahead in [1, 5, 12, 40].map(|blocks| blocks * layout.bytes) {
                let (tile, x) = (std::ptr::null(), std::ptr::null());
                let fetching = Fetching { ahead, in_pairs: false };
                let operands = Operands { tile, blocks, x, rows: 1, streams, fetching };
                let distances = Distances::new(layout, &operands, streams);
                for (t, b) in (0..streams).flat_map(|t| (0..blocks).map(move |b| (t, b))) {
                    let at = b * layout.bytes;
                    let expected = place(t, at + ahead) - place(t, at);
                    assert_eq!(
                        distances.at(b).ahead,
                        expected,
                        "block {b} of {blocks}, {streams} streams, {ahead}"
                    );
                }
            }
        }
    }
    let fetching = Fetching { ahead: 0, in_pairs: true };
    let (tile, x) = (std::ptr::null(), std::ptr::null());
    let none = Operands { tile, blocks: 3, x, rows: 1, streams: 2, fetching };
    assert_eq!([0, 2].map(|b| Distances::new(layout, &none, 2).at(b)), [fetching; 2]);
}

#[cfg(target_arch = "x86_64")]
mod in_tiles {
    use super::*;
    use crate::cpu::{
        amx::{Emulated, Tiles},
        codes::{Room, shapes, tiled},
    };

    struct InTiles<'a> {
        operands: Operands,
        sums: &'a mut [Sums],
    }

    impl Visitor for InTiles<'_> {
        type Output = ();

        fn visit<K: Kind>(self) {
            // SAFETY: the operands are of stored tiles and a prepared group; emulated tiles need nothing.
            unsafe {
                let mut registers = Emulated::configured(shapes(self.operands.rows));
                let room = &mut Box::new(Room::EMPTY);
                tiled::<_, _, K>(Array::<16, 0>, &mut registers, self.operands, room, self.sums);
            }
        }
    }

    /// Kinds with blocks of 256; groups of rows that fill tiles and that do not, one and two tiles of weights.
    #[test]
    fn tiles_have_the_bits_of_vectors() {
        let mut noise = Noise::new(32);
        let has_groups = |format: &WeightFormat| format.coding().is_some_and(|coding| coding.has_groups());
        for format in FORMATS.into_iter().filter(has_groups) {
            let (columns, outputs) = (3 * format.block_len(), 2 * TILE);
            let bytes = matrix(format, outputs, columns, &mut noise);
            let packed =
                PackedLinear::stack(&[Matrix::new(format, outputs, columns, &bytes).unwrap()]).unwrap();
            let x = noise.values(64 * columns);
            for rows in [1, 5, 16, 17, 32, 33, 49, 64] {
                let x = Rows::new(&x[..rows * columns], columns);
                let mut scratch = Scratch::new(rows * layout(format, Activations::Int8).row_bytes(columns));
                let (prepared, expected) = portable(&packed, Activations::Int8, x, scratch.bytes());
                let operands = Operands {
                    tile: packed.tile(0).as_ptr(),
                    blocks: packed.blocks(),
                    x: prepared.bytes.as_ptr(),
                    rows,
                    streams: 2,
                    fetching: Fetching { ahead: 0, in_pairs: false },
                };
                for tiles in [1, 2] {
                    let mut sums = [Sums::ZERO; 2];
                    visit(format, InTiles { operands, sums: &mut sums[..tiles] });
                    for (t, sums) in sums[..tiles].iter().enumerate() {
                        for (r, sums) in sums.0[..rows].iter().enumerate() {
                            let expected = &expected[(2 * r + t) * TILE..][..TILE];
                            assert_eq!(
                                bits(sums),
                                bits(expected),
                                "{format}, row {r} of {rows}, tile {t} of {tiles}"
                            );
                        }
                    }
                }
            }
        }
    }
}
