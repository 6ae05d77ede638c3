//! What a request may lose before its guard stops drafting, from how much steps varied where they were recorded.
//!
//! What a request has earned is a random walk: its steps earn `g` plain steps each in the mean, with a variance `v`.
//! One that pays (`g > 0`) is stopped by chance with a probability of `exp(-2 g L / v)` where it may lose `L` (Wald's
//! bound for the boundary of a random walk, *Sequential Analysis*, 1947, chapter 3), and then forgoes what it would
//! have earned in pauses; one that does not pay loses up to `L`. The `L` that costs the recorded requests least is
//! taken.
use ygg_profiler::{DrafterName, LatencyTable, Stage};

use crate::planner::price::prompt_speed::PromptSpeed;
use crate::{
    plan::{GuardLimits, SubPlan},
    policy::GuardTerms,
};

/// The limits to choose among, in plain steps.
const MAY_LOSE: [f64; 8] = [0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0];
/// Tokens of an answer that a request loses by.
const ANSWER: u32 = 128;
/// The most that an answer may lose where every draft is refused and steps take their mean time, as a share of the time
/// of plain decoding, unless the least limit is more.
const MOST_LOST: f64 = 0.08;
/// Pauses of a request that are counted: more are longer than its answer.
const PAUSES: i32 = 6;
/// Tokens that a drafter misses in a first pause, about.
const MISSED: u32 = 16;
/// The highest correlation of neighbouring steps that is believed: few steps overstate it.
const MOST_CORRELATED: f64 = 0.8;

/// The limits of the requests of a sub-plan whose steps earned `by_prompt` and whose model's forwards were measured as
/// those of `model`; [`GuardLimits::DEFAULT`] to lose of fewer than two prompts.
pub(in crate::planner) fn guard_limits(
    (table, context): (&LatencyTable, u32),
    (sub_plan, model): (&SubPlan, &DrafterName),
    by_prompt: &[PromptSpeed],
) -> GuardLimits {
    let resume = resume((table, context), (sub_plan, model));
    let limits = GuardLimits { resume, ..GuardLimits::DEFAULT };
    let terms = GuardTerms::new(&sub_plan.first().predicted, limits);
    let earnings = Earnings::of(by_prompt, terms.plain_step_us);
    earnings.map_or(limits, |earnings| earnings.limits(&terms))
}

/// What drafting again costs after the first pause, in plain steps: reading what was missed, where the drafter keeps a
/// cache of its own.
fn resume((table, context): (&LatencyTable, u32), (sub_plan, model): (&SubPlan, &DrafterName)) -> f64 {
    if !sub_plan.drafter.keeps_a_cache() {
        return 0.0;
    }
    let stage = Stage::Draft(model.clone());
    let widest = table.widths(&stage).last().copied().unwrap_or(1);
    let us = table.latency_us(&stage, widest, context).unwrap_or(0.0);
    us * f64::from(MISSED.div_ceil(widest)) / sub_plan.first().predicted.ar_tpot_us
}

/// What steps earn, in plain steps each.
struct Earnings {
    /// The mean of every prompt, drawn to that of all as far as chance explains the difference.
    by_prompt: Vec<f64>,
    /// Of a step about its prompt's mean, with the correlation of neighbours: what the sum of many steps varies by, for
    /// each of them.
    variance: f64,
}

impl Earnings {
    /// The limits that cost requests like these least, with everything but what may be lost as in `terms`.
    fn limits(&self, terms: &GuardTerms) -> GuardLimits {
        let with = |may_lose| GuardTerms { limits: GuardLimits { may_lose, ..terms.limits }, ..*terms };
        let is_bounded = |may_lose: &f64| {
            let lost = with(*may_lose).lost_by_refusals(ANSWER, terms.step_us);
            *may_lose == MAY_LOSE[0] || lost <= MOST_LOST * f64::from(ANSWER)
        };
        let steps = f64::from(ANSWER) / terms.aal;
        let cost = |may_lose: f64| -> f64 {
            let first = f64::from(with(may_lose).first_pause());
            let of_request = |earned: &f64| {
                if *earned <= 0.0 {
                    return may_lose.min(-earned * steps);
                }
                let stops = |may_lose: f64| (-2.0 * earned * may_lose / self.variance).exp();
                // A probe may lose half as much, and every one that fails doubles the pause.
                let again = 2.0 * stops(may_lose / 2.0);
                let pauses: f64 = (0..PAUSES).map(|probes| first * again.powi(probes)).sum();
                stops(may_lose) * earned * pauses.min(f64::from(ANSWER))
            };
            self.by_prompt.iter().map(of_request).sum()
        };
        let bounded = MAY_LOSE.into_iter().filter(is_bounded);
        let best = bounded.min_by(|a, b| cost(*a).total_cmp(&cost(*b)));
        GuardLimits { may_lose: best.unwrap_or(MAY_LOSE[0]), ..terms.limits }
    }

    fn of(by_prompt: &[PromptSpeed], plain_us: f64) -> Option<Self> {
        let sum = |of: &dyn Fn(&PromptSpeed) -> f64| by_prompt.iter().map(of).sum::<f64>();
        let earned = |p: &PromptSpeed| p.tokens - p.us / plain_us;
        let steps = sum(&|p| p.steps);
        let free = steps - by_prompt.len() as f64;
        if by_prompt.len() < 2 || free < 1.0 {
            return None;
        }
        let within = sum(&|p| p.earned_squares - earned(p).powi(2) / p.steps);
        let spread = sum(&|p| p.token_squares - p.tokens.powi(2) / p.steps);
        let shared = sum(&|p| p.token_products - p.tokens.powi(2) / p.steps * (1.0 - 1.0 / p.steps));
        let correlation = if spread > 0.0 { (shared / spread).clamp(0.0, MOST_CORRELATED) } else { 0.0 };
        let variance = (within / free).max(f64::EPSILON) * (1.0 + correlation) / (1.0 - correlation);
        let mean = sum(&|p| earned(p)) / steps;
        let apart = sum(&|p| p.steps * (earned(p) / p.steps - mean).powi(2)) / steps;
        let of_prompts = (apart - variance * by_prompt.len() as f64 / steps).max(0.0);
        let drawn = |p: &PromptSpeed| {
            let own = of_prompts / (of_prompts + variance / p.steps);
            mean + own * (earned(p) / p.steps - mean)
        };
        Some(Self { by_prompt: by_prompt.iter().map(drawn).collect(), variance })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        plan::StageTime,
        planner::Tally,
        policy::{GuardState, GuardedStep},
    };

    const STEP_US: f64 = 125.0;

    /// Numbers of a linear congruence.
    struct Dice(u64);

    impl Dice {
        fn chance(&mut self, percent: u64) -> bool {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % 100 < percent
        }
    }

    /// Tokens of the steps of a request that is good or bad throughout, each in bursts.
    fn request(dice: &mut Dice, good: u64, steps: usize) -> Vec<u32> {
        let accepts = if dice.chance(good) { 45 } else { 8 };
        let mut in_burst = dice.chance(accepts);
        let mut step = || {
            if dice.chance(40) {
                in_burst = dice.chance(accepts);
            }
            if in_burst { 2 + u32::from(dice.chance(50)) } else { 1 }
        };
        (0..steps).map(|_| step()).collect()
    }

    fn terms(limits: GuardLimits) -> GuardTerms {
        GuardTerms { aal: 1.5, step_us: STEP_US, plain_step_us: 100.0, limits }
    }

    fn derived(requests: &[Vec<u32>]) -> GuardLimits {
        let mut tally = Tally::default();
        for (place, request) in requests.iter().enumerate() {
            request.iter().for_each(|tokens| tally.record(place, *tokens as usize - 1, usize::MAX, 4_u32));
        }
        let stages = |_| Ok(vec![StageTime { stage: Stage::Verify, us: STEP_US }]);
        let by_prompt = tally.priced(100.0, stages).unwrap().by_prompt;
        Earnings::of(&by_prompt, 100.0).unwrap().limits(&terms(GuardLimits::DEFAULT))
    }

    /// Plain steps that requests of these steps take under guard. Steps that a pause leaves out were never drafted.
    fn taken(requests: &[Vec<u32>], may_lose: f64) -> f64 {
        let terms = terms(GuardLimits { may_lose, resume: 0.0 });
        let one = |request: &Vec<u32>| {
            let (mut state, mut taken, mut emitted) = (GuardState::new(), 0.0, 0);
            let mut steps = request.iter();
            while emitted < ANSWER {
                let tokens = *steps.next().expect("longer than an answer");
                if state.drafts() {
                    taken += STEP_US / 100.0;
                    emitted += tokens;
                    state = state.after_speculation(&terms, GuardedStep { tokens, step_us: STEP_US });
                } else {
                    taken += 1.0;
                    emitted += 1;
                    state = state.after_plain();
                }
            }
            taken * f64::from(ANSWER) / f64::from(emitted)
        };
        requests.iter().map(one).sum()
    }

    /// The limit that recorded requests give is as good for others as the best of all limits.
    #[test]
    fn other_requests_take_hardly_more_time_than_under_the_best_limit() {
        for good in [10, 50, 90] {
            let mut dice = Dice(good);
            let recorded: Vec<_> = (0..40).map(|_| request(&mut dice, good, 30)).collect();
            let others: Vec<_> = (0..600).map(|_| request(&mut dice, good, ANSWER as usize)).collect();
            let best =
                MAY_LOSE.map(|may_lose| taken(&others, may_lose)).into_iter().fold(f64::INFINITY, f64::min);
            let limits = derived(&recorded);
            let found = taken(&others, limits.may_lose);
            assert!(found < 1.02 * best, "{good} % good: {limits:?} takes {found}, the best {best}");
        }
    }

    #[test]
    fn the_more_requests_pay_the_more_each_may_lose_within_the_bound() {
        let of = |good| derived(&(0..40).map(|i| request(&mut Dice(i), good, 30)).collect::<Vec<_>>());
        let (few, many) = (of(10), of(95));
        assert!(few.may_lose < many.may_lose, "{few:?} and {many:?}");
        assert!(terms(many).lost_by_refusals(ANSWER, STEP_US) <= MOST_LOST * f64::from(ANSWER));
        assert!(Earnings::of(&[], 100.0).is_none());
    }
}
