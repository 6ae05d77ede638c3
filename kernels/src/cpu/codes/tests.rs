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
    sums: &'a mut Sums,
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
        let bytes = matrix(format, TILE, columns, &mut noise);
        let packed = PackedLinear::stack(&[Matrix::new(format, TILE, columns, &bytes).unwrap()]).unwrap();
        let x = noise.values(64 * columns);
        for (activations, rows) in
            Activations::ALL.into_iter().flat_map(|way| [1, 2, 3, 4, 5, 9, 64].map(|w| (way, w)))
        {
            let kernels = Kernels::portable().with_activations(activations);
            let mut scratch = Scratch::new(kernels.linear_scratch_bytes(format, rows, columns));
            let x = Rows::new(&x[..rows * columns], columns);
            let prepared = kernels.prepare(format, x, None, scratch.bytes());
            let mut expected = vec![f32::NAN; rows * TILE];
            kernels.linear(&packed, &prepared, 0..1, Epilogue::Store, RowsMut::new(&mut expected, TILE));
            let operands = Operands {
                tile: packed.tile(0).as_ptr(),
                blocks: packed.blocks(),
                x: prepared.bytes.as_ptr(),
                rows,
                ahead: 0,
            };
            let mut sums = Sums::ZERO;
            format.visit(Eight { operands, activations, sums: &mut sums });
            assert_eq!(
                bits(sums.0[..rows].as_flattened()),
                bits(&expected),
                "{format}, {activations}, {rows} rows"
            );
        }
    }
}
