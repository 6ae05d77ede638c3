//! Tests of the order in which cells are measured, and of what a budget of time holds, with a subject whose clock is
//! scripted.
use ygg_profiler::{Subject, measure_grid_with_clock};

use super::*;
use crate::measure::{ProfileOptions, drafters::that_skips as drafter, record::STREAMED_LATENCIES_SHARE};

#[test]
fn drafters_that_run_a_model_come_last_and_each_by_itself() {
    let drafters = [drafter("b", 1), drafter("a", 2)];
    let cell = |stage: Stage, width, context| Cell { stage, width, context };
    let draft = |i: usize, width| cell(Stage::Draft(drafters[i].0.clone()), width, 100);
    let grow = cell(Stage::Host(StepStage::Grow), 2, 100);
    let [narrow, longer, wide, longest] =
        [(1, 100), (1, 200), (32, 100), (1, 300)].map(|(width, context)| cell(Stage::Verify, width, context));
    let cells = vec![
        longest.clone(),
        draft(1, 1),
        wide.clone(),
        draft(0, 1),
        longer.clone(),
        grow.clone(),
        draft(1, 2),
        narrow.clone(),
    ];
    let groups = by_usefulness(cells, &drafters, false);
    let groups: Vec<_> = groups.into_iter().filter(|group| !group.is_empty()).collect();
    let of_drafters = [vec![draft(0, 1)], vec![draft(1, 1), draft(1, 2)]];
    let of_verifier = [vec![longer], vec![wide], vec![grow]];
    assert_eq!(groups, [&[vec![narrow]][..], &of_verifier, &of_drafters, &[vec![longest]]].concat());
}

/// A model whose weights are streamed: verifications wait for a reading, and growths of its first drafter stream
/// nothing.
struct Streamed {
    forward: Duration,
    growth: Duration,
    elapsed: Duration,
}

impl Streamed {
    fn run(&mut self, cell: &Cell) -> Duration {
        let took = match &cell.stage {
            Stage::Verify => self.forward.mul_f64(1.0 + f64::from(cell.width) / 64.0),
            Stage::Read => self.forward,
            Stage::Draft(_) | Stage::Resident => self.growth.mul_f64(1.0 + f64::from(cell.width) / 16.0),
            _ => Duration::from_micros(50),
        };
        self.elapsed += took;
        took
    }
}

impl Subject for Streamed {
    type Error = Error;

    fn warm_up(&mut self, cell: &Cell) -> Result<(), Error> {
        self.run(cell);
        Ok(())
    }

    fn measure(&mut self, cell: &Cell) -> Result<Duration, Error> {
        Ok(self.run(cell))
    }
}

/// The cells of a model with one drafter that runs a model, as [`cells`] lists them.
fn streamed_cells(name: &DrafterName) -> Vec<Cell> {
    let mut cells = Vec::new();
    let mut add = |stage: Stage, width: usize| cells.push(Cell { stage, width: width as u32, context: 128 });
    for width in ProfileOptions::WIDTHS {
        for stage in [Stage::Verify, Stage::Resident, Stage::Ends, Stage::Host(StepStage::Decide)] {
            add(stage, width);
        }
        if width <= WIDEST_DRAFT {
            add(Stage::Draft(name.clone()), width);
        }
    }
    add(Stage::Read, 1);
    add(Stage::Host(StepStage::Grow), 4);
    cells
}

#[test]
fn the_time_of_a_first_use_holds_the_substitute_of_slow_disks() {
    let drafters = [drafter("substitute4", 1)];
    let name = &drafters[0].0;
    let all = ProfileOptions::STREAMED_BUDGET.mul_f64(STREAMED_LATENCIES_SHARE);
    for forward_ms in [20, 200, 700, 1500, 3000, 6000] {
        let forward = Duration::from_millis(forward_ms);
        let mut subject = Streamed { forward, growth: Duration::from_millis(100), elapsed: Duration::ZERO };
        let mut spare = by_usefulness(streamed_cells(name), &drafters, true);
        let needed = spare.remove(0);
        let settings = GridSettings { budget: all, ..STREAMED_GRID };
        let wanted = Wanted { needed: &needed, spare: &spare };
        let found = measure_grid_with_clock(&mut subject, wanted, &settings, |_, _| {}, |s| s.elapsed);
        let found = found.unwrap_or_else(|error| panic!("{forward_ms} ms: {error}"));
        let samples = |stage: &Stage, width: u32| {
            let is_it = |cell: &&CellSamples| (&cell.cell.stage, cell.cell.width) == (stage, width);
            found.cells.iter().find(is_it).map_or(0, |cell| cell.samples_us.len())
        };
        let draft = Stage::Draft(name.clone());
        let of = [(&draft, 1), (&draft, 2), (&draft, 4), (&Stage::Verify, 1), (&Stage::Verify, 8)];
        let least = of.map(|(stage, width)| samples(stage, width)).into_iter().min();
        assert!(least >= Some(STREAMED_GRID.fewest), "{forward_ms} ms: {least:?}");
        assert!(subject.elapsed <= all + 2 * forward, "{forward_ms} ms: {:?}", subject.elapsed);
        // Where forwards are short, everything is measured, and most of the time is left for recordings.
        if forward_ms <= 200 {
            assert!(!found.is_spared && samples(&Stage::Ends, 8) > 0, "{forward_ms} ms");
        }
    }
}

#[test]
fn what_other_divisions_of_memory_are_priced_by_comes_before_further_rows() {
    let drafters = [drafter("substitute4", 1), drafter("substitute3", 2)];
    let groups = by_usefulness(streamed_cells(&drafters[0].0), &drafters, true);
    let place = |stage: &Stage, width: u32| {
        groups.iter().position(|group| group.iter().any(|cell| (&cell.stage, cell.width) == (stage, width)))
    };
    let draft = Stage::Draft(drafters[0].0.clone());
    assert!(place(&Stage::Read, 1) < place(&Stage::Verify, 2) && place(&Stage::Ends, 1) < place(&draft, 8));
    assert!(place(&Stage::Ends, 8) == place(&Stage::Resident, 8) && place(&draft, 8) < place(&draft, 16));
}
