//! The analysis of chain speculation compared with the chains that were priced: what it says from alpha and c alone,
//! which is that verifying costs the same whatever its rows.
use serde::Serialize;
use ygg_profiler::{DrafterName, LatencyTable, Stage};

use crate::{
    plan::{Band, PricedShape, SubPlan},
    planner::compare::{
        leviathan,
        parts::{Part, best_within},
    },
};

/// The analysis of one drafter's chains.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChainAnalysis {
    /// The drafter.
    pub name: DrafterName,
    /// The chance that a drafted token is accepted.
    pub alpha: f64,
    /// What alpha was taken from.
    pub alpha_from: AlphaSource,
    /// Time of a draft forward of one row over that of a verify forward of one row; of a drafter without a model, the
    /// time of a whole proposal.
    pub cost: f64,
    /// The number of drafted tokens that the analysis finds best; 0 where drafting does not pay.
    pub gamma: u32,
    /// The gain over plain decoding that it expects of that.
    pub gain: f64,
    /// The best chain that was priced, of any length, whether or not drafting pays.
    pub best_chain: Option<PricedShape>,
}

/// What alpha was taken from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AlphaSource {
    /// How often the verifier chose the drafter's first candidate.
    FirstCandidate,
    /// Tokens per step of a chain of one token, less the bonus token: steps without a proposal count as not accepted.
    ChainOfOne,
}

impl AlphaSource {
    /// The source in words.
    pub fn words(self) -> &'static str {
        match self {
            AlphaSource::FirstCandidate => "first candidate",
            AlphaSource::ChainOfOne => "chain of one",
        }
    }
}

/// The analysis of every drafter in the band's order; one whose alpha or cost nothing tells is missing.
pub(in crate::planner) fn analyses(table: &LatencyTable, band: &Band) -> Vec<ChainAnalysis> {
    band.drafting().filter_map(|sub_plan| analysis(table, band, sub_plan)).collect()
}

fn analysis(table: &LatencyTable, band: &Band, sub_plan: &SubPlan) -> Option<ChainAnalysis> {
    let SubPlan { name, acceptance, .. } = sub_plan;
    let (alpha, alpha_from) = match acceptance.by_rank.first() {
        Some(first) => (*first, AlphaSource::FirstCandidate),
        None => (chain_of_one(band, name)?.aal - 1.0, AlphaSource::ChainOfOne),
    };
    let alpha = alpha.clamp(0.0, 1.0);
    let one_row = |stage| table.latency_us(&stage, 1, sub_plan.first().context).ok();
    let cost = one_row(Stage::Draft(name.clone()))? / one_row(Stage::Verify)?;
    let deepest = band.priced().filter(|s| s.name == *name).map(|s| s.shape.depth).max().unwrap_or(0);
    let gamma = leviathan::best_gamma(alpha, cost, deepest);
    let gain = leviathan::gain(alpha, cost, gamma);
    let best_chain = best_within(table, band, name, Part::Chain);
    Some(ChainAnalysis { name: name.clone(), alpha, alpha_from, cost, gamma, gain, best_chain })
}

/// The shape that drafts and verifies one token, if it was priced.
fn chain_of_one(band: &Band, name: &DrafterName) -> Option<PricedShape> {
    band.priced().find(|shape| {
        let s = shape.shape;
        shape.name == *name && (s.depth, s.draft_width, s.verify_width) == (1, 1, 2)
    })
}
