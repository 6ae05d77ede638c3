//! Current costs of steps: the plan's times, corrected by the measured times of the steps that ran. Pure.
//!
//! A machine drifts after it was profiled, and not evenly: a plain step is bound by memory, which other programs share,
//! a further row by arithmetic, which they do not. So a correction ratio goes with the time of a plain step, another
//! with the time that a step is planned to take beyond that; and what further rows take where they were planned to take
//! next to nothing is learned by itself, as a ratio of next to nothing says nothing. Plain steps tell the first from
//! the last: [`wants_plain`](StepCosts::wants_plain) asks for one where none has run for long. Such a correction
//! decides how many rows a step verifies and whether it drafts, never what the text is.

/// Steps after which what was measured counts about a third.
const MEMORY_STEPS: f64 = 16.0;
/// A sample counts as at most so many times what was believed, and as no less than that part of it: the system
/// interrupts steps.
const MOST_CHANGE: f64 = 2.0;
/// Share of a plain step's time below which what a step takes beyond it is lost in the noise.
const SEPARABLE: f64 = 0.05;
/// Plain steps in a row after which what steps take beyond one is no longer known: it then returns to the plan's, and
/// so is tried again.
const STALE_AFTER: u32 = 64;
/// Share of the difference to the plan's that each further plain step forgets.
const FORGOTTEN: f64 = 1.0 / 64.0;
/// Steps of several rows after which a plain one is wanted: where steps emit two tokens that costs one token in 256.
/// Sooner where these rows seem to take that share of a plain step more than planned: it may be the machine that does.
const PLAIN_EVERY: u32 = 128;
const PLAIN_SOONER: u32 = 32;
const SUSPICIOUS: f64 = 0.05;
/// What a plain step counts that comes so late: much of what was known of them is out of date.
const LATE: f64 = 0.25;
/// Most that further rows count as taking, in plain steps.
const MOST_FURTHER: f64 = 2.0;

/// Measured by planned time, of a plain step and of what steps take beyond it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepCosts {
    plain_us: f64,
    plain: f64,
    beyond: f64,
    /// What steps of several rows take beyond that, in plain steps.
    further: f64,
    plain_in_a_row: u32,
    since_plain: u32,
}

impl StepCosts {
    /// Costs as planned, where a plain step takes `plain_us` microseconds.
    ///
    /// # Panics
    /// If that is no time.
    pub fn new(plain_us: f64) -> Self {
        assert!(plain_us.is_finite() && plain_us > 0.0, "a plain step of {plain_us} microseconds");
        StepCosts { plain_us, plain: 1.0, beyond: 1.0, further: 0.0, plain_in_a_row: 0, since_plain: 0 }
    }

    /// Goes on with the same corrections at another context, where a plain step was planned to take `plain_us`.
    pub fn go_on_at(&mut self, plain_us: f64) {
        self.plain_us = plain_us;
    }

    /// Takes note that a plain step took `us`.
    pub fn took_plain(&mut self, us: f64) {
        self.took(1, self.plain_us, us);
    }

    /// Takes note that a step of `rows` rows which the plan says takes `planned_us` took `us`.
    pub fn took(&mut self, rows: u32, planned_us: f64, us: f64) {
        let beyond_us = planned_us - self.plain_us;
        let is_separable = beyond_us >= SEPARABLE * self.plain_us;
        if rows <= 1 && !is_separable {
            let weight = if self.since_plain < PLAIN_SOONER { 1.0 / MEMORY_STEPS } else { LATE };
            self.plain = follow(self.plain, us / planned_us, weight);
            self.since_plain = 0;
            self.plain_in_a_row = self.plain_in_a_row.saturating_add(1);
            if self.plain_in_a_row > STALE_AFTER {
                self.beyond += FORGOTTEN * (self.plain - self.beyond);
                self.further -= FORGOTTEN * self.further;
            }
            return;
        }
        self.plain_in_a_row = 0;
        self.since_plain = self.since_plain.saturating_add(1);
        let now_us = self.plain * self.plain_us;
        let further_us = self.further_us(rows) * self.plain;
        if is_separable {
            self.beyond = follow(self.beyond, (us - now_us - further_us) / beyond_us, 1.0 / MEMORY_STEPS);
        } else {
            let sample = ((us - self.plain * planned_us) / now_us).clamp(-1.0, MOST_FURTHER);
            self.further += (sample - self.further) / MEMORY_STEPS;
        }
    }

    /// Whether so many steps of several rows have run since the last plain one that a slower machine cannot be told
    /// from dearer rows.
    pub fn wants_plain(&self) -> bool {
        self.since_plain >= if self.further > SUSPICIOUS { PLAIN_SOONER } else { PLAIN_EVERY }
    }

    /// The time of a step of `rows` rows and planned time `planned_us`, in microseconds of a machine whose plain step
    /// takes as long as planned: to be compared with other steps' only.
    pub fn corrected_us(&self, rows: u32, planned_us: f64) -> f64 {
        let beyond_us = (planned_us - self.plain_us).max(0.0);
        planned_us.min(self.plain_us) + self.further_us(rows) + beyond_us * self.beyond / self.plain
    }

    fn further_us(&self, rows: u32) -> f64 {
        if rows > 1 { self.further.max(0.0) * self.plain_us } else { 0.0 }
    }
}

fn follow(believed: f64, sample: f64, weight: f64) -> f64 {
    let sample = sample.clamp(believed / MOST_CHANGE, believed * MOST_CHANGE);
    believed + (sample - believed) * weight
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_as_planned_or_slower_throughout_changes_nothing() {
        for factor in [1.0, 1.7] {
            let mut costs = StepCosts::new(100.0);
            for step in 0..600 {
                let (rows, planned) = [(1, 100.0), (4, 120.0), (8, 160.0), (2, 101.0)][step % 4];
                costs.took(rows, planned, planned * factor);
            }
            for (rows, planned) in [(1, 90.0), (1, 100.0), (2, 101.0), (4, 120.0), (8, 300.0)] {
                let corrected = costs.corrected_us(rows, planned);
                assert!((corrected / planned - 1.0).abs() < 0.01, "{planned} became {corrected}");
            }
        }
    }

    #[test]
    fn rows_that_cost_more_than_planned_are_found_out_and_tried_again() {
        let mut costs = StepCosts::new(100.0);
        for step in 0..200 {
            let (rows, planned, us) = [(1, 100.0, 80.0), (4, 140.0, 180.0)][step % 2];
            costs.took(rows, planned, us);
        }
        // 40 planned beyond a plain step are 100, or 125 where that takes 80 instead of 100.
        assert!((costs.corrected_us(4, 140.0) - 225.0).abs() < 2.0, "{costs:?}");
        assert_eq!(costs.corrected_us(1, 100.0), 100.0);
        for _ in 0..2000 {
            costs.took(1, 100.0, 80.0);
        }
        assert!((costs.corrected_us(4, 140.0) - 140.0).abs() < 1.0, "{costs:?}");
    }

    #[test]
    fn rows_that_were_to_cost_nothing_are_told_from_a_slower_machine() {
        for (machine, rows_cost) in [(1.0, 1.0), (1.0, 1.3), (1.4, 1.0), (1.4, 1.3), (0.8, 1.3)] {
            let mut costs = StepCosts::new(100.0);
            let mut plain_steps = 0;
            for _ in 0..1000 {
                if costs.wants_plain() {
                    plain_steps += 1;
                    costs.took_plain(100.0 * machine);
                } else {
                    costs.took(6, 100.0, 100.0 * rows_cost * machine);
                }
            }
            let corrected = costs.corrected_us(6, 100.0) / 100.0;
            assert!((corrected - rows_cost).abs() < 0.02, "{machine}, {rows_cost}: {corrected}, {costs:?}");
            assert_eq!(costs.corrected_us(1, 100.0), 100.0);
            assert!(plain_steps <= 1000 / PLAIN_SOONER, "{plain_steps} plain steps");
            assert!(rows_cost > 1.0 || plain_steps <= 16, "{plain_steps} plain steps");
        }
    }

    #[test]
    fn one_interrupted_step_changes_little_and_no_step_costs_nothing() {
        let mut costs = StepCosts::new(100.0);
        costs.took(8, 150.0, 90_000.0);
        assert!(costs.corrected_us(8, 150.0) < 155.0, "{costs:?}");
        costs.took(1, 100.0, 90_000.0);
        assert!(costs.corrected_us(8, 150.0) > 145.0, "{costs:?}");
        costs.took(2, 101.0, 90_000.0);
        assert!(costs.corrected_us(2, 101.0) < 115.0, "{costs:?}");
        for _ in 0..10_000 {
            costs.took(8, 150.0, 0.0);
            costs.took(2, 101.0, 0.0);
            costs.took(1, 100.0, 0.0);
        }
        let corrected = costs.corrected_us(8, 150.0);
        assert!(corrected.is_finite() && corrected >= 100.0, "{costs:?}");
    }

    #[test]
    #[should_panic(expected = "a plain step of 0 microseconds")]
    fn a_plain_step_takes_time() {
        StepCosts::new(0.0);
    }
}
