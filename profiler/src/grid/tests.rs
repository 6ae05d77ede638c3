//! Tests of the grid with a subject whose clock is scripted.
use super::*;
use crate::subject::{DrafterName, Stage};

#[derive(Debug, thiserror::Error)]
#[error("width {0} is broken")]
struct Broken(u32);

/// Takes `width` microseconds a run; the width `noisy` takes ten more times its run number.
#[derive(Default)]
struct Scripted {
    noisy: Option<u32>,
    broken: Option<u32>,
    /// Times as long as usual that the first runs after another stage take, the first first.
    cold: Vec<u32>,
    /// What ran last, and how often.
    last: Option<(Stage, usize)>,
    order: Vec<u32>,
    /// Width of every warm-up, and how many runs came before it.
    warmed: Vec<(u32, usize)>,
    elapsed: Duration,
}

impl Subject for Scripted {
    type Error = Broken;

    fn warm_up(&mut self, cell: &Cell) -> Result<(), Broken> {
        self.warmed.push((cell.width, self.order.len()));
        Ok(())
    }

    fn measure(&mut self, cell: &Cell) -> Result<Duration, Broken> {
        if self.broken == Some(cell.width) {
            return Err(Broken(cell.width));
        }
        let runs = self.order.iter().filter(|w| **w == cell.width).count() as u64;
        self.order.push(cell.width);
        let extra = if self.noisy == Some(cell.width) { 10 * runs } else { 0 };
        let again = self.last.take().filter(|(stage, _)| *stage == cell.stage).map_or(0, |(_, runs)| runs);
        self.last = Some((cell.stage.clone(), again + 1));
        let times = self.cold.get(again).copied().unwrap_or(1);
        let time = times * Duration::from_micros(u64::from(cell.width) + extra);
        self.elapsed += time;
        Ok(time)
    }
}

fn cells(widths: &[u32]) -> Vec<Cell> {
    widths.iter().map(|width| Cell { stage: Stage::Verify, width: *width, context: 0 }).collect()
}

fn needed(cells: &[Cell]) -> Wanted<'_> {
    Wanted { needed: cells, spare: &[] }
}

fn measure(
    subject: &mut Scripted,
    widths: &[u32],
    settings: GridSettings,
) -> Result<Measurement, GridError<Broken>> {
    measure_grid_with_clock(subject, needed(&cells(widths)), &settings, |_, _| {}, |s| s.elapsed)
}

#[test]
fn rounds_are_interleaved_after_warm_up() {
    let mut subject = Scripted::default();
    let settings = GridSettings { repetitions: 3, ..Default::default() };
    let got = measure(&mut subject, &[40_000, 7_000, 1], settings).unwrap();
    // The first settles.
    assert_eq!(subject.order[..2], [40_000; 2]);
    assert_eq!(subject.order[2..], [40_000, 7_000, 1, 40_000, 7_000, 1, 40_000, 7_000, 1]);
    // All once before all runs, then once before their first; later only the short ones, and the shorter the oftener.
    let mut expected = vec![(40_000, 0), (7_000, 0), (1, 0), (40_000, 0), (7_000, 3), (1, 4)];
    for runs in [6, 9] {
        expected.extend([(7_000, runs); 2]);
        expected.extend([(1, runs + 1); 5]);
    }
    assert_eq!(subject.warmed, expected);
    assert_eq!(got.cells[0].samples_us, [40_000.0; 3]);
    assert!(got.noisy.is_empty() && !got.budget_spent);
}

#[test]
fn forwards_settle_after_another_stage() {
    let cell = |stage, width| Cell { stage, width, context: 0 };
    let draft = Stage::Draft(DrafterName::new("lookup").expect("a name"));
    let wanted = [cell(Stage::Verify, 20_000), cell(Stage::Verify, 30_000), cell(draft, 1)];
    let measured = |settles, cold| {
        let mut subject = Scripted { cold, ..Default::default() };
        let settings = GridSettings { settles, budget: Duration::from_secs(3600), ..Default::default() };
        let got = measure_grid_with_clock(&mut subject, needed(&wanted), &settings, |_, _| {}, |s| s.elapsed);
        got.expect("there is time").cells[..2].iter().map(|cell| cell.samples_us[1]).collect::<Vec<_>>()
    };
    assert_eq!(measured(true, vec![5, 3, 2]), [20_000.0, 30_000.0]);
    assert_eq!(measured(false, vec![5, 3, 2]), [100_000.0, 90_000.0]);
    // One that takes long runs once more alone, though it would take less yet.
    let halves = (0..6).rev().map(|i| 1 << i).collect();
    assert_eq!(measured(true, halves), [16.0 * 20_000.0, 8.0 * 30_000.0]);
}

#[test]
fn only_noisy_cells_are_measured_again_up_to_the_cap() {
    let mut subject = Scripted { noisy: Some(2), ..Default::default() };
    let settings = GridSettings { repetitions: 5, most: 8, ..Default::default() };
    let mut last = (0, 0);
    let got = measure_grid_with_clock(
        &mut subject,
        needed(&cells(&[100, 2])),
        &settings,
        |d, t| last = (d, t),
        |s| s.elapsed,
    )
    .unwrap();
    assert_eq!(got.cells[0].samples_us.len(), 5);
    assert_eq!(got.cells[1].samples_us.len(), 8);
    assert_eq!(got.noisy, cells(&[2]));
    assert_eq!(last, (13, 13));
}

#[test]
fn the_budget_ends_early_or_is_an_error() {
    let settings = GridSettings { budget: Duration::from_micros(45), settles: false, ..Default::default() };
    let got = measure(&mut Scripted::default(), &[10], settings);
    assert!(matches!(&got, Ok(m) if m.cells[0].samples_us.len() == 5), "{got:?}");
    let got = measure(&mut Scripted::default(), &[12], settings).unwrap();
    assert_eq!((got.cells[0].samples_us.len(), got.budget_spent), (4, true));
    let got = measure(&mut Scripted::default(), &[40], settings);
    assert!(matches!(got, Err(GridError::Budget { rounds: 2, expected: 3, cells: 1, .. })));
}

#[test]
fn spare_cells_are_left_out_where_time_is_short() {
    let measured = |budget_us, spare: [&[u32]; 2]| {
        let budget = Duration::from_micros(budget_us);
        let settings = GridSettings { budget, settles: false, ..Default::default() };
        let (needed, spare) = (cells(&[10, 12]), spare.map(cells));
        let wanted = Wanted { needed: &needed, spare: &spare };
        let mut subject = Scripted::default();
        let mut last = (0, 0);
        let got =
            measure_grid_with_clock(&mut subject, wanted, &settings, |d, t| last = (d, t), |s| s.elapsed);
        let got = got.expect("there is time for what is needed");
        let widths: Vec<u32> = got.cells.iter().map(|cell| cell.cell.width).collect();
        assert_eq!(last.0, got.cells.iter().map(|cell| cell.samples_us.len()).sum::<usize>());
        (widths, got.is_spared, last)
    };
    // A round takes 63 us with them, 22 without.
    assert_eq!(measured(400, [&[20, 21], &[]]), (vec![10, 12, 20, 21], false, (20, 20)));
    assert_eq!(measured(189, [&[20, 21], &[]]), (vec![10, 12, 20, 21], false, (12, 20)));
    // The last of them is measured once, in vain.
    assert_eq!(measured(188, [&[20, 21], &[]]), (vec![10, 12], true, (10, 10)));
    assert_eq!(measured(86, [&[20, 21], &[]]), (vec![10, 12], true, (6, 10)));
    // Of two groups the first stays as long as there is time for it.
    assert_eq!(measured(400, [&[20], &[21]]), (vec![10, 12, 20, 21], false, (20, 20)));
    assert_eq!(measured(188, [&[20], &[21]]), (vec![10, 12, 20], true, (12, 15)));
    assert_eq!(measured(125, [&[20], &[21]]), (vec![10, 12], true, (10, 10)));
}

#[test]
fn bad_requests_are_refused() {
    let run = |widths: &[u32], settings| measure(&mut Scripted::default(), widths, settings).unwrap_err();
    assert!(matches!(run(&[], GridSettings::default()), GridError::Empty));
    assert!(matches!(run(&[1, 1], GridSettings::default()), GridError::Duplicate { .. }));
    for settings in [
        GridSettings { fewest: 0, ..Default::default() },
        GridSettings { fewest: 6, ..Default::default() },
        GridSettings { most: 4, ..Default::default() },
        GridSettings { noise_threshold: f64::NAN, ..Default::default() },
    ] {
        assert!(matches!(run(&[1], settings), GridError::Settings { .. }));
    }
}

#[test]
fn a_failing_subject_names_its_cell() {
    let mut subject = Scripted { broken: Some(8), ..Default::default() };
    let error = measure(&mut subject, &[1, 8], GridSettings::default()).unwrap_err();
    assert_eq!(error.to_string(), "cannot measure verify at width 8, context 0");
}

#[test]
fn the_real_clock_counts() {
    let settings = GridSettings { budget: Duration::ZERO, ..Default::default() };
    let got = measure_grid(&mut Scripted::default(), needed(&cells(&[1])), &settings, |_, _| {});
    assert!(matches!(got, Err(GridError::Budget { rounds: 0, .. })));
}
