//! What a plan takes of the points that were priced: the best of every drafter, what to run, and what is kept of the
//! rest.
use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
};

use ygg_profiler::DepthPredictor;

use crate::plan::{
    Alternative, DepthRule, LeftOut, PlannedPredictor, PlannedWidths, Refusal, RowRule, Schedule, Shape,
    SubPlan, Unseen,
};
use crate::planner::{
    Fix, Objective,
    judge::{
        point::{NOISE_MARGIN, Point},
        unseen::is_tie,
    },
};

/// The best shape of a drafter, judged by other prompts than chose it.
pub(in crate::planner) struct Best<'p> {
    pub(in crate::planner) point: &'p Point,
    pub(in crate::planner) unseen: Unseen,
}

/// What the search found.
#[derive(Default)]
pub(in crate::planner) struct Found {
    pub(in crate::planner) points: Vec<Point>,
    /// The best speed-up of steps whose depth is predicted, by place of the drafter, planned or not.
    pub(in crate::planner) predicted_depth_speedups: BTreeMap<usize, f64>,
    pub(in crate::planner) refused: Vec<Refusal>,
}

impl Found {
    /// Adds what was found of another drafter.
    pub(in crate::planner) fn append(&mut self, of_drafter: Found) {
        let Found { points, predicted_depth_speedups, refused } = of_drafter;
        self.points.extend(points);
        self.predicted_depth_speedups.extend(predicted_depth_speedups);
        self.refused.extend(refused);
    }
}

/// What is to run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::planner) enum Choice {
    Plain,
    Drafter(usize),
}

/// The best of every drafter at one temperature, before one of them is chosen.
pub(in crate::planner) struct Judged {
    /// Best first.
    pub(in crate::planner) points: Vec<Point>,
    /// Places among the points.
    pub(in crate::planner) best: Vec<(usize, Unseen)>,
    pub(in crate::planner) predicted_depth_speedups: BTreeMap<usize, f64>,
    pub(in crate::planner) refused: Vec<Refusal>,
    pub(in crate::planner) left_out: Vec<LeftOut>,
}

impl Judged {
    pub(in crate::planner) fn best(&self) -> impl Iterator<Item = Best<'_>> {
        self.best.iter().map(|(place, unseen)| Best { point: &self.points[*place], unseen: *unseen })
    }

    /// As [`choose`], among drafters that need no substitute but the one of these bits; among all if `None`.
    pub(in crate::planner) fn choose(&self, bits: Option<u32>, fix: &Fix) -> Option<Choice> {
        let has_weights = |best: &Best<'_>| {
            let own = substitute_bits(best.point);
            bits.is_none() || own.is_none() || own == bits
        };
        choose(&self.best().filter(has_weights).collect::<Vec<_>>(), fix)
    }

    /// Time of a token of a choice to expect on other prompts, as a share of that of plain decoding.
    fn cost(&self, choice: Choice) -> f64 {
        match choice {
            Choice::Plain => 1.0,
            Choice::Drafter(place) => {
                let chosen = self.best().find(|best| best.point.place == place);
                1.0 / chosen.expect("the best of a drafter was chosen").unseen.speedup
            }
        }
    }
}

fn substitute_bits(point: &Point) -> Option<u32> {
    point.sub_plan.drafter.facts().substitute_bits
}

/// The bits of the one substitute for all of these temperatures: those with which the choices take the least time per
/// token in sum. Bits with which the fix leaves a temperature without a choice, above all the first, come after all
/// others; of equals the fewest are taken. `None` if no drafter has a substitute.
pub(in crate::planner) fn shared_substitute(all: &[Judged], fix: &Fix) -> Option<u32> {
    let bits: BTreeSet<u32> =
        all.iter().flat_map(Judged::best).filter_map(|best| substitute_bits(best.point)).collect();
    let cost = |bits: u32| {
        let chosen: Vec<Option<Choice>> = all.iter().map(|judged| judged.choose(Some(bits), fix)).collect();
        let without = chosen.iter().filter(|choice| choice.is_none()).count();
        let costs = all.iter().zip(&chosen).filter_map(|(judged, choice)| Some(judged.cost((*choice)?)));
        (chosen.first().is_some_and(Option::is_none), without, costs.sum::<f64>())
    };
    let costs = bits.into_iter().map(|bits| (bits, cost(bits)));
    let cheaper = |a: &(u32, (bool, usize, f64)), b: &(u32, (bool, usize, f64))| {
        (a.1.0, a.1.1).cmp(&(b.1.0, b.1.1)).then(a.1.2.total_cmp(&b.1.2))
    };
    costs.min_by(cheaper).map(|(bits, _)| bits)
}

/// Larger speed-up first, of equal ones the simpler.
pub(in crate::planner) fn best_first(a: &Point, b: &Point) -> Ordering {
    let speedup = |p: &Point| p.sub_plan.first().predicted.speedup;
    speedup(b).total_cmp(&speedup(a)).then_with(|| simplest_first(a, b))
}

/// The smaller shape first, then fewer choices per step, then the simpler schedule, then the drafter named first.
fn simplest_first(a: &Point, b: &Point) -> Ordering {
    let key = |p: &Point| {
        let Shape { depth, draft_width, verify_width } = p.sub_plan.shape();
        let chooses_rows = p.sub_plan.row_rule() == RowRule::BestRate;
        let chooses_depth = p.sub_plan.depth_rule() == DepthRule::Predicted;
        (
            verify_width,
            depth,
            draft_width,
            chooses_depth,
            chooses_rows,
            // A value as it was recorded before a sharper one.
            std::cmp::Reverse(p.sub_plan.draft_temperature.to_bits()),
            p.sub_plan.growth.rule(),
            p.sub_plan.schedule,
            p.place,
        )
    };
    key(a).cmp(&key(b))
}

/// The best point of a drafter, given all points best first. By speed, the simplest of those that the prompts do not
/// tell from the fastest; another schedule than the plain one has to gain more than noise over it, and a predicted
/// depth over a fixed one and over plain decoding, which it comes to where it keeps steps from drafting.
pub(in crate::planner) fn best_of<'p>(points: &'p [Point], place: usize, fix: &Fix) -> Option<&'p Point> {
    let all = || points.iter().filter(move |point| point.place == place);
    let objective = if all().next()?.asked_for { fix.objective() } else { Objective::Speedup };
    match objective {
        Objective::Speedup => {
            let speedup = |point: &Point| point.sub_plan.first().predicted.speedup;
            let is_fixed = |point: &&Point| point.sub_plan.depth_rule() == DepthRule::Fixed;
            let least =
                all().find(is_fixed).map_or(0.0, |fixed| (1.0 + NOISE_MARGIN) * speedup(fixed).max(1.0));
            let own = || all().filter(|point| is_fixed(point) || speedup(point) >= least);
            let best = own().next()?;
            let plain = own().find(|point| point.sub_plan.schedule == Schedule::Plain);
            let close = plain.filter(|plain| speedup(best) < (1.0 + NOISE_MARGIN) * speedup(plain));
            let best = close.unwrap_or(best);
            let of_schedule = own().filter(|point| point.sub_plan.schedule == best.sub_plan.schedule);
            let as_good = of_schedule.filter(|point| std::ptr::eq(*point, best) || is_tie(best, point));
            as_good.min_by(|a, b| simplest_first(a, b))
        }
        Objective::Aal => largest_aal(all()),
    }
}

/// Of points that come best first, the first of those with the most tokens per step.
fn largest_aal<'p>(mut points: impl Iterator<Item = &'p Point>) -> Option<&'p Point> {
    let first = points.next()?;
    let aal = |point: &Point| point.sub_plan.first().predicted.aal;
    Some(points.fold(first, |best, point| if aal(point) > aal(best) { point } else { best }))
}

/// What to run, given the best of every drafter: the one that other prompts should gain most by, if the gain is beyond
/// doubt; `None` if the fix leaves nothing.
pub(in crate::planner) fn choose(all: &[Best<'_>], fix: &Fix) -> Option<Choice> {
    if fix.is_plain() {
        return Some(Choice::Plain);
    }
    let mut asked: Vec<&Best<'_>> = all.iter().filter(|best| best.point.asked_for).collect();
    asked.sort_by(|a, b| {
        b.unseen.speedup.total_cmp(&a.unseen.speedup).then_with(|| best_first(a.point, b.point))
    });
    if fix.asks_for_speculation() {
        let best = match fix.objective() {
            Objective::Speedup => asked.first().map(|best| best.point),
            Objective::Aal => largest_aal(asked.iter().map(|best| best.point)),
        };
        return best.map(|point| Choice::Drafter(point.place));
    }
    let gains = asked.iter().find(|best| best.unseen.is_gain());
    Some(gains.map_or(Choice::Plain, |best| Choice::Drafter(best.point.place)))
}

/// The widths that the sub-plans run: those their steps may choose among, and of their growths and heads drafted ahead.
pub(in crate::planner) fn planned_widths<'a>(sub_plans: impl Iterator<Item = &'a SubPlan>) -> PlannedWidths {
    let mut verify = BTreeSet::from([1]);
    let mut draft = BTreeSet::from([1]);
    for sub_plan in sub_plans {
        let costs = || sub_plan.ranges.iter().flat_map(|range| &range.row_choice.widths);
        let widths = || costs().map(|cost| cost.width);
        verify.extend(widths());
        if sub_plan.drafter.runs_a_model() {
            draft.extend(sub_plan.growth.draft_widths(&sub_plan.shape()));
        }
        if sub_plan.schedule.drafts_ahead() {
            draft.extend(widths());
        }
    }
    PlannedWidths { verify: verify.into_iter().collect(), draft: draft.into_iter().collect() }
}

/// Every trained predictor with what it gains, with its weights where a sub-plan goes by them. Points are best first.
pub(in crate::planner) fn predictors(
    trained: &[DepthPredictor],
    points: &[Point],
    predicted_depth_speedups: &BTreeMap<usize, f64>,
    by_drafter: &[SubPlan],
) -> Vec<PlannedPredictor> {
    let planned = |trained: &DepthPredictor| {
        let name = &trained.drafter;
        let is_fixed = |p: &&Point| p.sub_plan.name == *name && p.sub_plan.depth_rule() == DepthRule::Fixed;
        let goes_by_it = |plan: &SubPlan| plan.name == *name && plan.depth_rule() == DepthRule::Predicted;
        let place = points.iter().find(|p| p.sub_plan.name == *name).map(|p| p.place);
        PlannedPredictor {
            name: name.clone(),
            report: trained.report.clone(),
            fixed_speedup: points.iter().find(is_fixed).map(|point| point.sub_plan.first().predicted.speedup),
            told_speedup: place.and_then(|place| predicted_depth_speedups.get(&place).copied()),
            network: by_drafter.iter().any(goes_by_it).then(|| trained.network.clone()),
        }
    };
    trained.iter().map(planned).collect()
}

/// All points, best first, plain decoding among them: before it only what is predicted faster. Of points that differ in
/// the temperature of their values alone the best, and that of a sub-plan.
pub(in crate::planner) fn alternatives(by_drafter: &[SubPlan], points: &[Point]) -> Vec<Alternative> {
    let key = |plan: &SubPlan| {
        let Shape { depth, draft_width, verify_width } = plan.shape();
        let chooses = (plan.row_rule() == RowRule::BestRate, plan.depth_rule() == DepthRule::Predicted);
        (plan.name.clone(), [depth, draft_width, verify_width], plan.growth.rule(), plan.schedule, chooses)
    };
    let temperature = |plan: &SubPlan| plan.draft_temperature.to_bits();
    let planned: BTreeMap<_, _> = by_drafter.iter().map(|plan| (key(plan), temperature(plan))).collect();
    let mut best = BTreeMap::new();
    let points: Vec<&Point> = points
        .iter()
        .filter(|point| {
            let (own, at) = (key(&point.sub_plan), temperature(&point.sub_plan));
            planned.get(&own) == Some(&at) || *best.entry(own).or_insert(at) == at
        })
        .collect();
    let alternative = |plan: &SubPlan| {
        let place = by_drafter.iter().position(|best| best.name == plan.name);
        Alternative {
            drafter: place
                .and_then(|place| u16::try_from(place).ok())
                .expect("few drafters, each with its best"),
            shape: plan.shape(),
            growth: plan.growth.rule(),
            schedule: plan.schedule,
            depth_rule: plan.depth_rule(),
            rule: plan.row_rule(),
            aal: plan.first().predicted.aal,
            step_us: plan.first().predicted.step_us,
        }
    };
    let plain = &by_drafter[0];
    let place = points
        .partition_point(|point| point.sub_plan.first().predicted.speedup > plain.first().predicted.speedup);
    let (faster, slower) = points.split_at(place);
    let plans = faster.iter().map(|point| &point.sub_plan).chain([plain]);
    plans.chain(slower.iter().map(|point| &point.sub_plan)).map(alternative).collect()
}
