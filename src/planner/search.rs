//! The exhaustive search of drafter, Dd, Wd and Wv among measured widths by eq. 3, plain decoding included.
use std::collections::{BTreeMap, BTreeSet};

use ygg_profiler::{DepthPredictor, DrafterName, LatencyTable, LiveTrace, Profile, Stage, TokenTrace, Trace};

use super::{
    AcceptedLengths, Fix, FreeDrafter, JudgedNode, SearchError, TreeReplay, acceptance_by_rank,
    choose_tunings,
    choosing::{Choice, Found, Point, alternatives, best_first, best_of, choose, planned_widths, predictors},
    compare::{PricedTemplate, RefusedTemplate, StaticSearch},
    depth_search::{DepthSearch, PricedDepths},
    judge_trees,
    objective::{mean_step, plain_step},
    pricing::{Choosing, Pricing},
    rates::Rates,
    stages::Tail,
};
use crate::plan::{
    Acceptance, Band, Calibration, DepthChoice, DepthRule, DrafterKind, GrowthChoice, GrowthRule, LeftOut,
    Plan, PlanError, PlannedPredictor, Prediction, Refusal, RowChoice, RowRule, Schedule, Shape, SubPlan,
    step_us,
};

/// Makes the plan that `profile` speaks for, within what `fix` leaves open.
///
/// `free_drafters` holds every drafter of the profile that runs no model. Every temperature that was recorded is searched by
/// itself; one above 0 at which nothing satisfies the fix gets no band. A fixed depth or draft width of a free drafter need not be
/// among those it would try. A drafter without evidence is no candidate: the plan says so in [`Plan::left_out`].
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
) -> Result<Plan, SearchError> {
    profile.validate()?;
    let table = profile.table()?;
    let greedy = Recorded::greedy(profile);
    let context = reference_context(&greedy, &table);
    let plain = plain_sub_plan(&table, context)?;
    let ar_tpot_us = plain.predicted.tpot_us;
    let at = |recorded| Search { profile, recorded, table: &table, context, ar_tpot_us };
    let (greedy, predictors) = at(greedy).band(&plain, free_drafters, fix)?;
    let mut bands = Vec::new();
    for temperature in profile.temperatures().into_iter().filter(|temperature| *temperature > 0.0) {
        match at(Recorded::warm(profile, temperature)).band(&plain, free_drafters, fix) {
            Ok((band, _)) => bands.push(band),
            Err(SearchError::FixImpossible { .. } | SearchError::NoEvidence { .. }) => {}
            Err(other) => return Err(other),
        }
    }
    let Band { temperature: _, by_drafter, chosen_index, alternatives, refused, left_out } = greedy;
    let all = by_drafter.iter().chain(bands.iter().flat_map(|band| &band.by_drafter));
    let plan = Plan {
        created_by: format!("yggc {}", env!("CARGO_PKG_VERSION")),
        fingerprints: profile.fingerprints.clone(),
        calibration: profile.calibration.clone(),
        fixed: fix.to_string(),
        context,
        planned: planned_widths(all),
        bands,
        predictors,
        alternatives,
        by_drafter,
        chosen_index,
        refused,
        left_out,
        tunings: choose_tunings(&profile.tunings),
        table,
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
    trained: &'a [DepthPredictor],
}

impl<'a> Recorded<'a> {
    fn greedy(profile: &'a Profile) -> Self {
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
    place: usize,
    asked_for: bool,
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

    /// Every way of choosing rows under every schedule that the fix leaves open.
    fn under_schedules<'r>(&self, rows: &'r [Rows]) -> Vec<(&'r Rows, Schedule)> {
        let all = rows.iter().flat_map(|rows| self.schedules.iter().map(move |schedule| (rows, *schedule)));
        all.filter(|(rows, schedule)| schedule.admits_rows(rows.rule)).collect()
    }

    pub(super) fn point(&self, shape: Shape, evidence: Evidence<'_>, predicted: Prediction) -> Point {
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
        let acceptance = Acceptance { steps: lengths.steps(), by_depth: lengths.by_depth(), by_rank };
        Point {
            place: self.place,
            asked_for: self.asked_for,
            sub_plan: SubPlan {
                name: self.name.clone(),
                drafter: self.kind.clone(),
                shape,
                growth,
                schedule,
                top_k,
                draft_temperature,
                depth_choice,
                row_choice,
                predicted,
                acceptance,
            },
        }
    }
}

/// How steps choose their rows, and by which values.
pub(super) struct Rows {
    pub(super) rule: RowRule,
    pub(super) calibration: Option<Calibration>,
}

/// How steps are run beside their shape, and what a prediction rests on.
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

pub(super) struct Search<'a> {
    pub(super) profile: &'a Profile,
    pub(super) recorded: Recorded<'a>,
    pub(super) table: &'a LatencyTable,
    context: u32,
    pub(super) ar_tpot_us: f64,
}

impl Search<'_> {
    /// What is decided for requests like those recorded, and every trained predictor beside what it gains.
    fn band(
        &self,
        plain: &SubPlan,
        free_drafters: &mut [FreeDrafter<'_>],
        fix: &Fix,
    ) -> Result<(Band, Vec<PlannedPredictor>), SearchError> {
        let mut found = Found { points: Vec::new(), told: BTreeMap::new(), refused: Vec::new() };
        let mut left_out = Vec::new();
        let mut names = Vec::new();
        let open = Fix::default();
        for description in &self.profile.drafters {
            let kind = DrafterKind::from_description(description)?;
            let name = &description.name;
            let asked_for = fix.drafter.as_deref().is_none_or(|d| d == name.as_str() || d == kind.name());
            let limits = if asked_for { fix } else { &open };
            // What is not greedy is said by the host.
            let is_greedy = self.recorded.temperature == 0.0;
            let is_open = |schedule: &Schedule| {
                schedule.suits(&kind)
                    && limits.admits_schedule(*schedule)
                    && (is_greedy || !schedule.walks_on_device())
            };
            let schedules = Schedule::ALL.into_iter().filter(is_open).collect();
            let origin = Origin { name, kind: &kind, limits, schedules, place: names.len(), asked_for };
            let searched = match &kind {
                DrafterKind::None => continue,
                DrafterKind::LayerSkip { .. } | DrafterKind::Swift { .. } | DrafterKind::Model { .. } => {
                    self.tree_drafter(&origin, &mut found)
                }
                DrafterKind::Recycling | DrafterKind::Ngram(_) | DrafterKind::Mixed(_) => {
                    self.live_drafter(&origin, &mut found)
                }
                DrafterKind::Lookup { .. } | DrafterKind::Suffix(_) | DrafterKind::Retrieval { .. } => {
                    self.free_drafter(&origin, free_drafters, &mut found)
                }
            };
            let is_named = asked_for && fix.drafter.is_some();
            match searched {
                Ok(()) => names.push(name.clone()),
                Err(SearchError::NoEvidence { drafter: name, expected }) if !is_named => {
                    left_out.push(LeftOut { name, lacks: expected.to_owned() });
                }
                Err(other) => return Err(other),
            }
        }

        let Found { mut points, told, refused } = found;
        points.sort_by(best_first);
        let best: Vec<&Point> = (0..names.len()).filter_map(|place| best_of(&points, place, fix)).collect();
        let chosen = choose(&best, fix).ok_or_else(|| SearchError::FixImpossible {
            fix: fix.to_string(),
            measured: self.choices(free_drafters),
        })?;
        let mut by_drafter = vec![plain.clone()];
        let mut chosen_index = 0;
        for point in best {
            if chosen == Choice::Drafter(point.place) {
                chosen_index = by_drafter.len() as u32;
            }
            by_drafter.push(point.sub_plan.clone());
        }
        let predictors = predictors(self.recorded.trained, &points, &told, &by_drafter);
        let alternatives = alternatives(&by_drafter, &points);
        let temperature = self.recorded.temperature;
        let band = Band { temperature, by_drafter, chosen_index, alternatives, refused, left_out };
        Ok((band, predictors))
    }

    fn tree_drafter(&self, origin: &Origin<'_>, found: &mut Found) -> Result<(), SearchError> {
        if origin.limits.growth().is_static() && matches!(origin.kind, DrafterKind::Swift { .. }) {
            return Ok(());
        }
        let traces = self.traces_of(origin.name);
        let lacks = |expected| SearchError::NoEvidence { drafter: origin.name.clone(), expected };
        let steps = "recorded steps";
        let first = traces.first().ok_or_else(|| lacks(steps))?;
        if traces.iter().all(|trace| trace.steps().next().is_none()) {
            return Err(lacks(steps));
        }
        if self.draft_widths(origin.name).is_empty() {
            return Err(lacks("latencies"));
        }
        if let Some(other) = traces.iter().find(|t| t.draft_temperature != first.draft_temperature) {
            let refused = PlanError::DrafterParameters {
                drafter: origin.name.to_string(),
                expected: format!("one draft temperature, {}", first.draft_temperature),
                found: other.draft_temperature.to_string(),
            };
            return Err(refused.into());
        }
        let top_k = traces.iter().map(|t| t.top_k).min().unwrap_or(0);
        let draft_temperature = first.draft_temperature;
        let by_rank = acceptance_by_rank(&traces);
        let depths = 1..=traces.iter().map(|t| t.depth).min().unwrap_or(0);
        let pricing = self.pricing(origin.name);
        let rule = origin.limits.growth();
        if rule.is_static() {
            let (traces, by_rank, rate) = (&traces, &by_rank, 1.0 / self.ar_tpot_us);
            let depth = *depths.end();
            let schedules = origin.schedules.as_slice();
            let search = StaticSearch { traces, pricing, rule, schedules, by_rank, depth, top_k, rate };
            return self.static_trees(origin, &search, draft_temperature, found);
        }
        for draft_width in self.draft_widths(origin.name) {
            if origin.limits.draft_width.is_some_and(|fixed| fixed != draft_width) {
                continue;
            }
            let rows = origin.rows(|| judge_trees(&traces, draft_width));
            for (Rows { rule, calibration }, schedule) in origin.under_schedules(&rows) {
                let (rule, calibration) = (*rule, calibration.as_ref());
                let verify_widths = pricing.tree_widths(schedule);
                let shapes = |depth| speculative(depth, draft_width, &verify_widths);
                let mut rates = Rates::new(self.ar_tpot_us);
                let replay = loop {
                    let choice = |shape: Shape| {
                        let by = Choosing { rule, calibration, rate: rates.of(&shape) };
                        pricing.tree_choice(&shape, schedule, by)
                    };
                    let choices = depths
                        .clone()
                        .map(|depth| shapes(depth).map(choice).collect())
                        .collect::<Result<Vec<Vec<RowChoice>>, _>>()?;
                    let replay = TreeReplay::new(&traces, draft_width, &choices, calibration);
                    if rates.are_found(rule) {
                        break replay;
                    }
                    for shape in depths.clone().flat_map(shapes) {
                        let Shape { depth, verify_width, .. } = shape;
                        let Ok(lengths) = replay.accepted(depth, verify_width) else { continue };
                        let steps_by_width = replay.steps_by_width(depth, verify_width)?;
                        let at = |width| pricing.tree_step(&shape, schedule, rule, width);
                        let stages = mean_step(steps_by_width, at)?;
                        rates.reached(shape, lengths.aal() / step_us(&stages));
                    }
                };
                let mut replayed = Vec::new();
                for shape in depths.clone().flat_map(|depth| origin.limits.admitted(shapes(depth))) {
                    let Shape { depth, verify_width, .. } = shape;
                    let lengths = match replay.accepted(depth, verify_width) {
                        Ok(lengths) => lengths,
                        Err(SearchError::IncompleteTrace { drafter: name, missing, .. }) => {
                            let growth = GrowthRule::Equal;
                            let refusal = Refusal { name, growth, depth, draft_width, missing };
                            if !found.refused.contains(&refusal) {
                                found.refused.push(refusal);
                            }
                            continue;
                        }
                        Err(other) => return Err(other),
                    };
                    replayed.push(shape);
                    if !origin.limits.admits_rule(DepthRule::Fixed) {
                        continue;
                    }
                    let steps_by_width = replay.steps_by_width(depth, verify_width)?;
                    let at = |width| pricing.tree_step(&shape, schedule, rule, width);
                    let stages = mean_step(steps_by_width, at)?;
                    let predicted = Prediction::new(lengths.aal(), stages, self.ar_tpot_us);
                    let by = Choosing { rule, calibration, rate: rates.of(&shape) };
                    let row_choice = pricing.tree_choice(&shape, schedule, by)?;
                    let (depth_choice, by_rank) = (DepthChoice::Fixed, by_rank.clone());
                    let evidence = Evidence {
                        growth: GrowthChoice::Equal,
                        schedule,
                        top_k,
                        draft_temperature,
                        depth_choice,
                        row_choice,
                        lengths,
                        by_rank,
                    };
                    found.points.push(origin.point(shape, evidence, predicted));
                }
                let is_trained = self.recorded.trained.iter().any(|p| p.drafter == *origin.name);
                let may_be_told =
                    schedule == Schedule::Plain && origin.limits.admits_rule(DepthRule::Predicted);
                if !is_trained || !may_be_told {
                    continue;
                }
                let (traces, replay, rates) = (&traces, &replay, &rates);
                let search = DepthSearch { traces, pricing, rule, calibration, replay, rates };
                for PricedDepths { shape, rows, depths, accepted, stages } in search.priced(&replayed)? {
                    let predicted = Prediction::new(accepted.aal(), stages, self.ar_tpot_us);
                    let best = found.told.entry(origin.place).or_insert(predicted.speedup);
                    *best = best.max(predicted.speedup);
                    // Steps that are told best not to draft are plain decoding, which is in the plan as it is.
                    if predicted.speedup <= 1.0 && origin.limits.depth_rule.is_none() {
                        continue;
                    }
                    let evidence = Evidence {
                        growth: GrowthChoice::Equal,
                        schedule,
                        top_k,
                        draft_temperature,
                        depth_choice: DepthChoice::Predicted(depths),
                        row_choice: rows,
                        lengths: &accepted,
                        by_rank: by_rank.clone(),
                    };
                    found.points.push(origin.point(shape, evidence, predicted));
                }
            }
        }
        Ok(())
    }

    /// Adds what a search of trees that are the same at every step found.
    fn static_trees(
        &self,
        origin: &Origin<'_>,
        search: &StaticSearch<'_>,
        draft_temperature: f32,
        found: &mut Found,
    ) -> Result<(), SearchError> {
        let (priced, refused) = search.priced(origin.limits)?;
        for RefusedTemplate { shape: Shape { depth, draft_width, verify_width: _ }, missing } in refused {
            let (name, growth) = (origin.name.clone(), search.rule);
            found.refused.push(Refusal { name, growth, depth, draft_width, missing });
        }
        for PricedTemplate { shape, growth, schedule, rows: row_choice, accepted, stages } in priced {
            let predicted = Prediction::new(accepted.aal(), stages, self.ar_tpot_us);
            let evidence = Evidence {
                growth,
                schedule,
                top_k: search.top_k,
                draft_temperature,
                depth_choice: DepthChoice::Fixed,
                row_choice,
                lengths: &accepted,
                by_rank: search.by_rank.to_vec(),
            };
            found.points.push(origin.point(shape, evidence, predicted));
        }
        Ok(())
    }

    pub(super) fn pricing<'s>(&'s self, drafter: &'s DrafterName) -> Pricing<'s> {
        let described = self.profile.drafters.iter().find(|described| described.name == *drafter);
        let kind = described.and_then(|described| DrafterKind::from_description(described).ok());
        let tail = match kind {
            Some(kind) if kind.keeps_a_cache() => Tail::Joined,
            Some(_) | None => Tail::Shared,
        };
        Pricing { table: self.table, drafter, context: self.context, tail }
    }

    /// The traces of a drafter; where it has none, those of the drafter that it begins as.
    fn traces_of(&self, name: &DrafterName) -> Vec<&Trace> {
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
        let begins_as = kinds().find(|(other, _)| *other == name).and_then(|(_, kind)| kind.begins_as());
        let twin = begins_as.and_then(|begins_as| kinds().find(|(_, kind)| *kind == begins_as));
        twin.map_or(Vec::new(), |(twin, _)| of(twin))
    }

    /// The measured draft widths that every trace of the drafter was recorded for.
    fn draft_widths(&self, name: &DrafterName) -> Vec<u32> {
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
    Ok(SubPlan {
        name: DrafterName::new("none").expect("`none` is a drafter name"),
        drafter: DrafterKind::None,
        shape: Shape::PLAIN,
        growth: GrowthChoice::Equal,
        schedule: Schedule::Plain,
        top_k: 0,
        draft_temperature: 1.0,
        depth_choice: DepthChoice::Fixed,
        row_choice: RowChoice::fixed(1, ar_tpot_us),
        predicted: Prediction::new(1.0, stages, ar_tpot_us),
        acceptance: Acceptance::default(),
    })
}

/// The context that all drafters are compared at: the mean of the recorded steps, else of the recorded requests, else the
/// shortest measured.
fn reference_context(recorded: &Recorded<'_>, table: &LatencyTable) -> u32 {
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
