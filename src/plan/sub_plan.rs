//! The best shape of one drafter, with what it should give.
use serde::{Deserialize, Serialize};
use ygg_profiler::{DrafterName, LatencyTable, Stage};

use super::{
    ContextRange, DepthChoice, DepthCosts, DepthRule, DrafterKind, GrowthChoice, GuardLimits, PlanError,
    PlannedWidths, PricedShape, RowChoice, RowRule, Schedule, Shape, StageTime,
    contents::{ensure, is_positive},
    step_us,
};

/// Predicted totals may differ from the sum of their stages by rounding only.
const ROUNDING: f64 = 1e-6;

/// The best shape of one drafter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SubPlan {
    /// What the profile calls the drafter.
    pub name: DrafterName,
    /// The drafter and its parameters.
    pub drafter: DrafterKind,
    /// Dd, Wd, Wv; [`Shape::PLAIN`] for plain decoding.
    pub shape: Shape,
    /// How its trees grow; [`GrowthChoice::Equal`] for drafters that run no model.
    pub growth: GrowthChoice,
    /// When the head of a step is drafted; [`Schedule::Plain`] for drafters that run no model.
    pub schedule: Schedule,
    /// Candidates kept of every expanded node; 0 for drafters that run no model.
    pub top_k: u32,
    /// Temperature of the drafter's scores, `t_d`; 1 for drafters that score nothing.
    pub draft_temperature: f32,
    /// How a step chooses its depth, Dd at most.
    pub depth_choice: DepthChoice,
    /// The widths a step may verify, with their costs, and how it chooses.
    pub row_choice: RowChoice,
    /// Its predicted speed over the recorded prompts.
    pub predicted: Prediction,
    /// The speed-up to expect on others.
    pub unseen: Unseen,
    /// Measured acceptance at this shape.
    pub acceptance: Acceptance,
    /// What its requests may lose before they stop drafting for a while.
    pub guard: GuardLimits,
    /// What changes at longer contexts than the plan's, ascending; before the first and without any nothing does.
    pub longer_contexts: Vec<ContextRange>,
}

/// The predicted speed of a sub-plan, derived from measured latencies and replayed acceptance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// Tokens per step.
    pub aal: f64,
    /// Time of a step.
    pub step_us: f64,
    /// Time per token.
    pub tpot_us: f64,
    /// Time per token of plain decoding.
    pub ar_tpot_us: f64,
    /// `ar_tpot_us / tpot_us`, eq. 3.
    pub speedup: f64,
    /// Where the time of a step goes.
    pub stages: Vec<StageTime>,
}

impl Prediction {
    /// The prediction for `aal` tokens in a step made of `stages`, without stages that take no time.
    pub fn new(aal: f64, mut stages: Vec<StageTime>, ar_tpot_us: f64) -> Self {
        stages.retain(|stage| stage.us != 0.0);
        let step_us = step_us(&stages);
        let tpot_us = step_us / aal;
        Prediction { aal, step_us, tpot_us, ar_tpot_us, speedup: ar_tpot_us / tpot_us, stages }
    }
}

/// The speed-up over plain decoding to expect on prompts that were not recorded.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Unseen {
    /// Not above what the recorded prompts gave: a shape that is the best of many by some prompts is less so by others.
    pub speedup: f64,
    /// In nineteen of twenty cases the speed-up over all prompts of such kinds is more than this.
    pub least: f64,
    /// In nine of ten cases the speed-up over as many other prompts lies between this
    pub low: f64,
    /// and this.
    pub high: f64,
    /// Recorded prompts that it rests on. One alone says nothing of others: the interval holds what is measured with noise.
    pub prompts: u32,
}

impl Unseen {
    /// That of plain decoding.
    pub const PLAIN: Self = Self { speedup: 1.0, least: 1.0, low: 1.0, high: 1.0, prompts: 0 };

    /// Whether it is a gain beyond doubt.
    pub fn is_gain(&self) -> bool {
        self.least > 1.0
    }

    fn validate(&self) -> Result<(), PlanError> {
        let Self { speedup, least, low, high, prompts: _ } = *self;
        let ascends = [low, least, speedup, high].is_sorted() && is_positive(low) && is_positive(high);
        ensure(ascends, "expected speed-up", "finite positive numbers, the lowest first", || {
            format!("{self:?}")
        })
    }
}

/// Measured acceptance, as a plan keeps it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Acceptance {
    /// Steps that the figures rest on.
    pub steps: u64,
    /// Share of steps that accepted at least d drafted tokens, for d = 1, 2, ...
    pub by_depth: Vec<f64>,
    /// Share of walked nodes where the verifier chose the drafter's r-th candidate, for r = 1, 2, ...; empty for drafters
    /// that rank nothing. The first is the chain's alpha.
    pub by_rank: Vec<f64>,
}

impl SubPlan {
    /// Its shape with its price.
    pub fn priced(&self) -> PricedShape {
        let Prediction { aal, step_us, tpot_us, ar_tpot_us: _, speedup, stages: _ } = self.predicted;
        let (depth_rule, rule) = (self.depth_choice.rule(), self.row_choice.rule);
        let (name, shape, schedule) = (self.name.clone(), self.shape, self.schedule);
        let growth = self.growth.rule();
        PricedShape { name, shape, growth, schedule, depth_rule, rule, aal, step_us, tpot_us, speedup }
    }

    /// Whether this is plain decoding.
    pub fn is_plain(&self) -> bool {
        self.drafter == DrafterKind::None
    }

    /// The shape that storage is reserved for: the depth and the rows of the context range that needs most.
    pub fn largest_shape(&self) -> Shape {
        let ranges = self.longer_contexts.iter();
        ranges.fold(self.shape, |largest, range| Shape {
            depth: largest.depth.max(range.depth),
            verify_width: largest.verify_width.max(range.row_choice.widest()),
            ..largest
        })
    }

    pub(super) fn validate(
        &self,
        planned: &PlannedWidths,
        table: &LatencyTable,
        context: u32,
    ) -> Result<(), PlanError> {
        let SubPlan {
            name,
            drafter,
            shape,
            growth,
            schedule,
            top_k,
            draft_temperature,
            depth_choice,
            row_choice,
            predicted,
            unseen,
            acceptance,
            guard,
            longer_contexts,
        } = self;
        drafter.validate()?;
        schedule.validate(drafter)?;
        if self.is_plain() {
            let is_plain = *shape == Shape::PLAIN && longer_contexts.is_empty();
            let show = || format!("{shape:?} and {} longer contexts", longer_contexts.len());
            ensure(is_plain, "shape of plain decoding", "Dd 0, Wd 0, Wv 1 at any context", show)?;
        } else {
            let measured = table.has_stage(&Stage::Draft(name.clone()));
            ensure(measured, "drafter", "one the latency table measured", || name.to_string())?;
        }
        self.validate_steps(shape, depth_choice, row_choice, planned)?;
        predicted.validate()?;
        unseen.validate()?;
        guard.validate()?;
        let mut before = context;
        for range in longer_contexts {
            let ContextRange { from, depth, depth_choice, row_choice, .. } = range;
            let ascends = *from > before;
            ensure(ascends, "context ranges", "ones that begin after one another", || {
                format!("{from} after {before}")
            })?;
            before = *from;
            let choices = (depth_choice.rule(), row_choice.rule);
            let is_as_before = choices == (self.depth_choice.rule(), self.row_choice.rule);
            ensure(is_as_before, "choices of a context range", "by the rules of its sub-plan", || {
                format!("{choices:?}")
            })?;
            let shape = Shape { depth: *depth, verify_width: row_choice.widest(), ..*shape };
            self.validate_steps(&shape, depth_choice, row_choice, planned)?;
            range.predicted.validate()?;
            range.unseen.validate()?;
        }
        if drafter.runs_a_model() {
            let draft_widths = growth.draft_widths(shape);
            let all_planned = draft_widths.iter().all(|width| planned.draft.contains(width));
            ensure(all_planned, "draft width", "a planned one", || format!("{draft_widths:?}"))?;
            match growth.static_tree() {
                None => {
                    let enough = *top_k >= shape.draft_width;
                    ensure(enough, "candidates per node", "Wd or more", || top_k.to_string())?;
                }
                Some(tree) => {
                    tree.validate(shape, *top_k)?;
                    let chooses_nothing =
                        depth_choice.rule() == DepthRule::Fixed && row_choice.rule == RowRule::Widest;
                    let is_one = chooses_nothing && longer_contexts.is_empty();
                    ensure(is_one, "choices of a template", "fixed depth and all rows", || {
                        format!("{shape:?}")
                    })?;
                    let is_filled = !schedule.drafts_in_one_launch();
                    ensure(is_filled, "schedule of a template", "drafts by the host", || {
                        schedule.to_string()
                    })?;
                }
            }
        } else {
            ensure(*top_k == 0, "candidates per node", "0 without a model", || top_k.to_string())?;
            let grows = growth.static_tree().is_some();
            ensure(!grows, "growth", "no template without a model", || growth.rule().to_string())?;
        }
        let positive = draft_temperature.is_finite() && *draft_temperature > 0.0;
        ensure(positive, "draft temperature", "more than 0", || draft_temperature.to_string())?;
        let Acceptance { steps: _, by_depth, by_rank } = acceptance;
        let shares = || by_depth.iter().chain(by_rank);
        ensure(shares().all(|s| (0.0..=1.0).contains(s)), "acceptance", "shares of 0 to 1", || {
            format!("{:?}", shares().collect::<Vec<_>>())
        })
    }

    /// Checks the steps of one context range: that they fit the drafter, the schedule and the planned widths.
    fn validate_steps(
        &self,
        shape: &Shape,
        depth_choice: &DepthChoice,
        row_choice: &RowChoice,
        planned: &PlannedWidths,
    ) -> Result<(), PlanError> {
        let SubPlan { name, drafter, growth, schedule, .. } = self;
        let Shape { depth, draft_width, verify_width } = *shape;
        let show = || format!("Dd {depth}, Wd {draft_width}, Wv {verify_width} for {name}");
        if !self.is_plain() {
            ensure(depth >= 1 && draft_width >= 1, "shape", "Dd and Wd of 1 or more", show)?;
            // A template is padded where no width is as wide as it has nodes.
            let is_held = growth.rule().is_static() || u64::from(verify_width) <= shape.nodes();
            let fits = verify_width >= 2 + drafter.facts().pinned_rows && is_held;
            ensure(fits, "verify width", "2, plus rows that are always verified, to Dd * Wd + 1", show)?;
        }
        row_choice.validate(verify_width)?;
        depth_choice.validate(depth)?;
        if let DepthChoice::Predicted(DepthCosts { costs, .. }) = depth_choice {
            // What the network sees is the first forward's of the step, and the last's of the one before.
            let is_seen = !schedule.drafts_ahead() && !schedule.walks_on_device();
            ensure(is_seen, "schedule of steps with a predicted depth", "plain or one_launch", || {
                schedule.to_string()
            })?;
            let least = row_choice.widths.iter().map(|cost| cost.step_us).fold(f64::INFINITY, f64::min);
            let positive = costs.iter().all(|cost| cost.saved_us < least);
            ensure(positive, "choice of depth", "savings below what a step costs", || format!("{costs:?}"))?;
        }
        let is_open = schedule.admits_rows(row_choice.rule);
        ensure(is_open, "choice of rows", "all, where the device prunes", || schedule.to_string())?;
        let is_prepared = !schedule.prunes_on_device() || verify_width == self.shape.verify_width;
        ensure(is_prepared, "verify width", "one for all contexts, where the device prunes", show)?;
        let is_planned = |widths: &[u32]| row_choice.widths.iter().all(|cost| widths.contains(&cost.width));
        ensure(is_planned(&planned.verify), "verify width", "a planned one", show)?;
        let heads_planned = !schedule.drafts_ahead() || is_planned(&planned.draft);
        ensure(heads_planned, "width of heads ahead", "a planned one", show)
    }
}

impl Prediction {
    fn validate(&self) -> Result<(), PlanError> {
        let Prediction { aal, step_us, tpot_us, ar_tpot_us, speedup, stages } = self;
        for number in
            [aal, step_us, tpot_us, ar_tpot_us, speedup].into_iter().chain(stages.iter().map(|s| &s.us))
        {
            ensure(is_positive(*number), "prediction", "finite positive numbers", || number.to_string())?;
        }
        ensure(*aal >= 1.0, "tokens per step", "1 or more", || aal.to_string())?;
        let again = Prediction::new(*aal, stages.clone(), *ar_tpot_us);
        let close = |a: f64, b: f64| (a - b).abs() <= ROUNDING * b.abs();
        let agrees = close(*step_us, again.step_us)
            && close(*tpot_us, again.tpot_us)
            && close(*speedup, again.speedup);
        ensure(agrees, "prediction", "totals that follow from the stages", || format!("{self:?}"))
    }
}
