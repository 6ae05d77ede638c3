//! Linears with int8 activations: the bits of the reference in every tier, to the limits of every sum.

use super::tiers;
use proptest::prelude::*;
use ygg_kernels::{
    Activations, Matrix, Rows, RowsMut, WeightFormat,
    cpu::{Epilogue, Kernels, PackedLinear},
    reference::{self, CodedBlock},
    testing::{Noise, Scratch, bits, matrix},
};

/// The formats that int8 activations are for.
fn formats() -> Vec<WeightFormat> {
    WeightFormat::ALL.into_iter().filter(|format| !format.is_dense()).collect()
}

fn kernels() -> impl Iterator<Item = Kernels> {
    tiers().map(|kernels| kernels.with_activations(Activations::Int8))
}

fn expected(weights: &Matrix<'_>, x: &[f32]) -> Vec<f32> {
    let x = Rows::new(x, weights.columns());
    let mut out = vec![f32::NAN; x.width() * weights.rows()];
    reference::linear_int8(x, weights, RowsMut::new(&mut out, weights.rows()));
    out
}

fn found(kernels: Kernels, weights: &PackedLinear, x: &[f32]) -> Vec<f32> {
    let x = Rows::new(x, weights.columns());
    let mut scratch = Scratch::new(kernels.linear_scratch_bytes(weights.format(), x.width(), x.columns()));
    let prepared = kernels.prepare(weights.format(), x, None, scratch.bytes());
    let mut out = vec![f32::NAN; x.width() * weights.outputs()];
    let view = RowsMut::new(&mut out, weights.outputs());
    kernels.linear(weights, &prepared, 0..weights.tiles(), Epilogue::Store, view);
    out
}

fn same_bits(format: WeightFormat, rows: usize, columns: usize, bytes: &[u8], x: &[f32]) {
    let weights = Matrix::new(format, rows, columns, bytes).unwrap();
    let packed = PackedLinear::stack(&[weights]).unwrap();
    let expected = expected(&weights, x);
    for kernels in kernels() {
        let found = found(kernels, &packed, x);
        assert_eq!(bits(&found), bits(&expected), "{format} on {}", kernels.tier());
    }
}

/// Replaces everything but the numbers that scales and minima are made of.
fn set_codes(format: WeightFormat, bytes: &mut [u8], mut code: impl FnMut() -> u8) {
    let has_min = matches!(
        format,
        WeightFormat::Q4_1
            | WeightFormat::Q5_1
            | WeightFormat::Q2_K
            | WeightFormat::Q4_K
            | WeightFormat::Q5_K
    );
    let numbers = if has_min { 4 } else { 2 };
    for block in bytes.chunks_exact_mut(format.block_bytes()) {
        let rest = match format {
            WeightFormat::MXFP4 => &mut block[1..],
            WeightFormat::IQ1_M => {
                let d = [49, 51, 53, 55].map(|at| block[at] & 0xf0);
                block.iter_mut().for_each(|byte| *byte = code());
                for (at, d) in [49, 51, 53, 55].into_iter().zip(d) {
                    block[at] = block[at] & 15 | d;
                }
                continue;
            }
            WeightFormat::Q2_K | WeightFormat::Q3_K | WeightFormat::Q6_K => {
                let end = block.len() - numbers;
                &mut block[..end]
            }
            _ => &mut block[numbers..],
        };
        rest.iter_mut().for_each(|byte| *byte = code());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Any codes, the lowest byte among them; blocks of any size, of zeros, and of what is too small to tell from them.
    #[test]
    fn every_tier_has_the_bits_of_the_reference(
        f in 0..formats().len(), rows in 1usize..40, blocks in 1usize..6, width in 1usize..20, seed: u64,
    ) {
        let format = formats()[f];
        let columns = blocks * format.block_len();
        let mut noise = Noise::new(seed);
        let mut bytes = matrix(format, rows, columns, &mut noise);
        set_codes(format, &mut bytes, || noise.bits() as u8);
        let mut x = noise.values(width * columns);
        for block in x.chunks_mut(32) {
            let size = match noise.below(8) {
                0 => 0.0,
                i => 2f32.powi([-126, -110, -99, -20, 0, 0, 90][i - 1]),
            };
            block.iter_mut().for_each(|x| *x *= size);
        }
        same_bits(format, rows, columns, &bytes, &x);
    }
}

#[test]
fn the_largest_sums_fit() {
    let mut noise = Noise::new(1);
    for format in formats() {
        let columns = 2 * format.block_len();
        let mut bytes = matrix(format, 17, columns, &mut noise);
        for code in [0x00, 0x7f, 0x80, 0xff, 0x0f, 0xf0] {
            set_codes(format, &mut bytes, || code);
            for signs in [|_| 1.0, |_| -1.0, |k| if k % 2 == 0 { 1.0 } else { -1.0 }] as [fn(usize) -> f32; 3]
            {
                let x: Vec<f32> = (0..9 * columns).map(signs).collect();
                same_bits(format, 17, columns, &bytes, &x);
            }
        }
    }
}

/// Codes exactly between two integers, and blocks around the smallest that are told from zeros.
#[test]
fn ties_and_limits_are_rounded_alike() {
    let mut noise = Noise::new(2);
    for format in formats() {
        let columns = format.block_len();
        let bytes = matrix(format, 16, columns, &mut noise);
        for largest in
            [127.0, CodedBlock::SMALLEST, CodedBlock::SMALLEST.next_down(), f32::MAX, f32::MIN_POSITIVE]
        {
            let x: Vec<f32> = (0..columns)
                .map(|k| match k % 32 {
                    0 => largest,
                    k => (k as f32 - 16.5) * (largest / 127.0),
                })
                .collect();
            same_bits(format, 16, columns, &bytes, &x);
        }
    }
}

#[test]
fn a_value_that_is_not_finite_is_seen_in_its_row_alone() {
    let mut noise = Noise::new(3);
    for format in formats() {
        let columns = 2 * format.block_len();
        let bytes = matrix(format, 20, columns, &mut noise);
        let weights = Matrix::new(format, 20, columns, &bytes).unwrap();
        let packed = PackedLinear::stack(&[weights]).unwrap();
        for broken in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut x = noise.values(3 * columns);
            let sound = expected(&weights, &x);
            x[columns + noise.below(columns)] = broken;
            let judged = expected(&weights, &x);
            for found in kernels().map(|kernels| found(kernels, &packed, &x)).chain([judged]) {
                assert!(found[20..40].iter().all(|y| y.is_nan()), "{format}: {broken} became a number");
                assert_eq!(bits(&found[..20]), bits(&sound[..20]));
                assert_eq!(bits(&found[40..]), bits(&sound[40..]));
            }
        }
    }
}

/// Over dense formats the option changes nothing.
#[test]
fn dense_formats_keep_their_class() {
    let mut noise = Noise::new(4);
    for format in WeightFormat::ALL.into_iter().filter(|format| format.is_dense()) {
        let columns = 256;
        let bytes = matrix(format, 20, columns, &mut noise);
        let packed = PackedLinear::stack(&[Matrix::new(format, 20, columns, &bytes).unwrap()]).unwrap();
        let x = noise.values(3 * columns);
        for kernels in kernels() {
            let native = found(kernels.with_activations(Activations::Native), &packed, &x);
            assert_eq!(bits(&found(kernels, &packed, &x)), bits(&native), "{format}");
        }
    }
}

/// With f32 activations, too, a linear over weights of codes has the same bits in every tier.
#[test]
fn native_activations_give_the_same_bits_in_every_tier() {
    let mut noise = Noise::new(5);
    for format in formats() {
        let columns = 2 * format.block_len();
        let bytes = matrix(format, 20, columns, &mut noise);
        let packed = PackedLinear::stack(&[Matrix::new(format, 20, columns, &bytes).unwrap()]).unwrap();
        let x = noise.values(7 * columns);
        let all: Vec<_> = tiers()
            .map(|kernels| bits(&found(kernels.with_activations(Activations::Native), &packed, &x)))
            .collect();
        assert!(all.iter().all(|bits| *bits == all[0]), "{format}");
    }
}
