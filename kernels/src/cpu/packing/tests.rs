//! Packing is a permutation: every row reads back as the file has it.

use super::*;
use crate::testing::{Noise, matrix};
use crate::{
    Matrix,
    cpu::{LentBytes, Reserved},
    testing::Scratch,
};
use proptest::prelude::*;

fn dequantised(matrix: &Matrix<'_>, n: usize) -> Vec<f32> {
    let mut row = vec![0.0; matrix.columns()];
    matrix.format().dequantise_row(matrix.row(n), &mut row);
    row
}

proptest! {
    #[test]
    fn stacked_rows_read_back(
        f in 0..WeightFormat::ALL.len(), rows in prop::collection::vec(1usize..40, 1..4), blocks in 1usize..4,
        seed: u64,
    ) {
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
        // Values that a grid has are stored one by one.
        let whole = match format {
            WeightFormat::IQ1_S
            | WeightFormat::IQ1_M
            | WeightFormat::IQ2_XXS
            | WeightFormat::IQ2_XS
            | WeightFormat::IQ2_S => 1600 * columns * 29 / 64,
            WeightFormat::IQ3_XXS | WeightFormat::IQ3_S => 1600 * columns * 69 / 128,
            _ => bytes.len(),
        };
        assert!(100 * packed.resident_bytes() <= 106 * whole, "{format}: {}", packed.resident_bytes());
        assert!(packed.tile(0).as_ptr().addr().is_multiple_of(64));
    }
}

/// However it is cut, and by whichever thread a piece is written.
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
    for piece_bytes in [1, 3000, usize::MAX] {
        let packings: Vec<_> = matrices
            .iter()
            .map(|m| Packing::stack(&[*m]))
            .chain([Packing::gated(&matrices[2], &matrices[2])])
            .collect::<Result<_, _>>()
            .unwrap();
        let places = Reserved::together(&packings.iter().map(Packing::bytes).collect::<Vec<_>>());
        let mut targets: Vec<_> =
            packings.into_iter().zip(places).map(|(packing, place)| packing.into_memory(place)).collect();
        std::thread::scope(|scope| {
            let mut pieces: Vec<_> =
                targets.iter_mut().flat_map(|target| target.pieces(piece_bytes)).collect();
            noise.shuffle(&mut pieces);
            let others = pieces.split_off(pieces.len() / 2);
            scope.spawn(|| others.into_iter().for_each(Piece::write));
            pieces.into_iter().for_each(Piece::write);
        });
        let together: Vec<_> = targets.into_iter().map(Target::finish).collect();
        let alone = matrices
            .iter()
            .map(|matrix| PackedLinear::stack(&[*matrix]))
            .chain([PackedLinear::gated(&matrices[2], &matrices[2])]);
        for (packed, alone) in together.iter().zip(alone) {
            assert_eq!(packed.bytes(), alone.unwrap().bytes());
            assert!(packed.tile(0).as_ptr().addr().is_multiple_of(64));
        }
    }
}

#[test]
fn lent_bytes_are_read_where_they_lie() {
    let bytes = matrix(WeightFormat::Q5_0, 40, 64, &mut Noise::new(4));
    let matrix = Matrix::new(WeightFormat::Q5_0, 40, 64, &bytes).unwrap();
    let packed = PackedLinear::stack(&[matrix]).unwrap();
    let mut scratch = Scratch::new(64 + packed.bytes().len());
    scratch.bytes()[64..][..packed.bytes().len()].copy_from_slice(packed.bytes());
    let lent: LentBytes = std::sync::Arc::new(scratch);
    let kept = Packing::stack(&[matrix]).unwrap().from_kept(&lent, 64);
    assert_eq!((kept.bytes(), format!("{kept:?}")), (packed.bytes(), format!("{packed:?}")));
    assert_eq!(kept.bytes().as_ptr(), (*lent).as_ref()[64..].as_ptr());
    let refused = |at| {
        let packing = Packing::stack(&[matrix]).unwrap();
        std::panic::catch_unwind(|| packing.from_kept(&lent, at)).is_err()
    };
    assert!(refused(63) && refused(128));
}

#[test]
#[should_panic(expected = "stored tiles")]
fn a_matrix_is_not_finished_before_all_of_its_pieces() {
    let bytes = matrix(WeightFormat::Q4_1, 40, 32, &mut Noise::new(4));
    let packing = Packing::stack(&[Matrix::new(WeightFormat::Q4_1, 40, 32, &bytes).unwrap()]).unwrap();
    let place = Reserved::together(&[packing.bytes()]).pop().unwrap();
    let mut target = packing.into_memory(place);
    target.pieces(1).skip(1).for_each(Piece::write);
    let _ = target.finish();
}

/// The bytes of every layout, which kernels read and kept weights have: another digest is another layout.
#[test]
fn packed_bytes_are_as_ever() {
    let mut found = String::new();
    for format in WeightFormat::ALL {
        let columns = if format.block_len() == 1 { 75 } else { 768 };
        let bytes = matrix(format, 41, columns, &mut Noise::new(7));
        let packed = PackedLinear::stack(&[Matrix::new(format, 41, columns, &bytes).unwrap()]).unwrap();
        // FNV-1a, 64 bits.
        let digest = packed.bytes().iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
        found.push_str(&format!("{format} {digest:016x}\n"));
    }
    assert_eq!(found, include_str!("tests/digests.txt"));
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
