//! What the visits of a profile tell: how much several rows cost relative to one on average, and how much that changes.
//!
//! Programs that share a machine take some of its arithmetic for a while, seldom of its memory as well: for tens of
//! seconds a forward of eight rows takes a quarter more of one row's time, and then not. Cells are measured within one
//! such while, visits all along.
use std::collections::BTreeMap;

use super::Profile;
use crate::{
    grid::CellSamples,
    statistics::{median, quantile},
    subject::{Cell, Stage},
};

/// How far from the middle half of the visits one may be, in its lengths: a system that interrupts a forward says
/// nothing of the machine (Tukey, *Exploratory Data Analysis*, 1977).
const FENCE: f64 = 1.5;

/// How much a forward of several rows, in forwards of one row, changed from visit to visit.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Swing {
    /// Visits.
    pub visits: u32,
    /// Standard deviation of one of them, relative to their mean; 0 of fewer than two.
    pub deviation: f64,
    /// Visits without a memory of each other that would tell as much of the mean: fewer than there are, where one is
    /// like the one before (Bayley and Hammersley, *Journal of the Royal Statistical Society*, supplement 8, 1946, of a
    /// first-order process).
    pub independent: f64,
}

impl Swing {
    fn of(multiples: &[f64]) -> Self {
        let visits = multiples.len();
        let mean = mean(multiples);
        let deviations: Vec<f64> = multiples.iter().map(|multiple| multiple / mean - 1.0).collect();
        let squares: f64 = deviations.iter().map(|deviation| deviation * deviation).sum();
        let products: f64 = deviations.windows(2).map(|pair| pair[0] * pair[1]).sum();
        let likeness = if squares > 0.0 { (products / squares).clamp(0.0, 1.0) } else { 0.0 };
        Self {
            visits: u32::try_from(visits).unwrap_or(u32::MAX),
            deviation: if visits < 2 { 0.0 } else { (squares / (visits - 1) as f64).sqrt() },
            independent: (visits as f64 * (1.0 - likeness) / (1.0 + likeness)).max(1.0),
        }
    }
}

impl Profile {
    /// How much the machine changed in what a verification of up to `widest` rows costs relative to one row: the most
    /// of all widths that were visited. Nothing where there are no visits.
    pub fn swing(&self, widest: u32) -> Swing {
        let swings = self.multiples().into_iter().filter(|(width, _)| *width <= widest);
        let swings = swings.map(|(_, multiples)| Swing::of(&multiples));
        swings.max_by(|a, b| a.deviation.total_cmp(&b.deviation)).unwrap_or_default()
    }

    /// The samples of the cells, those of forwards of several rows as long as they are on the whole: by the mean of all
    /// visits in the place of the while in which the cells were measured. Between widths that were visited the
    /// correction is linear, beyond them that of the widest.
    pub(super) fn settled(&self) -> Vec<CellSamples> {
        let corrections = self.corrections();
        let mut settled = self.measurements.clone();
        for CellSamples { cell, samples_us } in &mut settled {
            if !matches!(cell.stage, Stage::Host(_) | Stage::Read) {
                let factor = correction(&corrections, cell.width);
                samples_us.iter_mut().for_each(|us| *us *= factor);
            }
        }
        settled
    }

    /// What cells of a width are to be multiplied by, by width, one row first; empty without visits.
    fn corrections(&self) -> Vec<(u32, f64)> {
        let Some(context) = self.visits.first().map(|visited| visited.cell.context) else {
            return Vec::new();
        };
        let of = |width| {
            let cell = Cell { stage: Stage::Verify, width, context };
            let measured =
                self.measurements.iter().find(|measured| measured.cell == cell && are_times(measured))?;
            median(&measured.samples_us)
        };
        let Some(one) = of(1) else { return Vec::new() };
        let corrected = self.multiples().into_iter().filter_map(|(width, mut multiples)| {
            let measured = of(width)? / one;
            multiples.push(measured);
            Some((width, mean(&multiples) / measured))
        });
        std::iter::once((1, 1.0)).chain(corrected).collect()
    }

    /// Forwards of several rows by the forward of one row of the same visit, by width, those that were interrupted as
    /// far off as any may be.
    fn multiples(&self) -> BTreeMap<u32, Vec<f64>> {
        let one = self.visits.iter().find(|visited| visited.cell.width == 1);
        let Some(one) = one.filter(|one| are_times(one)) else { return BTreeMap::new() };
        let several = self.visits.iter().filter(|visited| visited.cell.width > 1 && are_times(visited));
        let multiples = several.map(|visited| {
            let pairs = visited.samples_us.iter().zip(&one.samples_us);
            (visited.cell.width, fenced(pairs.map(|(several, one)| several / one).collect()))
        });
        multiples.collect()
    }
}

/// Whether there are samples and all are times: a profile of others is refused, by name, where its tables are made.
fn are_times(samples: &CellSamples) -> bool {
    let CellSamples { cell: _, samples_us } = samples;
    !samples_us.is_empty() && samples_us.iter().all(|us| us.is_finite() && *us > 0.0)
}

fn mean(multiples: &[f64]) -> f64 {
    multiples.iter().sum::<f64>() / multiples.len() as f64
}

fn fenced(mut multiples: Vec<f64>) -> Vec<f64> {
    if let (Some(low), Some(high)) = (quantile(&multiples, 0.25), quantile(&multiples, 0.75)) {
        let beyond = FENCE * (high - low);
        multiples.iter_mut().for_each(|multiple| *multiple = multiple.clamp(low - beyond, high + beyond));
    }
    multiples
}

fn correction(corrections: &[(u32, f64)], width: u32) -> f64 {
    let above = corrections.partition_point(|(known, _)| *known < width);
    match (corrections[..above].last(), corrections.get(above)) {
        (Some((low, below)), Some((high, above))) => {
            below + (above - below) * f64::from(width - low) / f64::from(high - low)
        }
        (Some((_, factor)), None) | (None, Some((_, factor))) => *factor,
        (None, None) => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::tests::profile;

    fn verify(width: u32, context: u32, samples_us: &[f64]) -> CellSamples {
        CellSamples { cell: Cell { stage: Stage::Verify, width, context }, samples_us: samples_us.to_vec() }
    }

    /// Cells of a machine on which several rows take half as long again every second while.
    fn visited() -> Profile {
        let grid = [(1, 10.0), (2, 11.0), (4, 12.0), (8, 20.0), (16, 40.0)];
        let cells = grid.map(|(width, us)| verify(width, 128, &[us]));
        let at = |width: u32, us: f64| {
            // Whole machines that are slower change nothing.
            let us: Vec<f64> = [1.0, 1.5, 2.0, 3.0]
                .iter()
                .zip([1.0, 1.0, 2.0, 2.0])
                .map(|(several, all)| if width == 1 { us * all } else { us * several })
                .collect();
            verify(width, 128, &us)
        };
        let longer = [verify(1, 1024, &[13.0]), verify(4, 1024, &[18.0])];
        let measurements = cells.into_iter().chain(longer).collect();
        Profile { measurements, visits: vec![at(1, 10.0), at(4, 12.0), at(8, 20.0)], ..profile() }
    }

    #[test]
    fn cells_cost_what_they_do_on_the_whole() {
        let profile = visited();
        let table = profile.table().unwrap();
        let us = |width, context| table.latency_us(&Stage::Verify, width, context).unwrap();
        // Visits and grid: 1, 1.5, 1, 1.5 and 1 times as long.
        let (mean, third) = (1.2, 1.0 + 0.2 / 3.0);
        for (width, context, expected) in [
            (1, 128, 10.0),
            (1, 1024, 13.0),
            (2, 128, 11.0 * third),
            (4, 128, 12.0 * mean),
            (4, 1024, 18.0 * mean),
            (8, 128, 20.0 * mean),
            (16, 128, 40.0 * mean),
        ] {
            assert!((us(width, context) / expected - 1.0).abs() < 1e-12, "{width} at {context}");
        }
        let without = Profile { visits: Vec::new(), ..profile }.table().unwrap();
        assert_eq!(without.latency_us(&Stage::Verify, 8, 128), Ok(20.0));
    }

    #[test]
    fn a_swing_is_the_deviation_of_visits_and_those_like_the_one_before_tell_less() {
        let profile = visited();
        assert_eq!(profile.swing(3), Swing::default(), "no width of so few rows was visited");
        let swing = profile.swing(64);
        assert_eq!(swing.visits, 4);
        // 1, 1.5, 1, 1.5 with the mean 1.25: deviations of a fifth.
        assert!((swing.deviation - (4.0f64 / 3.0).sqrt() / 5.0).abs() < 1e-12, "{swing:?}");
        assert_eq!(swing.independent, 4.0);
        let whiles: Vec<f64> = (0..60).map(|visit| if visit / 10 % 2 == 0 { 1.0 } else { 1.3 }).collect();
        let swing = Swing::of(&whiles);
        assert!((3.0..9.0).contains(&swing.independent), "six whiles: {swing:?}");
        assert_eq!(Swing::of(&[1.0]), Swing { visits: 1, deviation: 0.0, independent: 1.0 });
        assert_eq!(Swing::of(&[1.0; 9]).independent, 9.0);
    }

    #[test]
    fn one_interrupted_visit_changes_little() {
        let quiet: Vec<f64> = (0..20).map(|visit| 1.2 + 0.001 * f64::from(visit % 5)).collect();
        let mut interrupted = quiet.clone();
        interrupted[7] = 40.0;
        let [quiet, interrupted] = [quiet, interrupted].map(fenced);
        assert!((mean(&interrupted) / mean(&quiet) - 1.0).abs() < 0.001);
        assert!(Swing::of(&interrupted).deviation < 0.01);
    }
}
