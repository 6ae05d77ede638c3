//! Ops over rows alone, and the embedding.

use super::tiers;
use proptest::prelude::*;
use ygg_kernels::{
    Matrix, Nonlinearity, Norm, Rope, RopePairing, RopeTable, Rows, RowsMut, Tier, WeightFormat,
    cpu::{Kernels, PackedLinear},
    reference,
    testing::{Noise, bits, matrix},
};

/// Runs an op on `[width, columns]` outputs, once in full and once row by row.
fn both_ways(width: usize, columns: usize, op: impl Fn(std::ops::Range<usize>, RowsMut<'_>)) -> Vec<f32> {
    let mut whole = vec![f32::NAN; width * columns];
    op(0..width, RowsMut::new(&mut whole, columns));
    let mut parts = vec![f32::NAN; width * columns];
    for w in (0..width).rev() {
        op(w..w + 1, RowsMut::new(&mut parts, columns));
    }
    assert_eq!(bits(&whole), bits(&parts));
    whole
}

/// `relative` of the larger of the reference and `floor`.
fn assert_close(found: &[f32], expected: &[f32], relative: f32, floor: f32) {
    for (i, (a, b)) in found.iter().zip(expected).enumerate() {
        assert!((a - b).abs() <= relative * b.abs().max(floor), "element {i}: {a}, not {b}");
    }
}

proptest! {
    /// The sum of squares has positive terms: an error of 2^-24 per addition in a lane, and a few more roundings.
    #[test]
    fn rms_norm_follows_the_reference(width in 1usize..5, columns in 1usize..200, seed: u64) {
        let mut noise = Noise::new(seed);
        let (x, weight) = (noise.values(width * columns), noise.values(columns));
        let norm = Norm { weight: &weight, eps: 1e-5 };
        let mut expected = vec![0.0; x.len()];
        reference::rms_norm(Rows::new(&x, columns), norm, RowsMut::new(&mut expected, columns));
        for kernels in tiers() {
            let found =
                both_ways(width, columns, |rows, out| kernels.rms_norm(Rows::new(&x, columns), norm, rows, out));
            assert_close(&found, &expected, 3e-6, 0.0);
            let mut portable = vec![0.0; x.len()];
            let out = RowsMut::new(&mut portable, columns);
            Kernels::portable().rms_norm(Rows::new(&x, columns), norm, 0..width, out);
            prop_assert_eq!(bits(&found), bits(&portable), "{}", kernels.tier());
        }
    }

    /// Two units in the last place of the exponential, and three roundings.
    #[test]
    fn gates_follow_the_reference(width in 1usize..4, columns in 1usize..100, seed: u64, size in 0.1f32..60.0) {
        let mut noise = Noise::new(seed);
        let gate: Vec<_> = noise.values(width * columns).iter().map(|x| x * size).collect();
        let up: Vec<_> = noise.values(width * columns).iter().map(|x| 10.0 * x).collect();
        let mut expected = vec![0.0; up.len()];
        let (gate, up) = (Rows::new(&gate, columns), Rows::new(&up, columns));
        let all = [
            Nonlinearity::Silu,
            Nonlinearity::GeluTanh,
            Nonlinearity::ClampedSilu,
            Nonlinearity::Sigmoid,
        ];
        for function in all {
            reference::gate(function, gate, up, RowsMut::new(&mut expected, columns));
            // The exponential of GELU's argument is off by its rounding: 2^-22 of at most 90. Below that it is 0.
            let (relative, floor) = match function {
                Nonlinearity::Silu | Nonlinearity::Sigmoid => (1e-6, 1e-30),
                Nonlinearity::GeluTanh => (3e-5, 1e-30),
                // An up product near -1 loses digits as it is added to 1.
                Nonlinearity::ClampedSilu => (1e-6, 1.0),
            };
            for kernels in tiers() {
                let found = both_ways(width, columns, |rows, out| kernels.gate(function, gate, up, rows, out));
                assert_close(&found, &expected, relative, floor);
                let mut portable = vec![0.0; found.len()];
                let out = RowsMut::new(&mut portable, columns);
                Kernels::portable().gate(function, gate, up, 0..width, out);
                prop_assert_eq!(bits(&found), bits(&portable), "{}", kernels.tier());
            }
        }
    }

    /// A lane of a body and a lane of a tail give the same bits.
    #[test]
    fn gates_know_no_tail(columns in 1usize..70, gate in -90.0f32..90.0) {
        for kernels in tiers() {
            let (gate, up) = (vec![gate; columns], vec![0.7; columns]);
            let (gate, up) = (Rows::new(&gate, columns), Rows::new(&up, columns));
            let found = both_ways(1, columns, |rows, out| kernels.gate(Nonlinearity::GeluTanh, gate, up, rows, out));
            prop_assert!(found.iter().all(|x| x.to_bits() == found[0].to_bits()));
        }
    }

    /// Two units in the last place of the exponential and four roundings, of up to twice the cap.
    #[test]
    fn bounds_follow_the_reference(columns in 1usize..70, cap in 1f32..60.0, size in 0.1f32..200.0, seed: u64) {
        let x: Vec<_> = Noise::new(seed).values(2 * columns).iter().map(|x| x * size).collect();
        let mut expected = x.clone();
        reference::softcap(cap, RowsMut::new(&mut expected, columns));
        let mut portable = x.clone();
        Kernels::portable().softcap(cap, 0..2, RowsMut::new(&mut portable, columns));
        for kernels in tiers() {
            let mut found = x.clone();
            kernels.softcap(cap, 0..2, RowsMut::new(&mut found, columns));
            prop_assert_eq!(bits(&found), bits(&portable), "{}", kernels.tier());
            for (a, b) in found.iter().zip(&expected) {
                prop_assert!((a - b).abs() <= 1e-6 * cap && a.abs() <= cap, "{a}, not {b}");
            }
        }
    }

    /// Every head by itself has the bits of a row of its own.
    #[test]
    fn heads_are_normalised_each_by_itself(heads in 1usize..5, group in 1usize..40, seed: u64) {
        let mut noise = Noise::new(seed);
        let (x, weight) = (noise.values(heads * group), noise.values(group));
        let norm = Norm { weight: &weight, eps: 1e-5 };
        let mut expected = vec![0.0; x.len()];
        reference::rms_norm(Rows::new(&x, x.len()), norm, RowsMut::new(&mut expected, x.len()));
        for kernels in tiers() {
            let (mut found, mut rows) = (vec![0.0; x.len()], vec![0.0; x.len()]);
            kernels.rms_norm(Rows::new(&x, x.len()), norm, 0..1, RowsMut::new(&mut found, x.len()));
            kernels.rms_norm(Rows::new(&x, group), norm, 0..heads, RowsMut::new(&mut rows, group));
            prop_assert_eq!(bits(&found), bits(&rows));
            assert_close(&found, &expected, 3e-6, 0.0);
        }
    }

    #[test]
    fn biases_are_exact(width in 1usize..4, columns in 1usize..50, split in 0usize..50, seed: u64) {
        let mut noise = Noise::new(seed);
        let (x, bias) = (noise.values(width * columns), noise.values(columns));
        let mut expected = x.clone();
        reference::add_bias(&bias, RowsMut::new(&mut expected, columns));
        for kernels in tiers() {
            let (mut found, split) = (x.clone(), split.min(columns));
            kernels.add_bias(&bias, split..columns, RowsMut::new(&mut found, columns));
            kernels.add_bias(&bias, 0..split, RowsMut::new(&mut found, columns));
            prop_assert_eq!(bits(&found), bits(&expected));
        }
    }

    /// The turned element is a sum of two rounded products, each at most 1.5: 2^-23 each.
    #[test]
    fn rope_follows_the_reference(heads in 1usize..4, half in 1usize..40, rest in 0usize..3, seed: u64) {
        let mut noise = Noise::new(seed);
        let inv_freq: Vec<_> = (0..half).map(|i| 10_000f32.powf(-(i as f32) / half as f32)).collect();
        let table = RopeTable::new(&inv_freq, 1.0, 50);
        let head_dim = 2 * (half + rest);
        let columns = heads * head_dim;
        let positions: Vec<u32> = (0..3).map(|_| noise.below(50) as u32).collect();
        let x = noise.values(3 * columns);
        let x = Rows::new(&x, columns);
        for pairing in [RopePairing::Adjacent, RopePairing::Halves] {
            let rope = Rope { table: &table, pairing };
            let mut expected = vec![0.0; 3 * columns];
            reference::rope(x, head_dim, &positions, rope, RowsMut::new(&mut expected, columns));
            for kernels in tiers() {
                let found = both_ways(3, columns, |rows, out| kernels.rope(x, head_dim, &positions, rope, rows, out));
                assert_close(&found, &expected, 2.4e-7, 1.5);
                let mut portable = vec![0.0; 3 * columns];
                let out = RowsMut::new(&mut portable, columns);
                Kernels::portable().rope(x, head_dim, &positions, rope, 0..3, out);
                prop_assert_eq!(bits(&found), bits(&portable), "{}", kernels.tier());
            }
        }
    }

    #[test]
    fn sums_and_gathers_are_exact(width in 1usize..5, columns in 1usize..50, seed: u64) {
        let mut noise = Noise::new(seed);
        let (a, b) = (noise.values(width * columns), noise.values(width * columns));
        let indices: Vec<u32> = (0..width).map(|_| noise.below(width) as u32).collect();
        let (rows_a, rows_b) = (Rows::new(&a, columns), Rows::new(&b, columns));
        let mut expected = vec![0.0; a.len()];
        for kernels in tiers() {
            reference::add(rows_a, rows_b, RowsMut::new(&mut expected, columns));
            prop_assert_eq!(&both_ways(width, columns, |rows, out| kernels.add(rows_a, rows_b, rows, out)), &expected);
            let mut sum = a.clone();
            kernels.add_into(rows_b, 0..width, RowsMut::new(&mut sum, columns));
            prop_assert_eq!(&sum, &expected);
            reference::add_into(rows_b, RowsMut::new(&mut sum, columns));
            kernels.add_into(rows_b, 0..width, RowsMut::new(&mut expected, columns));
            prop_assert_eq!(&sum, &expected);
            let mut doubled = a.clone();
            kernels.scale(2.0, 0..width, RowsMut::new(&mut doubled, columns));
            reference::scale(0.5, RowsMut::new(&mut doubled, columns));
            prop_assert_eq!(&doubled, &a);
            reference::select_rows(rows_a, &indices, RowsMut::new(&mut expected, columns));
            let found = both_ways(width, columns, |rows, out| kernels.select_rows(rows_a, &indices, rows, out));
            prop_assert_eq!(&found, &expected);
        }
    }

    #[test]
    fn embedding_is_exact(f in 0usize..6, tokens in prop::collection::vec(0u32..37, 1..6), seed: u64) {
        let format = WeightFormat::ALL[f];
        let bytes = matrix(format, 37, 64, &mut Noise::new(seed));
        let weights = Matrix::new(format, 37, 64, &bytes).unwrap();
        let packed = PackedLinear::stack(&[weights]).unwrap();
        let mut expected = vec![0.0; tokens.len() * 64];
        reference::embed(&weights, &tokens, RowsMut::new(&mut expected, 64));
        for kernels in tiers() {
            let found = both_ways(tokens.len(), 64, |rows, out| kernels.embed(&packed, &tokens, rows, out));
            prop_assert_eq!(bits(&found), bits(&expected));
        }
    }
}

#[test]
fn the_reference_reads_other_weights() {
    assert_eq!(Kernels::for_tier(Tier::Reference), None);
}
