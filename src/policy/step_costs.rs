//! Current costs of steps: the plan's times, corrected by the measured times of the steps that ran. Pure.
//!
//! A machine drifts after it was profiled, and not evenly: a plain step is bound by memory, which other programs share, a further
//! row by arithmetic, which they do not. So the time of a plain step, and the time of a step beyond that, each have a correction
//! ratio. Such a correction decides how many rows a step verifies and whether it drafts,
//! never what the text is.

/// Steps after which what was measured counts about a third.
const MEMORY_STEPS: f64 = 16.0;
/// A sample counts as at most so many times what was believed, and as no less than that part of it: the system interrupts
/// steps.
const MOST_CHANGE: f64 = 2.0;
/// Share of a plain step's time below which what a step takes beyond it is lost in the noise.
const SEPARABLE: f64 = 0.05;
/// Plain steps in a row after which what steps take beyond one is no longer known: it then returns to the plan's, and so is tried
/// again.
const STALE_AFTER: u32 = 64;
/// Share of the difference to the plan's that each further plain step forgets.
const FORGOTTEN: f64 = 1.0 / 64.0;

/// Measured by planned time, of a plain step and of what steps take beyond it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepCosts {
    plain_us: f64,
    plain: f64,
    beyond: f64,
    plain_in_a_row: u32,
}

impl StepCosts {
    /// Costs as planned, where a plain step takes `plain_us` microseconds.
    ///
    /// # Panics
    /// If that is no time.
    pub fn new(plain_us: f64) -> Self {
        assert!(plain_us.is_finite() && plain_us > 0.0, "a plain step of {plain_us} microseconds");
        StepCosts { plain_us, plain: 1.0, beyond: 1.0, plain_in_a_row: 0 }
    }

    /// Goes on from the corrections of steps behind another context, whose plain step was planned to take another time.
    pub fn go_on_from(&mut self, before: &Self) {
        *self = StepCosts { plain_us: self.plain_us, ..*before };
    }

    /// Takes note that a plain step took `us`.
    pub fn took_plain(&mut self, us: f64) {
        self.took(self.plain_us, us);
    }

    /// Takes note that a step which the plan says takes `planned_us` took `us`.
    pub fn took(&mut self, planned_us: f64, us: f64) {
        let beyond_us = planned_us - self.plain_us;
        if beyond_us < SEPARABLE * self.plain_us {
            self.plain = follow(self.plain, us / planned_us);
            self.plain_in_a_row = self.plain_in_a_row.saturating_add(1);
            if self.plain_in_a_row > STALE_AFTER {
                self.beyond += FORGOTTEN * (self.plain - self.beyond);
            }
        } else {
            self.plain_in_a_row = 0;
            self.beyond = follow(self.beyond, (us - self.plain * self.plain_us) / beyond_us);
        }
    }

    /// The time of a step of planned time `planned_us`, in microseconds of a machine whose plain step takes as long as
    /// planned: to be compared with other steps' only.
    pub fn corrected_us(&self, planned_us: f64) -> f64 {
        let beyond_us = (planned_us - self.plain_us).max(0.0);
        planned_us.min(self.plain_us) + beyond_us * self.beyond / self.plain
    }
}

fn follow(believed: f64, sample: f64) -> f64 {
    let sample = sample.clamp(believed / MOST_CHANGE, believed * MOST_CHANGE);
    believed + (sample - believed) / MEMORY_STEPS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_as_planned_or_slower_throughout_changes_nothing() {
        for factor in [1.0, 1.7] {
            let mut costs = StepCosts::new(100.0);
            for step in 0..400 {
                let planned = [100.0, 120.0, 160.0, 101.0][step % 4];
                costs.took(planned, planned * factor);
            }
            for planned in [90.0, 100.0, 120.0, 300.0] {
                let corrected = costs.corrected_us(planned);
                assert!((corrected / planned - 1.0).abs() < 0.01, "{planned} became {corrected}");
            }
        }
    }

    #[test]
    fn rows_that_cost_more_than_planned_are_found_out_and_tried_again() {
        let mut costs = StepCosts::new(100.0);
        for step in 0..200 {
            let (planned, us) = [(100.0, 80.0), (140.0, 180.0)][step % 2];
            costs.took(planned, us);
        }
        // 40 planned beyond a plain step are 100, or 125 where that takes 80 instead of 100.
        assert!((costs.corrected_us(140.0) - 225.0).abs() < 2.0, "{costs:?}");
        assert_eq!(costs.corrected_us(100.0), 100.0);
        for _ in 0..2000 {
            costs.took(100.0, 80.0);
        }
        assert!((costs.corrected_us(140.0) - 140.0).abs() < 1.0, "{costs:?}");
    }

    #[test]
    fn one_interrupted_step_changes_little_and_no_step_costs_nothing() {
        let mut costs = StepCosts::new(100.0);
        costs.took(150.0, 90_000.0);
        assert!(costs.corrected_us(150.0) < 155.0, "{costs:?}");
        costs.took(100.0, 90_000.0);
        assert!(costs.corrected_us(150.0) > 145.0, "{costs:?}");
        for _ in 0..10_000 {
            costs.took(150.0, 0.0);
            costs.took(100.0, 0.0);
        }
        assert!(costs.corrected_us(150.0).is_finite() && costs.corrected_us(150.0) >= 100.0, "{costs:?}");
    }

    #[test]
    #[should_panic(expected = "a plain step of 0 microseconds")]
    fn a_plain_step_takes_time() {
        StepCosts::new(0.0);
    }
}
