//! Why a plan is as it is: everything here is derived from the plan alone, so it says what the planner knew and no
//! more.
//!
//! The walk: [`explain_at`] says what requests of each temperature get ([`BandReason`]), and for one temperature weighs
//! every drafter's best shape against plain decoding ([`DrafterReason`]), finds the best shape within narrower and
//! narrower searches ([`PartGain`]), what the search for tokens alone would have chosen ([`ObjectiveContrast`]), what
//! the analysis of chains says ([`ChainAnalysis`]) and how much a forward of many rows costs ([`Staircase`]);
//! [`text()`] writes it for people, with everything else that the plan holds.
mod bands;
mod details;
pub(in crate::planner::report) mod drafters;
mod objective;
mod staircase;
pub mod tables;
mod text;

use serde::Serialize;
use ygg_profiler::DrafterName;

use crate::{
    plan::{Band, LeftOut, Plan, Refusal},
    planner::{
        NOISE_MARGIN,
        compare::{chains, parts},
        report::verdict::{Verdict, findings, verdict},
    },
};

pub use crate::planner::compare::{
    chains::{AlphaSource, ChainAnalysis},
    parts::{Part, PartGain},
};
pub use bands::BandReason;
pub use drafters::{DrafterReason, Outcome, StepShares};
pub use objective::{Contrast, ObjectiveContrast};
pub use staircase::{Stair, Staircase};
pub use text::text;

/// Why a plan is as it is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Explanation {
    /// What it comes to.
    pub verdict: Verdict,
    /// The temperature whose requests the sub-plans, parts and prices are for.
    pub temperature: f32,
    /// The drafter of the chosen sub-plan.
    pub chosen: DrafterName,
    /// What the user fixed, as text; empty if nothing.
    pub fixed: String,
    /// Committed tokens at which steps were priced.
    pub context: u32,
    /// Shapes priced.
    pub considered: usize,
    /// What requests of every temperature get; one temperature where no more were recorded.
    pub bands: Vec<BandReason>,
    /// How the best shape stands to noise.
    pub margin: Margin,
    /// The best shape of every drafter and what became of it, in the plan's order.
    pub drafters: Vec<DrafterReason>,
    /// What each part of a step adds, by drafter.
    pub parts: Vec<PartGain>,
    /// Most tokens per time against most tokens per step.
    pub objective: ObjectiveContrast,
    /// The analysis of chains, by drafter.
    pub chains: Vec<ChainAnalysis>,
    /// Time of a forward over that of one row.
    pub staircases: Vec<Staircase>,
    /// Trees that the traces could not answer for.
    pub refused: Vec<Refusal>,
    /// Drafters without evidence.
    pub left_out: Vec<LeftOut>,
    /// What is odd about the latencies measured, as far as it is notable.
    pub findings: Vec<String>,
}

/// The best shape priced and the noise.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Margin {
    /// Predicted gain over plain decoding that a shape needs to be chosen.
    pub needed: f64,
    /// That of the best shape priced.
    pub best: f64,
    /// Shapes predicted so near to the best that noise decides between them, the best among them.
    pub as_good: usize,
}

/// Says why `plan` is as it is for greedy requests.
///
/// # Panics
/// If the plan is not valid.
pub fn explain(plan: &Plan) -> Explanation {
    explain_at(plan, 0.0)
}

/// Says why `plan` is as it is for requests of `temperature`: of the nearest that it was searched for.
///
/// # Panics
/// If the plan is not valid.
pub fn explain_at(plan: &Plan, temperature: f32) -> Explanation {
    let band = plan.band_for(temperature);
    Explanation {
        temperature: band.temperature,
        bands: bands::reasons(&plan.bands),
        chosen: band.chosen().name.clone(),
        fixed: plan.header.fixed.clone(),
        context: plan.context(),
        considered: band.alternatives.len(),
        margin: margin(band),
        drafters: drafters::reasons(plan, band),
        parts: parts::gains(&plan.table, band),
        objective: objective::contrast(band),
        chains: chains::analyses(&plan.table, band),
        staircases: staircase::staircases(&plan.table),
        refused: band.refused.clone(),
        left_out: band.left_out.clone(),
        findings: findings(plan),
        verdict: verdict(plan, band),
    }
}

fn margin(band: &Band) -> Margin {
    let best = band.priced().map(|shape| shape.speedup).fold(0.0, f64::max);
    let as_good = band.priced().filter(|shape| shape.speedup * (1.0 + NOISE_MARGIN) >= best).count();
    Margin { needed: NOISE_MARGIN, best: best - 1.0, as_good }
}
