//! Experts: which rows use which, equal in every tier, and against the reference; products with experts, equal to those
//! of each row by itself.

use super::{linears, tiers};
use proptest::prelude::*;
use ygg_kernels::{
    Gating, Matrix, Nonlinearity, RouteVector, Routes, Routing, Rows, RowsMut, WeightFormat,
    cpu::{Epilogue, Kernels, PackedLinear, RoutedGated, RoutedLinear},
    reference,
    testing::{Noise, Scratch, bits, matrix},
};

/// Under the gates.
const FUNCTION: Nonlinearity = Nonlinearity::ClampedSilu;

/// Distance of the values of the last expert that is used and the next one from which on all choose the same.
const CLEAR: f32 = 1e-4;

fn routed(
    kernels: Kernels,
    scores: &[f32],
    vector: Option<RouteVector<&[f32]>>,
    experts: usize,
    routing: &Routing,
) -> Vec<f32> {
    let scores = Rows::new(scores, experts);
    let mut out = vec![f32::NAN; scores.width() * routing.columns()];
    for w in (0..scores.width()).rev() {
        kernels.route(scores, vector, routing, w..w + 1, RowsMut::new(&mut out, routing.columns()));
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
        routing in routing(), experts in 9usize..150, width in 1usize..6, kind in 0..3u8, tied: bool, seed: u64,
    ) {
        let mut noise = Noise::new(seed);
        // Halves: many are equal.
        let score = |noise: &mut Noise| if tied { noise.below(9) as f32 / 2.0 } else { 5.0 * noise.value() };
        let scores: Vec<f32> = (0..width * experts).map(|_| score(&mut noise)).collect();
        let numbers = noise.values(experts);
        let vector = match kind {
            0 => None,
            1 => Some(RouteVector::Bias(&numbers[..])),
            _ => Some(RouteVector::Factors(&numbers[..])),
        };
        let expected = routed(Kernels::portable(), &scores, vector, experts, &routing);
        for kernels in tiers() {
            let found = routed(kernels, &scores, vector, experts, &routing);
            prop_assert_eq!(bits(&found), bits(&expected), "{}", kernels.tier());
        }
        let mut judged = vec![0.0; expected.len()];
        let rows = Rows::new(&scores, experts);
        reference::route(rows, vector, &routing, RowsMut::new(&mut judged, routing.columns()));
        for (w, (found, judged)) in expected.chunks(2 * routing.used).zip(judged.chunks(2 * routing.used)).enumerate() {
            if let Some(RouteVector::Bias(bias)) = vector {
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
        (experts, width) in (1usize..12, 1usize..9), (is_gated, biased) in any::<(bool, bool)>(), seed: u64,
    ) {
        let format = WeightFormat::ALL[f];
        let columns = if format.block_len() == 1 { blocks * 32 - 9 } else { blocks * format.block_len() };
        let mut noise = Noise::new(seed);
        let used = 1 + noise.below(experts.min(4));
        let count = if is_gated { 2 * experts } else { experts };
        let stored: Vec<_> = (0..count).map(|_| matrix(format, outputs, columns, &mut noise)).collect();
        let matrices: Vec<_> =
            stored.iter().map(|bytes| Matrix::new(format, outputs, columns, bytes).unwrap()).collect();
        let packed: Vec<_> = matrices.iter().map(|matrix| PackedLinear::stack(&[*matrix]).unwrap()).collect();
        let routing = Routing { used, gating: Gating::Softmax, normalised: None, scale: 1.0 };
        let scores = noise.values(width * experts);
        let routes = routed(Kernels::portable(), &scores, None, experts, &routing);
        let routes = Routes::new(Rows::new(&routes, 2 * used));
        let [inputs, results] = if is_gated { [columns, used * outputs] } else { [used * columns, outputs] };
        let x = noise.values(width * inputs);
        let x = Rows::new(&x, inputs);
        let biases = biased.then(|| noise.values(count * outputs));
        let biases = biases.as_deref();
        let tiles = packed[0].tiles();
        let run = |kernels: Kernels, split: usize| {
            let mut found = vec![f32::NAN; width * results];
            let mut scratch = Scratch::new(kernels.routed_scratch_bytes(format, width, [outputs, columns]));
            let matrix = |number: usize| &packed[number];
            for tiles in [split..tiles, 0..split] {
                let (scratch, out) = (scratch.bytes(), RowsMut::new(&mut found, results));
                if is_gated {
                    let products = RoutedGated { x, routes, function: FUNCTION, biases };
                    kernels.routed_gated(products, experts, matrix, tiles, scratch, out);
                } else {
                    let products = RoutedLinear { x, routes, biases };
                    kernels.routed_linear(products, experts, matrix, tiles, scratch, out);
                }
            }
            found
        };
        for kernels in linears() {
            let product = |number: usize, part: &[f32]| {
                let mut scratch = Scratch::new(kernels.linear_scratch_bytes(format, 1, columns));
                let prepared = kernels.prepare(format, Rows::new(part, columns), None, scratch.bytes());
                let mut product = vec![0.0; outputs];
                let out = RowsMut::new(&mut product, outputs);
                kernels.linear(&packed[number], &prepared, 0..tiles, Epilogue::Store, out);
                if let Some(biases) = biases {
                    let out = RowsMut::new(&mut product, outputs);
                    kernels.add_bias(&biases[number * outputs..][..outputs], 0..outputs, out);
                }
                product
            };
            let mut expected = vec![0.0; width * results];
            for w in 0..width {
                for (place, expert) in routes.experts(w).enumerate() {
                    let row = &mut expected[w * results..][..results];
                    if is_gated {
                        let [gate, up] = [expert, experts + expert].map(|number| product(number, x.row(w)));
                        let [gate, up] = [&gate, &up].map(|x| Rows::new(x, outputs));
                        let out = RowsMut::new(&mut row[place * outputs..][..outputs], outputs);
                        kernels.gate(FUNCTION, gate, up, 0..1, out);
                    } else {
                        let product = product(expert, &x.row(w)[place * columns..][..columns]);
                        let weight = routes.weight(w, place);
                        row.iter_mut().zip(product).for_each(|(sum, x)| *sum += weight * x);
                    }
                }
            }
            let found = run(kernels, noise.below(tiles + 1));
            prop_assert_eq!(bits(&found), bits(&expected), "{} {}", kernels.tier(), kernels.activations());
        }
        if format == WeightFormat::F32 {
            let mut judged = vec![0.0; width * results];
            let (out, of) = (RowsMut::new(&mut judged, results), (&matrices[..], biases));
            if is_gated {
                reference::routed_gated(reference::linear, FUNCTION, x, routes, of, out);
            } else {
                reference::routed_linear(reference::linear, x, routes, of, out);
            }
            let found = run(Kernels::best(), 0);
            // Gated ones are products of two sums.
            for (found, judged) in found.iter().zip(&judged) {
                prop_assert!((found - judged).abs() <= 1e-4 * judged.abs().max(1.0), "{found}, not {judged}");
            }
        }
    }
}
