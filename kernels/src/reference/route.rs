//! Routes of rows, and products with the matrices of the experts that they lead to.

use super::add_bias;
use crate::{Gating, Matrix, Routed, Routes, Routing, Rows, RowsMut};

/// Chooses experts and their weights: `out` (`[W, 2 k]`) by `scores` (`[W, E]`).
pub fn route(scores: Rows<'_>, bias: Option<&[f32]>, routing: &Routing, mut out: RowsMut<'_>) {
    routing.check(scores, bias, &out);
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
            row[routing.used + place] = (weights[expert] / divisor * f64::from(routing.scale)) as f32;
        }
    }
}

/// Products of rows with the matrices of their experts, each product by `linear`, plus their biases: of each expert a
/// vector, one after the other.
pub fn routed_linear<'m>(
    linear: fn(Rows<'_>, &Matrix<'_>, RowsMut<'_>),
    x: Rows<'_>,
    routes: Routes<'_>,
    (experts, biases): (&[Matrix<'m>], Option<&[f32]>),
    routed: Routed,
    mut out: RowsMut<'_>,
) {
    let matrix = [experts[0].rows(), experts[0].columns()];
    routed.check(x, routes, matrix, &out);
    let [outputs, columns] = matrix;
    let mut product = vec![0.0; outputs];
    for w in 0..x.width() {
        if routed == Routed::Joined {
            out.row(w).fill(0.0);
        }
        for (place, expert) in routes.experts(w).enumerate() {
            let part = Rows::new(routed.input(x, w, place, columns), columns);
            linear(part, &experts[expert], RowsMut::new(&mut product, outputs));
            if let Some(biases) = biases {
                add_bias(&biases[expert * outputs..][..outputs], RowsMut::new(&mut product, outputs));
            }
            match routed {
                Routed::Spread => {
                    out.span(w, place * outputs..(place + 1) * outputs).copy_from_slice(&product);
                }
                Routed::Joined => {
                    let weight = routes.weight(w, place);
                    out.row(w).iter_mut().zip(&product).for_each(|(sum, x)| *sum += weight * x);
                }
            }
        }
    }
}
