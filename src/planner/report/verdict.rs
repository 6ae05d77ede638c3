//! What a plan comes to, in the words that a reader needs first: the gain, how sure it is, and what would give more.

use std::collections::BTreeMap;

use serde::Serialize;
use ygg_profiler::{Cell, Finding, Stage, Summary};

use crate::{
    plan::{Plan, SubPlan},
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

/// What `plan` comes to for requests of temperature 0.
pub fn verdict(plan: &Plan) -> Verdict {
    let chosen = plan.chosen();
    let (speedup, sure) = (chosen.predicted.speedup, uncertainty(plan) * 100.0);
    let gain = if chosen.is_plain() {
        let plain = "plain decoding: no drafter that was measured is faster by more than the noise";
        format!("{plain} (predicted, sure to within {sure:.0} %)")
    } else {
        let name = &chosen.name;
        format!("{speedup:.2}x plain decoding by {name} (predicted, sure to within {sure:.0} %)")
    };
    Verdict { gain, advice: advice(plan) }
}

/// The cells by which the chosen step is judged against a plain one: forwards of one row, and of the rows that it may verify.
fn judged<'p>(plan: &'p Plan, width: impl Fn(u32) -> bool + 'p) -> impl Iterator<Item = &'p Summary> {
    let contexts = plan.table.contexts();
    let above = contexts.iter().copied().find(|context| *context >= plan.context);
    let context = above.or(contexts.last().copied()).unwrap_or_default();
    let is_judged = move |(cell, _): &(&Cell, &Summary)| {
        cell.stage == Stage::Verify && cell.context == context && width(cell.width)
    };
    plan.table.iter().filter(is_judged).map(|(_, summary)| summary)
}

/// How far the ratio of the chosen step's time to a plain step's may be off, from the spread of what was measured: 95 % intervals of both
/// medians, and never less than the margin by which plans are chosen.
fn uncertainty(plan: &Plan) -> f64 {
    // Of n normal samples, whose quartiles are 1.35 deviations apart, the median has a deviation of 1.25 / sqrt(n) of theirs.
    let interval = |summary: &Summary| 1.82 * summary.spread / f64::from(summary.samples.max(1)).sqrt();
    let widest = plan.chosen().shape.verify_width;
    let plain = judged(plan, |width| width == 1).map(interval).fold(0.0, f64::max);
    let chosen = judged(plan, move |width| width > 1 && width <= widest).map(interval).fold(0.0, f64::max);
    plain.hypot(chosen).max(NOISE_MARGIN)
}

fn advice(plan: &Plan) -> Vec<String> {
    let mut advice = Vec::new();
    let best = plan.by_drafter.iter().max_by(|a, b| a.predicted.speedup.total_cmp(&b.predicted.speedup));
    if let Some(SubPlan { name, predicted, .. }) = best
        && !plan.fixed.is_empty()
        && predicted.speedup > plan.chosen().predicted.speedup * (1.0 + NOISE_MARGIN)
    {
        advice.push(format!(
            "fix less: without `{}` {name} is predicted {:.2}x",
            plan.fixed, predicted.speedup
        ));
    }
    let widest = plan.chosen().shape.verify_width;
    if judged(plan, move |width| width <= widest).any(|summary| summary.noisy) {
        advice.push("measure what is noisy again while the machine is idle".to_owned());
    }
    if plan.by_drafter.iter().all(|sub_plan| sub_plan.drafter.draft_model().is_none()) {
        advice.push("try a small model of the same vocabulary as drafter".to_owned());
    }
    if plan.calibration == "shipped" {
        advice.push("calibrate with prompts of your own".to_owned());
    }
    advice
}

/// What is odd about the latencies measured: noisy cells of a stage in one line, and nothing of stages that take no notable time.
pub(in crate::planner) fn findings(plan: &Plan) -> Vec<String> {
    let step_us = plan.chosen().predicted.ar_tpot_us;
    let is_notable = |stage: &Stage| {
        let of_stage = plan.table.iter().filter(|(cell, _)| cell.stage == *stage);
        of_stage.map(|(_, summary)| summary.median_us).fold(0.0, f64::max) >= NOTABLE * step_us
    };
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
    let predicted = &sub_plan.predicted;
    let (notable, others): (Vec<_>, Vec<_>) = predicted
        .stages
        .iter()
        .map(|stage| (&stage.stage, stage.us))
        .partition(|(_, us)| *us >= NOTABLE * predicted.step_us);
    (notable, others.len(), others.iter().map(|(_, us)| us).sum())
}
