//! The exhaustive search of drafter, Dd, Wd and Wv among measured widths by eq. 3, plain decoding included.
use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
};

use ygg_profiler::{DrafterName, LatencyTable, Profile, Stage, Trace};

use super::{
    Acceptance, AcceptedLengths, Alternative, Calibration, DrafterKind, Fix, FreeReplay, JudgedNode, LeftOut,
    Objective, Plan, PlanError, PlannedWidths, Prediction, Refusal, ReplayDrafter, RowChoice, RowRule, Shape,
    SubPlan, TreeReplay, acceptance_by_rank, choose_tunings, judge_proposals, judge_trees,
    objective::{mean_step, plain_step, step_us},
    pricing::Pricing,
};

/// How much faster than plain decoding a shape must be predicted before plain decoding is left.
///
/// Medians of interleaved repetitions on a quiet machine still differ by about this much between runs, so a smaller
/// predicted gain may be none.
pub const NOISE_MARGIN: f64 = 0.03;

/// Alternatives a plan keeps.
const ALTERNATIVES: usize = 20;

/// A drafter without a model, for the search to run over the recorded requests.
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

impl std::fmt::Debug for FreeDrafter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let FreeDrafter { name, drafter: _, depths, widths } = self;
        f.debug_struct("FreeDrafter")
            .field("name", name)
            .field("depths", depths)
            .field("widths", widths)
            .finish_non_exhaustive()
    }
}

/// Makes the plan that `profile` speaks for, within what `fix` leaves open.
///
/// `free_drafters` holds every drafter of the profile that runs no model. Traces of one drafter at several temperatures
/// are pooled. A fixed depth or draft width of a free drafter need not be among those it would try. A drafter without
/// evidence is no candidate: the plan says so in [`Plan::left_out`].
///
/// # Errors
/// [`PlanError`]: an unusable profile, no evidence for the drafter that `fix` names, an unmeasured width or a fix that
/// nothing satisfies.
///
/// # Panics
/// If `free_drafters` lacks a drafter of the profile that runs no model.
pub fn make_plan(
    profile: &Profile,
    free_drafters: &mut [FreeDrafter<'_>],
    fix: &Fix,
) -> Result<Plan, PlanError> {
    profile.validate()?;
    let table = profile.table()?;
    let context = reference_context(profile, &table);
    let plain = plain_sub_plan(&table, context)?;
    let search = Search { profile, table: &table, context, ar_tpot_us: plain.predicted.tpot_us };

    let mut found = Found { points: Vec::new(), refused: Vec::new() };
    let mut left_out = Vec::new();
    let mut names = Vec::new();
    let open = Fix::default();
    for description in &profile.drafters {
        let kind = DrafterKind::from_description(description)?;
        let name = &description.name;
        let asked_for = fix.drafter.as_deref().is_none_or(|d| d == name.as_str() || d == kind.name());
        let limits = if asked_for { fix } else { &open };
        let origin = Origin { name, kind: &kind, limits, place: names.len(), asked_for };
        let searched = match &kind {
            DrafterKind::None => continue,
            DrafterKind::LayerSkip { .. } => search.tree_drafter(&origin, &mut found),
            DrafterKind::Lookup { .. } => search.free_drafter(&origin, free_drafters, &mut found),
        };
        let is_named = asked_for && fix.drafter.is_some();
        match searched {
            Ok(()) => names.push(name.clone()),
            Err(PlanError::NoEvidence { drafter: name, expected }) if !is_named => {
                left_out.push(LeftOut { name, lacks: expected.to_owned() });
            }
            Err(other) => return Err(other),
        }
    }

    let Found { mut points, refused } = found;
    points.sort_by(best_first);
    let best = |place| best_of(points.iter().filter(|point| point.place == place), fix);
    let chosen = choose(&points, fix).ok_or_else(|| PlanError::FixImpossible {
        fix: fix.to_string(),
        measured: search.choices(free_drafters),
    })?;
    let mut by_drafter = vec![plain.clone()];
    let mut chosen_index = 0;
    for place in 0..names.len() {
        if let Some(best) = best(place) {
            if chosen == Choice::Drafter(place) {
                chosen_index = by_drafter.len() as u32;
            }
            by_drafter.push(best.sub_plan.clone());
        }
    }
    let considered = points.len() as u32 + 1;
    let plan = Plan {
        created_by: format!("yggc {}", env!("CARGO_PKG_VERSION")),
        fingerprints: profile.fingerprints.clone(),
        calibration: profile.calibration.clone(),
        fixed: fix.to_string(),
        context,
        planned: planned_widths(&by_drafter),
        alternatives: alternatives(&plain, &points),
        by_drafter,
        chosen_index,
        considered,
        refused,
        left_out,
        tunings: choose_tunings(&profile.tunings),
        table,
    };
    plan.validate()?;
    Ok(plan)
}

/// One priced shape.
struct Point {
    /// Place of the drafter among those searched.
    place: usize,
    /// Whether the fix allows choosing it.
    asked_for: bool,
    sub_plan: SubPlan,
}

struct Found {
    points: Vec<Point>,
    refused: Vec<Refusal>,
}

#[derive(PartialEq, Eq)]
enum Choice {
    Plain,
    Drafter(usize),
}

/// A drafter under search.
struct Origin<'a> {
    name: &'a DrafterName,
    kind: &'a DrafterKind,
    limits: &'a Fix,
    place: usize,
    asked_for: bool,
}

impl Origin<'_> {
    /// How the steps of a shape may choose their rows: only as the fix says, and by no values of unknown worth.
    fn rows(&self, mut judged: impl FnMut() -> Vec<JudgedNode>) -> Vec<Rows> {
        let rows = |rule: &RowRule| match rule {
            RowRule::Widest => Some(Rows { rule: RowRule::Widest, calibration: None }),
            RowRule::BestRate => Calibration::fit(&judged())
                .map(|calibration| Rows { rule: RowRule::BestRate, calibration: Some(calibration) }),
        };
        self.limits.row_rules().iter().filter_map(rows).collect()
    }

    fn point(&self, shape: Shape, evidence: Evidence<'_>, predicted: Prediction) -> Point {
        let Evidence { top_k, draft_temperature, row_choice, lengths, by_rank } = evidence;
        let acceptance = Acceptance { steps: lengths.steps(), by_depth: lengths.by_depth(), by_rank };
        Point {
            place: self.place,
            asked_for: self.asked_for,
            sub_plan: SubPlan {
                name: self.name.clone(),
                drafter: self.kind.clone(),
                shape,
                top_k,
                draft_temperature,
                row_choice,
                predicted,
                acceptance,
            },
        }
    }
}

/// What the time of each shape's steps is worth: at first what plain decoding makes of it, then what choosing by the last
/// worth reached. The rate reached rises from round to round and hardly after the second.
struct Rates {
    plain: f64,
    by_shape: BTreeMap<Shape, f64>,
    rounds: u32,
}

impl Rates {
    const ROUNDS: u32 = 3;

    fn new(ar_tpot_us: f64) -> Self {
        Rates { plain: 1.0 / ar_tpot_us, by_shape: BTreeMap::new(), rounds: 0 }
    }

    fn of(&self, shape: &Shape) -> f64 {
        self.by_shape.get(shape).copied().unwrap_or(self.plain)
    }

    fn reached(&mut self, shape: Shape, rate: f64) {
        self.by_shape.insert(shape, rate);
    }

    /// Whether the replay just made is the last: at once where no step chooses by rate.
    fn are_found(&mut self, rule: RowRule) -> bool {
        self.rounds += 1;
        match rule {
            RowRule::Widest => true,
            RowRule::BestRate => self.rounds == Self::ROUNDS,
        }
    }
}

/// How steps choose their rows, and by which values.
struct Rows {
    rule: RowRule,
    calibration: Option<Calibration>,
}

/// What a prediction rests on.
struct Evidence<'a> {
    top_k: u32,
    draft_temperature: f32,
    row_choice: RowChoice,
    lengths: &'a AcceptedLengths,
    by_rank: Vec<f64>,
}

struct Search<'a> {
    profile: &'a Profile,
    table: &'a LatencyTable,
    context: u32,
    ar_tpot_us: f64,
}

impl Search<'_> {
    fn tree_drafter(&self, origin: &Origin<'_>, found: &mut Found) -> Result<(), PlanError> {
        let traces = self.traces_of(origin.name);
        let no_evidence =
            || PlanError::NoEvidence { drafter: origin.name.clone(), expected: "recorded steps" };
        let first = traces.first().ok_or_else(no_evidence)?;
        if traces.iter().all(|trace| trace.steps().next().is_none()) {
            return Err(no_evidence());
        }
        if let Some(other) = traces.iter().find(|t| t.draft_temperature != first.draft_temperature) {
            return Err(PlanError::DrafterParameters {
                drafter: origin.name.to_string(),
                expected: format!("one draft temperature, {}", first.draft_temperature),
                found: other.draft_temperature.to_string(),
            });
        }
        let top_k = traces.iter().map(|t| t.top_k).min().unwrap_or(0);
        let draft_temperature = first.draft_temperature;
        let verify_widths = self.table.widths(&Stage::Verify);
        let by_rank = acceptance_by_rank(&traces);
        let depths = 1..=traces.iter().map(|t| t.depth).min().unwrap_or(0);
        let pricing = self.pricing(origin.name);
        for draft_width in self.draft_widths(origin.name) {
            if origin.limits.draft_width.is_some_and(|fixed| fixed != draft_width) {
                continue;
            }
            let shapes = |depth| speculative(depth, draft_width, &verify_widths);
            for Rows { rule, calibration } in origin.rows(|| judge_trees(&traces, draft_width)) {
                let calibration = calibration.as_ref();
                let mut rates = Rates::new(self.ar_tpot_us);
                let replay = loop {
                    let choice =
                        |shape: Shape| pricing.tree_choice(&shape, rule, calibration, rates.of(&shape));
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
                        let stages = mean_step(steps_by_width, |w| pricing.tree_step(&shape, rule, w))?;
                        rates.reached(shape, lengths.aal() / step_us(&stages));
                    }
                };
                for shape in depths.clone().flat_map(|depth| origin.limits.admitted(shapes(depth))) {
                    let Shape { depth, verify_width, .. } = shape;
                    let lengths = match replay.accepted(depth, verify_width) {
                        Ok(lengths) => lengths,
                        Err(PlanError::IncompleteTrace { drafter: name, missing, .. }) => {
                            let refusal = Refusal { name, depth, draft_width, missing };
                            if !found.refused.contains(&refusal) {
                                found.refused.push(refusal);
                            }
                            continue;
                        }
                        Err(other) => return Err(other),
                    };
                    let steps_by_width = replay.steps_by_width(depth, verify_width)?;
                    let stages = mean_step(steps_by_width, |width| pricing.tree_step(&shape, rule, width))?;
                    let predicted = Prediction::new(lengths.aal(), stages, self.ar_tpot_us);
                    let row_choice = pricing.tree_choice(&shape, rule, calibration, rates.of(&shape))?;
                    let by_rank = by_rank.clone();
                    let evidence = Evidence { top_k, draft_temperature, row_choice, lengths, by_rank };
                    found.points.push(origin.point(shape, evidence, predicted));
                }
            }
        }
        Ok(())
    }

    fn pricing<'s>(&'s self, drafter: &'s DrafterName) -> Pricing<'s> {
        Pricing { table: self.table, drafter, context: self.context }
    }

    fn free_drafter(
        &self,
        origin: &Origin<'_>,
        free_drafters: &mut [FreeDrafter<'_>],
        found: &mut Found,
    ) -> Result<(), PlanError> {
        let drafter = free_drafters.iter_mut().find(|d| d.name == *origin.name);
        let FreeDrafter { name, drafter, depths, widths } =
            drafter.unwrap_or_else(|| panic!("drafter {} has no implementation to replay", origin.name));
        if self.profile.token_traces.iter().all(|request| request.output.len() < 2) {
            return Err(PlanError::NoEvidence {
                drafter: name.clone(),
                expected: "recorded requests of two output tokens or more",
            });
        }
        let fixed_or = |fixed: Option<u32>, open: &[u32]| fixed.map_or(open.to_vec(), |value| vec![value]);
        let verify_widths = self.table.widths(&Stage::Verify);
        let pricing = self.pricing(origin.name);
        let depths = fixed_or(origin.limits.depth, depths);
        let (deepest, widest) = (depths.iter().max(), verify_widths.iter().max());
        let (Some(deepest), Some(widest)) = (deepest, widest) else { return Ok(()) };
        for draft_width in fixed_or(origin.limits.draft_width, widths) {
            let largest = Shape { depth: *deepest, draft_width, verify_width: *widest };
            let requests = &self.profile.token_traces;
            let choices_of_rows = origin.rows(|| judge_proposals(requests, *drafter, &largest));
            let shapes = |depth: &u32| speculative(*depth, draft_width, &verify_widths);
            for shape in depths.iter().flat_map(|depth| origin.limits.admitted(shapes(depth))) {
                for Rows { rule, calibration } in &choices_of_rows {
                    let mut rates = Rates::new(self.ar_tpot_us);
                    let (row_choice, replay, predicted) = loop {
                        let rate = rates.of(&shape);
                        let row_choice = pricing.free_choice(&shape, *rule, calibration.as_ref(), rate)?;
                        let replay = FreeReplay::new(requests, *drafter, &shape, &row_choice);
                        let at = |width| pricing.free_step(&shape, *rule, width);
                        let stages = mean_step(replay.steps_by_width(), at)?;
                        let predicted = Prediction::new(replay.accepted().aal(), stages, self.ar_tpot_us);
                        if rates.are_found(*rule) {
                            break (row_choice, replay, predicted);
                        }
                        rates.reached(shape, 1.0 / predicted.tpot_us);
                    };
                    let evidence = Evidence {
                        top_k: 0,
                        draft_temperature: 1.0,
                        row_choice,
                        lengths: replay.accepted(),
                        by_rank: Vec::new(),
                    };
                    found.points.push(origin.point(shape, evidence, predicted));
                }
            }
        }
        Ok(())
    }

    fn traces_of(&self, name: &DrafterName) -> Vec<&Trace> {
        self.profile.traces.iter().filter(|trace| trace.drafter == *name).collect()
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
            let (depths, widths) = match free_drafters.iter().find(|d| d.name == *name) {
                Some(_) => ("any".to_owned(), "any".to_owned()),
                None => {
                    let depth = self.traces_of(name).iter().map(|t| t.depth).min().unwrap_or(0);
                    (format!("1 to {depth}"), format!("{:?}", self.draft_widths(name)))
                }
            };
            choices.push(format!("drafter={name} with Dd {depths}, Wd {widths}"));
        }
        let verify_widths = self.table.widths(&Stage::Verify);
        format!("{}; Wv {verify_widths:?}, from 2 to Dd * Wd + 1", choices.join(", "))
    }
}

/// The shapes of these growths with the verify widths that make sense for them: something drafted, nothing padded.
fn speculative(depth: u32, draft_width: u32, verify_widths: &[u32]) -> impl Iterator<Item = Shape> {
    let shape = move |verify_width: &u32| Shape { depth, draft_width, verify_width: *verify_width };
    let makes_sense =
        |shape: &Shape| shape.verify_width >= 2 && u64::from(shape.verify_width) <= shape.nodes();
    verify_widths.iter().map(shape).filter(makes_sense)
}

/// Larger speed-up first; of equals the smaller shape, then the one that chooses nothing, then the drafter named first.
fn best_first(a: &Point, b: &Point) -> Ordering {
    let key = |p: &Point| {
        let Shape { depth, draft_width, verify_width } = p.sub_plan.shape;
        let chooses = p.sub_plan.row_choice.rule == RowRule::BestRate;
        (verify_width, depth, draft_width, chooses, p.place)
    };
    let speedup = |p: &Point| p.sub_plan.predicted.speedup;
    speedup(b).total_cmp(&speedup(a)).then_with(|| key(a).cmp(&key(b)))
}

/// The best of points that come best first: that one, but where AAL is asked for the first of those with the largest.
fn best_of<'p>(mut points: impl Iterator<Item = &'p Point>, fix: &Fix) -> Option<&'p Point> {
    let first = points.next()?;
    let objective = if first.asked_for { fix.objective() } else { Objective::Speedup };
    match objective {
        Objective::Speedup => Some(first),
        Objective::Aal => {
            let aal = |point: &Point| point.sub_plan.predicted.aal;
            Some(points.fold(first, |best, point| if aal(point) > aal(best) { point } else { best }))
        }
    }
}

/// What to run, given the points best first; `None` if the fix leaves nothing.
fn choose(points: &[Point], fix: &Fix) -> Option<Choice> {
    if fix.is_plain() {
        return Some(Choice::Plain);
    }
    let best = best_of(points.iter().filter(|point| point.asked_for), fix);
    if fix.asks_for_speculation() {
        return best.map(|point| Choice::Drafter(point.place));
    }
    match best {
        Some(point) if point.sub_plan.predicted.speedup >= 1.0 + NOISE_MARGIN => {
            Some(Choice::Drafter(point.place))
        }
        Some(_) | None => Some(Choice::Plain),
    }
}

fn plain_sub_plan(table: &LatencyTable, context: u32) -> Result<SubPlan, PlanError> {
    let stages = plain_step(table, context)?;
    let ar_tpot_us = stages.iter().map(|stage| stage.us).sum();
    Ok(SubPlan {
        name: DrafterName::new("none").expect("`none` is a drafter name"),
        drafter: DrafterKind::None,
        shape: Shape::PLAIN,
        top_k: 0,
        draft_temperature: 1.0,
        row_choice: RowChoice::fixed(1, ar_tpot_us),
        predicted: Prediction::new(1.0, stages, ar_tpot_us),
        acceptance: Acceptance::default(),
    })
}

/// The context that all drafters are compared at: the mean of the recorded steps, else of the recorded requests, else the
/// shortest measured.
fn reference_context(profile: &Profile, table: &LatencyTable) -> u32 {
    let mean = |contexts: Vec<u64>| {
        let count = contexts.len() as u64;
        let sum: u64 = contexts.into_iter().sum();
        (sum + count / 2).checked_div(count).map(|mean| u32::try_from(mean).unwrap_or(u32::MAX))
    };
    let steps = profile.traces.iter().flat_map(Trace::steps).map(|step| u64::from(step.context)).collect();
    let requests =
        profile.token_traces.iter().map(|t| (t.prompt.len() + t.output.len() / 2) as u64).collect();
    mean(steps).or_else(|| mean(requests)).unwrap_or_else(|| table.contexts()[0])
}

/// The widths that the sub-plans run: those their steps may choose among, and of their growths.
fn planned_widths(by_drafter: &[SubPlan]) -> PlannedWidths {
    let mut verify = BTreeSet::from([1]);
    let mut draft = BTreeSet::from([1]);
    for SubPlan { drafter, shape, row_choice, .. } in by_drafter {
        verify.extend(row_choice.widths.iter().map(|cost| cost.width));
        if drafter.runs_a_model() {
            draft.insert(shape.draft_width);
        }
    }
    PlannedWidths { verify: verify.into_iter().collect(), draft: draft.into_iter().collect() }
}

fn alternatives(plain: &SubPlan, points: &[Point]) -> Vec<Alternative> {
    let alternative = |plan: &SubPlan| Alternative {
        name: plan.name.clone(),
        shape: plan.shape,
        rule: plan.row_choice.rule,
        aal: plan.predicted.aal,
        step_us: plan.predicted.step_us,
        speedup: plan.predicted.speedup,
    };
    let mut best: Vec<Alternative> =
        points.iter().take(ALTERNATIVES).map(|point| alternative(&point.sub_plan)).collect();
    let place = best.partition_point(|other| other.speedup > plain.predicted.speedup);
    best.insert(place, alternative(plain));
    best.truncate(ALTERNATIVES);
    best
}
