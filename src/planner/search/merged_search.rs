//! The search of mixtures with a model: the shape that is best for the model alone, and what is better about it where
//! copies share the tree.
//!
//! A step of a mixture depends on those before it, by what its drafters are trusted with, so every shape is replayed by
//! itself ([`MergedReplay`]). From the model's own best shape one setting after another is moved as long as that pays:
//! coordinate descent, since the price is flat about its least and each setting says little of the others.
use std::collections::BTreeMap;

use ygg_profiler::{DrafterName, TableError, Trace};

use crate::plan::{
    Calibration, DepthChoice, DepthRule, DrafterKind, GrowthChoice, GrowthRule, MixedModel, ReplayDrafter,
    RowChoice, RowRule, Schedule, Shape, Stage, StageTime, SubPlan, WidthCost, step_us,
};
use crate::planner::{
    Fix, FreeDrafter, MOST_MISSING, SearchError, acceptance_by_rank,
    judge::{
        point::Point,
        selection::{Found, best_first, best_of},
    },
    price::{objective::stage_us, pricing::TreePrices},
    replay::{
        grown_trees::GrownTrees,
        merged_replay::{MergedReplay, MergedStep},
        sharpening::{sharpened, temperatures},
    },
    search::origin::{Evidence, Origin, Search, speculative},
};

/// How certain copies must be for the model to be left out, in percent: from what is hardly likelier than not to what
/// never fails.
const CERTAIN: [u32; 4] = [40, 60, 80, 95];
/// Rounds of descent: the second moves little.
const ROUNDS: usize = 3;
/// Worse values of a setting in a row that are passed: latencies are noisy, and six rows that seem dear must not hide
/// eight that pay.
const PASSED: usize = 1;
/// Most shapes that are replayed, each in some ten milliseconds.
const MOST_SHAPES: usize = 72;

/// A setting that is searched: what it may be, ascending but for temperatures.
const AXES: usize = 6;
const TEMPERATURE: usize = 0;
const DRAFT_WIDTH: usize = 1;
const GROWTHS: usize = 2;
const DEPTH: usize = 3;
const VERIFY_WIDTH: usize = 4;
const CERTAINTY: usize = 5;
/// In which order settings are moved: those that copies change most first.
const ORDER: [usize; AXES] = [CERTAINTY, DEPTH, VERIFY_WIDTH, GROWTHS, DRAFT_WIDTH, TEMPERATURE];

/// A place among the values of each setting.
type Place = [usize; AXES];

/// What is searched of one mixture.
struct MergedSpace<'s> {
    search: &'s Search<'s>,
    origin: &'s Origin<'s>,
    /// The model's drafter.
    model: &'s DrafterName,
    copies: &'s mut [Box<dyn ReplayDrafter>],
    rule: RowRule,
    calibration: Option<Calibration>,
    /// The recorded traces at each temperature of values.
    traces: &'s [(f32, Vec<Trace>)],
    /// By place of temperature and draft width.
    grown: BTreeMap<(usize, u32), GrownTrees<'s>>,
    values: [Vec<u32>; AXES],
    top_k: u32,
    by_rank: Vec<f64>,
    /// What time is worth, and in which share of the steps the model is run, by the best shape so far.
    rate: f64,
    run_share: f64,
    speedups: BTreeMap<Place, f64>,
    points: Vec<Point>,
}

/// The settings at a place.
#[derive(Debug, Clone, Copy)]
struct Settings {
    shape: Shape,
    growths: u32,
    certain_percent: u32,
}

impl Search<'_> {
    /// A mixture with a model. At a longer context than was recorded its growths and its certainty are those of the
    /// first context.
    ///
    /// # Errors
    /// [`SearchError::NoEvidence`] where its model's drafter has no recorded steps or latencies.
    ///
    /// # Panics
    /// Without its implementation.
    pub(in crate::planner) fn merged_drafter(
        &self,
        origin: &Origin<'_>,
        free_drafter: Option<&mut FreeDrafter<'_>>,
        found: &mut Found,
    ) -> Result<(), SearchError> {
        let FreeDrafter { drafter, depths, .. } =
            free_drafter.unwrap_or_else(|| panic!("drafter {} has no implementation to replay", origin.name));
        let mixed = origin.kind.mixed_model().expect("a mixture with a model");
        let is_open = origin.limits.admits_rule(DepthRule::Fixed)
            && origin.limits.admits_schedule(Schedule::Plain)
            && !origin.limits.growth().is_static();
        if !is_open {
            return Ok(());
        }
        let kind = mixed.kind();
        let lacks = || SearchError::NoEvidence {
            drafter: origin.name.clone(),
            expected: "recorded steps and latencies of the drafter that runs its model",
        };
        let model = self.name_of(&kind).ok_or_else(lacks)?;
        let has_copies = !self.table.widths(&Stage::Draft(origin.name.clone())).is_empty();
        if self.traces_of(model).is_empty() || !has_copies {
            return Err(lacks());
        }
        let Some(seed) = self.best_alone(origin, (model, &kind)).map_err(|error| match error {
            SearchError::NoEvidence { .. } => lacks(),
            other => other,
        })?
        else {
            return Ok(());
        };
        let recorded = self.traces_of(model);
        let mut all = temperatures(&kind, recorded[0].draft_temperature);
        all.retain(|temperature| origin.draft_temperature.is_none_or(|fixed| fixed == *temperature));
        let at = |t: f32| (t, recorded.iter().map(|trace| sharpened(trace, t)).collect::<Vec<_>>());
        let traces: Vec<(f32, Vec<Trace>)> = all.into_iter().map(at).collect();
        for rule in origin.limits.row_rules() {
            let copies = drafter.parts();
            let mut space =
                MergedSpace::new((self, origin), (model, mixed), copies, &traces, (*rule, depths));
            space.descend(&seed)?;
            found.points.extend(space.best_of_shapes());
        }
        Ok(())
    }

    /// The best shape of the model's drafter alone, of those that a step of the mixture may have.
    fn best_alone(
        &self,
        origin: &Origin<'_>,
        (name, kind): (&DrafterName, &DrafterKind),
    ) -> Result<Option<SubPlan>, SearchError> {
        let limits = Fix {
            draft_width: origin.limits.draft_width,
            rows: origin.limits.rows,
            depth_rule: Some(DepthRule::Fixed),
            growth: Some(GrowthRule::Equal),
            schedule: Some(Schedule::Plain),
            ..Fix::default()
        };
        let (schedules, asked_for) = (vec![Schedule::Plain], false);
        let (known_share, limits) = (self.known_share(name, kind), &limits);
        let alone = Origin { name, kind, limits, schedules, known_share, asked_for, ..*origin };
        let mut found = Found::default();
        self.tree_drafter(&alone, &mut found)?;
        found.points.sort_by(best_first);
        Ok(best_of(&found.points, origin.place, limits).map(|point| point.sub_plan.clone()))
    }
}

impl<'s> MergedSpace<'s> {
    fn new(
        (search, origin): (&'s Search<'s>, &'s Origin<'s>),
        (model, mixed): (&'s DrafterName, &MixedModel),
        copies: &'s mut [Box<dyn ReplayDrafter>],
        traces: &'s [(f32, Vec<Trace>)],
        (rule, depths): (RowRule, &[u32]),
    ) -> Self {
        let all = || traces.iter().flat_map(|(_, traces)| traces);
        let deepest = all().map(|trace| trace.depth).min().unwrap_or(0);
        let top_k = all().map(|trace| trace.top_k).min().unwrap_or(0);
        // Contexts longer than recorded ones change what rows cost, and one drafter serves them all.
        let is_settled = origin.draft_temperature.is_some();
        let growths = if is_settled { vec![mixed.growths] } else { (1..=deepest).collect() };
        let certain = if is_settled { vec![mixed.certain_percent] } else { CERTAIN.to_vec() };
        // Copies cost no more where they are deeper, so a tie is not broken in favour of shallow ones.
        let all_depths = depths.iter().copied().filter(|depth| *depth >= deepest).collect();
        let mut draft_widths = search.draft_widths(model);
        draft_widths.retain(|width| origin.limits.draft_width.is_none_or(|fixed| fixed == *width));
        let mut values: [Vec<u32>; AXES] = Default::default();
        values[TEMPERATURE] = (0..traces.len()).filter_map(|place| u32::try_from(place).ok()).collect();
        values[DRAFT_WIDTH] = draft_widths;
        values[GROWTHS] = growths;
        values[DEPTH] = origin.limits.depth.map_or(all_depths, |fixed| vec![fixed]);
        values[VERIFY_WIDTH] = search.pricing(model).tree_widths(Schedule::Plain);
        values[CERTAINTY] = certain;
        let by_rank = acceptance_by_rank(&search.traces_of(model));
        Self {
            search,
            origin,
            model,
            copies,
            rule,
            calibration: None,
            traces,
            grown: BTreeMap::new(),
            values,
            top_k,
            by_rank,
            rate: 1.0 / search.ar_tpot_us,
            run_share: 1.0,
            speedups: BTreeMap::new(),
            points: Vec::new(),
        }
    }

    fn settings(&self, place: &Place) -> Settings {
        let value = |axis: usize| self.values[axis][place[axis]];
        let shape =
            Shape { depth: value(DEPTH), draft_width: value(DRAFT_WIDTH), verify_width: value(VERIFY_WIDTH) };
        Settings { shape, growths: value(GROWTHS), certain_percent: value(CERTAINTY) }
    }

    /// The model's trees at a place.
    fn grown(&mut self, place: &Place) -> &GrownTrees<'s> {
        let (temperature, draft_width) = (place[TEMPERATURE], self.settings(place).shape.draft_width);
        let is_bound = self.search.is_trimmed_from_whole(self.model);
        let traces = self.traces;
        self.grown.entry((temperature, draft_width)).or_insert_with(|| {
            let recorded: Vec<&Trace> = traces[temperature].1.iter().collect();
            GrownTrees::new(&recorded, draft_width).bounded_below(is_bound)
        })
    }

    /// Whether steps may go like this: the model's tree within the common one, a shape that the fix admits, and enough
    /// recorded of its nodes.
    fn is_open(&mut self, place: &Place) -> bool {
        let Settings { shape, growths, .. } = self.settings(place);
        let shapes = speculative(shape.depth, shape.draft_width, &self.values[VERIFY_WIDTH]);
        growths <= shape.depth
            && shape.draft_width <= self.top_k
            && self.origin.limits.admitted(shapes).contains(&shape)
            && self
                .grown(place)
                .missing()
                .get(growths as usize - 1)
                .is_some_and(|share| *share <= MOST_MISSING)
    }

    /// The open place that is nearest to the shape of a sub-plan of the model alone, with copies somewhat deeper;
    /// `None` if none is open.
    fn begin(&mut self, seed: &SubPlan) -> Option<Place> {
        let Shape { depth, draft_width, verify_width } = seed.shape();
        let temperature = self.traces.iter().position(|(t, _)| *t == seed.draft_temperature).unwrap_or(0);
        let least = |axis: usize, at_least: u32| {
            let values = &self.values[axis];
            values.iter().position(|value| *value >= at_least).unwrap_or(values.len().saturating_sub(1))
        };
        let mut wanted: Place = [0; AXES];
        wanted[TEMPERATURE] = temperature;
        wanted[DRAFT_WIDTH] = least(DRAFT_WIDTH, draft_width);
        wanted[GROWTHS] = least(GROWTHS, depth);
        wanted[DEPTH] = least(DEPTH, depth + 1);
        wanted[VERIFY_WIDTH] = least(VERIFY_WIDTH, verify_width);
        wanted[CERTAINTY] = self.values[CERTAINTY].len() / 2;
        let mut all: Vec<Place> = vec![[0; AXES]];
        for axis in 0..AXES {
            let values = 0..self.values[axis].len();
            all = all
                .iter()
                .flat_map(|p| {
                    values.clone().map(|at| {
                        let mut p = *p;
                        p[axis] = at;
                        p
                    })
                })
                .collect();
        }
        let distance = |place: &Place| place.iter().zip(&wanted).map(|(a, b)| a.abs_diff(*b)).sum::<usize>();
        all.sort_by_key(distance);
        all.into_iter().find(|place| self.is_open(place))
    }

    /// Replays shapes from that of the model alone on, until none near it is better.
    fn descend(&mut self, seed: &SubPlan) -> Result<(), SearchError> {
        let Some(mut best) = self.begin(seed) else { return Ok(()) };
        if self.rule == RowRule::BestRate {
            self.rate = 1.0 / seed.first().predicted.tpot_us;
            let Settings { shape, growths, certain_percent } = self.settings(&best);
            let requests = &self.search.recorded.requests;
            let _made = self.grown(&best);
            let grown = &self.grown[&(best[TEMPERATURE], shape.draft_width)];
            let replay = MergedReplay { requests, grown, shape, growths, certain_percent };
            // By worths, which are probabilities already, so those of one shape are as good for another.
            self.calibration = Calibration::fit(&replay.judged(self.copies));
            if self.calibration.is_none() {
                return Ok(());
            }
        }
        let reached = self.speedup(&best)?;
        best = climbed((best, reached), |at, axis, up| {
            let next = self.neighbour(at, axis, up);
            next.map(|next| self.speedup(&next).map(|value| (next, value))).transpose()
        })?;
        // Once more by what time is worth and how often the model is run at the best itself.
        self.speedups.remove(&best);
        self.speedup(&best)?;
        Ok(())
    }

    /// The next open place along a setting; `None` at its end, or where enough shapes were replayed.
    fn neighbour(&mut self, place: &Place, axis: usize, up: bool) -> Option<Place> {
        let mut next = *place;
        next[axis] = if up { next[axis] + 1 } else { next[axis].checked_sub(1)? };
        let is_there = next[axis] < self.values[axis].len() && self.speedups.len() < MOST_SHAPES;
        (is_there && self.is_open(&next)).then_some(next)
    }

    /// The predicted speed-up at a place, replayed once.
    fn speedup(&mut self, place: &Place) -> Result<f64, SearchError> {
        if let Some(known) = self.speedups.get(place) {
            return Ok(*known);
        }
        let point = self.point(place)?;
        let speedup = point.sub_plan.first().predicted.speedup;
        if self.speedups.values().all(|other| *other < speedup) {
            self.rate = 1.0 / point.sub_plan.first().predicted.tpot_us;
        }
        self.speedups.insert(*place, speedup);
        self.points.push(point);
        Ok(speedup)
    }

    /// Replays and prices the steps at a place.
    fn point(&mut self, place: &Place) -> Result<Point, SearchError> {
        let Settings { shape, growths, certain_percent } = self.settings(place);
        let _made = self.grown(place);
        let Self { search, origin, model, rule, .. } = *self;
        let pricing = search.pricing(model);
        let prices = TreePrices::new(pricing, shape.draft_width, Schedule::Plain, rule);
        let copying = Stage::Draft(origin.name.clone());
        let stages_at = |(width, is_model_run): MergedStep| -> Result<Vec<StageTime>, TableError> {
            if !is_model_run {
                return search.pricing(origin.name).free_step(&shape, Schedule::Plain, rule, width);
            }
            let us = stage_us(search.table, &copying, 1, search.context)?.unwrap_or(0.0);
            let copied = StageTime { stage: copying.clone(), us };
            Ok([vec![copied], prices.step(growths, width)?].concat())
        };
        let share = self.run_share;
        let cost = |width: u32| {
            let (with, without) = (step_us(&stages_at((width, true))?), step_us(&stages_at((width, false))?));
            Ok(WidthCost { width, step_us: share * with + (1.0 - share) * without })
        };
        // Where the model is left out, a tree may be of any size.
        let widths = pricing.verify_widths(Schedule::Plain, shape.verify_width);
        let widths = widths.into_iter().map(cost).collect::<Result<Vec<_>, TableError>>()?;
        let row_choice = RowChoice { rule, widths, rate: self.rate, calibration: self.calibration.clone() };
        let requests = &search.recorded.requests;
        let grown = &self.grown[&(place[TEMPERATURE], shape.draft_width)];
        let replay = MergedReplay { requests, grown, shape, growths, certain_percent };
        let tally = replay.tally(self.copies, &row_choice);
        if tally.accepted().steps() == 0 {
            return Err(SearchError::NoEvidence {
                drafter: origin.name.clone(),
                expected: "recorded requests with steps of its model's drafter",
            });
        }
        let run: u64 = tally.steps().iter().filter(|((_, is_run), _)| *is_run).map(|(_, steps)| steps).sum();
        self.run_share = run as f64 / tally.accepted().steps() as f64;
        let priced = tally.priced(search.ar_tpot_us, stages_at)?;
        let evidence = Evidence {
            growth: GrowthChoice::Equal,
            schedule: Schedule::Plain,
            top_k: self.top_k,
            draft_temperature: self.traces[place[TEMPERATURE]].0,
            depth_choice: DepthChoice::Fixed,
            row_choice,
            lengths: tally.accepted(),
            by_rank: self.by_rank.clone(),
        };
        let mut point = origin.point(shape, evidence, priced);
        if let DrafterKind::Mixed(mixture) = point.sub_plan.drafter {
            point.sub_plan.drafter = mixture.with_model_steps(growths, certain_percent).into();
        }
        Ok(point)
    }

    /// Of points of one shape the best: plans tell shapes apart, not what else was set.
    fn best_of_shapes(mut self) -> Vec<Point> {
        self.points.sort_by(best_first);
        let mut known: Vec<Shape> = Vec::new();
        self.points.retain(|point| {
            let shape = point.sub_plan.shape();
            let is_new = !known.contains(&shape);
            known.push(shape);
            is_new
        });
        self.points
    }
}

/// The best place that is found from `begin` on, of which the value is known. `next` gives the neighbour of a place along
/// a setting, up or down, with its value; nothing at the end.
fn climbed<E>(
    begin: (Place, f64),
    mut next: impl FnMut(&Place, usize, bool) -> Result<Option<(Place, f64)>, E>,
) -> Result<Place, E> {
    let (mut best, mut reached) = begin;
    for _ in 0..ROUNDS {
        let before = best;
        for axis in ORDER {
            for up in [true, false] {
                let (mut at, mut worse) = (best, 0);
                while worse <= PASSED
                    && let Some((there, value)) = next(&at, axis, up)?
                {
                    at = there;
                    if value > reached {
                        (best, reached, worse) = (there, value, 0);
                    } else {
                        worse += 1;
                    }
                }
            }
        }
        if best == before {
            break;
        }
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    /// Where a search along the rows ends, by the values of each number of them, from the first on.
    fn rows_found(values: &[f64]) -> usize {
        let begin = ([0; AXES], values[0]);
        let found = climbed::<Infallible>(begin, |at, axis, up| {
            let mut next = *at;
            let moved = if up { Some(next[axis] + 1) } else { next[axis].checked_sub(1) };
            let Some(place) = moved.filter(|place| axis == VERIFY_WIDTH && *place < values.len()) else {
                return Ok(None);
            };
            next[axis] = place;
            Ok(Some((next, values[place])))
        });
        found.expect("nothing fails")[VERIFY_WIDTH]
    }

    #[test]
    fn one_worse_value_hides_none_that_are_better() {
        assert_eq!(rows_found(&[1.0, 1.2, 1.4, 1.3]), 2);
        assert_eq!(rows_found(&[1.0, 0.9, 1.1, 1.05, 1.2]), 4);
        assert_eq!(rows_found(&[1.0, 0.9, 0.9, 1.5]), 0, "two in a row end it");
    }
}
