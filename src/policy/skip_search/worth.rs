//! What a skip set is worth: by the tokens that it reproduces, or by the time per token that follows from them.

use serde::{Deserialize, Serialize};

use crate::plan::{Plan, PlanError, Stage, SubPlan};

/// What the search maximises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SkipObjective {
    /// The share of reproduced tokens, among sets as large as the one it starts with: SWIFT's.
    #[default]
    Matchness,
    /// The predicted speed-up, and so the predicted time per token; how much is skipped is searched too.
    Speed,
}

/// Widths, ascending, with times of forwards in microseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct SkipTimes {
    /// Of whole forwards.
    pub verify: Vec<(u32, f64)>,
    /// Of forwards that leave out the start set.
    pub draft: Vec<(u32, f64)>,
}

impl SkipTimes {
    /// What the plan's table says of the verifier and of the drafter of `sub_plan`.
    ///
    /// # Errors
    /// [`PlanError::Table`] if the table lacks a time, which the table of a valid plan does not.
    pub fn of_plan(plan: &Plan, sub_plan: &SubPlan) -> Result<Self, PlanError> {
        let times = |stage: Stage| {
            let widths = plan.table.widths(&stage).into_iter();
            let at = |w| Ok((w, plan.table.latency_us(&stage, w, plan.context())?));
            widths.map(at).collect::<Result<_, PlanError>>()
        };
        Ok(Self { verify: times(Stage::Verify)?, draft: times(Stage::Draft(sub_plan.name.clone()))? })
    }
}

/// Measured times of forwards, by which work is counted.
#[derive(Clone, Debug, PartialEq)]
pub struct SkipCosts {
    times: SkipTimes,
    /// Share of the groups that the start set keeps.
    start_kept: f64,
}

impl SkipCosts {
    /// Times of whole forwards and of those that keep the share `start_kept` of the groups.
    ///
    /// # Panics
    /// If a list is empty, does not ascend in width, or holds a time that is not positive, or the share is not below 1.
    pub fn new(times: SkipTimes, start_kept: f64) -> Self {
        for times in [&times.verify, &times.draft] {
            assert!(!times.is_empty() && times.is_sorted_by(|a, b| a.0 < b.0), "widths ascend: {times:?}");
            assert!(times.iter().all(|(_, us)| us.is_finite() && *us > 0.0), "times are positive: {times:?}");
        }
        assert!((0.0..1.0).contains(&start_kept), "a start set skips something: it keeps {start_kept}");
        Self { times, start_kept }
    }

    /// Time of a whole forward of `rows` rows: at the smallest measured width that holds them, else at the widest as
    /// often as it takes.
    pub fn verify_us(&self, rows: u32) -> f64 {
        at_width(&self.times.verify, rows)
    }

    /// Time of a forward of `rows` rows that keeps the share `kept` of the groups: the line through the forward that
    /// keeps all and the one that was measured with the start set.
    pub fn draft_us(&self, rows: u32, kept: f64) -> f64 {
        let (whole, start) = (at_width(&self.times.verify, rows), at_width(&self.times.draft, rows));
        let slope = (whole - start).max(0.0) / (1.0 - self.start_kept);
        (start + slope * (kept - self.start_kept)).max(0.0)
    }

    /// The cost of drafting a token relative to that of a plain step, `c` of the speculative sampling papers.
    pub fn ratio(&self, kept: f64) -> f64 {
        self.draft_us(1, kept) / self.verify_us(1)
    }

    /// Time of the forward over `rows` rows that tries a set: as much less than a whole one as a draft's of one row is.
    pub fn try_us(&self, rows: u32, kept: f64) -> f64 {
        self.verify_us(rows) * self.ratio(kept).min(1.0)
    }
}

fn at_width(times: &[(u32, f64)], rows: u32) -> f64 {
    let (widest, most_us) = *times.last().expect("not empty");
    let holds = times.iter().find(|(width, _)| *width >= rows).map(|(_, us)| *us);
    holds.unwrap_or_else(|| f64::from(rows.div_ceil(widest)) * most_us)
}

/// Expected speed-up over plain decoding of chains of at most `depth` drafted tokens, each accepted with probability
/// `alpha` and drafted at the cost `c` of a plain step: `E = M alpha / ((M - 1) c + alpha)` with M tokens a step
/// (SWIFT, eq. 6).
///
/// Of a chain that ends with the first token that is rejected, `1 + alpha + .. + alpha^(depth - 1)` tokens are drafted,
/// M is 1 plus alpha times as many, and so E is M by 1 plus c times as many.
pub fn expected_speedup(alpha: f64, c: f64, depth: u32) -> f64 {
    let (mut drafted, mut reached) = (0.0, 1.0);
    for _ in 0..depth {
        drafted += reached;
        reached *= alpha;
    }
    (1.0 + alpha * drafted) / (1.0 + c * drafted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_speedup_is_the_papers() {
        for (alpha, c, depth) in [(0.9_f64, 0.5, 6), (0.3, 0.66, 4), (0.99, 0.1, 25)] {
            let tokens = 1.0 + (1..=depth).map(|d| alpha.powi(d)).sum::<f64>();
            let paper = tokens * alpha / ((tokens - 1.0) * c + alpha);
            let ours = expected_speedup(alpha, c, depth as u32);
            assert!((ours - paper).abs() < 1e-12, "{ours}, {paper}");
        }
        assert_eq!(expected_speedup(0.0, 0.5, 9), 1.0 / 1.5);
        assert_eq!(expected_speedup(0.5, 0.5, 0), 1.0);
    }

    #[test]
    fn costs_are_those_measured_and_on_the_line_between() {
        let times = SkipTimes { verify: vec![(1, 10.0), (4, 20.0)], draft: vec![(1, 6.0)] };
        let costs = SkipCosts::new(times, 0.5);
        assert_eq!(
            (costs.draft_us(1, 0.5), costs.draft_us(1, 1.0), costs.draft_us(1, 0.25)),
            (6.0, 10.0, 4.0)
        );
        assert_eq!((costs.verify_us(1), costs.verify_us(3), costs.verify_us(9)), (10.0, 20.0, 60.0));
        assert_eq!((costs.ratio(0.5), costs.try_us(4, 0.5), costs.try_us(4, 1.5)), (0.6, 12.0, 20.0));
        // A draft that was measured slower than the whole forward does not get cheaper by keeping more.
        let odd = SkipCosts::new(SkipTimes { verify: vec![(1, 10.0)], draft: vec![(1, 11.0)] }, 0.5);
        assert_eq!((odd.draft_us(1, 0.9), odd.draft_us(1, 0.1)), (11.0, 11.0));
    }
}
