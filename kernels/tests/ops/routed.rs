//! Experts: which rows use which, equal in every tier, and against the reference; products with experts, equal to those
//! of each row by itself.

use super::{linears, tiers};
use proptest::prelude::*;
use ygg_kernels::{
    Gating, Matrix, Routed, Routes, Routing, Rows, RowsMut, WeightFormat,
    cpu::{Epilogue, Kernels, PackedLinear, RoutedLinear},
    reference,
    testing::{Noise, Scratch, bits, matrix},
};

/// Distance of the values of the last expert that is used and the next one from which on all choose the same.
const CLEAR: f32 = 1e-4;

fn routed(
    kernels: Kernels,
    scores: &[f32],
    bias: Option<&[f32]>,
    experts: usize,
    routing: &Routing,
) -> Vec<f32> {
    let scores = Rows::new(scores, experts);
    let mut out = vec![f32::NAN; scores.width() * routing.columns()];
    for w in (0..scores.width()).rev() {
        kernels.route(scores, bias, routing, w..w + 1, RowsMut::new(&mut out, routing.columns()));
    }
    out
}

/// Whether the choice among `values` is clear of rounding.
fn is_clear(mut values: Vec<f32>, used: usize) -> bool {
    values.sort_by(|a, b| b.total_cmp(a));
    used == values.len() || values[used - 1] - values[used] > CLEAR
}

fn routing() -> impl Strategy<Value = Routing> {
    let gating = prop_oneof![Just(Gating::Softmax), Just(Gating::Sigmoid)];
    let normalised = prop_oneof![Just(None), Just(Some(0.0)), Just(Some(0.01))];
    (1usize..=9, gating, normalised, prop_oneof![Just(1.0f32), Just(2.5)])
        .prop_map(|(used, gating, normalised, scale)| Routing { used, gating, normalised, scale })
}

proptest! {
    #[test]
    fn routes_are_the_references_and_equal_in_every_tier(
        routing in routing(), experts in 9usize..150, width in 1usize..6, biased: bool, tied: bool, seed: u64,
    ) {
        let mut noise = Noise::new(seed);
        // Halves: many are equal.
        let score = |noise: &mut Noise| if tied { noise.below(9) as f32 / 2.0 } else { 5.0 * noise.value() };
        let scores: Vec<f32> = (0..width * experts).map(|_| score(&mut noise)).collect();
        let bias = biased.then(|| noise.values(experts));
        let expected = routed(Kernels::portable(), &scores, bias.as_deref(), experts, &routing);
        for kernels in tiers() {
            let found = routed(kernels, &scores, bias.as_deref(), experts, &routing);
            prop_assert_eq!(bits(&found), bits(&expected), "{}", kernels.tier());
        }
        let mut judged = vec![0.0; expected.len()];
        let rows = Rows::new(&scores, experts);
        reference::route(rows, bias.as_deref(), &routing, RowsMut::new(&mut judged, routing.columns()));
        for (w, (found, judged)) in expected.chunks(2 * routing.used).zip(judged.chunks(2 * routing.used)).enumerate() {
            if let Some(bias) = &bias {
                let all = Routing { used: experts.min(Routing::MOST_USED), normalised: None, scale: 1.0, ..routing };
                if all.used < experts {
                    continue;
                }
                let row = &scores[w * experts..][..experts];
                let weights = routed(Kernels::portable(), row, None, experts, &all).split_off(experts);
                if !is_clear(weights.iter().zip(bias).map(|(a, b)| a + b).collect(), routing.used) {
                    continue;
                }
            }
            prop_assert_eq!(&found[..routing.used], &judged[..routing.used], "experts of row {}", w);
            for (found, judged) in found[routing.used..].iter().zip(&judged[routing.used..]) {
                prop_assert!((found - judged).abs() <= 1e-5 * judged.abs(), "{found}, not {judged}");
            }
        }
    }

    /// A row's products are those of its own matrices, in order of experts, whatever other rows use and however work is
    /// split.
    #[test]
    fn products_are_those_of_each_row_by_itself(
        f in 0..WeightFormat::ALL.len(), (outputs, blocks) in (1usize..50, 1usize..3),
        (experts, width) in (1usize..12, 1usize..9), (joined, biased) in any::<(bool, bool)>(), seed: u64,
    ) {
        let format = WeightFormat::ALL[f];
        let columns = if format.block_len() == 1 { blocks * 32 - 9 } else { blocks * format.block_len() };
        let mut noise = Noise::new(seed);
        let used = 1 + noise.below(experts.min(4));
        let kind = if joined { Routed::Joined } else { Routed::Spread };
        let stored: Vec<_> = (0..experts).map(|_| matrix(format, outputs, columns, &mut noise)).collect();
        let matrices: Vec<_> =
            stored.iter().map(|bytes| Matrix::new(format, outputs, columns, bytes).unwrap()).collect();
        let packed: Vec<_> = matrices.iter().map(|matrix| PackedLinear::stack(&[*matrix]).unwrap()).collect();
        let routing = Routing { used, gating: Gating::Softmax, normalised: None, scale: 1.0 };
        let scores = noise.values(width * experts);
        let routes = routed(Kernels::portable(), &scores, None, experts, &routing);
        let routes = Routes::new(Rows::new(&routes, 2 * used));
        let [inputs, results] = kind.columns([outputs, columns], used);
        let x = noise.values(width * inputs);
        let x = Rows::new(&x, inputs);
        let biases = biased.then(|| noise.values(experts * outputs));
        let biases = biases.as_deref();
        for kernels in linears() {
            let mut expected = vec![0.0; width * results];
            for w in 0..width {
                for (place, expert) in routes.experts(w).enumerate() {
                    let part = if joined { &x.row(w)[place * columns..][..columns] } else { x.row(w) };
                    let mut scratch = Scratch::new(kernels.linear_scratch_bytes(format, 1, columns));
                    let prepared = kernels.prepare(format, Rows::new(part, columns), None, scratch.bytes());
                    let mut product = vec![0.0; outputs];
                    let (all, out) = (0..packed[expert].tiles(), RowsMut::new(&mut product, outputs));
                    kernels.linear(&packed[expert], &prepared, all, Epilogue::Store, out);
                    if let Some(biases) = biases {
                        let out = RowsMut::new(&mut product, outputs);
                        kernels.add_bias(&biases[expert * outputs..][..outputs], 0..outputs, out);
                    }
                    let row = &mut expected[w * results..][..results];
                    if joined {
                        let weight = routes.weight(w, place);
                        row.iter_mut().zip(product).for_each(|(sum, x)| *sum += weight * x);
                    } else {
                        row[place * outputs..][..outputs].copy_from_slice(&product);
                    }
                }
            }
            let mut found = vec![f32::NAN; width * results];
            let mut scratch = Scratch::new(kernels.routed_scratch_bytes(format, width, [outputs, columns]));
            let (tiles, product) = (packed[0].tiles(), RoutedLinear { x, routes, routed: kind, biases });
            let split = noise.below(tiles + 1);
            for tiles in [split..tiles, 0..split] {
                let out = RowsMut::new(&mut found, results);
                kernels.routed_linear(product, experts, |number| &packed[number], tiles, scratch.bytes(), out);
            }
            prop_assert_eq!(bits(&found), bits(&expected), "{} {}", kernels.tier(), kernels.activations());
        }
        if format == WeightFormat::F32 {
            let mut judged = vec![0.0; width * results];
            let out = RowsMut::new(&mut judged, results);
            reference::routed_linear(reference::linear, x, routes, (&matrices, biases), kind, out);
            let mut found = vec![0.0; width * results];
            let kernels = Kernels::best();
            let mut scratch = Scratch::new(kernels.routed_scratch_bytes(format, width, [outputs, columns]));
            let (tiles, product) = (0..packed[0].tiles(), RoutedLinear { x, routes, routed: kind, biases });
            let out = RowsMut::new(&mut found, results);
            kernels.routed_linear(product, experts, |number| &packed[number], tiles, scratch.bytes(), out);
            for (found, judged) in found.iter().zip(&judged) {
                prop_assert!((found - judged).abs() <= 1e-4, "{found}, not {judged}");
            }
        }
    }
}
