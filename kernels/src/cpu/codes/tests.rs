//! Kernels over eight outputs with sums of 32 bits, as by AVX-VNNI, emulated: the bits of the portable tier, which has sixteen.

use super::{Array, Operands, Sums, int8, native};
use crate::{
    Activations, Matrix, Rows, RowsMut, WeightFormat,
    cpu::{Epilogue, Kernels, PackedLinear, TILE},
    format::{Kind, Visitor},
    testing::{Noise, Scratch, bits, matrix},
};

struct Eight<'a> {
    operands: Operands,
    activations: Activations,
    sums: &'a mut [Sums],
}

impl Visitor for Eight<'_> {
    type Output = ();

    fn visit<K: Kind>(self) {
        // SAFETY: the operands are of a stored tile and a prepared group.
        unsafe {
            match self.activations {
                Activations::Int8 => int8::<_, K>(Array::<8>, self.operands, self.sums),
                Activations::Native => native::<_, K>(Array::<8>, self.operands, self.sums),
            }
        }
    }
}

#[test]
fn eight_outputs_at_a_time_have_the_bits_of_sixteen() {
    let mut noise = Noise::new(31);
    for format in WeightFormat::ALL.into_iter().filter(|format| !format.is_dense()) {
        let columns = 3 * format.block_len();
        let bytes = matrix(format, 2 * TILE, columns, &mut noise);
        let packed = PackedLinear::stack(&[Matrix::new(format, 2 * TILE, columns, &bytes).unwrap()]).unwrap();
        let x = noise.values(64 * columns);
        for (activations, rows) in
            Activations::ALL.into_iter().flat_map(|way| [1, 2, 3, 4, 5, 9, 64].map(|w| (way, w)))
        {
            let kernels = Kernels::portable().with_activations(activations);
            let mut scratch = Scratch::new(kernels.linear_scratch_bytes(format, rows, columns));
            let x = Rows::new(&x[..rows * columns], columns);
            let prepared = kernels.prepare(format, x, None, scratch.bytes());
            let mut expected = vec![f32::NAN; rows * 2 * TILE];
            let out = RowsMut::new(&mut expected, 2 * TILE);
            kernels.linear(&packed, &prepared, 0..2, Epilogue::Store, out);
            let operands = Operands {
                tile: packed.tile(0).as_ptr(),
                blocks: packed.blocks(),
                x: prepared.bytes.as_ptr(),
                rows,
                streams: 1,
                ahead: 0,
            };
            for (tiles, streams) in [(1, 1), (2, 1), (2, 2)] {
                let mut sums = [Sums::ZERO; 2];
                let operands = Operands { streams, ..operands };
                format.visit(Eight { operands, activations, sums: &mut sums[..tiles] });
                for (t, sums) in sums[..tiles].iter().enumerate() {
                    for (r, sums) in sums.0[..rows].iter().enumerate() {
                        assert_eq!(
                            bits(sums),
                            bits(&expected[(2 * r + t) * TILE..][..TILE]),
                            "{format}, {activations}, row {r} of {rows}, tile {t} of {tiles}"
                        );
                    }
                }
            }
        }
    }
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
                tiled::<_, _, K>(Array::<16>, &mut registers, self.operands, room, self.sums);
            }
        }
    }

    /// Every kind with blocks of 256; groups of rows that fill tiles and that do not, one and two tiles of weights.
    #[test]
    fn tiles_have_the_bits_of_vectors() {
        let mut noise = Noise::new(32);
        let has_groups = |format: &WeightFormat| format.coding().is_some_and(|coding| coding.has_groups());
        for format in WeightFormat::ALL.into_iter().filter(has_groups) {
            let (columns, outputs) = (3 * format.block_len(), 2 * TILE);
            let bytes = matrix(format, outputs, columns, &mut noise);
            let packed =
                PackedLinear::stack(&[Matrix::new(format, outputs, columns, &bytes).unwrap()]).unwrap();
            let x = noise.values(64 * columns);
            for rows in [1, 5, 16, 17, 32, 33, 49, 64] {
                let kernels = Kernels::portable();
                let mut scratch = Scratch::new(kernels.linear_scratch_bytes(format, rows, columns));
                let x = Rows::new(&x[..rows * columns], columns);
                let prepared = kernels.prepare(format, x, None, scratch.bytes());
                let mut expected = vec![f32::NAN; rows * outputs];
                let out = RowsMut::new(&mut expected, outputs);
                kernels.linear(&packed, &prepared, 0..2, Epilogue::Store, out);
                let operands = Operands {
                    tile: packed.tile(0).as_ptr(),
                    blocks: packed.blocks(),
                    x: prepared.bytes.as_ptr(),
                    rows,
                    streams: 2,
                    ahead: 0,
                };
                for tiles in [1, 2] {
                    let mut sums = [Sums::ZERO; 2];
                    format.visit(InTiles { operands, sums: &mut sums[..tiles] });
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
