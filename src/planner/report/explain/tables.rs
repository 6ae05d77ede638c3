//! The tables of an explanation, for its text and for its HTML page.

use crate::{
    plan::{Band, Division, PlannedMemory, PricedShape},
    planner::report::words::{MemoryPart, drafter_cell, expected_cell, memory_parts, shape_cells, size},
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

/// The parts of memory with their bytes and shares of the whole, what is free last.
pub fn memory(memory: &PlannedMemory) -> Table {
    let all = memory.budget_bytes.unwrap_or(memory.used_bytes()).max(1);
    let row = |part: MemoryPart| {
        let share = format!("{:.1} %", part.bytes as f64 / all as f64 * 100.0);
        vec![part.words, size(part.bytes), share]
    };
    let parts = memory_parts(memory).into_iter().filter(|part| part.bytes > 0);
    Table { titles: vec!["part", "takes", "share"], rows: parts.map(row).collect() }
}

/// The best division of memory for every substitute.
pub fn divisions(memory: &PlannedMemory) -> Table {
    let row = |division: &Division| {
        let Division { substitute_bits, resident_bytes, substitute_bytes, tpot_us } = division;
        let bits = substitute_bits.map_or("none".to_owned(), |bits| format!("{bits} bits"));
        vec![bits, size(*resident_bytes), size(*substitute_bytes), format!("{tpot_us:.0}")]
    };
    let titles = vec!["substitute", "weights in memory", "substitute takes", "us/token"];
    Table { titles, rows: memory.divisions.iter().map(row).collect() }
}

/// Titles of [`priced_cells`].
const PRICED: [&str; 8] = ["drafter", "Dd", "Wd", "Wv", "tokens/step", "step us", "us/token", "speed-up"];

/// Cells of a priced shape up to its Wv.
const SHAPE_END: usize = 4;

impl Table {
    /// A table of priced shapes, with cells before and after theirs.
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

/// The best `most` priced shapes of a band, and the row of the chosen one if it is among them. Of neighbours that
/// differ in Dd, Wd or Wv alone the first is shown, with the number of the others.
pub fn alternatives(band: &Band, most: usize) -> (Table, Option<usize>) {
    let (chosen, mut chosen_row) = (band.chosen().priced(), None);
    let mut rows: Vec<(Vec<String>, usize)> = Vec::new();
    for shape in band.priced() {
        let cells = priced_cells(&shape);
        let is_alike = |(last, _): &&mut (Vec<String>, usize)| {
            last[0] == cells[0] && last[SHAPE_END..] == cells[SHAPE_END..]
        };
        if let Some((_, alike)) = rows.last_mut().filter(is_alike) {
            *alike += 1;
        } else if rows.len() < most {
            rows.push((cells, 0));
        } else {
            break;
        }
        if shape == chosen {
            chosen_row = Some(rows.len() - 1);
        }
    }
    let row = |(mut cells, alike): (Vec<String>, usize)| {
        cells.push(if alike == 0 { String::new() } else { format!("{alike} more") });
        cells
    };
    let titles = [&PRICED[..], &["alike"]].concat();
    (Table { titles, rows: rows.into_iter().map(row).collect() }, chosen_row)
}

/// What requests of each temperature get.
pub fn temperatures(bands: &[BandReason]) -> Table {
    let rows = bands.iter().map(|BandReason { temperature, up_to, chosen, reason: _ }| {
        let requests = up_to.map_or("above".to_owned(), |up_to| format!("to {up_to}"));
        (vec![temperature.to_string(), requests], chosen, Vec::new())
    });
    Table::priced(&["recorded", "requests"], &[], rows)
}

/// The best shape of every drafter, the speed-up that it should give on other prompts, and where the time of its step
/// goes.
pub fn drafters(drafters: &[DrafterReason]) -> Table {
    let rows = drafters.iter().map(|DrafterReason { best, unseen, shares, .. }| {
        let StepShares { draft_us, verify_us, host_us } = *shares;
        let times = [draft_us, verify_us, host_us].map(|us| format!("{us:.0}"));
        (Vec::new(), best, [vec![expected_cell(unseen)], times.to_vec()].concat())
    });
    Table::priced(&[], &["on others", "draft us", "verify us", "host us"], rows)
}

/// What each part adds; parts that leave a drafter's best shape as it was are left out.
pub fn parts(parts: &[PartGain]) -> Table {
    let adds = |place: &usize| *place == 0 || parts[*place].best != parts[*place - 1].best;
    let rows =
        (0..parts.len()).filter(adds).map(|place| &parts[place]).map(|PartGain { part, best, gain }| {
            (Vec::new(), best, vec![format!("{:+.1} %", (gain - 1.0) * 100.0), part.name().to_owned()])
        });
    Table::priced(&[], &["adds", "part"], rows)
}

/// The best shapes of every drafter by either objective.
pub fn objectives(by_drafter: &[Contrast]) -> Table {
    let shapes = |c: &'_ Contrast| match c.by_speed == c.by_aal {
        true => vec![(c.by_speed.clone(), "both")],
        false => vec![(c.by_speed.clone(), "time"), (c.by_aal.clone(), "step")],
    };
    let shapes: Vec<_> = by_drafter.iter().flat_map(shapes).collect();
    let rows = shapes.iter().map(|(shape, per)| (Vec::new(), shape, vec![(*per).to_owned()]));
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
