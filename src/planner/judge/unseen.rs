//! What a speed-up found on recorded prompts says of others: how far it may be off, and by how much choosing the best
//! shape by the same prompts flatters it.
//!
//! Prompts differ more than the steps of one, so they are the units of chance (Cochran, *Sampling Techniques*, 1977,
//! 6.3 on ratios of sums). The flattery of a choice is found by choosing by some prompts and pricing by the others
//! (cross-validation of the whole choice: Stone, *Journal of the Royal Statistical Society B* 36, 1974).
use ygg_profiler::{LatencyTable, Profile, Stage, Swing};

use crate::plan::{Prediction, StageTime, Unseen};
use crate::planner::{
    judge::{
        paired::OfAll,
        point::{NOISE_MARGIN, Point},
    },
    price::prompt_speed::{NORMAL, PromptSpeed, influences, standard_error, student, us_per_token},
};

/// Parts that prompts are dealt to, each left out of one choice.
const FOLDS: usize = 5;
/// The standard deviation of the logarithm of drafters' speed-ups about 0, before any prompt is seen. The promises of the
/// 51 drafters that `benches/results` has unseen prompts of are off by 0.115 with 0.25, by 0.111 without and by 0.143
/// with 0.1 (roots of the mean square of logarithms). Two plans that rested on few steps promised 0.53 and 0.44 too
/// much, and promise 0.23 and 0.21 too much with 0.25 (`benches/planner/shrinkage.py`).
const USUAL_GAIN: f64 = 0.25;
/// Visits that agree by chance are doubted as if there were three more that agree.
const USUAL_VISITS: f64 = 3.0;

/// Whether `point` is slower than `best` by less than the standard error of their difference over the same prompts.
pub(in crate::planner) fn is_tie(best: &Point, point: &Point) -> bool {
    let (a, b) = (&best.by_prompt[..], &point.by_prompt[..]);
    if a.len() < 2 || a.len() != b.len() {
        return false;
    }
    let differences = influences(a).zip(influences(b)).map(|(a, b)| b - a);
    us_per_token(b) / us_per_token(a) - 1.0 < standard_error(differences)
}

/// What `best`, chosen of `points` by all their prompts, should give on others, and on the machine as it may be then:
/// by as much as rows became dearer or cheaper while `profile` was measured, they may again. The least is that of many
/// requests, which meet the machine as it is on the whole; the interval holds what some may meet. `others` are the best
/// of all drafters, which may rest on more prompts.
pub(in crate::planner) fn unseen<'p>(
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
    let trust = trust(of_prompts);
    let speedup = speedup.powf(trust);
    let of_cells = NORMAL * cell_error(table, context, best);
    let swing = profile.swing(best.sub_plan.shape().verify_width);
    let (on_the_whole, at_a_time) = of_machine(swing);
    let factor = |of_prompts: f64, of_machine: f64| {
        1.0 + of_prompts.hypot(of_cells).hypot(NOISE_MARGIN).hypot(of_machine)
    };
    // As many other prompts differ from all prompts by as much as these do.
    let of_as_many = factor((1.0 + trust).sqrt() * of_prompts, at_a_time);
    Unseen {
        speedup,
        least: speedup / factor(trust.sqrt() * of_prompts, on_the_whole),
        low: speedup / of_as_many,
        high: speedup * of_as_many,
        prompts: u32::try_from(prompts).unwrap_or(u32::MAX),
    }
}

/// The share of a speed-up's logarithm that is no luck, where `error` is the half of an interval that holds it nine times
/// in ten: of many drafters the largest speed-up is the luckiest, and luckier the less each rests on. It is the mean of
/// what may be the case, of a normal prior about no gain (Gelman and others, *Bayesian Data Analysis*, 3rd edition, 2.5;
/// Efron and Morris, *Scientific American* 236, 1977); the variance that is left is the same share of the former.
fn trust(error: f64) -> f64 {
    USUAL_GAIN.powi(2) / (USUAL_GAIN.powi(2) + (error / NORMAL).powi(2))
}

/// How far what rows cost may be off, relative to it, by the visits of a machine: their mean off that of all times, and
/// another time off their mean.
fn of_machine(Swing { visits, deviation, independent }: Swing) -> (f64, f64) {
    if visits < 2 {
        return (0.0, 0.0);
    }
    let others = f64::from(visits - 1);
    let freedom = others + USUAL_VISITS;
    let spread = student(freedom) * deviation * (others / freedom).sqrt();
    (spread / independent.sqrt(), spread * (1.0 + 1.0 / independent).sqrt())
}

/// The part that a prompt is dealt to. Neighbours are of different kinds, in turn, so parts go by more than the
/// remainder.
fn fold(place: usize) -> usize {
    let mixed = (place as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    (mixed % FOLDS as u64) as usize
}

/// Time per token where each part of the prompts is priced by the point that is the best of the other parts; `None`
/// unless every part can be.
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
        // Of n normal samples, whose quartiles are 1.35 deviations apart, the median has a deviation of 1.25 / sqrt(n)
        // of theirs.
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
