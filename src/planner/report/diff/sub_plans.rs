//! In what the best shapes of two plans differ, drafter by drafter.
use serde::Serialize;
use ygg_profiler::DrafterName;

use crate::{
    plan::{
        Acceptance, Calibration, ContextRange, DepthChoice, DepthCosts, DrafterKind, GrowthChoice,
        GuardLimits, PricedShape, RowChoice, StageTime, StaticTree, SubPlan, WidthCost,
    },
    planner::report::words::{describe_growth, expected_cell, shape_cells, words},
};

use super::{Change, list};

/// One drafter of which anything differs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DrafterDiff {
    /// The drafter.
    pub name: DrafterName,
    /// Its best shape in plan A; `None` if it has none.
    pub a: Option<PricedShape>,
    /// Its best shape in plan B; `None` if it has none.
    pub b: Option<PricedShape>,
    /// What else differs, if both have it.
    pub changes: Vec<Change>,
}

/// The drafters of which anything differs, in the order of `a`, then of `b`.
pub(super) fn changes(a: &[SubPlan], b: &[SubPlan]) -> Vec<DrafterDiff> {
    let find = |plans: &[SubPlan], name| plans.iter().position(|plan| plan.name == name);
    let only_b = b.iter().filter(|plan| find(a, plan.name.clone()).is_none());
    let mut diffs = Vec::new();
    for SubPlan { name, .. } in a.iter().chain(only_b) {
        let here = find(a, name.clone()).map(|place| &a[place]);
        let there = find(b, name.clone()).map(|place| &b[place]);
        if here != there {
            let changes = here.zip(there).map_or(Vec::new(), |(here, there)| details(here, there));
            let (a, b) = (here.map(SubPlan::priced), there.map(SubPlan::priced));
            diffs.push(DrafterDiff { name: name.clone(), a, b, changes });
        }
    }
    diffs
}

/// What differs apart from the figures of a [`PricedShape`].
fn details(a: &SubPlan, b: &SubPlan) -> Vec<Change> {
    let SubPlan {
        name: _,
        drafter,
        draft_width: _,
        growth,
        schedule: _,
        top_k,
        draft_temperature,
        acceptance,
        guard,
        ranges,
    } = a;
    let ContextRange {
        from: _,
        context: _,
        drafts: _,
        depth: _,
        depth_choice,
        row_choice,
        predicted,
        unseen,
    } = a.first();
    let there = b.first();
    let RowChoice { rule: _, widths, rate, calibration } = row_choice;
    let Acceptance { steps, by_depth, by_rank } = acceptance;
    let kind = |kind: &DrafterKind| format!("{kind:?}");
    let costs = |widths: &Vec<WidthCost>| {
        list(widths.iter().map(|WidthCost { width, step_us }| format!("{width} rows {step_us:.0} us")))
    };
    let stages = |stages: &Vec<StageTime>| {
        list(stages.iter().map(|StageTime { stage, us }| format!("{stage} {us:.1} us")))
    };
    let per_ms = |rate: &f64| format!("{:.3} tokens/ms", rate * 1e3);
    let shares = |shares: &Vec<f64>| list(shares.iter().map(|share| format!("{share:.2}")));
    let changes = [
        Change::of("drafter", drafter, &b.drafter, kind),
        Change::of("growth", growth, &b.growth, describe_template),
        Change::of("candidates per node", top_k, &b.top_k, u32::to_string),
        Change::of("draft temperature", draft_temperature, &b.draft_temperature, f32::to_string),
        Change::of("choice of depth", depth_choice, &there.depth_choice, describe_depths),
        Change::of("costs of widths", widths, &there.row_choice.widths, costs),
        Change::of("worth of time when rows are chosen", rate, &there.row_choice.rate, per_ms),
        Change::of("calibration", calibration, &there.row_choice.calibration, describe_calibration),
        Change::of("stages", &predicted.stages, &there.predicted.stages, stages),
        Change::of("plain us/token", &predicted.ar_tpot_us, &there.predicted.ar_tpot_us, |us| {
            format!("{us:.0}")
        }),
        Change::of("on other prompts", unseen, &there.unseen, expected_cell),
        Change::of("plain steps that a request may lose", guard, &b.guard, |guard| {
            let GuardLimits { may_lose, resume } = guard;
            format!("{may_lose:.1}, {resume:.2} to resume")
        }),
        Change::of("at longer contexts", &ranges[1..], &b.ranges[1..], |ranges| {
            list(ranges.iter().map(describe_range))
        }),
        Change::of("steps recorded", steps, &b.acceptance.steps, u64::to_string),
        Change::of("accepted to depth 1, 2, ...", by_depth, &b.acceptance.by_depth, shares),
        Change::of("accepted candidate 1, 2, ...", by_rank, &b.acceptance.by_rank, shares),
    ];
    changes.into_iter().flatten().collect()
}

fn describe_template(growth: &GrowthChoice) -> String {
    let rule = growth.rule();
    match growth.static_tree() {
        None => rule.to_string(),
        Some(StaticTree { template, draft_widths }) => {
            let widths = list(draft_widths.iter().map(u32::to_string));
            format!("{rule}, {} nodes drafted at widths {widths}", template.nodes())
        }
    }
}

fn describe_range(range: &ContextRange) -> String {
    let ContextRange { from, drafts, depth, row_choice, unseen, .. } = range;
    let off = if *drafts { "" } else { ", plainly" };
    format!("from {from} Dd {depth}, Wv {}, {}{off}", row_choice.widest(), expected_cell(unseen))
}

fn describe_depths(choice: &DepthChoice) -> String {
    match choice {
        DepthChoice::Fixed => "fixed".to_owned(),
        DepthChoice::Predicted(DepthCosts { reach: _, costs }) => {
            list(costs.iter().map(|cost| format!("to depth {} {:.0} us", cost.depth, cost.step_us)))
        }
    }
}

fn describe_calibration(calibration: &Option<Calibration>) -> String {
    let Some(Calibration { by_depth, fitted_nodes, held_out }) = calibration else {
        return "none".to_owned();
    };
    let knots: usize = by_depth.iter().map(Vec::len).sum();
    let error = held_out
        .map_or(String::new(), |held_out| format!(", held-out error {:.1} %", held_out.error * 100.0));
    format!("{knots} probabilities fitted to {fitted_nodes} nodes{error}")
}

/// A shape in a few words.
pub(super) fn describe_shape(priced: &PricedShape) -> String {
    let [depth, draft_width, verify_width] = shape_cells(&priced.shape, priced.depth_rule, priced.rule);
    let schedule = words(priced.schedule);
    let growth = describe_growth(priced.growth);
    format!("Dd {depth}, Wd {draft_width}, Wv {verify_width}{growth}{schedule}")
}
