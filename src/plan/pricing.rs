//! Pricing: the choices of rows that a drafter's steps could be given, with what a step costs at each width.
use ygg_profiler::{DrafterName, LatencyTable, Stage, TableError};

use super::{
    Calibration, RowChoice, RowRule, Shape, StageTime, WidthCost,
    objective::{free_step, step_us, tree_step, with_decision},
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

    /// The choice of rows of a model drafter's steps, whose time is worth `rate`: Wv alone, or any measured width up to it.
    pub(super) fn tree_choice(
        &self,
        shape: &Shape,
        rule: RowRule,
        calibration: Option<&Calibration>,
        rate: f64,
    ) -> Result<RowChoice, TableError> {
        let widths = match rule {
            RowRule::Widest => vec![shape.verify_width],
            RowRule::BestRate => self.verify_widths(shape.verify_width),
        };
        let cost = |width| self.tree_step(shape, rule, width);
        Ok(RowChoice { rule, widths: costs(widths, cost)?, rate, calibration: calibration.cloned() })
    }

    /// The choice of rows of a free drafter's steps, whose time is worth `rate`: a proposal may be of any size, so all measured
    /// widths up to Wv.
    pub(super) fn free_choice(
        &self,
        shape: &Shape,
        rule: RowRule,
        calibration: Option<&Calibration>,
        rate: f64,
    ) -> Result<RowChoice, TableError> {
        let widths = self.verify_widths(shape.verify_width);
        let cost = |width| self.free_step(shape, rule, width);
        Ok(RowChoice { rule, widths: costs(widths, cost)?, rate, calibration: calibration.cloned() })
    }

    fn verify_widths(&self, most: u32) -> Vec<u32> {
        let mut widths = self.table.widths(&Stage::Verify);
        widths.retain(|width| *width <= most);
        widths
    }
}

fn costs(
    widths: Vec<u32>,
    stages_at: impl Fn(u32) -> Result<Vec<StageTime>, TableError>,
) -> Result<Vec<WidthCost>, TableError> {
    let cost = |width| Ok(WidthCost { width, step_us: step_us(&stages_at(width)?) });
    widths.into_iter().map(cost).collect()
}
