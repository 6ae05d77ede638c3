//! Pricing: the choices of rows that a drafter's steps could be given, with what a step costs at each width.
use std::{cell::RefCell, collections::BTreeMap};

use ygg_profiler::{DrafterName, LatencyTable, Stage, TableError};

use crate::plan::{
    Calibration, RowChoice, RowRule, Schedule, Shape, StageTime, StaticTree, WidthCost, step_us,
};
use crate::planner::price::{
    makespan::Lanes,
    objective::{free_step, plain_step, with_decision, with_prediction},
    stages::{Tail, TreeStep},
};

/// How steps choose their rows: by a rule, with values that a calibration turns into probabilities, at a worth of time.
#[derive(Debug, Clone, Copy)]
pub(in crate::planner) struct Choosing<'a> {
    pub(in crate::planner) rule: RowRule,
    pub(in crate::planner) calibration: Option<&'a Calibration>,
    pub(in crate::planner) rate: f64,
}

impl Choosing<'_> {
    /// The choice among `widths`, each of which costs what its stages take.
    fn among(
        self,
        widths: Vec<u32>,
        stages_at: impl Fn(u32) -> Result<Vec<StageTime>, TableError>,
    ) -> Result<RowChoice, TableError> {
        let Choosing { rule, calibration, rate } = self;
        let cost = |width| Ok(WidthCost { width, step_us: step_us(&stages_at(width)?) });
        let widths = widths.into_iter().map(cost).collect::<Result<_, TableError>>()?;
        Ok(RowChoice { rule, widths, rate, calibration: calibration.cloned() })
    }
}

/// The tree steps of one draft width, schedule and rule of rows, each priced when it is first asked for: shapes share
/// them.
#[derive(Debug)]
pub(in crate::planner) struct TreePrices<'a> {
    pub(in crate::planner) pricing: Pricing<'a>,
    pub(in crate::planner) draft_width: u32,
    pub(in crate::planner) schedule: Schedule,
    pub(in crate::planner) rule: RowRule,
    /// By depth and rows.
    known: RefCell<BTreeMap<(u32, u32), Vec<StageTime>>>,
}

impl<'a> TreePrices<'a> {
    pub(in crate::planner) fn new(
        pricing: Pricing<'a>,
        draft_width: u32,
        schedule: Schedule,
        rule: RowRule,
    ) -> Self {
        Self { pricing, draft_width, schedule, rule, known: RefCell::default() }
    }

    /// [`Pricing::tree_step`] of `depth` growths.
    pub(in crate::planner) fn step(&self, depth: u32, width: u32) -> Result<Vec<StageTime>, TableError> {
        if let Some(stages) = self.known.borrow().get(&(depth, width)) {
            return Ok(stages.clone());
        }
        let shape = Shape { depth, draft_width: self.draft_width, verify_width: width };
        let stages = self.pricing.tree_step(&shape, self.schedule, self.rule, width)?;
        self.known.borrow_mut().insert((depth, width), stages.clone());
        Ok(stages)
    }

    /// The stages of a step whose depth was predicted, `depth` or 0, and verifies `width` rows.
    pub(in crate::planner) fn predicted_depth_step(
        &self,
        depth: u32,
        width: u32,
    ) -> Result<Vec<StageTime>, TableError> {
        let Pricing { table, context, .. } = self.pricing;
        let stages = match depth {
            0 => plain_step(table, context)?,
            1.. => self.step(depth, width)?,
        };
        with_prediction(stages, table, context)
    }

    /// The choice of rows of a shape's steps: Wv alone, or any measured width up to it.
    pub(in crate::planner) fn choice(
        &self,
        shape: &Shape,
        by: Choosing<'_>,
    ) -> Result<RowChoice, TableError> {
        self.pricing.tree_choice(shape, self.schedule, by, |width| self.step(shape.depth, width))
    }

    /// The choice of rows of steps whose depth is predicted: trees are of any size, so all measured widths up to Wv.
    /// Costs are those of Dd growths. Heads are drafted when a step begins: a head drafted ahead would
    /// overwrite the hidden row that depths are predicted from.
    pub(in crate::planner) fn predicted_depth_choice(
        &self,
        shape: &Shape,
        by: Choosing<'_>,
    ) -> Result<RowChoice, TableError> {
        let widths = self.pricing.verify_widths(Schedule::Plain, shape.verify_width);
        by.among(widths, |width| self.predicted_depth_step(shape.depth, width))
    }
}

/// The steps of one drafter, priced with one table at one context.
#[derive(Debug, Clone, Copy)]
pub(in crate::planner) struct Pricing<'a> {
    pub(in crate::planner) table: &'a LatencyTable,
    pub(in crate::planner) drafter: &'a DrafterName,
    pub(in crate::planner) context: u32,
    pub(in crate::planner) tail: Tail,
    /// The template that its steps fill, where they fill one.
    pub(in crate::planner) static_tree: Option<&'a StaticTree>,
}

impl Pricing<'_> {
    /// How the drafter's own cache, if it has one, is brought as far as the verifier's: heads drafted ahead need all
    /// verified rows.
    fn tail_under(&self, schedule: Schedule) -> Tail {
        match self.tail {
            Tail::Joined if schedule.drafts_ahead() => Tail::Ahead,
            tail => tail,
        }
    }

    /// What verifications of its steps are measured as.
    fn verification(&self, schedule: Schedule) -> Stage {
        self.tail_under(schedule).verification(schedule, self.drafter)
    }

    /// The stages of a step that grows `shape` with a model drafter and verifies `width` rows of it, among even others.
    pub(in crate::planner) fn tree_step(
        &self,
        shape: &Shape,
        schedule: Schedule,
        rule: RowRule,
        width: u32,
    ) -> Result<Vec<StageTime>, TableError> {
        let Pricing { table, drafter, context, tail: _, static_tree } = *self;
        let tail = self.tail_under(schedule);
        let decided_nodes = match rule {
            RowRule::Widest => None,
            RowRule::BestRate => Some(u32::try_from(shape.nodes()).unwrap_or(u32::MAX)),
        };
        let shape = Shape { verify_width: width, ..*shape };
        let step = TreeStep { table, drafter, shape, static_tree, context, schedule, tail, decided_nodes };
        Ok(step.stages()?.times(Lanes::measured(table)))
    }

    /// The measured draft widths, ascending.
    pub(in crate::planner) fn draft_widths(&self) -> Vec<u32> {
        self.table.widths(&Stage::Draft(self.drafter.clone()))
    }

    /// The verify widths that a model drafter's steps can be priced for: all measured ones, but where heads are drafted
    /// ahead only those up to which every one was measured as a draft too, and of a drafter with a cache of its own
    /// together with its tail; for launches of the device none where they were not measured.
    pub(in crate::planner) fn tree_widths(&self, schedule: Schedule) -> Vec<u32> {
        let mut widths = self.table.widths(&self.verification(schedule));
        let has_phases = || self.table.has_stage(&Stage::FirstGrowth(self.drafter.clone()));
        if schedule.drafts_in_one_launch() && !has_phases() {
            widths.clear();
        }
        if schedule.drafts_ahead() {
            let drafted = self.draft_widths();
            let all = widths.iter().take_while(|width| drafted.contains(width)).count();
            widths.truncate(all);
        }
        widths
    }

    /// The stages of a step of a drafter without a model that verifies `width` rows, out of `shape.verify_width` nodes
    /// at most; deciding is priced at that many.
    pub(in crate::planner) fn free_step(
        &self,
        shape: &Shape,
        schedule: Schedule,
        rule: RowRule,
        width: u32,
    ) -> Result<Vec<StageTime>, TableError> {
        let Pricing { table, drafter, context, .. } = *self;
        let stages = free_step(table, drafter, schedule, width, context)?;
        match rule {
            RowRule::Widest => Ok(stages),
            RowRule::BestRate => with_decision(stages, table, shape.verify_width, context),
        }
    }

    /// The choice of rows of a model drafter's steps, each of which takes what `stages_at` says: Wv alone, or any
    /// measured width up to it.
    pub(in crate::planner) fn tree_choice(
        &self,
        shape: &Shape,
        schedule: Schedule,
        by: Choosing<'_>,
        stages_at: impl Fn(u32) -> Result<Vec<StageTime>, TableError>,
    ) -> Result<RowChoice, TableError> {
        let widths = match by.rule {
            RowRule::Widest => vec![shape.verify_width],
            RowRule::BestRate => self.verify_widths(schedule, shape.verify_width),
        };
        by.among(widths, stages_at)
    }

    /// The choice of rows of a free drafter's steps: a proposal may be of any size, so all measured widths up to Wv.
    pub(in crate::planner) fn free_choice(
        &self,
        shape: &Shape,
        schedule: Schedule,
        by: Choosing<'_>,
    ) -> Result<RowChoice, TableError> {
        let widths = self.verify_widths(schedule, shape.verify_width);
        by.among(widths, |width| self.free_step(shape, schedule, by.rule, width))
    }

    /// The widths up to `most` at which verifications of a schedule were measured.
    pub(in crate::planner) fn verify_widths(&self, schedule: Schedule, most: u32) -> Vec<u32> {
        let mut widths = self.table.widths(&self.verification(schedule));
        widths.retain(|width| *width <= most);
        widths
    }
}
