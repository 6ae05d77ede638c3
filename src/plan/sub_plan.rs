//! The best shape of one drafter, with what it should give.
use serde::{Deserialize, Serialize};
use ygg_profiler::{DrafterName, LatencyTable, Stage};

use super::{
    Acceptance, ContextRange, DepthChoice, DepthCosts, DepthRule, DrafterKind, GrowthChoice, GuardLimits,
    PlanError, PlannedWidths, Prediction, PricedShape, RowChoice, RowRule, Schedule, Shape, Unseen,
    check::ensure,
};

/// The best steps of one drafter: what a plan decides about them, and what a decoder goes by.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SubPlan {
    /// What the profile calls the drafter.
    pub name: DrafterName,
    /// The drafter and its parameters.
    pub drafter: DrafterKind,
    /// Nodes per growth, Wd; 0 of plain decoding.
    pub draft_width: u32,
    /// How its trees grow; [`GrowthChoice::Equal`] for drafters that run no model.
    pub growth: GrowthChoice,
    /// When the head of a step is drafted; [`Schedule::Plain`] for drafters that run no model.
    pub schedule: Schedule,
    /// Candidates kept of every expanded node; 0 for drafters that run no model.
    pub top_k: u32,
    /// Temperature of the drafter's scores, `t_d`; 1 for drafters that score nothing.
    pub draft_temperature: f32,
    /// Measured acceptance at the shape of the first range.
    pub acceptance: Acceptance,
    /// What its requests may lose, in all ranges together, before they stop drafting for a while.
    pub guard: GuardLimits,
    /// How its steps go, by committed tokens: ascending from 0. Plain decoding has one range.
    pub ranges: Vec<ContextRange>,
}

impl SubPlan {
    /// Steps of one shape at every context, all of whose rows are verified, that nobody priced. Which drafter
    /// drafts them, if they draft, is not said.
    pub fn unpriced(shape: Shape) -> Self {
        let Shape { depth, draft_width, verify_width } = shape;
        let range = ContextRange {
            from: 0,
            context: 0,
            drafts: depth > 0,
            depth,
            depth_choice: DepthChoice::Fixed,
            row_choice: RowChoice::fixed(verify_width, Prediction::UNPRICED.step_us),
            predicted: Prediction::UNPRICED,
            unseen: Unseen::PLAIN,
        };
        SubPlan {
            name: DrafterName::new("none").expect("`none` is a drafter name"),
            drafter: DrafterKind::None,
            draft_width,
            growth: GrowthChoice::Equal,
            schedule: Schedule::Plain,
            top_k: 0,
            draft_temperature: 1.0,
            acceptance: Acceptance::default(),
            guard: GuardLimits::DEFAULT,
            ranges: vec![range],
        }
    }

    /// The range that requests begin in, by which drafters are compared.
    ///
    /// # Panics
    /// If the sub-plan is not valid.
    pub fn first(&self) -> &ContextRange {
        &self.ranges[0]
    }

    /// The shape of its steps in the first range.
    pub fn shape(&self) -> Shape {
        self.shape_in(self.first())
    }

    /// The shape of its steps in one of its ranges.
    pub fn shape_in(&self, range: &ContextRange) -> Shape {
        let (depth, verify_width) = (range.depth, range.row_choice.widest());
        Shape { depth, draft_width: self.draft_width, verify_width }
    }

    /// The shape that storage is reserved for: the depth and the rows of the ranges that need most.
    pub fn largest_shape(&self) -> Shape {
        let shapes = self.ranges.iter().map(|range| self.shape_in(range));
        shapes.fold(self.shape(), |largest, shape| Shape {
            depth: largest.depth.max(shape.depth),
            verify_width: largest.verify_width.max(shape.verify_width),
            ..largest
        })
    }

    /// The rule by which steps choose their depth, in every range.
    pub fn depth_rule(&self) -> DepthRule {
        self.first().depth_choice.rule()
    }

    /// The rule by which steps choose their rows, in every range.
    pub fn row_rule(&self) -> RowRule {
        self.first().row_choice.rule
    }

    /// The first range's shape with its price.
    pub fn priced(&self) -> PricedShape {
        let Prediction { aal, step_us, tpot_us, ar_tpot_us: _, speedup, stages: _ } = self.first().predicted;
        let (depth_rule, rule) = (self.depth_rule(), self.row_rule());
        let (name, shape, schedule) = (self.name.clone(), self.shape(), self.schedule);
        let growth = self.growth.rule();
        PricedShape { name, shape, growth, schedule, depth_rule, rule, aal, step_us, tpot_us, speedup }
    }

    /// Whether this is plain decoding.
    pub fn is_plain(&self) -> bool {
        self.drafter == DrafterKind::None
    }

    /// Checks what steps go by, priced or not: that the ranges ascend from 0 and choose by one rule, that their choices
    /// are whole, and that the schedule admits them.
    ///
    /// # Errors
    /// [`PlanError::Invalid`] names the first thing that is wrong.
    pub fn check(&self) -> Result<(), PlanError> {
        let SubPlan { schedule, ranges, .. } = self;
        let starts = || ranges.iter().map(|range| (range.from, range.context));
        let ascends = ranges.first().is_some_and(|range| range.from == 0)
            && starts().zip(starts().skip(1)).all(|((_, context), (from, _))| from > context);
        ensure(
            ascends,
            "context ranges",
            "ones that begin at 0 and after what the one before was priced at",
            || format!("{:?}", starts().collect::<Vec<_>>()),
        )?;
        for ContextRange { depth, depth_choice, row_choice, .. } in ranges {
            depth_choice.validate(*depth)?;
            row_choice.validate()?;
            let rules = (depth_choice.rule(), row_choice.rule);
            let is_one = rules == (self.depth_rule(), self.row_rule());
            ensure(is_one, "choices of a context range", "by the rules of the first", || {
                format!("{rules:?}")
            })?;
            if let DepthChoice::Predicted(DepthCosts { costs, .. }) = depth_choice {
                // What the network sees is the first forward's of the step, and the last's of the one before.
                let is_seen = !schedule.drafts_ahead() && !schedule.walks_on_device();
                ensure(is_seen, "schedule of steps with a predicted depth", "plain or one_launch", || {
                    schedule.to_string()
                })?;
                let least = row_choice.widths.iter().map(|cost| cost.step_us).fold(f64::INFINITY, f64::min);
                let positive = costs.iter().all(|cost| cost.saved_us < least);
                ensure(positive, "choice of depth", "savings below what a step costs", || {
                    format!("{costs:?}")
                })?;
            }
            let is_open = schedule.admits_rows(row_choice.rule);
            ensure(is_open, "choice of rows", "all, where the device prunes", || schedule.to_string())?;
            let width = row_choice.widest();
            let is_prepared = !schedule.prunes_on_device() || width == self.shape().verify_width;
            ensure(is_prepared, "verify width", "one for all contexts, where the device prunes", || {
                width.to_string()
            })?;
        }
        Ok(())
    }

    pub(super) fn validate(&self, planned: &PlannedWidths, table: &LatencyTable) -> Result<(), PlanError> {
        let SubPlan {
            name,
            drafter,
            draft_width: _,
            growth,
            schedule,
            top_k,
            draft_temperature,
            acceptance,
            guard,
            ranges,
        } = self;
        drafter.validate()?;
        schedule.validate(drafter)?;
        self.check()?;
        let is_plain = self.is_plain();
        let (shape, drafts) = (self.shape(), self.first().drafts);
        ensure(drafts != is_plain, "first context range", "drafts, but of plain decoding", || {
            name.to_string()
        })?;
        if is_plain {
            let show = || format!("{shape:?} and {} ranges", ranges.len());
            let is_one = shape == Shape::PLAIN && ranges.len() == 1;
            ensure(is_one, "shape of plain decoding", "Dd 0, Wd 0, Wv 1 at any context", show)?;
        } else {
            let measured = table.has_stage(&Stage::Draft(name.clone()));
            ensure(measured, "drafter", "one the latency table measured", || name.to_string())?;
        }
        guard.validate()?;
        for range in ranges {
            self.validate_widths(range, planned)?;
            range.predicted.validate()?;
            range.unseen.validate()?;
        }
        if drafter.runs_a_model() {
            let draft_widths = growth.draft_widths(&shape);
            let all_planned = draft_widths.iter().all(|width| planned.draft.contains(width));
            ensure(all_planned, "draft width", "a planned one", || format!("{draft_widths:?}"))?;
            match growth.static_tree() {
                None => {
                    let enough = *top_k >= shape.draft_width;
                    ensure(enough, "candidates per node", "Wd or more", || top_k.to_string())?;
                }
                Some(tree) => {
                    let is_alone = drafter.grows_alone();
                    ensure(is_alone, "growth", "no template where drafters share a tree", || {
                        name.to_string()
                    })?;
                    tree.validate(&shape, *top_k)?;
                    let chooses_nothing =
                        self.depth_rule() == DepthRule::Fixed && self.row_rule() == RowRule::Widest;
                    let is_one = chooses_nothing && ranges.len() == 1;
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

    /// Checks that the steps of one context range fit the drafter and the planned widths.
    fn validate_widths(&self, range: &ContextRange, planned: &PlannedWidths) -> Result<(), PlanError> {
        let SubPlan { name, drafter, growth, schedule, .. } = self;
        let shape @ Shape { depth, draft_width, verify_width } = self.shape_in(range);
        let show = || format!("Dd {depth}, Wd {draft_width}, Wv {verify_width} for {name}");
        if !self.is_plain() {
            ensure(depth >= 1 && draft_width >= 1, "shape", "Dd and Wd of 1 or more", show)?;
            // A template is padded where no width is as wide as it has nodes.
            let is_held = growth.rule().is_static() || u64::from(verify_width) <= shape.nodes();
            let fits = verify_width >= 2 + drafter.facts().pinned_rows && is_held;
            ensure(fits, "verify width", "2, plus rows that are always verified, to Dd * Wd + 1", show)?;
        }
        let costs = &range.row_choice.widths;
        let is_planned = |widths: &[u32]| costs.iter().all(|cost| widths.contains(&cost.width));
        ensure(is_planned(&planned.verify), "verify width", "a planned one", show)?;
        let heads_planned = !schedule.drafts_ahead() || is_planned(&planned.draft);
        ensure(heads_planned, "width of heads ahead", "a planned one", show)
    }
}
