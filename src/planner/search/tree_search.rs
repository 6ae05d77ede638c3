//! The search of drafters that run a model: every measured draft width, depth and verify width of their trees, under
//! every schedule and rule of rows that the fix leaves open.
use std::ops::RangeInclusive;

use ygg_profiler::Trace;

use crate::plan::{
    Calibration, DepthChoice, DepthRule, GrowthChoice, GrowthRule, PlanError, Prediction, Refusal, RowChoice,
    Schedule, Shape,
};
use crate::planner::{
    AcceptedLengths, SearchError, TreeReplay, acceptance_by_rank,
    judge::selection::Found,
    price::{
        pricing::{Choosing, TreePrices},
        rates::Rates,
        stages::Tail,
        tally::Priced,
    },
    replay::{
        grown_trees::{GrownTrees, ValuedTrees},
        sharpening::{sharpened, temperatures},
    },
    search::{
        depth_search::{DepthSearch, ReplayedDepths},
        origin::{Evidence, Origin, Rows, Search, speculative},
    },
};

/// The recorded trees of one drafter, and how they were drafted.
pub(in crate::planner) struct RecordedTrees<'a> {
    pub(in crate::planner) traces: Vec<&'a Trace>,
    draft_temperature: f32,
    /// Whether values are the recorded ones.
    is_as_recorded: bool,
    pub(in crate::planner) top_k: u32,
    /// Depth of the shallowest recording.
    pub(in crate::planner) deepest: u32,
    /// Share of candidates of each rank that are accepted.
    pub(in crate::planner) by_rank: Vec<f64>,
}

impl RecordedTrees<'_> {
    /// What predictions of equally growing trees rest on.
    pub(in crate::planner) fn evidence<'l>(
        &self,
        schedule: Schedule,
        depth_choice: DepthChoice,
        row_choice: RowChoice,
        lengths: &'l AcceptedLengths,
    ) -> Evidence<'l> {
        let Self { draft_temperature, top_k, ref by_rank, .. } = *self;
        let (growth, by_rank) = (GrowthChoice::Equal, by_rank.clone());
        Evidence { growth, schedule, top_k, draft_temperature, depth_choice, row_choice, lengths, by_rank }
    }
}

/// The trees of one drafter and draft width whose steps choose their rows by one rule, under one schedule.
struct TreeSpace<'a> {
    trees: &'a RecordedTrees<'a>,
    valued: &'a ValuedTrees<'a>,
    prices: TreePrices<'a>,
    calibration: Option<&'a Calibration>,
    verify_widths: Vec<u32>,
    ar_tpot_us: f64,
}

impl TreeSpace<'_> {
    fn depths(&self) -> RangeInclusive<u32> {
        1..=self.trees.deepest
    }

    fn shapes(&self, depth: u32) -> impl Iterator<Item = Shape> {
        // Trees that grow best first by a node at a time begin alike: nodes that are not verified are of no use.
        let is_whole = self.prices.pricing.tail == Tail::Block;
        let shapes = speculative(depth, self.prices.draft_width, &self.verify_widths);
        shapes.filter(move |shape| !is_whole || u64::from(shape.verify_width) == shape.nodes())
    }

    fn choice(&self, shape: &Shape, rates: &Rates) -> Result<RowChoice, SearchError> {
        let rule = self.prices.rule;
        let by = Choosing { rule, calibration: self.calibration, rate: rates.of(shape) };
        Ok(self.prices.choice(shape, by)?)
    }

    /// What a replayed shape should give.
    fn priced(&self, shape: &Shape, replay: &TreeReplay) -> Result<Priced, SearchError> {
        let tally = replay.tally(shape.depth, shape.verify_width)?;
        Ok(tally.priced(self.ar_tpot_us, |width| self.prices.step(shape.depth, width))?)
    }

    /// Replays all shapes, again for as long as the worth of their steps' time changes.
    fn replay(&self) -> Result<(TreeReplay, Rates), SearchError> {
        let mut rates = Rates::new(self.ar_tpot_us);
        loop {
            let choices = |depth| self.shapes(depth).map(|shape| self.choice(&shape, &rates)).collect();
            let choices = self.depths().map(choices).collect::<Result<Vec<Vec<RowChoice>>, _>>()?;
            let replay = TreeReplay::of(self.valued, &choices);
            if rates.are_found(self.prices.rule) {
                return Ok((replay, rates));
            }
            for shape in self.depths().flat_map(|depth| self.shapes(depth)) {
                if replay.tally(shape.depth, shape.verify_width).is_ok() {
                    let Prediction { aal, step_us, .. } = self.priced(&shape, &replay)?.predicted;
                    rates.reached(shape, aal / step_us);
                }
            }
        }
    }
}

impl Search<'_> {
    /// A drafter that runs a model: its recorded trees are cut to every shape that was measured.
    pub(in crate::planner) fn tree_drafter(
        &self,
        origin: &Origin<'_>,
        found: &mut Found,
    ) -> Result<(), SearchError> {
        let rule = origin.limits.growth();
        // Ranks say nothing of trees whose candidates cost nothing.
        if rule.is_static() && (origin.kind.facts().tunes_itself || origin.kind.drafts_blocks()) {
            return Ok(());
        }
        let trees = self.recorded_trees(origin)?;
        if rule.is_static() {
            return self.static_trees(origin, &trees, found);
        }
        let mut all = temperatures(origin.kind, trees.draft_temperature);
        all.retain(|temperature| origin.draft_temperature.is_none_or(|fixed| fixed == *temperature));
        for temperature in all {
            if temperature == trees.draft_temperature {
                self.growing_trees(origin, &trees, found)?;
                continue;
            }
            let traces: Vec<Trace> = trees.traces.iter().map(|trace| sharpened(trace, temperature)).collect();
            let RecordedTrees { top_k, deepest, ref by_rank, .. } = trees;
            let (traces, by_rank) = (traces.iter().collect(), by_rank.clone());
            let sharper = RecordedTrees {
                traces,
                draft_temperature: temperature,
                is_as_recorded: false,
                top_k,
                deepest,
                by_rank,
            };
            self.growing_trees(origin, &sharper, found)?;
        }
        Ok(())
    }

    /// The trees that grow equally, by values of one temperature.
    fn growing_trees(
        &self,
        origin: &Origin<'_>,
        trees: &RecordedTrees<'_>,
        found: &mut Found,
    ) -> Result<(), SearchError> {
        let pricing = self.pricing(origin.name);
        let is_open = |width: &u32| origin.limits.draft_width.is_none_or(|fixed| fixed == *width);
        for draft_width in self.draft_widths(origin.name).into_iter().filter(is_open) {
            // Nothing is below the last place of a block.
            let is_bound = self.is_trimmed_from_whole(origin.name) || origin.kind.drafts_blocks();
            let grown = GrownTrees::new(&trees.traces, draft_width).bounded_below(is_bound);
            for Rows { rule, calibration } in origin.rows(|| grown.judged()) {
                let valued = grown.valued(calibration.as_ref());
                for schedule in origin.schedules_of(rule) {
                    let space = TreeSpace {
                        trees,
                        valued: &valued,
                        prices: TreePrices::new(pricing, draft_width, schedule, rule),
                        calibration: calibration.as_ref(),
                        verify_widths: pricing.tree_widths(schedule),
                        ar_tpot_us: self.ar_tpot_us,
                    };
                    let (replay, rates) = space.replay()?;
                    let replayed = fixed_depths(origin, &space, (&replay, &rates), found)?;
                    self.predicted_depths(origin, &space, (&replay, &rates), &replayed, found)?;
                }
            }
        }
        Ok(())
    }

    /// What was recorded of a drafter.
    ///
    /// # Errors
    /// [`SearchError::NoEvidence`] without recorded steps or latencies, [`SearchError::Plan`] where recordings do not
    /// go together.
    fn recorded_trees(&self, origin: &Origin<'_>) -> Result<RecordedTrees<'_>, SearchError> {
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
        let draft_temperature = first.draft_temperature;
        if let Some(other) = traces.iter().find(|t| t.draft_temperature != draft_temperature) {
            let refused = PlanError::DrafterParameters {
                drafter: origin.name.to_string(),
                expected: format!("one draft temperature, {draft_temperature}"),
                found: other.draft_temperature.to_string(),
            };
            return Err(refused.into());
        }
        let top_k = traces.iter().map(|t| t.top_k).min().unwrap_or(0);
        let deepest = traces.iter().map(|t| t.depth).min().unwrap_or(0);
        let by_rank = acceptance_by_rank(&traces);
        Ok(RecordedTrees { traces, draft_temperature, is_as_recorded: true, top_k, deepest, by_rank })
    }

    /// Adds the shapes whose steps choose their depth by the predictor, if one was trained for the drafter.
    fn predicted_depths(
        &self,
        origin: &Origin<'_>,
        space: &TreeSpace<'_>,
        (replay, rates): (&TreeReplay, &Rates),
        replayed: &[Shape],
        found: &mut Found,
    ) -> Result<(), SearchError> {
        let is_trained = self.recorded.trained.iter().any(|p| p.drafter == *origin.name);
        let TreeSpace { valued: trees, prices, calibration, .. } = space;
        let is_open = prices.schedule == Schedule::Plain
            && space.trees.is_as_recorded
            && origin.limits.admits_rule(DepthRule::Predicted);
        if !is_trained || !is_open {
            return Ok(());
        }
        let traces = &space.trees.traces;
        let search = DepthSearch { traces, trees, prices, calibration: *calibration, replay, rates };
        for ReplayedDepths { shape, rows, depths, tally } in search.replayed(replayed)? {
            let at = |(depth, width)| prices.predicted_depth_step(depth, width);
            let priced = tally.priced(self.ar_tpot_us, at)?;
            let predicted = &priced.predicted;
            let best = found.predicted_depth_speedups.entry(origin.place).or_insert(predicted.speedup);
            *best = best.max(predicted.speedup);
            // Steps that do best without drafting are plain decoding, which every plan has.
            if predicted.speedup <= 1.0 && origin.limits.depth_rule.is_none() {
                continue;
            }
            let evidence =
                space.trees.evidence(prices.schedule, DepthChoice::Predicted(depths), rows, tally.accepted());
            found.points.push(origin.point(shape, evidence, priced));
        }
        Ok(())
    }
}

/// Adds the shapes whose steps all draft to one depth, and returns every shape that the recordings answer for.
fn fixed_depths(
    origin: &Origin<'_>,
    space: &TreeSpace<'_>,
    (replay, rates): (&TreeReplay, &Rates),
    found: &mut Found,
) -> Result<Vec<Shape>, SearchError> {
    let mut replayed = Vec::new();
    for shape in space.depths().flat_map(|depth| origin.limits.admitted(space.shapes(depth))) {
        let tally = match replay.tally(shape.depth, shape.verify_width) {
            Ok(tally) => tally,
            Err(SearchError::IncompleteTrace { drafter: name, missing, .. }) => {
                let Shape { depth, draft_width, .. } = shape;
                let refusal = Refusal { name, growth: GrowthRule::Equal, depth, draft_width, missing };
                if space.trees.is_as_recorded && !found.refused.contains(&refusal) {
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
        let rows = space.choice(&shape, rates)?;
        let evidence =
            space.trees.evidence(space.prices.schedule, DepthChoice::Fixed, rows, tally.accepted());
        found.points.push(origin.point(shape, evidence, space.priced(&shape, replay)?));
    }
    Ok(replayed)
}
