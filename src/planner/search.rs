//! The exhaustive search of drafter, Dd, Wd and Wv among measured widths by eq. 3, plain decoding included.
use std::{collections::BTreeSet, num::NonZero};

use ygg_profiler::{
    DepthPredictor, DrafterDescription, DrafterName, LatencyTable, LiveTrace, Profile, Stage, TokenTrace,
    Trace, UnixTime,
};

use super::{
    AcceptedLengths, Fix, FreeDrafter, JudgedNode, SearchError, choose_tunings,
    guard_limits::guard_limits,
    memory_search::measured_division,
    objective::plain_step,
    pricing::Pricing,
    selection::{
        Best, Choice, Found, Judged, Point, alternatives, best_first, best_of, planned_widths, predictors,
        shared_substitute,
    },
    side_by_side::{Searched, search_drafters},
    stages::Tail,
    tally::Priced,
    unseen::unseen,
};
use crate::plan::{
    Acceptance, Band, Calibration, ContextRange, DepthChoice, DrafterKind, GrowthChoice, GuardLimits, Header,
    LeftOut, Plan, PlannedPredictor, Prediction, RecordedAs, RowChoice, RowRule, Schedule, Shape, SubPlan,
    Unseen,
};

/// Makes the plan that follows from `profile` on one thread, within what `fix` leaves open. The plan says that it was made at `made_at`;
/// nothing else depends on that.
///
/// `free_drafters` holds every drafter of the profile that runs no model. Every temperature that was recorded is searched by
/// itself; one above 0 at which nothing satisfies the fix gets no band. A fixed depth or draft width of a free drafter need not be
/// among those it would try. A drafter without evidence is no candidate: the plan says so in [`Band::left_out`].
///
/// # Errors
/// [`SearchError`]: an unusable profile, no evidence for the drafter that `fix` names, an unmeasured width or a fix that
/// nothing satisfies.
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

/// [`make_plan`] on `threads` threads at most; `progress` gets (drafters searched, drafters in all). The plan does not depend on the number
/// of threads.
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

/// What was recorded at one temperature.
pub(super) struct Recorded<'a> {
    pub(super) temperature: f32,
    traces: Vec<&'a Trace>,
    pub(super) requests: Vec<TokenTrace>,
    /// What was trained on it.
    pub(super) trained: &'a [DepthPredictor],
}

impl<'a> Recorded<'a> {
    pub(super) fn greedy(profile: &'a Profile) -> Self {
        Self { trained: &profile.predictors, ..Self::warm(profile, 0.0) }
    }

    fn warm(profile: &'a Profile, temperature: f32) -> Self {
        let requests = profile.token_traces.iter().filter(|request| request.temperature == temperature);
        let traces = profile.traces.iter().filter(|trace| trace.temperature == temperature);
        Self { temperature, traces: traces.collect(), requests: requests.cloned().collect(), trained: &[] }
    }
}

/// A drafter under search.
pub(super) struct Origin<'a> {
    pub(super) name: &'a DrafterName,
    pub(super) kind: &'a DrafterKind,
    pub(super) limits: &'a Fix,
    /// The schedules that the fix leaves open and its steps can keep.
    pub(super) schedules: Vec<Schedule>,
    /// The temperature of its values; any if `None`.
    pub(super) draft_temperature: Option<f32>,
    /// Committed tokens at which its steps are priced.
    pub(super) context: u32,
    pub(super) place: usize,
    pub(super) asked_for: bool,
}

impl Origin<'_> {
    /// How the steps of a shape may choose their rows: only as the fix says, and by no values of unknown worth.
    pub(super) fn rows(&self, mut judged: impl FnMut() -> Vec<JudgedNode>) -> Vec<Rows> {
        let rows = |rule: &RowRule| match rule {
            RowRule::Widest => Some(Rows { rule: RowRule::Widest, calibration: None }),
            RowRule::BestRate => Calibration::fit(&judged())
                .map(|calibration| Rows { rule: RowRule::BestRate, calibration: Some(calibration) }),
        };
        self.limits.row_rules().iter().filter_map(rows).collect()
    }

    /// The schedules that the fix leaves open to steps that choose their rows by a rule.
    pub(super) fn schedules_of(&self, rule: RowRule) -> impl Iterator<Item = Schedule> {
        self.schedules.iter().copied().filter(move |schedule| schedule.admits_rows(rule))
    }

    pub(super) fn point(&self, shape: Shape, evidence: Evidence<'_>, priced: Priced) -> Point {
        let Evidence {
            growth,
            schedule,
            top_k,
            draft_temperature,
            depth_choice,
            row_choice,
            lengths,
            by_rank,
        } = evidence;
        let Priced { predicted, by_prompt } = priced;
        // Until the drafter's best is found and judged by other prompts than chose it.
        let unseen = Unseen::PLAIN;
        let range = ContextRange {
            from: 0,
            context: self.context,
            drafts: true,
            depth: shape.depth,
            depth_choice,
            row_choice,
            predicted,
            unseen,
        };
        let acceptance = Acceptance { steps: lengths.steps(), by_depth: lengths.by_depth(), by_rank };
        Point {
            place: self.place,
            asked_for: self.asked_for,
            by_prompt,
            sub_plan: SubPlan {
                name: self.name.clone(),
                drafter: self.kind.clone(),
                draft_width: shape.draft_width,
                growth,
                schedule,
                top_k,
                draft_temperature,
                acceptance,
                guard: GuardLimits::DEFAULT,
                ranges: vec![range],
            },
        }
    }
}

/// How steps choose their rows, and by which values.
pub(super) struct Rows {
    pub(super) rule: RowRule,
    pub(super) calibration: Option<Calibration>,
}

/// How steps are run, apart from their shape, and what a prediction rests on.
pub(super) struct Evidence<'a> {
    pub(super) growth: GrowthChoice,
    pub(super) schedule: Schedule,
    pub(super) top_k: u32,
    pub(super) draft_temperature: f32,
    pub(super) depth_choice: DepthChoice,
    pub(super) row_choice: RowChoice,
    pub(super) lengths: &'a AcceptedLengths,
    pub(super) by_rank: Vec<f64>,
}

#[derive(Clone, Copy)]
pub(super) struct Search<'a> {
    pub(super) profile: &'a Profile,
    pub(super) recorded: &'a Recorded<'a>,
    pub(super) table: &'a LatencyTable,
    pub(super) context: u32,
    pub(super) ar_tpot_us: f64,
}

/// Whether the fix allows choosing a drafter.
fn asks_for(fix: &Fix, name: &DrafterName, kind: &DrafterKind) -> bool {
    fix.drafter.as_deref().is_none_or(|d| d == name.as_str() || d == kind.name())
}

impl Search<'_> {
    /// Every shape of the drafter at a place of the profile, with its implementation if it is replayed; none of one that drafts nothing.
    ///
    /// # Errors
    /// [`SearchError::NoEvidence`] of a drafter that is no candidate, or another one that ends the search.
    pub(super) fn drafter(
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
        // Tokens of requests that sample are drawn by the host.
        let is_greedy = self.recorded.temperature == 0.0;
        let is_open = |schedule: &Schedule| {
            schedule.suits(&kind)
                && limits.admits_schedule(*schedule)
                && (is_greedy || !schedule.walks_on_device())
        };
        let schedules = Schedule::ALL.into_iter().filter(is_open).collect();
        let (draft_temperature, context) = (None, self.context);
        let origin =
            Origin { name, kind: &kind, limits, schedules, draft_temperature, context, place, asked_for };
        self.shapes(&origin, free_drafter)
    }

    /// The shapes of a drafter that its limits leave open.
    ///
    /// # Errors
    /// As [`drafter`](Self::drafter).
    pub(super) fn shapes(
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

    /// What is decided for requests like those recorded, with no other substitute than that of these bits, if any are given; and every trained
    /// predictor with what it gains.
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
            sub_plan.guard = guard_limits(self.table, self.context, &sub_plan, &point.by_prompt);
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

    pub(super) fn pricing<'s>(&'s self, drafter: &'s DrafterName) -> Pricing<'s> {
        let described = self.profile.drafters.iter().find(|described| described.name == *drafter);
        let kind = described.and_then(|described| DrafterKind::from_description(described).ok());
        let tail = match kind {
            Some(kind) if kind.keeps_a_cache() => Tail::Joined,
            Some(_) | None => Tail::Shared,
        };
        Pricing { table: self.table, drafter, context: self.context, tail, static_tree: None }
    }

    /// The traces of a drafter; where it has none, those of the fixed drafter that it starts as.
    pub(super) fn traces_of(&self, name: &DrafterName) -> Vec<&Trace> {
        let of = |name: &DrafterName| -> Vec<&Trace> {
            self.recorded.traces.iter().copied().filter(|trace| trace.drafter == *name).collect()
        };
        let own = of(name);
        if !own.is_empty() {
            return own;
        }
        let kinds = || {
            self.profile
                .drafters
                .iter()
                .filter_map(|d| Some((&d.name, DrafterKind::from_description(d).ok()?)))
        };
        let starts_as = kinds().find(|(other, _)| *other == name).and_then(|(_, kind)| kind.starts_as());
        let twin = starts_as.and_then(|starts_as| kinds().find(|(_, kind)| *kind == starts_as));
        twin.map_or(Vec::new(), |(twin, _)| of(twin))
    }

    /// The measured draft widths that every trace of the drafter was recorded for.
    pub(super) fn draft_widths(&self, name: &DrafterName) -> Vec<u32> {
        let widest = self.traces_of(name).iter().map(|t| t.width).min().unwrap_or(0);
        let mut widths = self.table.widths(&Stage::Draft(name.clone()));
        widths.retain(|width| *width <= widest);
        widths
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

/// The shapes of these growths with the verify widths that make sense for them: something drafted, nothing padded.
pub(super) fn speculative(
    depth: u32,
    draft_width: u32,
    verify_widths: &[u32],
) -> impl Iterator<Item = Shape> {
    let shape = move |verify_width: &u32| Shape { depth, draft_width, verify_width: *verify_width };
    let makes_sense =
        |shape: &Shape| shape.verify_width >= 2 && u64::from(shape.verify_width) <= shape.nodes();
    verify_widths.iter().map(shape).filter(makes_sense)
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

/// The context that all drafters are compared at: the mean of the recorded steps, else of the recorded requests, else the
/// shortest measured.
pub(super) fn reference_context(recorded: &Recorded<'_>, table: &LatencyTable) -> u32 {
    let mean = |contexts: Vec<u64>| {
        let count = contexts.len() as u64;
        let sum: u64 = contexts.into_iter().sum();
        (sum + count / 2).checked_div(count).map(|mean| u32::try_from(mean).unwrap_or(u32::MAX))
    };
    let steps =
        recorded.traces.iter().flat_map(|trace| trace.steps()).map(|step| u64::from(step.context)).collect();
    let requests = recorded.requests.iter().map(|t| (t.prompt.len() + t.output.len() / 2) as u64).collect();
    mean(steps).or_else(|| mean(requests)).unwrap_or_else(|| table.contexts()[0])
}
