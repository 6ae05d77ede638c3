//! Routes of rows, and products with the matrices of the experts that they lead to.

use super::{add_bias, gate};
use crate::{Gating, Matrix, Nonlinearity, RouteVector, Routes, Routing, Rows, RowsMut};

/// Chooses experts and their weights: `out` (`[W, 2 k]`) by `scores` (`[W, E]`).
pub fn route(scores: Rows<'_>, vector: Option<RouteVector<&[f32]>>, routing: &Routing, mut out: RowsMut<'_>) {
    routing.check(scores, vector, &out);
    let [bias, factors] = RouteVector::apart(vector);
    for w in 0..scores.width() {
        let scores: Vec<f64> = scores.row(w).iter().map(|score| f64::from(*score)).collect();
        let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let mass: f64 = scores.iter().map(|score| (score - largest).exp()).sum();
        let weights: Vec<f64> = scores
            .iter()
            .map(|score| match routing.gating {
                Gating::Softmax => (score - largest).exp() / mass,
                Gating::Sigmoid => 1.0 / (1.0 + (-score).exp()),
            })
            .collect();
        let value = |expert: &usize| match bias {
            None => scores[*expert],
            Some(bias) => weights[*expert] + f64::from(bias[*expert]),
        };
        let mut experts: Vec<usize> = (0..scores.len()).collect();
        // Stable: of equal values the lowest number is first.
        experts.sort_by(|a, b| value(b).total_cmp(&value(a)));
        experts.truncate(routing.used);
        experts.sort_unstable();
        let used: f64 = experts.iter().map(|expert| weights[*expert]).sum();
        let divisor = routing.normalised.map_or(1.0, |least| used + f64::from(least));
        for (place, expert) in experts.into_iter().enumerate() {
            let row = out.row(w);
            row[place] = expert as f32;
            let factor = routing.scale * factors.map_or(1.0, |factors| factors[expert]);
            row[routing.used + place] = (weights[expert] / divisor * f64::from(factor)) as f32;
        }
    }
}

/// A product: rows, a matrix, and where the results go.
type Linear = fn(Rows<'_>, &Matrix<'_>, RowsMut<'_>);

/// Matrices, and the biases of all of them, one vector after the other.
type Biased<'a, 'm> = (&'a [Matrix<'m>], Option<&'a [f32]>);

/// The product of one row with a matrix of several, by `linear`, plus its bias.
fn product(linear: Linear, x: &[f32], (matrices, biases): Biased<'_, '_>, number: usize) -> Vec<f32> {
    let matrix = &matrices[number];
    let mut product = vec![0.0; matrix.rows()];
    linear(Rows::new(x, x.len()), matrix, RowsMut::new(&mut product, matrix.rows()));
    if let Some(biases) = biases {
        let bias = &biases[number * matrix.rows()..][..matrix.rows()];
        add_bias(bias, RowsMut::new(&mut product, matrix.rows()));
    }
    product
}

/// Of each row `function(x gate^T) * (x up^T)` with the matrices of each of its experts, `[W, k N]`: all gates, then
/// all ups.
pub fn routed_gated(
    linear: Linear,
    function: Nonlinearity,
    x: Rows<'_>,
    routes: Routes<'_>,
    experts: Biased<'_, '_>,
    mut out: RowsMut<'_>,
) {
    let (count, outputs, columns) = (experts.0.len() / 2, experts.0[0].rows(), experts.0[0].columns());
    routes.check(x, [columns, routes.used() * outputs], &out);
    for w in 0..x.width() {
        for (place, expert) in routes.experts(w).enumerate() {
            let [of_gate, of_up] =
                [expert, count + expert].map(|number| product(linear, x.row(w), experts, number));
            let [of_gate, of_up] = [&of_gate, &of_up].map(|x| Rows::new(x, outputs));
            let span = out.span(w, place * outputs..(place + 1) * outputs);
            gate(function, of_gate, of_up, RowsMut::new(span, outputs));
        }
    }
}

/// Of each row `[k K]` the sum, in order of experts, of the products of each part with its expert's matrix, times the
/// expert's weight.
pub fn routed_linear(
    linear: Linear,
    x: Rows<'_>,
    routes: Routes<'_>,
    experts: Biased<'_, '_>,
    mut out: RowsMut<'_>,
) {
    let (outputs, columns) = (experts.0[0].rows(), experts.0[0].columns());
    routes.check(x, [routes.used() * columns, outputs], &out);
    for w in 0..x.width() {
        out.row(w).fill(0.0);
        for (place, expert) in routes.experts(w).enumerate() {
            let product = product(linear, &x.row(w)[place * columns..][..columns], experts, expert);
            let weight = routes.weight(w, place);
            out.row(w).iter_mut().zip(&product).for_each(|(sum, x)| *sum += weight * x);
        }
    }
}
