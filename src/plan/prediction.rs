//! What steps should give: their speed on the recorded prompts, on others, and the acceptance that it follows from.
use serde::{Deserialize, Serialize};

use super::{
    PlanError,
    check::{ensure, is_positive},
    shape::{StageTime, step_us},
};

/// Predicted totals may differ from the sum of their stages by rounding only.
const ROUNDING: f64 = 1e-6;

/// The predicted speed of a sub-plan, derived from measured latencies and replayed acceptance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// Tokens per step.
    pub aal: f64,
    /// Time of a step.
    pub step_us: f64,
    /// Time per token.
    pub tpot_us: f64,
    /// Time per token of plain decoding.
    pub ar_tpot_us: f64,
    /// `ar_tpot_us / tpot_us`, eq. 3.
    pub speedup: f64,
    /// Where the time of a step goes.
    pub stages: Vec<StageTime>,
}

impl Prediction {
    /// Of steps that nobody priced: as if each were plain decoding's. No valid plan holds it.
    pub const UNPRICED: Self = Prediction {
        aal: 1.0,
        step_us: 1.0,
        tpot_us: 1.0,
        ar_tpot_us: 1.0,
        speedup: 1.0,
        stages: Vec::new(),
    };

    /// The prediction for `aal` tokens in a step made of `stages`, without stages that take no time.
    pub fn new(aal: f64, mut stages: Vec<StageTime>, ar_tpot_us: f64) -> Self {
        stages.retain(|stage| stage.us != 0.0);
        let step_us = step_us(&stages);
        let tpot_us = step_us / aal;
        Prediction { aal, step_us, tpot_us, ar_tpot_us, speedup: ar_tpot_us / tpot_us, stages }
    }

    pub(super) fn validate(&self) -> Result<(), PlanError> {
        let Prediction { aal, step_us, tpot_us, ar_tpot_us, speedup, stages } = self;
        for number in
            [aal, step_us, tpot_us, ar_tpot_us, speedup].into_iter().chain(stages.iter().map(|s| &s.us))
        {
            ensure(is_positive(*number), "prediction", "finite positive numbers", || number.to_string())?;
        }
        ensure(*aal >= 1.0, "tokens per step", "1 or more", || aal.to_string())?;
        let again = Prediction::new(*aal, stages.clone(), *ar_tpot_us);
        let close = |a: f64, b: f64| (a - b).abs() <= ROUNDING * b.abs();
        let agrees = close(*step_us, again.step_us)
            && close(*tpot_us, again.tpot_us)
            && close(*speedup, again.speedup);
        ensure(agrees, "prediction", "totals that follow from the stages", || format!("{self:?}"))
    }
}

/// The speed-up over plain decoding to expect on prompts that were not recorded.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Unseen {
    /// Nearer to 1 than what the recorded prompts gave: a shape that is the best of many by some prompts is less so by
    /// others, and the drafter that is the best of many by few prompts was lucky with these.
    pub speedup: f64,
    /// In nineteen of twenty cases the speed-up over all prompts of such kinds is more than this.
    pub least: f64,
    /// In nine of ten cases the speed-up over as many other prompts lies between this
    pub low: f64,
    /// and this.
    pub high: f64,
    /// Recorded prompts that it rests on. One alone says nothing of others: the interval holds what is measured with
    /// noise.
    pub prompts: u32,
}

impl Unseen {
    /// That of plain decoding.
    pub const PLAIN: Self = Self { speedup: 1.0, least: 1.0, low: 1.0, high: 1.0, prompts: 0 };

    /// Whether it is a gain beyond doubt.
    pub fn is_gain(&self) -> bool {
        self.least > 1.0
    }

    pub(super) fn validate(&self) -> Result<(), PlanError> {
        let Self { speedup, least, low, high, prompts: _ } = *self;
        let ascends = [low, least, speedup, high].is_sorted() && is_positive(low) && is_positive(high);
        ensure(ascends, "expected speed-up", "finite positive numbers, the lowest first", || {
            format!("{self:?}")
        })
    }
}

/// Measured acceptance, as a plan keeps it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Acceptance {
    /// Steps that the figures rest on.
    pub steps: u64,
    /// Share of steps that accepted at least d drafted tokens, for d = 1, 2, ...
    pub by_depth: Vec<f64>,
    /// Share of walked nodes where the verifier chose the drafter's r-th candidate, for r = 1, 2, ...; empty for
    /// drafters that rank nothing. The first is the chain's alpha.
    pub by_rank: Vec<f64>,
}
