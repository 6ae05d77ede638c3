//! Exact Gaussian-process regression over sets of groups, in storage reserved once.
//!
//! What SWIFT's interval Bayesian optimisation proposes by (<https://arxiv.org/abs/2410.06916>; upper confidence bound
//! with kappa 2.5, noise 1e-2). The kernel is Matérn 5/2 over the Euclidean distance of the sets' 0/1 vectors, targets
//! are standardised, and the length scale is the one of a small grid under which they are most likely (Rasmussen and
//! Williams, *Gaussian Processes for Machine Learning*, 2006, algorithm 2.1).
//!
//! Its own code and no crate: `friedrich` and `egobox-gp` allocate for every prediction, which a decode step may not,
//! cannot forget a point, and bring 40 and 110 crates for what is a Cholesky factor of at most 128 x 128.

use crate::plan::GroupSet;

/// Length scales tried, in Euclidean distance: from sets that differ in one group to sets that differ in most.
const SCALES: [f64; 5] = [1.0, 2.0, 4.0, 8.0, 16.0];

/// What the process expects of a set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Posterior {
    pub(super) mean: f64,
    pub(super) deviation: f64,
}

/// A process fitted to points; row-major triangular storage `[n, n]`.
#[derive(Clone, Debug)]
pub(super) struct GaussianProcess {
    most: usize,
    noise: f64,
    sets: Vec<GroupSet>,
    /// Standardised targets `[n]`.
    targets: Vec<f64>,
    /// Lower Cholesky factor of the noisy covariance, `[n, n]`.
    factor: Vec<f64>,
    /// The covariance's inverse times the targets, `[n]`.
    weights: Vec<f64>,
    column: Vec<f64>,
    scale: f64,
    mean: f64,
    deviation: f64,
}

/// Matérn 5/2 of sets that differ in `distance` groups.
pub(super) fn covariance(distance: u32, scale: f64) -> f64 {
    let r = (5.0 * f64::from(distance)).sqrt() / scale;
    (1.0 + r + r * r / 3.0) * (-r).exp()
}

impl GaussianProcess {
    /// A process of at most `most` points whose targets carry noise of the variance `noise`, in units of their own
    /// variance.
    pub(super) fn with_capacity(most: usize, noise: f64) -> Self {
        Self {
            most,
            noise,
            sets: Vec::with_capacity(most),
            targets: Vec::with_capacity(most),
            factor: vec![0.0; most * most],
            weights: Vec::with_capacity(most),
            column: Vec::with_capacity(most),
            scale: SCALES[0],
            mean: 0.0,
            deviation: 1.0,
        }
    }

    /// Forgets all points and fits these.
    ///
    /// # Panics
    /// If there are none, or more than it has room for.
    pub(super) fn fit(&mut self, points: impl Iterator<Item = (GroupSet, f64)>) {
        self.sets.clear();
        self.targets.clear();
        for (set, target) in points {
            assert!(self.sets.len() < self.most, "a process of at most {} points", self.most);
            self.sets.push(set);
            self.targets.push(target);
        }
        self.standardise();
        let mut best = (f64::NEG_INFINITY, SCALES[0]);
        for scale in SCALES {
            let likelihood = self.factorise(scale);
            if likelihood > best.0 {
                best = (likelihood, scale);
            }
        }
        self.factorise(best.1);
    }

    fn standardise(&mut self) {
        let count = self.targets.len() as f64;
        assert!(count > 0.0, "a process is fitted to a point or more");
        self.mean = self.targets.iter().sum::<f64>() / count;
        let variance = self.targets.iter().map(|t| (t - self.mean).powi(2)).sum::<f64>() / count;
        // Equal targets have no unit of their own.
        self.deviation = if variance > 1e-18 { variance.sqrt() } else { 1.0 };
        self.targets.iter_mut().for_each(|t| *t = (*t - self.mean) / self.deviation);
    }

    /// Factorises the covariance at a length scale and solves for the weights; gives the log likelihood of the targets.
    fn factorise(&mut self, scale: f64) -> f64 {
        let Self { sets, targets, factor, weights, noise, most, .. } = self;
        let (n, stride) = (sets.len(), *most);
        self.scale = scale;
        for row in 0..n {
            for column in 0..=row {
                let mut sum = covariance(sets[row].distance(&sets[column]), scale);
                if row == column {
                    sum += *noise;
                }
                let (above, below) = (&factor[column * stride..], &factor[row * stride..]);
                sum -= above[..column].iter().zip(&below[..column]).map(|(a, b)| a * b).sum::<f64>();
                factor[row * stride + column] =
                    if row == column { sum.sqrt() } else { sum / factor[column * stride + column] };
            }
        }
        weights.clear();
        weights.extend_from_slice(targets);
        forwards(factor, stride, weights);
        // The half-solved weights have the quadratic form for their square.
        let square: f64 = weights.iter().map(|w| w * w).sum();
        let log_roots: f64 = (0..n).map(|i| factor[i * stride + i].ln()).sum();
        backwards(factor, stride, weights);
        -0.5 * square - log_roots - 0.5 * n as f64 * (2.0 * std::f64::consts::PI).ln()
    }

    /// What is expected of a set, without noise.
    ///
    /// # Panics
    /// If nothing was fitted.
    pub(super) fn predict(&mut self, set: &GroupSet) -> Posterior {
        let Self { sets, factor, weights, column, scale, mean, deviation, most, .. } = self;
        assert!(!sets.is_empty(), "a process predicts once it is fitted");
        column.clear();
        column.extend(sets.iter().map(|known| covariance(known.distance(set), *scale)));
        let standard: f64 = column.iter().zip(&*weights).map(|(k, w)| k * w).sum();
        forwards(factor, *most, column);
        let variance = (1.0 - column.iter().map(|v| v * v).sum::<f64>()).max(0.0);
        Posterior { mean: *mean + *deviation * standard, deviation: *deviation * variance.sqrt() }
    }

    /// The length scale in use.
    #[cfg(test)]
    pub(super) fn scale(&self) -> f64 {
        self.scale
    }
}

/// Solves `L x = b` in place.
fn forwards(factor: &[f64], stride: usize, x: &mut [f64]) {
    for row in 0..x.len() {
        let below = &factor[row * stride..];
        let known: f64 = below[..row].iter().zip(&x[..row]).map(|(l, x)| l * x).sum();
        x[row] = (x[row] - known) / below[row];
    }
}

/// Solves `Lᵀ x = b` in place.
fn backwards(factor: &[f64], stride: usize, x: &mut [f64]) {
    for row in (0..x.len()).rev() {
        let known: f64 = (row + 1..x.len()).map(|later| factor[later * stride + row] * x[later]).sum();
        x[row] = (x[row] - known) / factor[row * stride + row];
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The inverse of `[n, n]` and its determinant, by Gauss-Jordan elimination with pivots.
    fn inverse(matrix: &[Vec<f64>]) -> (Vec<Vec<f64>>, f64) {
        let n = matrix.len();
        let unit = |i: usize| (0..n).map(move |j| f64::from(u8::from(i == j)));
        let mut rows: Vec<Vec<f64>> =
            matrix.iter().enumerate().map(|(i, row)| row.iter().copied().chain(unit(i)).collect()).collect();
        let mut determinant = 1.0;
        for i in 0..n {
            let pivot = (i..n).max_by(|a, b| rows[*a][i].abs().total_cmp(&rows[*b][i].abs())).unwrap();
            rows.swap(i, pivot);
            determinant *= if pivot == i { rows[i][i] } else { -rows[i][i] };
            let by = rows[i][i];
            rows[i].iter_mut().for_each(|x| *x /= by);
            let pivot = rows[i].clone();
            for (_, row) in rows.iter_mut().enumerate().filter(|(j, _)| *j != i) {
                let times = row[i];
                row.iter_mut().zip(&pivot).for_each(|(x, p)| *x -= times * p);
            }
        }
        (rows.into_iter().map(|row| row[n..].to_vec()).collect(), determinant)
    }

    fn dot(a: &[f64], b: &[f64]) -> f64 {
        a.iter().zip(b).map(|(a, b)| a * b).sum()
    }

    /// The textbook: covariance matrices written out and inverted, the best scale by the likelihood with its
    /// determinant.
    fn slow(points: &[(GroupSet, f64)], noise: f64, at: &GroupSet) -> (Posterior, f64) {
        let count = points.len() as f64;
        let mean = points.iter().map(|(_, y)| y).sum::<f64>() / count;
        let variance = points.iter().map(|(_, y)| (y - mean).powi(2)).sum::<f64>() / count;
        let deviation = if variance > 1e-18 { variance.sqrt() } else { 1.0 };
        let targets: Vec<f64> = points.iter().map(|(_, y)| (y - mean) / deviation).collect();
        let fitted = SCALES.map(|scale| {
            let k = |a: &GroupSet, b: &GroupSet| covariance(a.distance(b), scale);
            let matrix: Vec<Vec<f64>> = (0..points.len())
                .map(|i| {
                    let own = |j: usize| if i == j { noise } else { 0.0 };
                    (0..points.len()).map(|j| k(&points[i].0, &points[j].0) + own(j)).collect()
                })
                .collect();
            let (inverse, determinant) = inverse(&matrix);
            let weights: Vec<f64> = inverse.iter().map(|row| dot(row, &targets)).collect();
            let likelihood = -0.5 * dot(&targets, &weights)
                - 0.5 * determinant.ln()
                - 0.5 * count * (2.0 * std::f64::consts::PI).ln();
            let column: Vec<f64> = points.iter().map(|(set, _)| k(set, at)).collect();
            let solved: Vec<f64> = inverse.iter().map(|row| dot(row, &column)).collect();
            let variance = (1.0 - dot(&column, &solved)).max(0.0);
            let mean = mean + deviation * dot(&column, &weights);
            (likelihood, Posterior { mean, deviation: deviation * variance.sqrt() }, scale)
        });
        let best = fitted.into_iter().reduce(|a, b| if b.0 > a.0 { b } else { a }).unwrap();
        (best.1, best.2)
    }

    proptest! {
        #[test]
        fn a_fit_is_the_textbooks(
            points in prop::collection::vec((0..1u64 << 20, 0..1_000u32), 1..24),
            at in 0..1u64 << 20,
            noise in prop::sample::select(vec![1e-2, 0.3]),
        ) {
            let set = |bits: u64| GroupSet::of((0..20).filter(|i| bits >> i & 1 == 1).map(|i| 3 * i));
            let points: Vec<(GroupSet, f64)> =
                points.into_iter().map(|(bits, y)| (set(bits), f64::from(y) / 1_000.0)).collect();
            let mut process = GaussianProcess::with_capacity(24, noise);
            // A process forgets what it was fitted to before.
            process.fit([(set(5), 3.0), (set(6), -3.0)].into_iter());
            process.fit(points.iter().copied());
            let (judge, scale) = slow(&points, noise, &set(at));
            let found = process.predict(&set(at));
            prop_assert_eq!(process.scale(), scale);
            prop_assert!((found.mean - judge.mean).abs() < 1e-7, "{found:?}, {judge:?}");
            // A root magnifies what rounding leaves of a variance of zero.
            prop_assert!((found.deviation.powi(2) - judge.deviation.powi(2)).abs() < 1e-7, "{found:?}, {judge:?}");
        }
    }

    #[test]
    fn a_full_process_knows_its_points_and_little_far_away() {
        let mut process = GaussianProcess::with_capacity(128, 1e-2);
        let set =
            |i: u32| GroupSet::of((0..50).filter(|g| (i.wrapping_mul(2_654_435_761) >> (g % 32)) & 1 == 1));
        // Sets are worth their share of even groups.
        let worth = |set: &GroupSet| f64::from(set.iter().filter(|g| g % 2 == 0).count() as u32) / 25.0;
        process.fit((0..128).map(|i| (set(i), worth(&set(i)))));
        let errors: f64 = (0..128).map(|i| (process.predict(&set(i)).mean - worth(&set(i))).abs()).sum();
        assert!(errors / 128.0 < 0.02, "{errors}");
        let unseen: f64 = (200..300).map(|i| (process.predict(&set(i)).mean - worth(&set(i))).abs()).sum();
        assert!(unseen / 100.0 < 0.1, "{unseen}");
        let far = process.predict(&GroupSet::of(0..500)).deviation;
        assert!(far > 2.0 * process.predict(&set(0)).deviation, "{far}");
    }
}
