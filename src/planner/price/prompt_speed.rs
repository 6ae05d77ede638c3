//! Time per token by prompt, and how far that of few prompts may be off that of all.
//!
//! Prompts differ more than the steps of one, so they are the units of chance (Cochran, *Sampling Techniques*, 1977,
//! 6.3 on ratios of sums).

/// Two-sided 90 % quantiles of the normal distribution, and of Student's with 1, 2, ... degrees of freedom.
pub(in crate::planner) const NORMAL: f64 = 1.645;
const STUDENT: [f64; 10] = [6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812];
/// The relative standard deviation between prompts of the time per token, and how many prompts it counts as. The 51
/// drafters that `benches/results` has unseen prompts of have 0.08 to 0.31 (median 0.22, upper quartile 0.27): above
/// the median, so as to doubt rather than to trust.
const USUAL_SPREAD: f64 = 0.25;
const USUAL_COUNTS: f64 = 1.0;

/// Tokens that the steps of one prompt emitted, and their time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::planner) struct PromptSpeed {
    /// Its place among the recorded prompts.
    pub(in crate::planner) place: usize,
    pub(in crate::planner) tokens: f64,
    pub(in crate::planner) us: f64,
    pub(in crate::planner) steps: f64,
    /// Sum over the steps of the square of what each earned: its tokens less its time, in plain steps.
    pub(in crate::planner) earned_squares: f64,
    /// Sum over the steps of the square of their tokens.
    pub(in crate::planner) token_squares: f64,
    /// Sum over neighbouring steps of the product of their tokens.
    pub(in crate::planner) token_products: f64,
}

impl PromptSpeed {
    /// As many tokens in as much time, of steps that nothing is known of.
    pub(in crate::planner) fn of(place: usize, tokens: f64, us: f64) -> Self {
        let [steps, earned_squares, token_squares, token_products] = [0.0; 4];
        Self { place, tokens, us, steps, earned_squares, token_squares, token_products }
    }
}

/// Time per token of all steps; NaN without any.
pub(in crate::planner) fn us_per_token<'p>(prompts: impl IntoIterator<Item = &'p PromptSpeed>) -> f64 {
    let (us, tokens) =
        prompts.into_iter().fold((0.0, 0.0), |(us, tokens), prompt| (us + prompt.us, tokens + prompt.tokens));
    us / tokens
}

/// By how much each prompt moves the time per token of all, relative to it.
pub(in crate::planner) fn influences(prompts: &[PromptSpeed]) -> impl Iterator<Item = f64> {
    let mean = us_per_token(prompts);
    let tokens: f64 = prompts.iter().map(|prompt| prompt.tokens).sum();
    prompts.iter().map(move |prompt| (prompt.us - mean * prompt.tokens) / (tokens * mean))
}

/// The standard error of a sum of `influences`; 0 of fewer than two, which say nothing of one another.
pub(in crate::planner) fn standard_error(influences: impl Iterator<Item = f64>) -> f64 {
    let (count, squares) =
        influences.fold((0.0, 0.0), |(n, sum), influence| (n + 1.0, sum + influence * influence));
    if count < 2.0 { 0.0 } else { (count / (count - 1.0) * squares).sqrt() }
}

/// How far the time per token of `prompts` prompts may be off that of all others, relative to it, by their standard
/// error. Few prompts may agree by chance, so what prompts of other profiles differed by counts as much as one of these
/// (the conjugate prior of a variance: Gelman and others, *Bayesian Data Analysis*, 3rd edition, 2.6).
pub(in crate::planner) fn of_prompts(prompts: usize, standard_error: f64) -> f64 {
    let n = prompts.max(1) as f64;
    let of_one = n.sqrt() * standard_error;
    let freedom = n - 1.0 + USUAL_COUNTS;
    let spread = ((USUAL_COUNTS * USUAL_SPREAD.powi(2) + (n - 1.0) * of_one.powi(2)) / freedom).sqrt();
    student(freedom) * spread / n.sqrt()
}

/// The two-sided 90 % quantile of Student's distribution.
pub(in crate::planner) fn student(freedom: f64) -> f64 {
    STUDENT.get(freedom as usize - 1).copied().unwrap_or(NORMAL + 1.6 / freedom)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompts(speeds: &[(f64, f64)]) -> Vec<PromptSpeed> {
        let prompt = |(place, (tokens, us)): (usize, &(f64, f64))| PromptSpeed::of(place, *tokens, *us);
        speeds.iter().enumerate().map(prompt).collect()
    }

    #[test]
    fn the_error_of_a_ratio_is_that_of_leaving_out_prompts() {
        let all = prompts(&[
            (10.0, 900.0),
            (12.0, 1300.0),
            (8.0, 500.0),
            (20.0, 2100.0),
            (11.0, 900.0),
            (9.0, 1000.0),
        ]);
        let error = standard_error(influences(&all));
        // The jackknife, spelled out.
        let n = all.len();
        let without: Vec<f64> = (0..n)
            .map(|left_out| us_per_token(all.iter().filter(|prompt| prompt.place != left_out)))
            .collect();
        let mean = without.iter().sum::<f64>() / n as f64;
        let squares: f64 = without.iter().map(|us| (us - mean).powi(2)).sum();
        let jackknife = ((n - 1) as f64 / n as f64 * squares).sqrt() / us_per_token(&all);
        assert!((error / jackknife - 1.0).abs() < 0.1, "{error} and {jackknife}");
        assert_eq!(standard_error(influences(&all[..1])), 0.0);
        assert_eq!(standard_error(influences(&prompts(&[(1.0, 5.0), (2.0, 10.0)]))), 0.0);
    }

    #[test]
    fn few_prompts_that_agree_are_trusted_less_than_many() {
        let errors = [1, 2, 4, 8, 24, 200].map(|prompts| of_prompts(prompts, 0.0));
        assert!(errors.is_sorted_by(|a, b| a > b), "{errors:?}");
        assert!(errors[0] > 1.0 && errors[2] > 0.1 && errors[4] < 0.02, "{errors:?}");
        // Many say for themselves how far they differ.
        let of_many = of_prompts(200, 0.03);
        assert!((of_many / (NORMAL * 0.03) - 1.0).abs() < 0.02, "{of_many}");
    }
}
