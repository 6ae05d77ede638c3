//! The exhaustive search of drafter, Dd, Wd and Wv among measured widths by eq. 3, plain decoding included.
use std::{collections::BTreeSet, num::NonZero};

use ygg_profiler::{DrafterDescription, DrafterName, LatencyTable, LiveTrace, Profile, Stage, UnixTime};

use crate::plan::{
    Band, DrafterKind, Header, LeftOut, Plan, PlannedPredictor, Prediction, RecordedAs, RowChoice, Schedule,
    Shape, SubPlan,
};
use crate::planner::{
    Fix, FreeDrafter, SearchError, choose_tunings,
    judge::{
        guard_limits::guard_limits,
        point::Point,
        selection::{
            Best, Choice, Found, Judged, alternatives, best_first, best_of, planned_widths, predictors,
            shared_substitute,
        },
        unseen::unseen,
    },
    price::objective::plain_step,
    search::{
        divisions::measured_division,
        origin::{Origin, Recorded, Search, reference_context},
        side_by_side::{Searched, search_drafters},
    },
};

/// Makes the plan that follows from `profile` on one thread, within what `fix` leaves open. The plan says that it was
/// made at `made_at`; nothing else depends on that.
///
/// `free_drafters` holds every drafter of the profile that runs no model. Every temperature that was recorded is
/// searched by itself; one above 0 at which nothing satisfies the fix gets no band. A fixed depth or draft width of a
/// free drafter need not be among those it would try. A drafter without evidence is no candidate: the plan says so in
/// [`Band::left_out`].
///
/// # Errors
/// [`SearchError`]: an unusable profile, no evidence for the drafter that `fix` names, an unmeasured width or a fix
/// that nothing satisfies.
///
/// # Panics
/// If `free_drafters` lacks a drafter of the profile that runs no model.
pub fn make_plan(
    profile: &Profile,
    free_drafters: &mut [FreeDrafter<'_>],
    fix: &Fix,
    made_at: UnixTime,
) -> Result<Plan, SearchError> {
    make_plan_watched(profile, free_drafters, fix, made_at, NonZero::<usize>::MIN, &mut |_, _| {})
}

/// [`make_plan`] on `threads` threads at most; `progress` gets (drafters searched, drafters in all). The plan does not
/// depend on the number of threads.
///
/// # Errors
/// As [`make_plan`].
///
/// # Panics
/// As [`make_plan`].
pub fn make_plan_watched(
    profile: &Profile,
    free_drafters: &mut [FreeDrafter<'_>],
    fix: &Fix,
    made_at: UnixTime,
    threads: NonZero<usize>,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Plan, SearchError> {
    profile.validate()?;
    let table = profile.table()?;
    let greedy = Recorded::greedy(profile);
    let context = reference_context(&greedy, &table);
    let plain = plain_sub_plan(&table, context)?;
    let ar_tpot_us = plain.first().predicted.tpot_us;
    let warm = profile.temperatures().into_iter().filter(|temperature| *temperature > 0.0);
    let recorded = std::iter::once(greedy).chain(warm.map(|t| Recorded::warm(profile, t)));
    let recorded: Vec<Recorded<'_>> = recorded.collect();
    let at = |recorded| Search { profile, recorded, table: &table, context, ar_tpot_us };
    let searches: Vec<Search<'_>> = recorded.iter().map(at).collect();
    let found = search_drafters(&searches, free_drafters, fix, threads, progress);
    let (mut judging, mut judged) = (Vec::new(), Vec::new());
    for (search, found) in searches.iter().zip(found) {
        match search.judge(found, fix) {
            Ok(found) => {
                judging.push(search);
                judged.push(found);
            }
            Err(SearchError::NoEvidence { .. }) if !judged.is_empty() => {}
            Err(other) => return Err(other),
        }
    }
    // Requests of all temperatures run over the same weights in memory.
    let is_limited = profile.memory.is_some() || profile.fingerprints.machine.resident_bytes.is_some();
    let bits = if is_limited { shared_substitute(&judged, fix) } else { None };
    let mut planned = Vec::new();
    for (search, judged) in judging.into_iter().zip(judged) {
        match search.band(&plain, judged, bits, free_drafters, fix) {
            Ok(band) => planned.push(band),
            Err(SearchError::FixImpossible { .. } | SearchError::NoEvidence { .. })
                if !planned.is_empty() => {}
            Err(other) => return Err(other),
        }
    }
    let (bands, mut predictors): (Vec<Band>, Vec<_>) = planned.into_iter().unzip();
    let header = Header {
        created_by: format!("yggc {}", env!("CARGO_PKG_VERSION")),
        made_at,
        measured_at: profile.measured_at,
        fingerprints: profile.fingerprints.clone(),
        calibration: profile.calibration.clone(),
        fixed: fix.to_string(),
        memory: measured_division(profile, bands.iter().map(Band::chosen)),
    };
    let plan = Plan {
        header,
        table,
        planned: planned_widths(bands.iter().flat_map(|band| &band.by_drafter)),
        tunings: choose_tunings(&profile.tunings),
        predictors: predictors.swap_remove(0),
        bands,
    };
    plan.validate()?;
    Ok(plan)
}

/// Whether the fix allows choosing a drafter.
fn asks_for(fix: &Fix, name: &DrafterName, kind: &DrafterKind) -> bool {
    fix.drafter.as_deref().is_none_or(|d| d == name.as_str() || d == kind.name())
}

impl Search<'_> {
    /// Every shape of the drafter at a place of the profile, with its implementation if it is replayed; none of one
    /// that drafts nothing.
    ///
    /// # Errors
    /// [`SearchError::NoEvidence`] of a drafter that is no candidate, or another one that ends the search.
    pub(in crate::planner) fn drafter(
        &self,
        place: usize,
        free_drafter: Option<&mut FreeDrafter<'_>>,
        fix: &Fix,
    ) -> Result<Found, SearchError> {
        let description = &self.profile.drafters[place];
        let kind = DrafterKind::from_description(description)?;
        let name = &description.name;
        let asked_for = asks_for(fix, name, &kind);
        let open = Fix::default();
        let limits = if asked_for { fix } else { &open };
        let is_open = |schedule: &Schedule| schedule.suits(&kind) && limits.admits_schedule(*schedule);
        let schedules = Schedule::ALL.into_iter().filter(is_open).collect();
        let (draft_temperature, context) = (None, self.context);
        let known_share = self.known_share(name, &kind);
        let kind = &kind;
        let origin = Origin {
            name,
            kind,
            limits,
            schedules,
            draft_temperature,
            context,
            known_share,
            place,
            asked_for,
        };
        self.shapes(&origin, free_drafter)
    }

    /// The shapes of a drafter that its limits leave open.
    ///
    /// # Errors
    /// As [`drafter`](Self::drafter).
    pub(in crate::planner) fn shapes(
        &self,
        origin: &Origin<'_>,
        free_drafter: Option<&mut FreeDrafter<'_>>,
    ) -> Result<Found, SearchError> {
        let mut found = Found::default();
        match origin.kind.facts().recorded_as {
            RecordedAs::Nothing => {}
            RecordedAs::Trees => self.tree_drafter(origin, &mut found)?,
            RecordedAs::LiveSteps => self.live_drafter(origin, &mut found)?,
            RecordedAs::Requests => self.free_drafter(origin, free_drafter, &mut found)?,
            RecordedAs::Merged => self.merged_drafter(origin, free_drafter, &mut found)?,
        }
        Ok(found)
    }

    /// The best of every drafter of the profile, given what was found of each.
    fn judge(&self, by_drafter: Vec<Searched>, fix: &Fix) -> Result<Judged, SearchError> {
        let mut found = Found::default();
        let mut left_out = Vec::new();
        let is_named = |description: &DrafterDescription| {
            let kind = DrafterKind::from_description(description);
            fix.drafter.is_some() && kind.is_ok_and(|kind| asks_for(fix, &description.name, &kind))
        };
        // A kind names several drafters, one of which is enough.
        let of_all = || self.profile.drafters.iter().zip(&by_drafter);
        let is_answered = of_all().any(|(description, found)| found.is_ok() && is_named(description));
        for (description, of_drafter) in self.profile.drafters.iter().zip(by_drafter) {
            match of_drafter {
                Ok(of_drafter) => found.append(of_drafter),
                Err(SearchError::NoEvidence { drafter: name, expected })
                    if is_answered || !is_named(description) =>
                {
                    left_out.push(LeftOut { name, lacks: expected.to_owned() });
                }
                Err(other) => return Err(other),
            }
        }

        let Found { mut points, predicted_depth_speedups, refused } = found;
        points.sort_by(best_first);
        let bests = (0..self.profile.drafters.len()).filter_map(|drafter| best_of(&points, drafter, fix));
        let bests: Vec<&Point> = bests.collect();
        let judged = |best: &&Point| {
            let place = points.iter().position(|other| std::ptr::eq(other, *best)).expect("one of them");
            let own = points.iter().filter(|point| point.place == best.place);
            (place, unseen(self.profile, (self.table, self.context), own, best, &bests))
        };
        let best = bests.iter().map(judged).collect();
        Ok(Judged { points, best, predicted_depth_speedups, refused, left_out })
    }

    /// What is decided for requests like those recorded, with no other substitute than that of these bits, if any are
    /// given; and every trained predictor with what it gains.
    fn band(
        &self,
        plain: &SubPlan,
        judged: Judged,
        bits: Option<u32>,
        free_drafters: &mut [FreeDrafter<'_>],
        fix: &Fix,
    ) -> Result<(Band, Vec<PlannedPredictor>), SearchError> {
        let chosen = judged.choose(bits, fix).ok_or_else(|| SearchError::FixImpossible {
            fix: fix.to_string(),
            measured: self.choices(free_drafters),
        })?;
        let mut by_drafter = vec![plain.clone()];
        let mut chosen_index = 0;
        let bests: Vec<&Point> = judged.best().map(|best| best.point).collect();
        for Best { point, unseen } in judged.best() {
            if chosen == Choice::Drafter(point.place) {
                chosen_index = by_drafter.len() as u32;
            }
            let mut sub_plan = point.sub_plan.clone();
            let model = sub_plan.drafter.mixed_model().and_then(|model| self.name_of(&model.kind()));
            let model = model.unwrap_or(&sub_plan.name);
            sub_plan.guard = guard_limits((self.table, self.context), (&sub_plan, model), &point.by_prompt);
            sub_plan.ranges[0].unseen = unseen;
            sub_plan.ranges.extend(self.longer_contexts((point, &bests), free_drafters, fix)?);
            by_drafter.push(sub_plan);
        }
        let Judged { points, best: _, predicted_depth_speedups, refused, left_out } = judged;
        let predictors = predictors(self.recorded.trained, &points, &predicted_depth_speedups, &by_drafter);
        let alternatives = alternatives(&by_drafter, &points);
        let temperature = self.recorded.temperature;
        let band = Band { temperature, by_drafter, chosen_index, alternatives, refused, left_out };
        Ok((band, predictors))
    }

    /// What a fix can choose among, in words.
    fn choices(&self, free_drafters: &[FreeDrafter<'_>]) -> String {
        let mut choices = vec!["drafter=none".to_owned()];
        for description in &self.profile.drafters {
            let name = &description.name;
            let recorded = self.live_traces_of(name);
            let (depths, widths) = match free_drafters.iter().find(|d| d.name == *name) {
                Some(_) => ("any".to_owned(), "any".to_owned()),
                None if !recorded.is_empty() => {
                    let list = |of: fn(&LiveTrace) -> u32| {
                        format!("{:?}", recorded.iter().map(|trace| of(trace)).collect::<BTreeSet<_>>())
                    };
                    (
                        list(|trace| trace.depth),
                        format!("{} with Wv up to {}", list(|t| t.width), list(|t| t.nodes)),
                    )
                }
                None => {
                    let depth = self.traces_of(name).iter().map(|t| t.depth).min().unwrap_or(0);
                    let heads = self.pricing(name).tree_widths(Schedule::HeadAhead);
                    let ahead = match DrafterKind::from_description(description) {
                        Ok(kind) if kind.keeps_a_cache() && heads.is_empty() => {
                            format!(", schedule=head_ahead where verify_tail:{name} is measured, on a GPU")
                        }
                        Ok(_) | Err(_) => {
                            format!(", schedule=head_ahead with Wv {:?}", &heads[1.min(heads.len())..])
                        }
                    };
                    (format!("1 to {depth}"), format!("{:?}{ahead}", self.draft_widths(name)))
                }
            };
            choices.push(format!("drafter={name} with Dd {depths}, Wd {widths}"));
        }
        let verify_widths = self.table.widths(&Stage::Verify);
        format!("{}; Wv {verify_widths:?}, from 2 to Dd * Wd + 1", choices.join(", "))
    }
}

fn plain_sub_plan(table: &LatencyTable, context: u32) -> Result<SubPlan, SearchError> {
    let stages = plain_step(table, context)?;
    let ar_tpot_us = stages.iter().map(|stage| stage.us).sum();
    let mut plain = SubPlan::unpriced(Shape::PLAIN);
    let range = &mut plain.ranges[0];
    range.context = context;
    range.row_choice = RowChoice::fixed(1, ar_tpot_us);
    range.predicted = Prediction::new(1.0, stages, ar_tpot_us);
    Ok(plain)
}
