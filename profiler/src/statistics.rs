//! Order statistics of samples: quantiles, spread, paired ratios. Pure.

/// The samples in ascending order.
///
/// # Panics
/// If a sample is NaN: samples come from a clock.
pub fn sorted(samples: &[f64]) -> Vec<f64> {
    assert!(samples.iter().all(|s| !s.is_nan()), "a sample is NaN");
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// The quantile at `q` (0 to 1) of ascending samples, linear between the two nearest (Hyndman and Fan's type 7).
/// `None` without samples.
///
/// # Panics
/// If `q` is outside 0..=1.
pub fn quantile_of_sorted(sorted: &[f64], q: f64) -> Option<f64> {
    assert!((0.0..=1.0).contains(&q), "quantile {q} is outside 0..=1");
    let last = sorted.len().checked_sub(1)?;
    let place = q * last as f64;
    let below = place.floor() as usize;
    let above = (below + 1).min(last);
    let share = place - below as f64;
    Some(if share == 0.0 { sorted[below] } else { sorted[below] + share * (sorted[above] - sorted[below]) })
}

/// The quantile at `q` of samples in any order; see [`quantile_of_sorted`].
pub fn quantile(samples: &[f64], q: f64) -> Option<f64> {
    quantile_of_sorted(&sorted(samples), q)
}

/// The median; the mean of the middle two when their number is even. `None` without samples.
pub fn median(samples: &[f64]) -> Option<f64> {
    quantile(samples, 0.5)
}

/// Relative spread: (p75 - p25) / median. `None` without samples or when the median is not positive.
pub fn relative_spread(samples: &[f64]) -> Option<f64> {
    let sorted = sorted(samples);
    let middle = quantile_of_sorted(&sorted, 0.5)?;
    let range = quantile_of_sorted(&sorted, 0.75)? - quantile_of_sorted(&sorted, 0.25)?;
    (middle > 0.0).then(|| range / middle)
}

/// Spread, in microseconds, below which no cell is noisy: clocks and caches move short stages by as much, and no plan
/// depends on it.
pub const QUIET_US: f64 = 5.0;

/// Whether the middle half of samples in microseconds spreads over more than `threshold` of the median, and more than
/// [`QUIET_US`]. Samples without a spread are noisy.
pub fn is_noisy(samples_us: &[f64], threshold: f64) -> bool {
    let spread = relative_spread(samples_us).zip(median(samples_us));
    spread.is_none_or(|(spread, median)| spread > threshold && spread * median > QUIET_US)
}

/// `numerators[i] / denominators[i]` for samples taken in the same rounds, which cancels drift between rounds.
///
/// # Panics
/// If the lengths differ.
pub fn paired_ratios(numerators: &[f64], denominators: &[f64]) -> Vec<f64> {
    assert_eq!(numerators.len(), denominators.len(), "paired samples come from the same rounds");
    numerators.iter().zip(denominators).map(|(n, d)| n / d).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The middle sample, or the mean of the two middle ones, found by counting instead of sorting.
    fn naive_median(samples: &[f64]) -> f64 {
        let below = |x: f64| samples.iter().filter(|s| **s < x).count();
        let up_to = |x: f64| samples.iter().filter(|s| **s <= x).count();
        let at =
            |place: usize| samples.iter().copied().find(|x| (below(*x)..up_to(*x)).contains(&place)).unwrap();
        (at((samples.len() - 1) / 2) + at(samples.len() / 2)) / 2.0
    }

    proptest! {
        #[test]
        fn median_is_the_naive_one(samples in prop::collection::vec(-1e6f64..1e6, 1..40)) {
            let expected = naive_median(&samples);
            prop_assert!((median(&samples).unwrap() - expected).abs() <= 1e-9 * expected.abs().max(1.0));
        }

        #[test]
        fn quantiles_rise_and_stay_in_range(
            samples in prop::collection::vec(0.1f64..1e6, 1..40), a in 0.0f64..=1.0, b in 0.0f64..=1.0,
        ) {
            let (low, high) = (quantile(&samples, a.min(b)).unwrap(), quantile(&samples, a.max(b)).unwrap());
            let s = sorted(&samples);
            prop_assert!(low <= high && s[0] <= low && high <= *s.last().unwrap());
        }

        #[test]
        fn spread_ignores_scale(samples in prop::collection::vec(1f64..1e3, 1..40), scale in 0.5f64..8.0) {
            let scaled: Vec<f64> = samples.iter().map(|s| s * scale).collect();
            let (a, b) = (relative_spread(&samples).unwrap(), relative_spread(&scaled).unwrap());
            prop_assert!((a - b).abs() < 1e-9);
        }
    }

    #[test]
    fn known_values() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(quantile(&[4.0, 1.0, 3.0, 2.0, 5.0], 0.25), Some(2.0));
        assert_eq!(quantile(&[1.0, 2.0], 0.75), Some(1.75));
        assert_eq!(relative_spread(&[1.0, 2.0, 3.0, 4.0, 5.0]), Some(2.0 / 3.0));
        assert_eq!(relative_spread(&[0.0, 0.0]), None);
        assert!(is_noisy(&[], 0.1) && is_noisy(&[100.0, 200.0, 300.0], 0.1));
        assert!(!is_noisy(&[100.0, 200.0, 300.0], 1.5) && !is_noisy(&[1.0, 2.0, 3.0], 0.1));
        assert_eq!(paired_ratios(&[2.0, 9.0], &[1.0, 3.0]), vec![2.0, 3.0]);
    }
}
