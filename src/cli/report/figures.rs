//! The plots of the report, from numbers of the plan.

use std::collections::BTreeMap;

use ygg_profiler::Stage;
use yggc::{
    plan::{Band, Calibration, HeldOut, Interval, PricedShape, SubPlan},
    planner::report::explain::{Explanation, Staircase},
};

use crate::cli::error::Failure;

use super::{
    chart::{Axes, Curve, CurvePoint, curves},
    heat_map::{HeatCell, HeatMap, heat_map},
    page::Page,
};

/// One map per drafter at its best Wd, the chosen drafter first: predicted speed-up over Dd and Wv, with the better
/// rule for choosing rows.
pub(super) fn surface(page: &mut Page, band: &Band) -> Result<(), Failure> {
    page.paragraph(
        "Predicted speed-up over plain decoding. Wv is the most rows that a step verifies; each cell has the better \
         of verifying so many at every step and choosing at every step. Each drafter is shown with its best Wd. \
         Within a map darker is faster, and the frame is around the chosen shape.",
    );
    let chosen = band.chosen();
    let mut maps: Vec<(&SubPlan, Vec<PricedShape>)> = Vec::new();
    for sub_plan in band.drafting() {
        let draft_width = sub_plan.draft_width;
        let is_here =
            |shape: &PricedShape| shape.name == sub_plan.name && shape.shape.draft_width == draft_width;
        maps.push((sub_plan, band.priced().filter(is_here).collect()));
    }
    maps.sort_by_key(|(sub_plan, _)| sub_plan.name != chosen.name);
    if maps.is_empty() {
        page.paragraph("No shape but plain decoding was priced.");
    }
    for (SubPlan { name, draft_width, .. }, shapes) in &maps {
        let mut best: BTreeMap<(u32, u32), f64> = BTreeMap::new();
        for PricedShape { shape, speedup, .. } in shapes {
            let cell = best.entry((shape.verify_width, shape.depth)).or_insert(*speedup);
            *cell = cell.max(*speedup);
        }
        let range = (
            best.values().copied().fold(f64::INFINITY, f64::min),
            best.values().copied().fold(0.0, f64::max),
        );
        let is_here = chosen.name == *name && chosen.draft_width == *draft_width;
        let at = (chosen.shape().verify_width, chosen.shape().depth);
        let cells = best.iter().map(|(place, value)| {
            let ((column, row), value) = (*place, *value);
            HeatCell { column, row, value, marked: is_here && *place == at }
        });
        let cells: Vec<HeatCell> = cells.collect();
        let svg = heat_map(&HeatMap {
            x: "Wv, rows verified at most",
            y: "Dd, growths",
            columns: ascending(cells.iter().map(|cell| cell.column)),
            rows: ascending(cells.iter().map(|cell| cell.row)),
            cells,
            range,
        })?;
        page.figure(&format!("{name}, Wd {draft_width}: speed-up (predicted)"), &svg);
    }
    Ok(())
}

/// One chart per stage, with one curve per context.
pub(super) fn latencies(page: &mut Page, explanation: &Explanation) -> Result<(), Failure> {
    page.paragraph(
        "Medians; bars reach from the first to the third quartile. Only the widths marked were measured.",
    );
    let mut by_stage: BTreeMap<&Stage, Vec<&Staircase>> = BTreeMap::new();
    for staircase in &explanation.staircases {
        by_stage.entry(&staircase.stage).or_default().push(staircase);
    }
    for (stage, staircases) in by_stage {
        let curve = |staircase: &&Staircase| Curve {
            label: format!("{} committed tokens", staircase.context),
            points: staircase
                .stairs
                .iter()
                .map(|stair| {
                    let ms = |us: f64| us / 1000.0;
                    let measured = &stair.measured;
                    let (y, low, high) = (ms(measured.median_us), ms(measured.low_us), ms(measured.high_us));
                    CurvePoint { x: f64::from(stair.width), y, low, high }
                })
                .collect(),
        };
        let axes = Axes { x: "W, rows of the forward", y: "time, ms" };
        let svg = curves(axes, &staircases.iter().map(curve).collect::<Vec<_>>())?;
        page.figure(&format!("{stage}: time of a forward (measured)"), &svg);
    }
    Ok(())
}

/// Acceptance by depth and by the drafter's rank: one curve per drafter with recordings.
pub(super) fn acceptance(page: &mut Page, band: &Band) -> Result<(), Failure> {
    let by_depth = shares(band, |sub_plan| &sub_plan.acceptance.by_depth);
    let by_rank = shares(band, |sub_plan| &sub_plan.acceptance.by_rank);
    if by_depth.is_empty() && by_rank.is_empty() {
        page.paragraph("No drafted token was judged.");
    }
    let depths = Axes { x: "depth, drafted tokens", y: "share of steps that accept so many" };
    let ranks = Axes { x: "rank of the drafter's candidate", y: "share that the verifier chose" };
    for (axes, curves_of, caption) in [
        (depths, by_depth, "Acceptance by depth, at each drafter's best shape (measured)"),
        (ranks, by_rank, "Acceptance by rank (measured)"),
    ] {
        if !curves_of.is_empty() {
            page.figure(caption, &curves(axes, &curves_of)?);
        }
    }
    Ok(())
}

fn shares(band: &Band, of: impl Fn(&SubPlan) -> &Vec<f64>) -> Vec<Curve> {
    let curve = |sub_plan: &SubPlan| Curve {
        label: sub_plan.name.to_string(),
        points: (1u32..)
            .zip(of(sub_plan))
            .map(|(at, share)| CurvePoint::exact(f64::from(at), *share))
            .collect(),
    };
    band.by_drafter.iter().map(curve).filter(|curve| !curve.points.is_empty()).collect()
}

/// Predicted against observed acceptance of held-out nodes.
pub(super) fn reliability(page: &mut Page, band: &Band) -> Result<(), Failure> {
    let held_out = |sub_plan: &SubPlan| {
        let Calibration { held_out, .. } = sub_plan.first().row_choice.calibration.as_ref()?;
        held_out.map(|held_out| (sub_plan.name.clone(), held_out))
    };
    let judged: Vec<_> = band.by_drafter.iter().filter_map(held_out).collect();
    if judged.is_empty() {
        page.paragraph(
            "No shape kept chooses its rows by probabilities that were judged on held-out prompts.",
        );
        return Ok(());
    }
    page.paragraph(
        "Nodes of prompts that the probabilities were not fitted to, by interval of predicted probability. On the \
         diagonal, what was predicted happened.",
    );
    let mut all = Vec::new();
    for (name, HeldOut { nodes, error, raw_error, intervals }) in judged {
        let seen = intervals.iter().filter(|interval| interval.nodes > 0);
        let points = seen.map(|Interval { nodes, expected, accepted }| {
            CurvePoint::exact(expected / *nodes as f64, *accepted as f64 / *nodes as f64)
        });
        all.push(Curve { label: name.to_string(), points: points.collect() });
        page.paragraph(format_args!(
            "{name}: mean error {:.1} % over {nodes} nodes; of the drafter's own values {:.1} %.",
            error * 100.0,
            raw_error * 100.0
        ));
    }
    let end = all.iter().flat_map(|curve| &curve.points).map(|point| point.x).fold(0.0, f64::max);
    let diagonal = vec![CurvePoint::exact(0.0, 0.0), CurvePoint::exact(end, end)];
    all.insert(0, Curve { label: "as predicted".to_owned(), points: diagonal });
    let axes = Axes { x: "probability predicted", y: "share accepted" };
    page.figure("Reliability on held-out prompts (measured)", &curves(axes, &all)?);
    Ok(())
}

fn ascending(numbers: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut numbers: Vec<u32> = numbers.collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}
