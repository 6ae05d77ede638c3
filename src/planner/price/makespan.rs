//! The makespan: when the stages of consecutive steps run and how long a step then takes.
//!
//! List scheduling: every resource takes its stages in the order in which they are issued, each as soon as the resource
//! is free and what it waits for has run. Steps follow one another until each runs as the one before did.
use ygg_profiler::{LatencyTable, Stage};

use crate::plan::StageTime;
use crate::planner::price::stages::{Resource, StageGraph, Wait};

#[cfg(test)]
mod tests;

/// Which resources work at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lanes {
    /// None: the thread that walks and moves is one of those that run forwards, so every stage ends before the next
    /// begins.
    One,
    /// All.
    Apart,
}

impl Lanes {
    /// Those of the machine that a table was measured on: it has walks of a device that runs in parallel with the host,
    /// or there is none.
    pub fn measured(table: &LatencyTable) -> Self {
        if table.has_stage(&Stage::VerifyWalk) { Lanes::Apart } else { Lanes::One }
    }

    fn of(self, resource: Resource) -> usize {
        match (self, resource) {
            (Lanes::One, _) | (Lanes::Apart, Resource::Compute) => 0,
            (Lanes::Apart, Resource::Host) => 1,
            (Lanes::Apart, Resource::Copy) => 2,
        }
    }
}

/// When something runs, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimeSpan {
    /// Its begin.
    pub start_us: f64,
    /// Its end.
    pub end_us: f64,
}

/// One of many steps that follow each other evenly.
#[derive(Debug, Clone, PartialEq)]
pub struct Timeline {
    /// When each stage of the step runs, in the order of issue, from the begin of its first on.
    pub runs: Vec<TimeSpan>,
    /// Time from one step to the next; stages of neighbours may run meanwhile.
    pub step_us: f64,
}

/// Steps after which any two neighbours run alike: far more than a graph has waits between steps.
const MOST_STEPS: usize = 64;
/// Times are sums of a few dozen times.
const ROUNDING: f64 = 1e-9;

impl StageGraph {
    /// The even run of steps on these lanes.
    ///
    /// # Panics
    /// If steps do not become even, as they do wherever all waits between steps pass through the verification.
    pub fn timeline(&self, lanes: Lanes) -> Timeline {
        self.timeline_in(&self.order(), lanes)
    }

    /// The same with another order of issue, in which every stage comes after those of its step that it waits for.
    pub(in crate::planner) fn timeline_in(&self, order: &[usize], lanes: Lanes) -> Timeline {
        let mut clock = Clock::default();
        let mut last = self.next_step(order, lanes, &mut clock, None);
        for _ in 0..MOST_STEPS {
            let next = self.next_step(order, lanes, &mut clock, Some(&last));
            let shifts = || next.iter().zip(&last).map(|(next, last)| next.start_us - last.start_us);
            let (low, high) = shifts().fold((f64::INFINITY, 0.0), |(l, h), s| (s.min(l), s.max(h)));
            if high - low <= ROUNDING * high {
                let begin = next.iter().map(|run| run.start_us).fold(f64::INFINITY, f64::min);
                let runs = next.iter().map(|run| run.later(-begin));
                return Timeline { runs: runs.collect(), step_us: high };
            }
            last = next;
        }
        panic!("steps are not even after {MOST_STEPS}: {self:?}");
    }

    /// When each stage of one step runs, by place; `before` is the step before.
    fn next_step(
        &self,
        order: &[usize],
        lanes: Lanes,
        clock: &mut Clock,
        before: Option<&[TimeSpan]>,
    ) -> Vec<TimeSpan> {
        let mut runs = vec![TimeSpan { start_us: 0.0, end_us: 0.0 }; order.len()];
        for place in order {
            let ready = self.waits(*place).filter_map(|(other, wait)| match wait {
                Wait::SameStep => Some(runs[other].end_us),
                Wait::StepBefore => before.map(|runs| runs[other].end_us),
            });
            let run = self.run(*place);
            let free = &mut clock.free_us[lanes.of(run.resource)];
            let start_us = ready.fold(*free, f64::max);
            let end_us = start_us + run.us.unwrap_or(0.0);
            *free = end_us;
            runs[*place] = TimeSpan { start_us, end_us };
        }
        runs
    }

    /// What each measured stage adds to a step: the time in which it runs and nothing before it in this list does:
    /// compute, host, copy. The sum is the time of a step.
    pub fn times(&self, lanes: Lanes) -> Vec<StageTime> {
        let timeline = self.timeline(lanes);
        let mut times: Vec<StageTime> = Vec::new();
        for (run, us) in self.runs().zip(self.added_us(&timeline)) {
            match times.iter_mut().find(|time| time.stage == run.stage) {
                Some(time) => time.us += us,
                None if run.us.is_some() => times.push(StageTime { stage: run.stage.clone(), us }),
                None => {}
            }
        }
        times
    }

    /// What each run adds to a step, by place.
    fn added_us(&self, timeline: &Timeline) -> Vec<f64> {
        let Timeline { runs, step_us } = timeline;
        // Neighbours run alike, so the runs of one step, shifted, are all there is within the time of a step.
        let mut cuts = vec![0.0, *step_us];
        cuts.extend(runs.iter().flat_map(|run| [run.start_us % step_us, run.end_us % step_us]));
        cuts.sort_by(f64::total_cmp);
        let mut added = vec![0.0; runs.len()];
        for pair in cuts.windows(2) {
            let middle = f64::midpoint(pair[0], pair[1]);
            let runs_then = |run: &TimeSpan| {
                let shifts = (0_u32..).map(|steps| f64::from(steps) * step_us);
                let mut moments = shifts.map(|shift| middle + shift).take_while(|m| *m < run.end_us);
                moments.any(|moment| run.start_us <= moment)
            };
            let lane = |place: &usize| Lanes::Apart.of(self.run(*place).resource);
            let first = (0..runs.len()).filter(|place| runs_then(&runs[*place])).min_by_key(lane);
            if let Some(place) = first {
                added[place] += pair[1] - pair[0];
            }
        }
        added
    }
}

impl TimeSpan {
    fn later(&self, us: f64) -> Self {
        TimeSpan { start_us: self.start_us + us, end_us: self.end_us + us }
    }
}

/// When each lane is free.
#[derive(Default)]
struct Clock {
    free_us: [f64; 3],
}
