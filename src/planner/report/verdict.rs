//! What a plan comes to, in the words that a reader needs first: the gain, how sure it is, and what would give more.

use std::collections::BTreeMap;

use serde::Serialize;
use ygg_profiler::{Cell, Finding, Stage, Summary};

use crate::{
    plan::{Band, Header, Plan, SubPlan, Unseen},
    planner::NOISE_MARGIN,
};

/// Share of a plain step below which a time is not worth a line.
const NOTABLE: f64 = 0.01;

/// What a plan comes to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    /// The gain and how sure it is.
    pub gain: String,
    /// What could give more, the most promising first; nothing if everything was tried.
    pub advice: Vec<String>,
}

/// What `plan` comes to for requests of a band.
pub fn verdict(plan: &Plan, band: &Band) -> Verdict {
    let chosen = band.chosen();
    let Unseen { speedup, low, high, .. } = chosen.first().unseen;
    let gain = if chosen.is_plain() {
        "plain decoding: no drafter that was measured is faster beyond doubt".to_owned()
    } else {
        let name = &chosen.name;
        format!(
            "{speedup:.2}x plain decoding by {name}, expected on other prompts than the recorded ({low:.2} to {high:.2} in nine of ten cases)"
        )
    };
    Verdict { gain, advice: advice(plan, band) }
}

/// The cells by which the chosen step is judged against a plain one: forwards of one row, and of the rows that it may
/// verify.
fn judged<'p>(plan: &'p Plan, width: impl Fn(u32) -> bool + 'p) -> impl Iterator<Item = &'p Summary> {
    let contexts = plan.table.contexts();
    let priced_at = plan.context();
    let above = contexts.iter().copied().find(|context| *context >= priced_at);
    let context = above.or(contexts.last().copied()).unwrap_or_default();
    let is_judged = move |(cell, _): &(&Cell, &Summary)| {
        cell.stage == Stage::Verify && cell.context == context && width(cell.width)
    };
    plan.table.iter().filter(is_judged).map(|(_, summary)| summary)
}

fn advice(plan: &Plan, band: &Band) -> Vec<String> {
    let mut advice = Vec::new();
    let Header { fixed, calibration, .. } = &plan.header;
    let expected = |sub_plan: &SubPlan| sub_plan.first().unseen.speedup;
    let best = band.by_drafter.iter().max_by(|a, b| expected(a).total_cmp(&expected(b)));
    if let Some(best) = best
        && !fixed.is_empty()
        && expected(best) > expected(band.chosen()) * (1.0 + NOISE_MARGIN)
    {
        let (name, speedup) = (&best.name, expected(best));
        advice.push(format!("fix less: without `{fixed}` {name} should give {speedup:.2}x"));
    }
    let widest = band.chosen().shape().verify_width;
    if judged(plan, move |width| width <= widest).any(|summary| summary.noisy) {
        advice.push("measure what is noisy again while the machine is idle".to_owned());
    }
    if band.by_drafter.iter().all(|sub_plan| sub_plan.drafter.draft_model().is_none()) {
        advice.push("try a small model of the same vocabulary as drafter".to_owned());
    }
    if calibration == "shipped" {
        advice.push("calibrate with prompts of your own".to_owned());
    }
    advice
}

/// Cells of stages that take notable time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NoisyCells {
    /// Those whose samples spread beyond the threshold.
    pub(super) noisy: usize,
    /// All of them.
    pub(super) measured: usize,
}

/// How many latencies of notable stages are noisy.
pub(super) fn noisy_cells(plan: &Plan) -> NoisyCells {
    let notable = plan.table.iter().filter(|(cell, _)| is_notable(plan, &cell.stage));
    notable.fold(NoisyCells { noisy: 0, measured: 0 }, |NoisyCells { noisy, measured }, (_, summary)| {
        NoisyCells { noisy: noisy + usize::from(summary.noisy), measured: measured + 1 }
    })
}

/// Whether a stage takes a notable share of a plain step at any width.
fn is_notable(plan: &Plan, stage: &Stage) -> bool {
    let of_stage = plan.table.iter().filter(|(cell, _)| cell.stage == *stage);
    let longest_us = of_stage.map(|(_, summary)| summary.median_us).fold(0.0, f64::max);
    longest_us >= NOTABLE * plan.bands[0].chosen().first().predicted.ar_tpot_us
}

/// What is odd about the latencies measured: noisy cells of a stage in one line, and nothing of stages that take no
/// notable time.
pub(in crate::planner) fn findings(plan: &Plan) -> Vec<String> {
    let is_notable = |stage: &Stage| is_notable(plan, stage);
    let mut noisy: BTreeMap<Stage, Vec<(Cell, f64)>> = BTreeMap::new();
    let mut others = Vec::new();
    for finding in plan.table.findings() {
        match finding {
            Finding::Noisy { cell, spread } if is_notable(&cell.stage) => {
                noisy.entry(cell.stage.clone()).or_default().push((cell, spread));
            }
            Finding::WiderIsFaster { ref stage, .. } | Finding::Flat { ref stage, .. }
                if is_notable(stage) =>
            {
                others.push(finding.to_string());
            }
            Finding::Noisy { .. } | Finding::WiderIsFaster { .. } | Finding::Flat { .. } => {}
        }
    }
    let line = |(stage, cells): (Stage, Vec<(Cell, f64)>)| {
        let measured = plan.table.iter().filter(|(cell, _)| cell.stage == stage).count();
        let (cell, spread) = cells.iter().max_by(|a, b| a.1.total_cmp(&b.1)).expect("one is noisy");
        format!(
            "{stage} is noisy in {} of {measured} cells; most in {cell}, whose middle half spreads over {:.0} % of the median",
            cells.len(),
            spread * 100.0
        )
    };
    noisy.into_iter().map(line).chain(others).collect()
}

/// Stages of a step that take a notable share of it, in their order, and the number and time of the others.
pub fn notable_stages(sub_plan: &SubPlan) -> (Vec<(&Stage, f64)>, usize, f64) {
    let predicted = &sub_plan.first().predicted;
    let (notable, others): (Vec<_>, Vec<_>) = predicted
        .stages
        .iter()
        .map(|stage| (&stage.stage, stage.us))
        .partition(|(_, us)| *us >= NOTABLE * predicted.step_us);
    (notable, others.len(), others.iter().map(|(_, us)| us).sum())
}
