//! Packing is a permutation: every row reads back as the file has it.

use super::*;
use crate::testing::{Noise, matrix};
use proptest::prelude::*;

fn dequantised(matrix: &Matrix<'_>, n: usize) -> Vec<f32> {
    let mut row = vec![0.0; matrix.columns()];
    matrix.format().dequantise_row(matrix.row(n), &mut row);
    row
}

proptest! {
    #[test]
    fn stacked_rows_read_back(f in 0..WeightFormat::ALL.len(), rows in prop::collection::vec(1usize..40, 1..4), blocks in 1usize..4, seed: u64) {
        let format = WeightFormat::ALL[f];
        let columns = if format.block_len() == 1 { blocks * 23 } else { blocks * format.block_len() };
        let mut noise = Noise::new(seed);
        let bytes: Vec<_> = rows.iter().map(|&rows| matrix(format, rows, columns, &mut noise)).collect();
        let parts: Vec<_> =
            rows.iter().zip(&bytes).map(|(&rows, bytes)| Matrix::new(format, rows, columns, bytes).unwrap()).collect();
        let packed = PackedLinear::stack(&parts).unwrap();
        let mut out = vec![0.0; columns];
        let mut n = 0;
        for part in &parts {
            for row in 0..part.rows() {
                packed.dequantise_row(n, &mut out);
                prop_assert_eq!(&out, &dequantised(part, row));
                n += 1;
            }
        }
        prop_assert_eq!(packed.outputs(), n);
    }
}

#[test]
fn weights_take_hardly_more_than_the_file() {
    for format in WeightFormat::ALL {
        let columns = if format.block_len() > BLOCK { 768 } else { 576 };
        let bytes = matrix(format, 1600, columns, &mut Noise::new(1));
        let packed = PackedLinear::stack(&[Matrix::new(format, 1600, columns, &bytes).unwrap()]).unwrap();
        assert!(100 * packed.resident_bytes() <= 106 * bytes.len(), "{format}: {}", packed.resident_bytes());
        assert!(packed.tile(0).as_ptr().addr().is_multiple_of(64));
    }
}

#[test]
fn matrices_share_an_allocation_without_touching_each_other() {
    let mut noise = Noise::new(4);
    let sources: Vec<_> = [(33, 64), (1, 32), (500, 96)]
        .into_iter()
        .map(|(rows, columns)| (rows, columns, matrix(WeightFormat::Q4_1, rows, columns, &mut noise)))
        .collect();
    let matrices: Vec<_> = sources
        .iter()
        .map(|(rows, columns, bytes)| Matrix::new(WeightFormat::Q4_1, *rows, *columns, bytes).unwrap())
        .collect();
    let sizes: Vec<_> = matrices.iter().map(|m| PackedLinear::stack_bytes(&[*m]).unwrap()).collect();
    let places = Reserved::together(&sizes);
    let mut together: Vec<_> = matrices
        .iter()
        .zip(places)
        .rev()
        .map(|(m, place)| PackedLinear::stack_in(&[*m], place).unwrap())
        .collect();
    together.reverse();
    for (matrix, packed) in matrices.iter().zip(&together) {
        let alone = PackedLinear::stack(&[*matrix]).unwrap();
        for t in 0..alone.tiles() {
            assert_eq!(packed.tile(t), alone.tile(t));
            assert!(packed.tile(t).as_ptr().addr().is_multiple_of(64));
        }
    }
    let wrong = Reserved::together(&[sizes[0] - 1]).pop().unwrap();
    let error = PackedLinear::stack_in(&[matrices[0]], wrong).unwrap_err();
    assert_eq!(error, PackError::Memory { found: sizes[0] - 1, expected: sizes[0] });
}

#[test]
fn refusals_name_both_sides() {
    let mut noise = Noise::new(2);
    let (a, b) =
        (matrix(WeightFormat::Q4_1, 8, 32, &mut noise), matrix(WeightFormat::Q8_0, 8, 32, &mut noise));
    let a = Matrix::new(WeightFormat::Q4_1, 8, 32, &a).unwrap();
    let b = Matrix::new(WeightFormat::Q8_0, 8, 32, &b).unwrap();
    let error = PackedLinear::stack(&[a, b]).unwrap_err();
    assert_eq!(error, PackError::MixedFormats { first: WeightFormat::Q4_1, other: WeightFormat::Q8_0 });
    assert_eq!(error.to_string(), "cannot pack q4_1 and q8_0 weights together; keep these linears apart");
    assert_eq!(PackedLinear::stack(&[]).unwrap_err(), PackError::NoParts);
    let short = Matrix::new(WeightFormat::Q4_1, 4, 32, &a.bytes()[..80]).unwrap();
    assert_eq!(PackedLinear::gated(&a, &short).unwrap_err(), PackError::GatedRows { gate: 8, up: 4 });
    let wide = Matrix::new(WeightFormat::Q4_1, 4, 64, a.bytes()).unwrap();
    assert_eq!(
        PackedLinear::stack(&[a, wide]).unwrap_err(),
        PackError::MixedColumns { first: 32, other: 64 }
    );
}
