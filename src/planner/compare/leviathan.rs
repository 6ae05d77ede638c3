//! The analysis of chain speculation: expected tokens, wall-time gain and the best number of drafts.
//!
//! Leviathan et al., *Fast Inference from Transformers via Speculative Decoding* (ICML 2023), sections 3.1 to 3.5,
//! <https://arxiv.org/abs/2211.17192>. `alpha` is the chance that a drafted token is accepted, `gamma` the number of
//! tokens drafted per step, `cost` the time of a draft forward over that of a verify forward.

/// Expected tokens of a step: `(1 - alpha^(gamma + 1)) / (1 - alpha)` (eq. 1).
///
/// # Panics
/// If `alpha` is outside 0..=1.
pub fn expected_tokens(alpha: f64, gamma: u32) -> f64 {
    assert!((0.0..=1.0).contains(&alpha), "alpha {alpha} is outside 0..=1");
    // The closed form divides zero by zero at alpha = 1 and loses digits near it.
    (0..=gamma).rev().fold(0.0, |sum, _| 1.0 + alpha * sum)
}

/// Expected gain in wall time over plain decoding: tokens / (gamma cost + 1) (theorem 3.8).
///
/// # Panics
/// If `alpha` is outside 0..=1 or `cost` is negative or not finite.
pub fn gain(alpha: f64, cost: f64, gamma: u32) -> f64 {
    assert!(cost.is_finite() && cost >= 0.0, "cost {cost} is not a ratio of times");
    expected_tokens(alpha, gamma) / (f64::from(gamma) * cost + 1.0)
}

/// The `gamma` in `0..=most` with the largest [`gain`]; the smallest of equals, so 0 when drafting does not pay.
///
/// # Panics
/// As [`gain`].
pub fn best_gamma(alpha: f64, cost: f64, most: u32) -> u32 {
    let mut best = (0, gain(alpha, cost, 0));
    for gamma in 1..=most {
        let gain = gain(alpha, cost, gamma);
        if gain > best.1 {
            best = (gamma, gain);
        }
    }
    best.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_the_closed_form() {
        for alpha in [0.0, 0.1, 0.5, 0.8, 0.99] {
            for gamma in 0..20 {
                let closed = (1.0 - f64::powi(alpha, gamma as i32 + 1)) / (1.0 - alpha);
                assert!((expected_tokens(alpha, gamma) - closed).abs() < 1e-9);
            }
        }
        assert_eq!(expected_tokens(1.0, 7), 8.0);
    }

    #[test]
    fn some_gamma_helps_exactly_when_alpha_exceeds_the_cost() {
        for (alpha, cost) in [(0.6, 0.5), (0.5, 0.5), (0.3, 0.5), (0.9, 0.05), (0.0, 0.0), (0.05, 0.0)] {
            assert_eq!(best_gamma(alpha, cost, 32) > 0, alpha > cost, "alpha {alpha}, cost {cost}");
        }
    }

    #[test]
    fn the_paper_figures_hold() {
        // Table 1 of the paper: alpha 0.8, c about 0, gamma 5 gives 3.69 tokens per step.
        assert!((gain(0.8, 0.0, 5) - 3.69).abs() < 0.01);
    }
}
