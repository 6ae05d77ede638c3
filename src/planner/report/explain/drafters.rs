//! What became of every drafter's best shape: why it was chosen or what it lost by.
use serde::Serialize;
use ygg_profiler::{Stage, StepStage};

use crate::plan::{
    Acceptance, Band, ContextRange, Plan, Prediction, PricedShape, StageTime, SubPlan, Unseen,
};

/// The best shape of one drafter.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DrafterReason {
    /// The shape, and what it should give.
    #[serde(flatten)]
    pub best: PricedShape,
    /// What became of it.
    pub outcome: Outcome,
    /// The outcome in words.
    pub reason: String,
    /// What it gives on the recorded prompts.
    pub predicted: Prediction,
    /// What it should give on others.
    pub unseen: Unseen,
    /// Where the time of its step goes.
    pub shares: StepShares,
    /// Measured acceptance at this shape.
    pub acceptance: Acceptance,
}

/// The time of a step by who takes it, in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct StepShares {
    /// Forwards of the drafter, or its whole proposal.
    pub draft_us: f64,
    /// The forward of the verifier.
    pub verify_us: f64,
    /// Work between forwards.
    pub host_us: f64,
}

/// What became of a drafter's best shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Chosen: nothing else should be faster.
    Won,
    /// Chosen within what the user fixed.
    AskedFor,
    /// Plain decoding, chosen since nothing is faster beyond doubt.
    NothingBetter,
    /// Slower than plain decoding.
    SlowerThanPlain,
    /// Faster than plain decoding, but not beyond doubt.
    Doubtful,
    /// Faster than plain decoding, but not the fastest.
    Slower,
    /// Faster than what was chosen, but excluded by what the user fixed.
    Excluded,
    /// Faster than what was chosen, but by another substitute than the one that requests of all temperatures share.
    OtherSubstitute,
}

impl StepShares {
    fn new(stages: &[StageTime]) -> Self {
        let mut shares = StepShares::default();
        for StageTime { stage, us } in stages {
            *match stage {
                Stage::Host(_) => &mut shares.host_us,
                forward if forward.of_step() == StepStage::Draft => &mut shares.draft_us,
                _ => &mut shares.verify_us,
            } += us;
        }
        shares
    }
}

/// What became of every sub-plan of a band, in its order.
pub(super) fn reasons(plan: &Plan, band: &Band) -> Vec<DrafterReason> {
    let reason = |(place, sub_plan): (usize, &SubPlan)| {
        let outcome = outcome(plan, band, place);
        let ContextRange { predicted, unseen, .. } = sub_plan.first();
        DrafterReason {
            best: sub_plan.priced(),
            outcome,
            reason: words(plan, band, sub_plan, outcome),
            predicted: predicted.clone(),
            unseen: *unseen,
            shares: StepShares::new(&predicted.stages),
            acceptance: sub_plan.acceptance.clone(),
        }
    };
    band.by_drafter.iter().enumerate().map(reason).collect()
}

/// What became of the sub-plan at a place of a band.
pub(in crate::planner::report) fn outcome(plan: &Plan, band: &Band, place: usize) -> Outcome {
    let (sub_plan, is_fixed) = (&band.by_drafter[place], !plan.header.fixed.is_empty());
    let (unseen, chosen) = (sub_plan.first().unseen, band.chosen().first().unseen);
    if place == band.chosen_index as usize {
        return match (!is_fixed, sub_plan.is_plain()) {
            (false, _) => Outcome::AskedFor,
            (true, true) => Outcome::NothingBetter,
            (true, false) => Outcome::Won,
        };
    }
    if unseen.speedup > chosen.speedup && is_fixed {
        Outcome::Excluded
    } else if sub_plan.is_plain() {
        Outcome::Slower
    } else if unseen.speedup < 1.0 {
        Outcome::SlowerThanPlain
    } else if !unseen.is_gain() {
        Outcome::Doubtful
    } else if unseen.speedup > chosen.speedup && sub_plan.drafter.facts().substitute_bits.is_some() {
        Outcome::OtherSubstitute
    } else {
        Outcome::Slower
    }
}

fn words(plan: &Plan, band: &Band, sub_plan: &SubPlan, outcome: Outcome) -> String {
    let ContextRange { predicted, unseen, .. } = sub_plan.first();
    let (fixed, chosen) = (&plan.header.fixed, &band.chosen().first().unseen);
    let plain_us = predicted.ar_tpot_us;
    let StepShares { draft_us, verify_us, host_us } = StepShares::new(&predicted.stages);
    let step = format!(
        "a step of {:.2} plain steps (draft {:.2}, verify {:.2}, host {:.2}) gives {:.2} tokens",
        predicted.step_us / plain_us,
        draft_us / plain_us,
        verify_us / plain_us,
        host_us / plain_us,
        predicted.aal
    );
    let percent = |ratio: f64| (ratio - 1.0) * 100.0;
    let Unseen { speedup, low, high, .. } = *unseen;
    match outcome {
        Outcome::Won => format!("chosen: {step}"),
        Outcome::AskedFor => format!("chosen within `{fixed}`: {step}"),
        Outcome::NothingBetter => "chosen: nothing is faster beyond doubt".to_owned(),
        Outcome::SlowerThanPlain => {
            format!("slower than plain decoding by {:.0} %: {step}", percent(1.0 / speedup))
        }
        Outcome::Doubtful => {
            format!(
                "{speedup:.2}x plain decoding, but in doubt: {low:.2} to {high:.2} over as many other prompts: {step}"
            )
        }
        Outcome::Slower if sub_plan.is_plain() => format!(
            "{:.0} % more time per token than the chosen: a step for every token",
            percent(chosen.speedup / speedup)
        ),
        Outcome::Slower => {
            format!("{:.0} % more time per token than the chosen: {step}", percent(chosen.speedup / speedup))
        }
        Outcome::Excluded => format!("excluded by `{fixed}`, though predicted faster: {step}"),
        Outcome::OtherSubstitute => format!(
            "{speedup:.2}x plain decoding, but requests of all temperatures share one substitute, of other bits: {step}"
        ),
    }
}
