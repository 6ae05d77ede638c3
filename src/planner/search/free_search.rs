//! The search of drafters that run no model: those whose proposals are replayed from the recorded requests, and those
//! that learn from the verifier and were recorded live.
use ygg_profiler::{DrafterName, LivePrompt, LiveTrace, Stage, TokenTrace};

use crate::plan::{DepthChoice, DepthRule, GrowthChoice, ReplayDrafter, RowChoice, Schedule, Shape};
use crate::planner::{
    SearchError, Tally,
    judge::{point::Point, selection::Found},
    judge_live, judge_proposals,
    price::{pricing::Choosing, rates::Rates},
    replay::live_replay::recorded_shape,
    replay_free, replay_live,
    search::origin::{Evidence, Origin, Rows, Search, speculative},
};

/// A drafter without a model, for the search to run over the recorded requests.
#[derive(Debug)]
pub struct FreeDrafter<'a> {
    /// Which drafter of the profile.
    pub name: DrafterName,
    /// The drafter, set as the profile describes it.
    pub drafter: &'a mut dyn ReplayDrafter,
    /// Depths to try, Dd.
    pub depths: Vec<u32>,
    /// Widths to try, Wd.
    pub widths: Vec<u32>,
}

impl Search<'_> {
    /// A drafter that is replayed: every depth and width that it would try, with every measured number of rows.
    ///
    /// # Panics
    /// Without its implementation.
    pub(in crate::planner) fn free_drafter(
        &self,
        origin: &Origin<'_>,
        free_drafter: Option<&mut FreeDrafter<'_>>,
        found: &mut Found,
    ) -> Result<(), SearchError> {
        let FreeDrafter { name, drafter, depths, widths } =
            free_drafter.unwrap_or_else(|| panic!("drafter {} has no implementation to replay", origin.name));
        if self.recorded.requests.iter().all(|request| request.output.len() < 2) {
            return Err(SearchError::NoEvidence {
                drafter: name.clone(),
                expected: "recorded requests of two output tokens or more",
            });
        }
        if !origin.limits.admits_rule(DepthRule::Fixed) || origin.limits.growth().is_static() {
            return Ok(());
        }
        let fixed_or = |fixed: Option<u32>, open: &[u32]| fixed.map_or(open.to_vec(), |value| vec![value]);
        let verify_widths = self.table.widths(&Stage::Verify);
        let depths = fixed_or(origin.limits.depth, depths);
        let (deepest, widest) = (depths.iter().max(), verify_widths.iter().max());
        let (Some(deepest), Some(widest)) = (deepest, widest) else { return Ok(()) };
        for draft_width in fixed_or(origin.limits.draft_width, widths) {
            let largest = Shape { depth: *deepest, draft_width, verify_width: *widest };
            let requests = &self.recorded.requests;
            let choices_of_rows = origin.rows(|| judge_proposals(requests, *drafter, &largest));
            for schedule in &origin.schedules {
                let measured = self.table.widths(&schedule.verification(origin.name));
                let shapes = |depth: &u32| speculative(*depth, draft_width, &measured);
                for shape in depths.iter().flat_map(|depth| origin.limits.admitted(shapes(depth))) {
                    for rows in &choices_of_rows {
                        let replay = |choice: &RowChoice| replay_free(requests, *drafter, &shape, choice);
                        found.points.push(self.free_point(origin, shape, *schedule, rows, replay)?);
                    }
                }
            }
        }
        Ok(())
    }

    /// A drafter that learns from the verifier: shapes as they were recorded, with fewer rows verified down to what the
    /// next narrower recording answers for.
    pub(in crate::planner) fn live_drafter(
        &self,
        origin: &Origin<'_>,
        found: &mut Found,
    ) -> Result<(), SearchError> {
        let traces = self.live_traces_of(origin.name);
        if traces.is_empty() {
            return Err(SearchError::NoEvidence {
                drafter: origin.name.clone(),
                expected: "recorded steps of its own",
            });
        }
        let is_admitted = origin.limits.admits_rule(DepthRule::Fixed)
            && origin.limits.admits_schedule(Schedule::Plain)
            && !origin.limits.growth().is_static();
        if !is_admitted {
            return Ok(());
        }
        // With fewer rows it could guess nothing.
        let mut narrower = 1 + origin.kind.facts().pinned_rows;
        for trace in traces {
            let recorded = recorded_shape(trace);
            let places = places_among(&self.recorded.requests, trace);
            let answered = narrower + 1..=recorded.verify_width;
            let widths = self.table.widths(&Stage::Verify).into_iter().filter(|w| answered.contains(w));
            let shapes = widths.map(|verify_width| Shape { verify_width, ..recorded });
            let choices_of_rows = origin.rows(|| judge_live(trace));
            for shape in origin.limits.admitted(shapes) {
                for rows in &choices_of_rows {
                    let replay = |choice: &RowChoice| replay_live(trace, choice);
                    let mut point = self.free_point(origin, shape, Schedule::Plain, rows, replay)?;
                    point.by_prompt.iter_mut().for_each(|prompt| prompt.place = places[prompt.place]);
                    found.points.push(point);
                }
            }
            narrower = recorded.verify_width;
        }
        Ok(())
    }

    /// A shape of a drafter without a model, priced by what `replay` says of a choice of rows.
    fn free_point(
        &self,
        origin: &Origin<'_>,
        shape: Shape,
        schedule: Schedule,
        Rows { rule, calibration }: &Rows,
        mut replay: impl FnMut(&RowChoice) -> Tally<u32>,
    ) -> Result<Point, SearchError> {
        let pricing = self.pricing(origin.name);
        let mut rates = Rates::new(self.ar_tpot_us);
        let (row_choice, tally, priced) = loop {
            let by = Choosing { rule: *rule, calibration: calibration.as_ref(), rate: rates.of(&shape) };
            let row_choice = pricing.free_choice(&shape, schedule, by)?;
            let tally = replay(&row_choice);
            let at = |width| pricing.free_step(&shape, schedule, *rule, width);
            let priced = tally.priced(self.ar_tpot_us, at)?;
            if rates.are_found(*rule) {
                break (row_choice, tally, priced);
            }
            rates.reached(shape, 1.0 / priced.predicted.tpot_us);
        };
        let evidence = Evidence {
            growth: GrowthChoice::Equal,
            schedule,
            top_k: 0,
            draft_temperature: 1.0,
            depth_choice: DepthChoice::Fixed,
            row_choice,
            lengths: tally.accepted(),
            by_rank: Vec::new(),
        };
        Ok(origin.point(shape, evidence, priced))
    }

    /// The recordings of a drafter that learns, narrowest first.
    pub(in crate::planner) fn live_traces_of(&self, name: &DrafterName) -> Vec<&LiveTrace> {
        let is_here = |trace: &&LiveTrace| trace.temperature == self.recorded.temperature;
        let all = self.profile.live_traces.iter().filter(is_here);
        let mut traces: Vec<_> =
            all.filter(|trace| trace.drafter == *name && trace.steps().next().is_some()).collect();
        traces.sort_by_key(|trace| trace.nodes);
        traces
    }
}

/// The places of a recording's prompts among `requests`, which were recorded in the same order from the same prompts;
/// one that the request at its place did not begin as comes after them all.
fn places_among(requests: &[TokenTrace], trace: &LiveTrace) -> Vec<usize> {
    let began_as = |prompt: &LivePrompt, request: &TokenTrace| {
        let begin = prompt.steps.first().map(|step| (step.context as usize, step.tokens.first()));
        begin == Some((request.prompt.len(), request.output.first()))
    };
    let place = |(place, prompt): (usize, &LivePrompt)| {
        let is_there = requests.get(place).is_some_and(|request| began_as(prompt, request));
        if is_there { place } else { requests.len() + place }
    };
    trace.prompts.iter().enumerate().map(place).collect()
}
