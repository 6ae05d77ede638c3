//! The tables of an explanation, for its text and for its HTML page.

use crate::{
    plan::PricedShape,
    planner::report::show::{drafter_cell, shape_cells},
};

use super::{BandReason, ChainAnalysis, Contrast, DrafterReason, PartGain, StepShares};

/// Cells as text, in rows below their titles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// One for each column.
    pub titles: Vec<&'static str>,
    /// Cells, as many in each row as there are columns.
    pub rows: Vec<Vec<String>>,
}

/// Titles of [`priced_cells`].
const PRICED: [&str; 8] = ["drafter", "Dd", "Wd", "Wv", "tokens/step", "step us", "us/token", "speed-up"];

impl Table {
    /// A table of priced shapes, with cells before and behind theirs.
    fn priced<'p>(
        before: &[&'static str],
        behind: &[&'static str],
        rows: impl Iterator<Item = (Vec<String>, &'p PricedShape, Vec<String>)>,
    ) -> Self {
        let rows = rows.map(|(before, shape, behind)| [before, priced_cells(shape), behind].concat());
        Table { titles: [before, &PRICED, behind].concat(), rows: rows.collect() }
    }
}

fn priced_cells(priced: &PricedShape) -> Vec<String> {
    let PricedShape { name, shape, growth, schedule, depth_rule, rule, aal, step_us, tpot_us, speedup } =
        priced;
    let mut row = vec![drafter_cell(name, *growth, *schedule)];
    row.extend(shape_cells(shape, *depth_rule, *rule));
    row.extend([
        format!("{aal:.2}"),
        format!("{step_us:.0}"),
        format!("{tpot_us:.0}"),
        format!("{speedup:.2}"),
    ]);
    row
}

/// Priced shapes alone.
pub fn alternatives(shapes: &[PricedShape]) -> Table {
    Table::priced(&[], &[], shapes.iter().map(|shape| (Vec::new(), shape, Vec::new())))
}

/// What requests of each temperature get.
pub fn temperatures(bands: &[BandReason]) -> Table {
    let rows = bands.iter().map(|BandReason { temperature, up_to, chosen, reason: _ }| {
        let requests = up_to.map_or("above".to_owned(), |up_to| format!("to {up_to}"));
        (vec![temperature.to_string(), requests], chosen, Vec::new())
    });
    Table::priced(&["recorded", "requests"], &[], rows)
}

/// The best shape of every drafter, and where the time of its step goes.
pub fn drafters(drafters: &[DrafterReason]) -> Table {
    let rows = drafters.iter().map(|DrafterReason { best, shares, .. }| {
        let StepShares { draft_us, verify_us, host_us } = *shares;
        (Vec::new(), best, [draft_us, verify_us, host_us].map(|us| format!("{us:.0}")).to_vec())
    });
    Table::priced(&[], &["draft us", "verify us", "host us"], rows)
}

/// What each part adds.
pub fn parts(parts: &[PartGain]) -> Table {
    let rows = parts.iter().map(|PartGain { part, best, gain }| {
        (Vec::new(), best, vec![format!("{:+.1} %", (gain - 1.0) * 100.0), part.name().to_owned()])
    });
    Table::priced(&[], &["adds", "part"], rows)
}

/// The best shapes of every drafter by either objective.
pub fn objectives(by_drafter: &[Contrast]) -> Table {
    let both = by_drafter.iter().flat_map(|c| [(&c.by_speed, "time"), (&c.by_aal, "step")]);
    let rows = both.map(|(shape, per)| (Vec::new(), shape, vec![per.to_owned()]));
    Table::priced(&[], &["most per"], rows)
}

/// Chains by analysis, and the best chain that was priced.
pub fn chains(chains: &[ChainAnalysis]) -> Table {
    let row = |ChainAnalysis { name, alpha, alpha_from, cost, gamma, gain, best_chain }: &ChainAnalysis| {
        let chain = |cell: fn(&PricedShape) -> String| best_chain.as_ref().map_or("-".to_owned(), cell);
        vec![
            name.to_string(),
            format!("{alpha:.2}"),
            format!("{cost:.4}"),
            gamma.to_string(),
            format!("{gain:.2}"),
            chain(|shape| shape.shape.depth.to_string()),
            chain(|shape| format!("{:.2}", shape.speedup)),
            alpha_from.words().to_owned(),
        ]
    };
    let titles = vec!["drafter", "alpha", "c", "tokens", "gain", "priced Dd", "speed-up", "alpha of"];
    Table { titles, rows: chains.iter().map(row).collect() }
}
