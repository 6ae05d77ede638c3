//! Pricing: the choices of rows that a drafter's steps could be given, with what a step costs at each width.
use ygg_profiler::{DrafterName, LatencyTable, Stage, TableError};

use super::{
    Calibration, RowChoice, RowRule, Shape, StageTime, WidthCost,
    objective::{free_step, plain_step, step_us, tree_step, with_decision, with_prediction},
};

/// The steps of one drafter, priced with one table at one context.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pricing<'a> {
    pub(super) table: &'a LatencyTable,
    pub(super) drafter: &'a DrafterName,
    pub(super) context: u32,
}

impl Pricing<'_> {
    /// The stages of a step that grows `shape` with a model drafter and verifies `width` rows of it.
    pub(super) fn tree_step(
        &self,
        shape: &Shape,
        rule: RowRule,
        width: u32,
    ) -> Result<Vec<StageTime>, TableError> {
        let Pricing { table, drafter, context } = *self;
        let stages = tree_step(table, drafter, &Shape { verify_width: width, ..*shape }, context)?;
        let nodes = u32::try_from(shape.nodes()).unwrap_or(u32::MAX);
        self.decided(stages, rule, nodes)
    }

    /// The stages of a step that is told how deep to draft, to `shape.depth` or nothing at all, and verifies `width` rows.
    pub(super) fn told_step(
        &self,
        shape: &Shape,
        rule: RowRule,
        width: u32,
    ) -> Result<Vec<StageTime>, TableError> {
        let stages = match shape.depth {
            0 => plain_step(self.table, self.context)?,
            1.. => self.tree_step(shape, rule, width)?,
        };
        with_prediction(stages, self.table, self.context)
    }

    /// The choice of rows of steps that are told how deep to draft: trees are of any size, so all measured widths up to Wv.
    /// Costs are those of Dd growths.
    pub(super) fn told_choice(
        &self,
        shape: &Shape,
        rule: RowRule,
        calibration: Option<&Calibration>,
    ) -> Result<RowChoice, TableError> {
        let widths = self.verify_widths(shape.verify_width);
        choice(rule, widths, calibration, |width| self.told_step(shape, rule, width))
    }

    /// The stages of a step of a drafter without a model that verifies `width` rows, out of `shape.verify_width` nodes at
    /// most; deciding is priced at that many.
    pub(super) fn free_step(
        &self,
        shape: &Shape,
        rule: RowRule,
        width: u32,
    ) -> Result<Vec<StageTime>, TableError> {
        let Pricing { table, drafter, context } = *self;
        let stages = free_step(table, drafter, width, context)?;
        self.decided(stages, rule, shape.verify_width)
    }

    fn decided(
        &self,
        stages: Vec<StageTime>,
        rule: RowRule,
        nodes: u32,
    ) -> Result<Vec<StageTime>, TableError> {
        match rule {
            RowRule::Widest => Ok(stages),
            RowRule::BestRate => with_decision(stages, self.table, nodes, self.context),
        }
    }

    /// The choice of rows of a model drafter's steps: Wv alone, or any measured width up to it.
    pub(super) fn tree_choice(
        &self,
        shape: &Shape,
        rule: RowRule,
        calibration: Option<&Calibration>,
    ) -> Result<RowChoice, TableError> {
        let widths = match rule {
            RowRule::Widest => vec![shape.verify_width],
            RowRule::BestRate => self.verify_widths(shape.verify_width),
        };
        choice(rule, widths, calibration, |width| self.tree_step(shape, rule, width))
    }

    /// The choice of rows of a free drafter's steps: a proposal may be of any size, so all measured widths up to Wv.
    pub(super) fn free_choice(
        &self,
        shape: &Shape,
        rule: RowRule,
        calibration: Option<&Calibration>,
    ) -> Result<RowChoice, TableError> {
        let widths = self.verify_widths(shape.verify_width);
        choice(rule, widths, calibration, |width| self.free_step(shape, rule, width))
    }

    /// The measured verify widths up to `most`.
    pub(super) fn verify_widths(&self, most: u32) -> Vec<u32> {
        let mut widths = self.table.widths(&Stage::Verify);
        widths.retain(|width| *width <= most);
        widths
    }
}

fn choice(
    rule: RowRule,
    widths: Vec<u32>,
    calibration: Option<&Calibration>,
    stages_at: impl Fn(u32) -> Result<Vec<StageTime>, TableError>,
) -> Result<RowChoice, TableError> {
    let cost = |width| Ok(WidthCost { width, step_us: step_us(&stages_at(width)?) });
    let widths = widths.into_iter().map(cost).collect::<Result<_, TableError>>()?;
    Ok(RowChoice { rule, widths, calibration: calibration.cloned() })
}
