//! The latency table: what each measured cell costs, exact in width, linear between measured contexts.
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{
    grid::CellSamples,
    statistics::{is_noisy, quantile_of_sorted, relative_spread, sorted},
    subject::{Cell, Stage},
};

/// What one cell costs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Median of the samples.
    pub median_us: f64,
    /// First quartile.
    pub low_us: f64,
    /// Third quartile.
    pub high_us: f64,
    /// Relative spread: (p75 - p25) / median.
    pub spread: f64,
    /// Number of samples.
    pub samples: u32,
    /// Whether the spread stayed above the threshold it was measured with.
    pub noisy: bool,
}

/// One line of a table in its stored form.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Row {
    cell: Cell,
    summary: Summary,
}

/// Measured costs by cell. Never empty; every number in it is finite and every latency positive.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(into = "Vec<Row>", try_from = "Vec<Row>")]
pub struct LatencyTable {
    cells: BTreeMap<Cell, Summary>,
}

impl LatencyTable {
    /// Derives a table from raw samples; a cell is noisy by the rule of [`is_noisy`].
    ///
    /// # Errors
    /// [`TableError`] if there are no cells, a cell has no samples or comes twice, or a sample is not a positive time.
    pub fn from_samples(cells: &[CellSamples], noise_threshold: f64) -> Result<Self, TableError> {
        let mut table = BTreeMap::new();
        for CellSamples { cell, samples_us } in cells {
            if let Some(bad) = samples_us.iter().find(|s| !(s.is_finite() && **s > 0.0)) {
                return Err(TableError::NotATime { cell: cell.clone(), found: *bad });
            }
            let ascending = sorted(samples_us);
            let at =
                |q| quantile_of_sorted(&ascending, q).ok_or(TableError::NoSamples { cell: cell.clone() });
            let spread = relative_spread(samples_us).ok_or(TableError::NoSamples { cell: cell.clone() })?;
            let summary = Summary {
                median_us: at(0.5)?,
                low_us: at(0.25)?,
                high_us: at(0.75)?,
                spread,
                samples: u32::try_from(samples_us.len()).unwrap_or(u32::MAX),
                noisy: is_noisy(samples_us, noise_threshold),
            };
            insert(&mut table, cell.clone(), summary)?;
        }
        LatencyTable::checked(table)
    }

    fn checked(cells: BTreeMap<Cell, Summary>) -> Result<Self, TableError> {
        if cells.is_empty() {
            return Err(TableError::Empty);
        }
        for (cell, summary) in &cells {
            let Summary { median_us, low_us, high_us, spread, samples, noisy: _ } = *summary;
            let fail = |found| Err(TableError::NotATime { cell: cell.clone(), found });
            for us in [low_us, median_us, high_us] {
                if !(us.is_finite() && us > 0.0) {
                    return fail(us);
                }
            }
            if !(spread.is_finite() && spread >= 0.0 && low_us <= median_us && median_us <= high_us) {
                return fail(spread);
            }
            if samples == 0 {
                return Err(TableError::NoSamples { cell: cell.clone() });
            }
        }
        Ok(LatencyTable { cells })
    }

    /// Every cell with its cost, in cell order.
    pub fn iter(&self) -> impl Iterator<Item = (&Cell, &Summary)> {
        self.cells.iter()
    }

    /// The cost of exactly this cell, if it was measured.
    pub fn get(&self, cell: &Cell) -> Option<&Summary> {
        self.cells.get(cell)
    }

    /// The cells of `stage`, by width and then by context.
    fn of_stage(&self, stage: &Stage) -> impl Iterator<Item = (&Cell, &Summary)> {
        let at = |width, context| Cell { stage: stage.clone(), width, context };
        self.cells.range(at(0, 0)..=at(u32::MAX, u32::MAX))
    }

    /// Whether any cell of `stage` was measured.
    pub fn has_stage(&self, stage: &Stage) -> bool {
        self.of_stage(stage).next().is_some()
    }

    /// The measured widths of `stage`, ascending.
    pub fn widths(&self, stage: &Stage) -> Vec<u32> {
        let mut widths: Vec<u32> = self.of_stage(stage).map(|(cell, _)| cell.width).collect();
        widths.dedup();
        widths
    }

    /// The part of the table that says what steps cost after `context` committed tokens: forwards of widths that were
    /// measured there or after more, and what the host does, which no context changes. `None` where no forward was.
    pub fn reaching(&self, context: u32) -> Option<LatencyTable> {
        let is_host = |cell: &Cell| matches!(cell.stage, Stage::Host(_));
        let reaches: BTreeSet<(&Stage, u32)> = self
            .cells
            .keys()
            .filter(|c| c.context >= context && !is_host(c))
            .map(|c| (&c.stage, c.width))
            .collect();
        let cells = self.cells.iter().filter(|(c, _)| is_host(c) || reaches.contains(&(&c.stage, c.width)));
        let table = LatencyTable { cells: cells.map(|(cell, summary)| (cell.clone(), *summary)).collect() };
        (!reaches.is_empty()).then_some(table)
    }

    /// The contexts of the table, ascending.
    pub fn contexts(&self) -> Vec<u32> {
        let contexts: BTreeSet<u32> = self.cells.keys().map(|cell| cell.context).collect();
        contexts.into_iter().collect()
    }

    /// The median cost of `stage` at `width`, in microseconds, with `context` committed tokens.
    ///
    /// Widths are exact: cost over width is a staircase, so nothing is interpolated across it. Between two measured
    /// contexts the cost is linear, as attention is; outside the measured ones the nearest holds, never an
    /// extrapolation.
    ///
    /// # Errors
    /// [`TableError::Unmeasured`] if the stage was not measured at this width.
    pub fn latency_us(&self, stage: &Stage, width: u32, context: u32) -> Result<f64, TableError> {
        let at = |context| Cell { stage: stage.clone(), width, context };
        let below = self.cells.range(at(0)..=at(context)).next_back();
        let above = self.cells.range(at(context)..=at(u32::MAX)).next();
        match (below, above) {
            (Some((low, a)), Some((high, b))) if low.context < high.context => {
                let share = f64::from(context - low.context) / f64::from(high.context - low.context);
                Ok(a.median_us + share * (b.median_us - a.median_us))
            }
            (Some((_, summary)), _) | (None, Some((_, summary))) => Ok(summary.median_us),
            (None, None) => {
                Err(TableError::Unmeasured { stage: stage.clone(), width, measured: self.widths(stage) })
            }
        }
    }

    /// What is odd about the table: not errors, but reasons to measure again.
    pub fn findings(&self) -> Vec<Finding> {
        let mut findings: Vec<Finding> = self
            .cells
            .iter()
            .filter(|(_, summary)| summary.noisy)
            .map(|(cell, summary)| Finding::Noisy { cell: cell.clone(), spread: summary.spread })
            .collect();
        let mut curves: BTreeMap<(&Stage, u32), Vec<(u32, &Summary)>> = BTreeMap::new();
        for (cell, summary) in &self.cells {
            curves.entry((&cell.stage, cell.context)).or_default().push((cell.width, summary));
        }
        for ((stage, context), curve) in curves {
            for pair in curve.windows(2) {
                let ((narrow, cheap), (wide, dear)) = (pair[0], pair[1]);
                if dear.high_us < cheap.low_us {
                    findings.push(Finding::WiderIsFaster { stage: stage.clone(), context, narrow, wide });
                }
            }
            let lowest_high = curve.iter().map(|(_, s)| s.high_us).fold(f64::INFINITY, f64::min);
            let highest_low = curve.iter().map(|(_, s)| s.low_us).fold(0.0, f64::max);
            let (first, last) = (curve[0].0, curve[curve.len() - 1].0);
            let is_forward = !matches!(stage, Stage::Host(_));
            if is_forward && last >= first.saturating_mul(16) && highest_low <= lowest_high {
                findings.push(Finding::Flat { stage: stage.clone(), context, narrow: first, wide: last });
            }
        }
        findings
    }
}

fn insert(table: &mut BTreeMap<Cell, Summary>, cell: Cell, summary: Summary) -> Result<(), TableError> {
    match table.insert(cell.clone(), summary) {
        None => Ok(()),
        Some(_) => Err(TableError::Duplicate { cell }),
    }
}

impl From<LatencyTable> for Vec<Row> {
    fn from(table: LatencyTable) -> Vec<Row> {
        table.cells.into_iter().map(|(cell, summary)| Row { cell, summary }).collect()
    }
}

impl TryFrom<Vec<Row>> for LatencyTable {
    type Error = TableError;

    fn try_from(rows: Vec<Row>) -> Result<Self, TableError> {
        let mut cells = BTreeMap::new();
        for Row { cell, summary } in rows {
            insert(&mut cells, cell, summary)?;
        }
        LatencyTable::checked(cells)
    }
}

/// Something odd in a table.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Finding {
    /// Samples of a cell disagree.
    #[error("{cell} is noisy: its middle half spreads over {:.0} % of the median", spread * 100.0)]
    Noisy {
        /// The cell.
        cell: Cell,
        /// Relative spread.
        spread: f64,
    },
    /// More rows cost clearly less.
    #[error(
        "{stage} at context {context} is faster at width {wide} than at {narrow}: the planner will prefer {wide}"
    )]
    WiderIsFaster {
        /// The stage.
        stage: Stage,
        /// The context.
        context: u32,
        /// The dearer width.
        narrow: u32,
        /// The cheaper width.
        wide: u32,
    },
    /// The cost does not depend on the width over a factor of sixteen or more.
    #[error(
        "{stage} at context {context} costs the same from width {narrow} to {wide}: \
         either wide forwards are free here or the clock missed the work"
    )]
    Flat {
        /// The stage.
        stage: Stage,
        /// The context.
        context: u32,
        /// The narrowest width.
        narrow: u32,
        /// The widest.
        wide: u32,
    },
}

/// Why a table cannot be built or read.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum TableError {
    /// Nothing was measured.
    #[error("the latency table is empty: profile this machine again")]
    Empty,
    /// A cell without samples.
    #[error("{cell} has no samples: profile this machine again")]
    NoSamples {
        /// The cell.
        cell: Cell,
    },
    /// A cell given twice.
    #[error("{cell} comes twice in the latency table: expected once")]
    Duplicate {
        /// The cell.
        cell: Cell,
    },
    /// A number no clock gives.
    #[error("{cell}: expected finite, positive, ordered times, found {found}")]
    NotATime {
        /// The cell.
        cell: Cell,
        /// The number.
        found: f64,
    },
    /// A width that was not measured.
    #[error(
        "{stage} was not measured at width {width} (measured: {measured:?}): profile that width or plan without it"
    )]
    Unmeasured {
        /// The stage.
        stage: Stage,
        /// The requested width.
        width: u32,
        /// The widths there are.
        measured: Vec<u32>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(width: u32, context: u32) -> Cell {
        Cell { stage: Stage::Verify, width, context }
    }

    fn table(cells: &[(u32, u32, &[f64])]) -> Result<LatencyTable, TableError> {
        let cells: Vec<CellSamples> = cells
            .iter()
            .map(|(w, c, s)| CellSamples { cell: cell(*w, *c), samples_us: s.to_vec() })
            .collect();
        LatencyTable::from_samples(&cells, 0.1)
    }

    #[test]
    fn summaries_are_medians_and_quartiles() {
        let table = table(&[(1, 0, &[50.0, 10.0, 30.0, 20.0, 40.0])]).unwrap();
        let got = table.get(&cell(1, 0)).unwrap();
        assert_eq!((got.low_us, got.median_us, got.high_us, got.samples), (20.0, 30.0, 40.0, 5));
        assert!(got.noisy);
    }

    #[test]
    fn widths_are_exact_and_contexts_linear_inside_flat_outside() {
        let table = table(&[(1, 100, &[10.0]), (1, 300, &[30.0]), (4, 100, &[12.0])]).unwrap();
        let ask = |w, c| table.latency_us(&Stage::Verify, w, c);
        for (context, expected) in
            [(0, 10.0), (100, 10.0), (150, 15.0), (200, 20.0), (300, 30.0), (u32::MAX, 30.0)]
        {
            assert_eq!(ask(1, context), Ok(expected), "context {context}");
        }
        assert_eq!(ask(4, 300), Ok(12.0));
        assert_eq!(
            ask(2, 100),
            Err(TableError::Unmeasured { stage: Stage::Verify, width: 2, measured: vec![1, 4] })
        );
        assert_eq!((table.widths(&Stage::Verify), table.contexts()), (vec![1, 4], vec![100, 300]));
    }

    #[test]
    fn bad_samples_are_refused() {
        assert_eq!(table(&[]), Err(TableError::Empty));
        assert!(matches!(table(&[(1, 0, &[])]), Err(TableError::NoSamples { .. })));
        assert!(matches!(table(&[(1, 0, &[1.0]), (1, 0, &[1.0])]), Err(TableError::Duplicate { .. })));
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(matches!(table(&[(1, 0, &[1.0, bad])]), Err(TableError::NotATime { .. })), "{bad}");
        }
    }

    #[test]
    fn stored_tables_are_checked_when_read() {
        let good = table(&[(1, 0, &[1.0]), (2, 0, &[2.0])]).unwrap();
        let json = serde_json::to_string(&good).unwrap();
        assert_eq!(serde_json::from_str::<LatencyTable>(&json).unwrap(), good);
        let bad = json.replace("\"median_us\":1.0", "\"median_us\":-1.0");
        assert_ne!(json, bad);
        assert!(serde_json::from_str::<LatencyTable>(&bad).unwrap_err().to_string().contains("found -1"));
        assert!(serde_json::from_str::<LatencyTable>("[]").unwrap_err().to_string().contains("empty"));
    }

    #[test]
    fn a_context_is_reached_by_widths_that_were_measured_there_or_further() {
        let table = table(&[(1, 10, &[1.0]), (1, 30, &[3.0]), (2, 10, &[2.0]), (4, 40, &[5.0])]).unwrap();
        let widths = |context| table.reaching(context).map(|part| part.widths(&Stage::Verify));
        assert_eq!(widths(10), Some(vec![1, 2, 4]));
        assert_eq!(widths(20), Some(vec![1, 4]));
        assert_eq!(widths(40), Some(vec![4]));
        assert_eq!(widths(41), None);
        assert_eq!(
            table.reaching(20).unwrap().latency_us(&Stage::Verify, 1, 20).unwrap(),
            2.0,
            "between both"
        );
    }

    #[test]
    fn findings_name_noise_flat_and_falling_curves() {
        let odd = table(&[(1, 0, &[10.0]), (2, 0, &[9.0]), (4, 0, &[12.0, 30.0])]).unwrap();
        let found = odd.findings();
        assert!(matches!(found[0], Finding::Noisy { .. }), "{found:?}");
        assert!(matches!(found[1], Finding::WiderIsFaster { narrow: 1, wide: 2, .. }), "{found:?}");
        let flat = table(&[(1, 0, &[10.0, 10.4]), (16, 0, &[10.1, 10.5])]).unwrap();
        assert!(matches!(flat.findings()[..], [Finding::Flat { narrow: 1, wide: 16, .. }]));
        let good = table(&[(1, 0, &[10.0]), (16, 0, &[12.0])]).unwrap();
        assert!(good.findings().is_empty());
    }
}
