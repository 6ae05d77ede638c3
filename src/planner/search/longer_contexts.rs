//! The search of what a drafter's steps do at longer contexts than were recorded: its best shape is searched again at
//! every longer context that was measured, with draft width, growth, schedule and rules as they are.
use crate::plan::{ContextRange, RecordedAs, Stage, SubPlan, Unseen, step_us};
use crate::planner::{
    Fix, FixedWidth, FreeDrafter, SearchError,
    judge::{
        point::Point,
        selection::{best_first, best_of},
        unseen::unseen,
    },
    price::objective::plain_step,
    search::origin::{Origin, Search},
};

/// How many times as long a context has to be to get steps of its own.
const LONGER: u32 = 2;

impl Search<'_> {
    /// The context ranges of a drafter's best shape, `best`, as far as enough was measured: the first context at which
    /// its stages were not measured ends them.
    ///
    /// # Errors
    /// As the search of a drafter.
    pub(in crate::planner) fn longer_contexts(
        &self,
        (best, others): (&Point, &[&Point]),
        free_drafters: &mut [FreeDrafter<'_>],
        fix: &Fix,
    ) -> Result<Vec<ContextRange>, SearchError> {
        let mut ranges = Vec::new();
        let mut before = self.context;
        if best.sub_plan.growth.rule().is_static() {
            return Ok(ranges);
        }
        for context in self.table.contexts() {
            if context < before.saturating_mul(LONGER) {
                continue;
            }
            let Some((steps, unseen)) = self.at_context(context, (best, others), free_drafters, fix)? else {
                break;
            };
            let from = before + (context - before) / 2;
            let drafts = unseen.is_gain() || fix.asks_for_speculation();
            ranges.push(ContextRange { from, drafts, unseen, ..steps });
            before = context;
        }
        Ok(ranges)
    }

    /// The best steps of the drafter at one context, and what to expect of them on other prompts; `None` where they
    /// were not measured.
    fn at_context(
        &self,
        context: u32,
        (best, others): (&Point, &[&Point]),
        free_drafters: &mut [FreeDrafter<'_>],
        fix: &Fix,
    ) -> Result<Option<(ContextRange, Unseen)>, SearchError> {
        let SubPlan { name, drafter, growth, schedule, draft_temperature, .. } = &best.sub_plan;
        let shape = best.sub_plan.shape();
        let Some(table) = self.table.reaching(context) else { return Ok(None) };
        let has_all = [Stage::Verify, Stage::Draft(name.clone())].iter().all(|stage| table.has_stage(stage));
        let Ok(plain) = plain_step(&table, context) else { return Ok(None) };
        if !has_all {
            return Ok(None);
        }
        // The trees of a recording are as deep as it, and fewer of their rows may be verified; the device prunes to one
        // width.
        let is_live = drafter.facts().recorded_as == RecordedAs::LiveSteps;
        let limits = Fix {
            drafter: Some(name.to_string()),
            depth: fix.depth.or(is_live.then_some(shape.depth)),
            draft_width: Some(shape.draft_width),
            verify_width: if schedule.prunes_on_device() {
                Some(FixedWidth::Rows(shape.verify_width))
            } else {
                fix.verify_width
            },
            rows: Some(best.sub_plan.row_rule()),
            depth_rule: Some(best.sub_plan.depth_rule()),
            growth: Some(growth.rule()),
            schedule: Some(*schedule),
            objective: fix.objective,
        };
        let (schedules, asked_for) = (vec![*schedule], best.asked_for);
        let draft_temperature = Some(*draft_temperature);
        let known_share = self.known_share(name, drafter);
        let origin = Origin {
            name,
            kind: drafter,
            limits: &limits,
            schedules,
            draft_temperature,
            context,
            known_share,
            place: 0,
            asked_for,
        };
        let search = Search { table: &table, context, ar_tpot_us: step_us(&plain), ..*self };
        let free_drafter = free_drafters.iter_mut().find(|drafter| drafter.name == *name);
        let mut points = match search.shapes(&origin, free_drafter) {
            Ok(found) => found.points,
            Err(SearchError::NoEvidence { .. }) => return Ok(None),
            Err(other) => return Err(other),
        };
        points.retain(|point| !is_live || point.sub_plan.shape().verify_width <= shape.verify_width);
        points.sort_by(best_first);
        let Some(point) = best_of(&points, origin.place, &limits) else { return Ok(None) };
        let unseen = unseen(self.profile, (&table, context), points.iter(), point, others);
        Ok(Some((point.sub_plan.first().clone(), unseen)))
    }
}
