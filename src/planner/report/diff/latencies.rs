//! Cells of two latency tables that differ by more than the spread of either.
use std::collections::BTreeSet;

use serde::Serialize;
use ygg_profiler::{Cell, LatencyTable, Summary};

/// A cell that differs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LatencyChange {
    /// The cell.
    pub cell: Cell,
    /// In plan A; `None` if it was not measured.
    pub a: Option<Quartiles>,
    /// In plan B; `None` if it was not measured.
    pub b: Option<Quartiles>,
}

/// The quartiles of a cell's samples, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Quartiles {
    /// The first.
    pub low_us: f64,
    /// The median.
    pub median_us: f64,
    /// The third.
    pub high_us: f64,
}

impl Quartiles {
    fn of(summary: &Summary) -> Self {
        let Summary { median_us, low_us, high_us, spread: _, samples: _, noisy: _ } = *summary;
        Quartiles { low_us, median_us, high_us }
    }

    /// Whether the middle halves of the samples meet.
    fn meet(&self, other: &Quartiles) -> bool {
        self.low_us <= other.high_us && other.low_us <= self.high_us
    }
}

/// The cells that differ beyond both spreads or are in one table only, in cell order, and how many others are not
/// equal.
pub(super) fn changes(a: &LatencyTable, b: &LatencyTable) -> (Vec<LatencyChange>, usize) {
    let cells: BTreeSet<&Cell> = a.iter().chain(b.iter()).map(|(cell, _)| cell).collect();
    let (mut changes, mut within_spread) = (Vec::new(), 0);
    for cell in cells {
        let (here, there) = (a.get(cell), b.get(cell));
        if here == there {
            continue;
        }
        let (a, b) = (here.map(Quartiles::of), there.map(Quartiles::of));
        match (a, b) {
            (Some(here), Some(there)) if here.meet(&there) => within_spread += 1,
            (_, _) => changes.push(LatencyChange { cell: cell.clone(), a, b }),
        }
    }
    (changes, within_spread)
}
