//! A shape with its price, as reports compare it.
use serde::Serialize;
use ygg_profiler::DrafterName;

use super::{DepthRule, GrowthRule, RowRule, Schedule, Shape};

/// A priced shape with its derived figures.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PricedShape {
    /// The drafter.
    pub name: DrafterName,
    /// The shape.
    pub shape: Shape,
    /// How its trees grow.
    pub growth: GrowthRule,
    /// When the head of a step is drafted.
    pub schedule: Schedule,
    /// How a step chooses its depth.
    pub depth_rule: DepthRule,
    /// How a step chooses its rows.
    pub rule: RowRule,
    /// Tokens per step.
    pub aal: f64,
    /// Time of a step.
    pub step_us: f64,
    /// Time per token.
    pub tpot_us: f64,
    /// Predicted speed-up over plain decoding.
    pub speedup: f64,
}
