//! Linears: tolerance against the reference; equality over widths, row orders, tile splits, prologues and epilogues.

use super::linears;
use proptest::prelude::*;
use std::{iter, ops::Range};
use ygg_kernels::{
    Activations, Matrix, Nonlinearity, Norm, Rows, RowsMut, Tier, WeightFormat,
    cpu::{Epilogue, Kernels, PackedLinear, TILE},
    reference,
    testing::{Noise, Scratch, bits, matrix},
};

/// All tiles in one range.
fn all(weights: &PackedLinear) -> Vec<Range<usize>> {
    iter::once(0..weights.tiles()).collect()
}

/// All outputs of a linear, its tiles in the ranges given.
fn run(
    kernels: Kernels,
    weights: &PackedLinear,
    x: Rows<'_>,
    norm: Option<Norm<'_>>,
    ranges: &[Range<usize>],
    epilogue: Epilogue,
    out: &mut [f32],
) {
    let mut scratch = Scratch::new(kernels.linear_scratch_bytes(weights.format(), x.width(), x.columns()));
    let prepared = kernels.prepare(weights.format(), x, norm, scratch.bytes());
    for tiles in ranges {
        let out = RowsMut::new(out, weights.outputs());
        if weights.is_gated() {
            kernels.linear_gated(FUNCTION, weights, &prepared, tiles.clone(), out);
        } else {
            kernels.linear(weights, &prepared, tiles.clone(), epilogue, out);
        }
    }
}

/// Every tier has both functions where gates are tested; here one of them stands for both.
const FUNCTION: Nonlinearity = Nonlinearity::GeluTanh;

fn whole(kernels: Kernels, weights: &PackedLinear, x: &[f32]) -> Vec<f32> {
    let x = Rows::new(x, weights.columns());
    let mut out = vec![f32::NAN; x.width() * weights.outputs()];
    run(kernels, weights, x, None, &all(weights), Epilogue::Store, &mut out);
    out
}

/// Cuts `0..tiles` at random places.
fn cut(tiles: usize, noise: &mut Noise) -> Vec<Range<usize>> {
    let (mut ranges, mut start) = (Vec::new(), 0);
    while start < tiles {
        let end = start + 1 + noise.below(tiles - start);
        ranges.push(start..end);
        start = end;
    }
    noise.shuffle(&mut ranges);
    ranges
}

/// Columns that a format can have: dense rows may end inside a block.
fn columns_of(format: WeightFormat, blocks: usize) -> usize {
    if format.block_len() == 1 { blocks * 32 - 9 } else { blocks * format.block_len() }
}

/// Largest error per unit of `sum |x|` for weights between -1 and 1 (codes and minimum apart: below 3).
///
/// Rounding activations to bf16 costs 2^-9; every sum of `k` terms costs at most `k` times 2^-23. A code is off by half
/// a scale at most, a scale is a 127th of the largest magnitude of a block, at most 1, and weights, rounded, are below
/// 1.3. The sum of magnitudes of a block is taken as a quarter of its length at least.
fn tolerance(kernels: Kernels, format: WeightFormat, columns: usize) -> f32 {
    let sums = 3.0 * (columns + 8) as f32 * 2f32.powi(-23);
    if kernels.activations().over(format) == Activations::Int8 {
        return 1.3 * 4.0 * 0.5 / 127.0 + sums;
    }
    let rounded = format == WeightFormat::BF16;
    match kernels.tier() {
        Tier::Avx512Bf16 | Tier::Amx if rounded => 3.0 * 2f32.powi(-9) + sums,
        Tier::Amx
        | Tier::Avx512Bf16
        | Tier::Avx512
        | Tier::Avx2
        | Tier::Neon
        | Tier::Portable
        | Tier::Reference => sums,
        Tier::Cuda => unreachable!("no kernels of a processor"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn follows_the_reference(
        f in 0..WeightFormat::ALL.len(), rows in 1usize..70, blocks in 1usize..6, width in 1usize..12, seed: u64,
    ) {
        let format = WeightFormat::ALL[f];
        let columns = columns_of(format, blocks);
        let mut noise = Noise::new(seed);
        let bytes = matrix(format, rows, columns, &mut noise);
        let weights = Matrix::new(format, rows, columns, &bytes).unwrap();
        let x = noise.values(width * columns);
        let mut expected = vec![0.0; width * rows];
        reference::linear(Rows::new(&x, columns), &weights, RowsMut::new(&mut expected, rows));
        let packed = PackedLinear::stack(&[weights]).unwrap();
        for kernels in linears() {
            let found = whole(kernels, &packed, &x);
            for (w, (found, expected)) in found.chunks(rows).zip(expected.chunks(rows)).enumerate() {
                let size: f32 = x[w * columns..][..columns].iter().map(|x| x.abs()).sum();
                for (a, b) in found.iter().zip(expected) {
                    prop_assert!((a - b).abs() <= tolerance(kernels, format, columns) * size, "{a}, not {b}");
                }
            }
        }
    }

    #[test]
    fn rows_are_invariant(
        f in 0..WeightFormat::ALL.len(), rows in 1usize..150, blocks in 1usize..5, width in 1usize..65, seed: u64,
    ) {
        let format = WeightFormat::ALL[f];
        let columns = columns_of(format, blocks);
        let mut noise = Noise::new(seed);
        let bytes = matrix(format, rows, columns, &mut noise);
        let packed = PackedLinear::stack(&[Matrix::new(format, rows, columns, &bytes).unwrap()]).unwrap();
        let x = noise.values(width * columns);
        for kernels in linears() {
            let mut order: Vec<_> = (0..width).collect();
            noise.shuffle(&mut order);
            let shuffled: Vec<_> = order.iter().flat_map(|&w| x[w * columns..][..columns].to_vec()).collect();
            let mut found = vec![f32::NAN; width * rows];
            let ranges = cut(packed.tiles(), &mut noise);
            run(kernels, &packed, Rows::new(&shuffled, columns), None, &ranges, Epilogue::Store, &mut found);
            for (place, &w) in order.iter().enumerate() {
                let alone = whole(kernels, &packed, &x[w * columns..][..columns]);
                prop_assert_eq!(bits(&alone), bits(&found[place * rows..][..rows]));
            }
        }
    }

    #[test]
    fn prologue_and_epilogue_change_no_bits(
        f in 0..WeightFormat::ALL.len(), rows in 1usize..40, blocks in 1usize..5, width in 1usize..20, seed: u64,
    ) {
        let format = WeightFormat::ALL[f];
        let columns = columns_of(format, blocks);
        let mut noise = Noise::new(seed);
        let bytes = matrix(format, rows, columns, &mut noise);
        let packed = PackedLinear::stack(&[Matrix::new(format, rows, columns, &bytes).unwrap()]).unwrap();
        let (x, weight, residual) = (noise.values(width * columns), noise.values(columns), noise.values(width * rows));
        let norm = Norm { weight: &weight, eps: 1e-6 };
        let x = Rows::new(&x, columns);
        for kernels in linears() {
            let mut normed = vec![0.0; width * columns];
            kernels.rms_norm(x, norm, 0..width, RowsMut::new(&mut normed, columns));
            let apart = whole(kernels, &packed, &normed);
            let mut fused = vec![f32::NAN; width * rows];
            run(kernels, &packed, x, Some(norm), &all(&packed), Epilogue::Store, &mut fused);
            prop_assert_eq!(bits(&apart), bits(&fused));
            let mut added = residual.clone();
            run(kernels, &packed, x, Some(norm), &all(&packed), Epilogue::AddInto, &mut added);
            let sums: Vec<_> = residual.iter().zip(&apart).map(|(a, b)| a + b).collect();
            prop_assert_eq!(bits(&added), bits(&sums));
        }
    }

    #[test]
    fn gated_is_two_linears_and_a_gate(
        f in 0..WeightFormat::ALL.len(), rows in 1usize..90, blocks in 1usize..4, width in 1usize..20, seed: u64,
    ) {
        let format = WeightFormat::ALL[f];
        let columns = columns_of(format, blocks);
        let mut noise = Noise::new(seed);
        let bytes = [(); 2].map(|()| matrix(format, rows, columns, &mut noise));
        let [gate, up] = [0, 1].map(|i| Matrix::new(format, rows, columns, &bytes[i]).unwrap());
        let pair = PackedLinear::gated(&gate, &up).unwrap();
        let stacked = PackedLinear::stack(&[gate, up]).unwrap();
        let x = noise.values(width * columns);
        let mut expected = vec![0.0; width * rows];
        reference::linear_gated(FUNCTION, Rows::new(&x, columns), &gate, &up, RowsMut::new(&mut expected, rows));
        for kernels in linears() {
            let both = whole(kernels, &stacked, &x);
            let both = Rows::new(&both, 2 * rows);
            let mut apart = vec![0.0; width * rows];
            let (a, b) = (both.slice_columns(0..rows), both.slice_columns(rows..2 * rows));
            kernels.gate(FUNCTION, a, b, 0..width, RowsMut::new(&mut apart, rows));
            let mut fused = vec![f32::NAN; width * rows];
            let ranges = cut(pair.tiles(), &mut noise);
            run(kernels, &pair, Rows::new(&x, columns), None, &ranges, Epilogue::Store, &mut fused);
            prop_assert_eq!(bits(&apart), bits(&fused));
            for (w, (found, expected)) in fused.chunks(rows).zip(expected.chunks(rows)).enumerate() {
                let size: f32 = x[w * columns..][..columns].iter().map(|x| x.abs()).sum();
                let tolerance = tolerance(kernels, format, columns) * size;
                // The function has a slope of at most 1.2, and is at most its argument.
                for n in 0..rows {
                    let bound = tolerance * (1.2 * b.row(w)[n].abs() + a.row(w)[n].abs() + tolerance) + 1e-5;
                    prop_assert!((found[n] - expected[n]).abs() <= bound, "{}, not {}", found[n], expected[n]);
                }
            }
        }
    }
}

/// Every number of rows in a group, one group or several.
#[test]
fn every_register_blocking_gives_the_same_bits() {
    let mut noise = Noise::new(4);
    for format in WeightFormat::ALL {
        let columns = format.block_len().max(64);
        let bytes = matrix(format, 7 * TILE, columns, &mut noise);
        let packed = PackedLinear::stack(&[Matrix::new(format, 7 * TILE, columns, &bytes).unwrap()]).unwrap();
        let x = noise.values(64 * columns);
        for kernels in linears() {
            let alone: Vec<_> = x.chunks(columns).flat_map(|row| whole(kernels, &packed, row)).collect();
            for width in (1..=17).chain([64]) {
                let found = whole(kernels, &packed, &x[..width * columns]);
                assert_eq!(bits(&found), bits(&alone[..found.len()]), "{format} at width {width}");
            }
        }
    }
}

/// Every number of rows that share a walk over the weights, and more.
#[test]
fn every_width_gives_the_same_bits() {
    let mut noise = Noise::new(5);
    let rows = TILE + 3;
    for format in WeightFormat::ALL {
        let columns = 160_usize.next_multiple_of(format.block_len());
        let bytes = matrix(format, rows, columns, &mut noise);
        let packed = PackedLinear::stack(&[Matrix::new(format, rows, columns, &bytes).unwrap()]).unwrap();
        let x = noise.values(129 * columns);
        for kernels in linears() {
            let alone: Vec<_> = x.chunks(columns).flat_map(|row| whole(kernels, &packed, row)).collect();
            for width in (1..=65).chain([80, 97, 128, 129]) {
                let found = whole(kernels, &packed, &x[..width * columns]);
                assert_eq!(bits(&found), bits(&alone[..found.len()]), "{format} at width {width}");
            }
        }
    }
}

#[test]
fn only_the_given_tiles_are_written() {
    let mut noise = Noise::new(7);
    for format in WeightFormat::ALL {
        let columns = format.block_len().max(32);
        let bytes = matrix(format, 70, columns, &mut noise);
        let packed = PackedLinear::stack(&[Matrix::new(format, 70, columns, &bytes).unwrap()]).unwrap();
        for kernels in linears() {
            for (width, tiles) in [(1, 1..3), (3, 4..5), (9, 0..1), (2, 2..2)] {
                let x = noise.values(width * columns);
                let all = whole(kernels, &packed, &x);
                // Rows farther apart than their columns: what lies between stays as it was.
                let mut out = vec![7.0; width * 100];
                let mut scratch = Scratch::new(kernels.linear_scratch_bytes(format, width, columns));
                let prepared = kernels.prepare(format, Rows::new(&x, columns), None, scratch.bytes());
                let view = RowsMut::new(&mut out, 100).slice_columns(20..90);
                kernels.linear(&packed, &prepared, tiles.clone(), Epilogue::Store, view);
                for (w, row) in out.chunks(100).enumerate() {
                    let written = tiles.start * TILE..(tiles.end * TILE).min(70);
                    for (i, value) in row.iter().enumerate() {
                        let expected = match i.checked_sub(20) {
                            Some(n) if written.contains(&n) => all[w * 70 + n],
                            _ => 7.0,
                        };
                        assert_eq!(*value, expected, "{format} width {width} row {w} column {i}");
                    }
                }
            }
        }
    }
}

#[test]
fn activations_of_another_class_are_refused() {
    let bytes = matrix(WeightFormat::F32, 4, 32, &mut Noise::new(3));
    let packed = PackedLinear::stack(&[Matrix::new(WeightFormat::F32, 4, 32, &bytes).unwrap()]).unwrap();
    let x = [0.0; 32];
    for kernels in linears() {
        let result = std::panic::catch_unwind(|| {
            let mut scratch = Scratch::new(1024);
            let prepared = kernels.prepare(WeightFormat::Q4_1, Rows::new(&x, 32), None, scratch.bytes());
            kernels.linear(&packed, &prepared, 0..1, Epilogue::Store, RowsMut::new(&mut [0.0; 4], 4));
        });
        assert!(result.is_err());
    }
}
