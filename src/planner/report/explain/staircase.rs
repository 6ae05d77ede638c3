//! What a forward of many rows costs, in forwards of one: measured, never between the widths measured.
use std::collections::BTreeMap;

use serde::Serialize;
use ygg_profiler::{Cell, LatencyTable, Stage, Summary};

/// The cost of one stage over widths at one context.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Staircase {
    /// The stage: the verifier, or a drafter that runs a model.
    pub stage: Stage,
    /// Committed tokens.
    pub context: u32,
    /// By width, ascending.
    pub stairs: Vec<Stair>,
}

/// The cost of one width.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Stair {
    /// Rows of the forward.
    pub width: u32,
    /// What was measured.
    pub measured: Summary,
    /// Median over that of one row; `None` where one row was not measured.
    pub ratio: Option<f64>,
}

/// The staircases of all stages that were measured at two widths or more, by stage and context; work between forwards
/// is left out.
pub(super) fn staircases(table: &LatencyTable) -> Vec<Staircase> {
    let mut curves: BTreeMap<(&Stage, u32), Vec<(u32, &Summary)>> = BTreeMap::new();
    let is_forward = |(cell, _): &(&Cell, &Summary)| !matches!(cell.stage, Stage::Host(_));
    for (cell, summary) in table.iter().filter(is_forward) {
        curves.entry((&cell.stage, cell.context)).or_default().push((cell.width, summary));
    }
    curves.retain(|_, curve| curve.len() >= 2);
    let staircase = |((stage, context), curve): ((&Stage, u32), Vec<(u32, &Summary)>)| {
        let one = curve.iter().find(|(width, _)| *width == 1).map(|(_, summary)| summary.median_us);
        let stair = |(width, summary): &(u32, &Summary)| Stair {
            width: *width,
            measured: **summary,
            ratio: one.map(|one| summary.median_us / one),
        };
        Staircase { stage: stage.clone(), context, stairs: curve.iter().map(stair).collect() }
    };
    curves.into_iter().map(staircase).collect()
}
