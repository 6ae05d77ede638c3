//! The best tokens of rows of logits and their log-probabilities, by the meaning in [`crate::candidates`].

use crate::{
    Rows, RowsMut,
    candidates::{Choice, LANES, RANGE, RowNoise, finish_row, weight},
};

/// Writes a row of candidates for each row of `logits`, `[R, V]` to `[R, 2 most + 1]`, by their values under `noise` if
/// there is some.
///
/// # Panics
/// If the choice is impossible or there is no room for it.
pub fn candidates(logits: Rows<'_>, choice: Choice, noise: Option<RowNoise<'_>>, mut out: RowsMut<'_>) {
    choice.check(out.columns() / 2);
    assert_eq!(logits.width(), out.width(), "a row of candidates for each of logits");
    for r in 0..logits.width() {
        let value = |place: usize, logit: f32| match noise.map(|noise| noise.of_row(r)) {
            Some(noise) if !logit.is_nan() => noise.value(logit, place),
            Some(_) | None => logit,
        };
        let row: Vec<f32> =
            logits.row(r).iter().enumerate().map(|(place, logit)| value(place, *logit)).collect();
        let row = &row[..];
        let mut order: Vec<usize> = (0..row.len()).filter(|&i| !row[i].is_nan()).collect();
        order.sort_by(|&a, &b| row[b].partial_cmp(&row[a]).expect("NaN was filtered").then(a.cmp(&b)));
        let largest = order.first().map(|&i| row[i]);
        order.truncate(choice.k);
        let out = out.row(r);
        let most = out.len() / 2;
        let (ids, values) = out[1..].split_at_mut(most);
        for ((id, value), &i) in ids.iter_mut().zip(values).zip(&order) {
            (*id, *value) = (f32::from_bits(i as u32), row[i]);
        }
        let sum =
            largest.zip(choice.inverse()).map(|(largest, inverse)| (sum(row, largest, inverse), inverse));
        finish_row(out, order.len(), sum);
    }
}

fn sum(row: &[f32], largest: f32, inverse: f32) -> f32 {
    let mut sum = 0.0;
    for range in row.chunks(RANGE) {
        let m = range.iter().copied().filter(|x| !x.is_nan()).fold(f32::NEG_INFINITY, f32::max);
        let mut lanes = [0.0; LANES];
        for (i, &logit) in range.iter().enumerate() {
            lanes[i % LANES] += weight(logit, m, inverse);
        }
        let mut half = LANES / 2;
        while half > 0 {
            for i in 0..half {
                lanes[i] += lanes[i + half];
            }
            half /= 2;
        }
        sum += lanes[0] * weight(m, largest, inverse);
    }
    sum
}

#[cfg(test)]
mod tests;
