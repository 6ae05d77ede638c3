//! Emulated tiles against what the manual says, the processor's against them, and linears against their class.

#[cfg(target_os = "linux")]
mod trapped;

use super::{
    emulated::Emulated,
    hardware::Hardware,
    tiles::{ROW_BYTES, ROWS, Shape, Tiles},
};
use crate::{
    Matrix, Rows, RowsMut, WeightFormat,
    cpu::{Amx, Avx512, Epilogue, Kernels, PackedLinear},
    format::bf16_to_f32,
    testing::{Noise, Scratch, bits, matrix},
};
use half::bf16;

/// `c += a * b` with the first `rows` rows, in registers 1, 4 and 7.
///
/// # Safety
/// Such tiles may be used.
unsafe fn product<T: Tiles>(rows: u8, c: &mut [f32; 256], a: &[u16; 512], b: &[u16; 512]) {
    // SAFETY: promised by the caller; every operand is as large as a full tile.
    unsafe {
        let mut tiles = T::configured([1, rows, 1, 1, rows, 1, 1, ROWS as u8].map(Shape::of_rows));
        tiles.load::<1>(c.as_ptr().cast(), ROW_BYTES);
        tiles.load::<4>(a.as_ptr().cast(), ROW_BYTES);
        tiles.load::<7>(b.as_ptr().cast(), ROW_BYTES);
        tiles.multiply::<1, 4, 7>();
        tiles.store::<1>(c.as_mut_ptr().cast());
    }
}

/// Result of one row and column, for `c + sum of a[k] * b[k]`.
fn one(c: f32, pairs: &[(f32, f32)]) -> f32 {
    let (mut results, mut a, mut b) = ([0.0; 256], [0; 512], [0; 512]);
    let (m, n) = (3, 5);
    results[16 * m + n] = c;
    for (k, pair) in pairs.iter().enumerate() {
        a[32 * m + k] = bf16::from_f32(pair.0).to_bits();
        b[k / 2 * 32 + 2 * n + k % 2] = bf16::from_f32(pair.1).to_bits();
    }
    // SAFETY: tiles in memory need nothing.
    unsafe { product::<Emulated>(16, &mut results, &a, &b) };
    for (i, result) in results.iter().enumerate() {
        assert!(i == 16 * m + n || *result == 0.0, "result {i} is {result}");
    }
    results[16 * m + n]
}

#[test]
fn even_and_odd_columns_are_summed_apart_then_added() {
    const BIG: f32 = 16_777_216.0; // 2^24: one more is lost, two more are not.
    assert_eq!(one(0.5, &[(2.0, 3.0), (4.0, 5.0), (-1.0, 1.0)]), 25.5);
    // Each 1 meets the large sum of its own chain only.
    assert_eq!(one(0.0, &[(BIG, 1.0), (1.0, 1.0), (0.0, 0.0), (1.0, 1.0)]), BIG + 2.0);
    assert_eq!(one(0.0, &[(BIG, 1.0), (0.0, 1.0), (1.0, 1.0), (0.0, 1.0), (1.0, 1.0)]), BIG);
    // The chains start from zero, not from the result so far.
    assert_eq!(one(BIG, &[(1.0, 1.0), (1.0, 1.0)]), BIG + 2.0);
    // The product is not rounded before it is added.
    let x = 1.0 + 2f32.powi(-7);
    assert_eq!(one(0.0, &[(1.0, -BIG), (0.0, 0.0), (x, x)]), x.mul_add(x, -BIG));
}

#[test]
fn denormals_are_zeros() {
    let (tiny, small) = (f32::MIN_POSITIVE, 2f32.powi(-130));
    assert_eq!(one(0.0, &[(tiny, 0.5)]), 0.0);
    assert_eq!(one(0.0, &[(small, 16.0)]), 0.0);
    assert_eq!(one(0.0, &[(16.0, small)]), 0.0);
    assert_eq!(one(small, &[(1.0, 1.0)]), 1.0);
    assert_eq!(one(small, &[]), 0.0);
    assert_eq!(one(0.0, &[(tiny, 1.0)]), tiny);
}

#[test]
fn rows_past_the_configured_ones_are_neither_read_nor_written() {
    let (mut c, a, b) = ([7.0; 256], [0x3f80; 512], [0x3f80; 512]);
    // SAFETY: tiles in memory need nothing.
    unsafe { product::<Emulated>(3, &mut c, &a, &b) };
    assert!(c[..48].iter().all(|c| *c == 39.0) && c[48..].iter().all(|c| *c == 7.0));
}

/// Nothing to compare where the processor has no tiles.
#[test]
fn the_processor_computes_what_emulation_does() {
    let Some(_proof) = Amx::detect() else { return };
    let mut noise = Noise::new(11);
    for case in 0..200 {
        let rows = 1 + (case % ROWS) as u8;
        // Every third case has denormals among its numbers.
        let scale = if case % 3 == 0 { 2f32.powi(-62) } else { 1.0 };
        let mut number = || noise.value() * 2f32.powi(noise.below(20) as i32 - 10) * scale;
        let c: [f32; 256] = std::array::from_fn(|_| number() * scale);
        let mut pairs = || std::array::from_fn(|_| bf16::from_f32(number()).to_bits());
        let (a, b) = (pairs(), pairs());
        let (mut found, mut expected) = (c, c);
        // SAFETY: the proof says that the processor's tiles can be used.
        unsafe {
            product::<Hardware>(rows, &mut found, &a, &b);
            product::<Emulated>(rows, &mut expected, &a, &b);
        }
        assert_eq!(bits(&found), bits(&expected), "case {case} of {rows} rows");
    }
}

/// The class of a bf16 linear, one output of one row: `weights` as in a file.
fn by_the_class(weights: &[u8], x: &[f32]) -> f32 {
    let x: Vec<f32> = x.iter().map(|x| bf16::from_f32(*x).to_f32()).collect();
    let mut total = 0.0_f32;
    for (x, block) in x.chunks(32).zip(weights.chunks(64)) {
        let mut chains = [0.0_f32; 2];
        for (k, x) in x.iter().enumerate() {
            let weight = bf16_to_f32(u16::from_le_bytes([block[2 * k], block[2 * k + 1]]));
            chains[k % 2] = x.mul_add(weight, chains[k % 2]);
        }
        total += chains[0] + chains[1];
    }
    total
}

/// Every number of blocks in flight and of row groups, several chunks, a last tile that is not full.
#[test]
fn linears_follow_their_class_bit_for_bit() {
    let Some(proof) = Avx512::detect() else { return };
    let kernels = Amx::detect().map(Kernels::amx);
    let mut noise = Noise::new(21);
    for format in [WeightFormat::BF16] {
        for (width, blocks) in [
            (1, 1),
            (2, 6),
            (15, 3),
            (16, 4),
            (17, 3),
            (32, 5),
            (33, 2),
            (48, 1),
            (63, 3),
            (64, 2),
            (70, 3),
            (130, 1),
        ] {
            let (rows, columns) = (21, 32 * blocks);
            let bytes = matrix(format, rows, columns, &mut noise);
            let weights = Matrix::new(format, rows, columns, &bytes).unwrap();
            let x = noise.values(width * columns);
            let expected: Vec<_> = x
                .chunks(columns)
                .flat_map(|x| (0..rows).map(|n| by_the_class(weights.row(n), x)).collect::<Vec<_>>())
                .collect();
            let packed = PackedLinear::stack(&[weights]).unwrap();
            for kernels in kernels.into_iter().chain([Kernels::emulated_amx(proof)]) {
                let mut scratch = Scratch::new(kernels.linear_scratch_bytes(format, width, columns));
                let prepared = kernels.prepare(format, Rows::new(&x, columns), None, scratch.bytes());
                let mut found = vec![f32::NAN; width * rows];
                let out = RowsMut::new(&mut found, rows);
                kernels.linear(&packed, &prepared, 0..packed.tiles(), Epilogue::Store, out);
                assert_eq!(bits(&found), bits(&expected), "{format}, {width} rows, {blocks} blocks");
            }
        }
    }
}

/// All but linears over bf16 weights have the bits of AVX-512.
#[test]
fn other_linears_are_those_of_avx512() {
    let Some(proof) = Avx512::detect() else { return };
    let mut noise = Noise::new(22);
    for format in [WeightFormat::F16, WeightFormat::F32, WeightFormat::Q4_K, WeightFormat::Q6_K] {
        let columns = if format.block_len() == 1 { 70 } else { 2 * format.block_len() };
        let bytes = matrix(format, 20, columns, &mut noise);
        let packed = PackedLinear::stack(&[Matrix::new(format, 20, columns, &bytes).unwrap()]).unwrap();
        let x = noise.values(9 * columns);
        let [avx512, amx] = [Kernels::avx512(proof), Kernels::emulated_amx(proof)].map(|kernels| {
            let mut scratch = Scratch::new(kernels.linear_scratch_bytes(format, 9, columns));
            let prepared = kernels.prepare(format, Rows::new(&x, columns), None, scratch.bytes());
            let mut found = vec![f32::NAN; 9 * 20];
            kernels.linear(&packed, &prepared, 0..2, Epilogue::Store, RowsMut::new(&mut found, 20));
            bits(&found)
        });
        assert_eq!(avx512, amx);
    }
}
