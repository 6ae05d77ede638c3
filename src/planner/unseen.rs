//! What a speed-up found on recorded prompts says of others: how far it may be off, and by how much choosing the best shape by the same
//! prompts flatters it.
//!
//! Prompts differ more than the steps of one, so they are the units of chance (Cochran, *Sampling Techniques*, 1977, 6.3 on ratios of
//! sums). The flattery of a choice is found by choosing by some prompts and pricing by the others (cross-validation of the whole
//! choice: Stone, *Journal of the Royal Statistical Society B* 36, 1974).
use ygg_profiler::{LatencyTable, Profile, Stage, Swing};

use super::{NOISE_MARGIN, paired::OfAll, selection::Point};
use crate::plan::{Prediction, StageTime, Unseen};

/// Parts that prompts are dealt to, each left out of one choice.
const FOLDS: usize = 5;
/// Two-sided 90 % quantiles of the normal distribution, and of Student's with 1, 2, ... degrees of freedom.
const NORMAL: f64 = 1.645;
const STUDENT: [f64; 10] = [6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812];
/// The relative standard deviation between prompts of the time per token, and how many prompts it counts as. The 51
/// drafters that `benches/results` has unseen prompts of have 0.08 to 0.31 (median 0.22, upper quartile 0.27): above
/// the median, so as to doubt rather than to trust.
const USUAL_SPREAD: f64 = 0.25;
const USUAL_COUNTS: f64 = 1.0;
/// Visits that agree by chance are doubted as if there were three more that agree.
const USUAL_VISITS: f64 = 3.0;

/// Tokens that the steps of one prompt emitted, and their time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct PromptSpeed {
    /// Its place among the recorded prompts.
    pub(super) place: usize,
    pub(super) tokens: f64,
    pub(super) us: f64,
    pub(super) steps: f64,
    /// Sum over the steps of the square of what each earned: its tokens less its time, in plain steps.
    pub(super) earned_squares: f64,
    /// Sum over the steps of the square of their tokens.
    pub(super) token_squares: f64,
    /// Sum over neighbouring steps of the product of their tokens.
    pub(super) token_products: f64,
}

impl PromptSpeed {
    /// As many tokens in as much time, of steps that nothing is known of.
    pub(super) fn of(place: usize, tokens: f64, us: f64) -> Self {
        let [steps, earned_squares, token_squares, token_products] = [0.0; 4];
        Self { place, tokens, us, steps, earned_squares, token_squares, token_products }
    }
}

/// Time per token of all steps; NaN without any.
pub(super) fn us_per_token<'p>(prompts: impl IntoIterator<Item = &'p PromptSpeed>) -> f64 {
    let (us, tokens) =
        prompts.into_iter().fold((0.0, 0.0), |(us, tokens), prompt| (us + prompt.us, tokens + prompt.tokens));
    us / tokens
}

/// By how much each prompt moves the time per token of all, relative to it.
pub(super) fn influences(prompts: &[PromptSpeed]) -> impl Iterator<Item = f64> {
    let mean = us_per_token(prompts);
    let tokens: f64 = prompts.iter().map(|prompt| prompt.tokens).sum();
    prompts.iter().map(move |prompt| (prompt.us - mean * prompt.tokens) / (tokens * mean))
}

/// The standard error of a sum of `influences`; 0 of fewer than two, which say nothing of one another.
pub(super) fn standard_error(influences: impl Iterator<Item = f64>) -> f64 {
    let (count, squares) =
        influences.fold((0.0, 0.0), |(n, sum), influence| (n + 1.0, sum + influence * influence));
    if count < 2.0 { 0.0 } else { (count / (count - 1.0) * squares).sqrt() }
}

/// Whether `point` is slower than `best` by less than the standard error of their difference over the same prompts.
pub(super) fn is_tie(best: &Point, point: &Point) -> bool {
    let (a, b) = (&best.by_prompt[..], &point.by_prompt[..]);
    if a.len() < 2 || a.len() != b.len() {
        return false;
    }
    let differences = influences(a).zip(influences(b)).map(|(a, b)| b - a);
    us_per_token(b) / us_per_token(a) - 1.0 < standard_error(differences)
}

/// What `best`, chosen of `points` by all their prompts, should give on others, and on the machine as it may be then: by as much as rows
/// became dearer or cheaper while `profile` was measured, they may again. The least is that of many requests, which meet the machine as it is on the
/// whole; the interval holds what some may meet. `others` are the best of all drafters, which may rest on more prompts.
pub(super) fn unseen<'p>(
    profile: &Profile,
    (table, context): (&LatencyTable, u32),
    points: impl Iterator<Item = &'p Point> + Clone,
    best: &Point,
    others: &[&Point],
) -> Unseen {
    let Prediction { ar_tpot_us, speedup, .. } = best.sub_plan.first().predicted;
    let of_all = OfAll::surest(&best.by_prompt, others.iter().map(|other| &other.by_prompt[..]));
    let speedup = cross_fitted(points).map_or(speedup, |us| (ar_tpot_us / us).min(speedup)) / of_all.factor;
    let prompts = best.by_prompt.len();
    let of_prompts = of_all.error;
    let of_cells = NORMAL * cell_error(table, context, best);
    let swing = profile.swing(best.sub_plan.shape().verify_width);
    let (on_the_whole, at_a_time) = of_machine(swing);
    let factor = |of_prompts: f64, of_machine: f64| {
        1.0 + of_prompts.hypot(of_cells).hypot(NOISE_MARGIN).hypot(of_machine)
    };
    // As many other prompts differ from all prompts by as much as these do.
    let of_as_many = factor(std::f64::consts::SQRT_2 * of_prompts, at_a_time);
    Unseen {
        speedup,
        least: speedup / factor(of_prompts, on_the_whole),
        low: speedup / of_as_many,
        high: speedup * of_as_many,
        prompts: u32::try_from(prompts).unwrap_or(u32::MAX),
    }
}

/// How far the time per token of `prompts` prompts may be off that of all others, relative to it, by their standard error. Few prompts may
/// agree by chance, so what prompts of other profiles differed by counts as much as one of these (the conjugate prior of a variance:
/// Gelman and others, *Bayesian Data Analysis*, 3rd edition, 2.6).
pub(super) fn of_prompts(prompts: usize, standard_error: f64) -> f64 {
    let n = prompts.max(1) as f64;
    let of_one = n.sqrt() * standard_error;
    let freedom = n - 1.0 + USUAL_COUNTS;
    let spread = ((USUAL_COUNTS * USUAL_SPREAD.powi(2) + (n - 1.0) * of_one.powi(2)) / freedom).sqrt();
    student(freedom) * spread / n.sqrt()
}

/// How far what rows cost may be off, relative to it, by the visits of a machine: their mean off that of all times, and another time off their
/// mean.
fn of_machine(Swing { visits, deviation, independent }: Swing) -> (f64, f64) {
    if visits < 2 {
        return (0.0, 0.0);
    }
    let others = f64::from(visits - 1);
    let freedom = others + USUAL_VISITS;
    let spread = student(freedom) * deviation * (others / freedom).sqrt();
    (spread / independent.sqrt(), spread * (1.0 + 1.0 / independent).sqrt())
}

/// The two-sided 90 % quantile of Student's distribution.
fn student(freedom: f64) -> f64 {
    STUDENT.get(freedom as usize - 1).copied().unwrap_or(NORMAL + 1.6 / freedom)
}

/// The part that a prompt is dealt to. Neighbours are of different kinds, in turn, so parts go by more than the remainder.
fn fold(place: usize) -> usize {
    let mixed = (place as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    (mixed % FOLDS as u64) as usize
}

/// Time per token where each part of the prompts is priced by the point that is the best of the other parts; `None` unless every
/// part can be.
fn cross_fitted<'p>(points: impl Iterator<Item = &'p Point> + Clone) -> Option<f64> {
    let mut all = PromptSpeed::of(0, 0.0, 0.0);
    for left_out in 0..FOLDS {
        let of = |point: &'p Point, is_left_out: bool| {
            point.by_prompt.iter().filter(move |prompt| (fold(prompt.place) == left_out) == is_left_out)
        };
        let chosen = points
            .clone()
            .map(|point| (us_per_token(of(point, false)), point))
            .filter(|(us, _)| us.is_finite())
            .min_by(|(a, _), (b, _)| a.total_cmp(b))?
            .1;
        for prompt in of(chosen, true) {
            all.tokens += prompt.tokens;
            all.us += prompt.us;
        }
    }
    let us = us_per_token([&all]);
    us.is_finite().then_some(us)
}

/// The relative standard error of the ratio of a step's time to a plain step's, from the spread of what was measured.
fn cell_error(table: &LatencyTable, context: u32, best: &Point) -> f64 {
    let contexts = table.contexts();
    let above = contexts.iter().copied().find(|known| *known >= context);
    let context = above.or(contexts.last().copied()).unwrap_or_default();
    let error = |stage: &Stage, widest: u32| {
        let cells = table.iter().filter(|(cell, _)| cell.stage == *stage && cell.context == context);
        // Of n normal samples, whose quartiles are 1.35 deviations apart, the median has a deviation of 1.25 / sqrt(n) of theirs.
        let errors = cells
            .filter(|(cell, _)| cell.width <= widest)
            .map(|(_, summary)| 0.93 * summary.spread / f64::from(summary.samples.max(1)).sqrt());
        errors.fold(0.0, f64::max)
    };
    let Prediction { step_us, stages, .. } = &best.sub_plan.first().predicted;
    let widest = best.sub_plan.shape().verify_width.max(best.sub_plan.shape().draft_width);
    let of_step = stages.iter().map(|StageTime { stage, us }| us / step_us * error(stage, widest));
    of_step.fold(error(&Stage::Verify, 1), f64::hypot)
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

    #[test]
    fn a_machine_that_changes_is_doubted_the_less_on_the_whole_the_longer_it_was_watched() {
        assert_eq!(of_machine(Swing::default()), (0.0, 0.0));
        let of = |visits: u32, deviation: f64| {
            of_machine(Swing { visits, deviation, independent: f64::from(visits) })
        };
        assert_eq!(of(50, 0.0), (0.0, 0.0));
        let (few, many) = (of(4, 0.1), of(400, 0.1));
        assert!(few.0 > 0.05 && many.0 < 0.01, "{few:?} and {many:?}");
        assert!((many.1 / (NORMAL * 0.1) - 1.0).abs() < 0.02 && few.1 > few.0, "{few:?} and {many:?}");
        let alike = of_machine(Swing { visits: 400, deviation: 0.1, independent: 4.0 });
        assert!(alike.0 > 0.05, "{alike:?}");
    }

    #[test]
    fn neighbours_are_dealt_to_all_parts() {
        for kinds in [1, 5, 7, 13] {
            for part in 0..FOLDS {
                let dealt = (0..200).step_by(kinds).filter(|place| fold(*place) == part).count();
                let share = 200 / kinds / FOLDS;
                assert!(
                    (share / 3..=3 * share + 2).contains(&dealt),
                    "{dealt} of every {kinds}th in part {part}"
                );
            }
        }
    }
}
