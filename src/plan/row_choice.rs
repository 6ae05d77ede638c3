//! How many rows the steps of a sub-plan may verify, what they cost, and by which rule a step chooses.
use serde::{Deserialize, Serialize};

use super::{Calibration, PlanError, check::ensure};

/// The rule by which a step chooses among its planned widths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowRule {
    /// The widest planned: every step verifies all it may.
    Widest,
    /// The width that maximises expected tokens minus `rate * time` ([`RowChoice::rate`]), so that all steps together
    /// emit the most tokens per time.
    BestRate,
}

/// What a step costs at one verify width.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct WidthCost {
    /// Rows of the executable.
    pub width: u32,
    /// Predicted time of the whole step, drafting and deciding included.
    pub step_us: f64,
}

/// The verify widths of a sub-plan with their costs, ascending, and how a step chooses among them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RowChoice {
    /// How a step chooses.
    pub rule: RowRule,
    /// Ascending, not empty; the last is Wv.
    pub widths: Vec<WidthCost>,
    /// Tokens per microsecond of decoding with this rule: the price of a step's time.
    pub rate: f64,
    /// Maps a drafter's values to probabilities; `None`: the values are used as probabilities.
    pub calibration: Option<Calibration>,
}

impl RowChoice {
    /// No choice: every step verifies `width` rows, or what there is of them.
    pub fn fixed(width: u32, step_us: f64) -> Self {
        let widths = vec![WidthCost { width, step_us }];
        RowChoice { rule: RowRule::Widest, widths, rate: 1.0 / step_us, calibration: None }
    }

    /// The most rows a step may verify.
    ///
    /// # Panics
    /// If there is no width.
    pub fn widest(&self) -> u32 {
        self.widths.last().expect("a choice has a width").width
    }

    /// The planned width that a forward of `rows` rows runs at, with its cost: the smallest that holds them, else the
    /// widest.
    ///
    /// # Panics
    /// If there is no width.
    pub fn planned(&self, rows: u32) -> WidthCost {
        let holds = self.widths.iter().find(|cost| cost.width >= rows);
        *holds.unwrap_or_else(|| self.widths.last().expect("a choice has a width"))
    }

    /// Checks that there are widths, that they ascend, their costs, and the rate.
    pub(super) fn validate(&self) -> Result<(), PlanError> {
        let RowChoice { rule: _, widths, rate, calibration } = self;
        let show = || format!("{widths:?}");
        let ascending = widths.is_sorted_by(|a, b| a.width < b.width);
        let begins = widths.first().is_some_and(|cost| cost.width >= 1);
        ensure(ascending && begins, "choice of rows", "widths that ascend from 1 or more", show)?;
        let positive = widths.iter().all(|w| w.step_us.is_finite() && w.step_us > 0.0);
        ensure(positive, "choice of rows", "finite positive times", show)?;
        let is_rate = rate.is_finite() && *rate > 0.0;
        ensure(is_rate, "rate of a choice of rows", "a finite positive number", || rate.to_string())?;
        calibration.as_ref().map_or(Ok(()), Calibration::validate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(rule: RowRule, widths: &[(u32, f64)]) -> RowChoice {
        let widths = widths.iter().map(|(width, step_us)| WidthCost { width: *width, step_us: *step_us });
        RowChoice { rule, widths: widths.collect(), rate: 0.125, calibration: None }
    }

    #[test]
    fn contradictory_choices_are_refused() {
        let good = [(1, 1.0), (4, 2.0)];
        assert!(choice(RowRule::BestRate, &good).validate().is_ok());
        for widths in [
            &[][..],
            &[(0, 1.0), (4, 2.0)],
            &[(4, 1.0), (4, 2.0)],
            &[(1, 0.0), (4, 2.0)],
            &[(1, 1.0), (4, f64::NAN)],
        ] {
            assert!(choice(RowRule::BestRate, widths).validate().is_err(), "{widths:?}");
        }
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let choice = RowChoice { rate, ..choice(RowRule::BestRate, &good) };
            assert!(choice.validate().is_err(), "{rate}");
        }
    }
}
