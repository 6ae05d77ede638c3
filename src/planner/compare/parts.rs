//! What each part of a step adds: the best shape within narrower and narrower searches, one part more at a time.
use serde::Serialize;
use ygg_profiler::{DrafterName, LatencyTable, Stage, named};

use crate::plan::{Band, DepthRule, GrowthRule, PricedShape, RowRule, Schedule};

named! {
    /// How far the search of a part reaches; each reaches as far as the one before and further.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Part {
        /// One node a growth, all of them verified, as far as a measured width reaches.
        Chain = "a chain",
        /// Any number of nodes a growth, all of them verified, as far as a measured width reaches.
        Tree = "a tree",
        /// The best nodes of the tree verified, as many at every step.
        PrunedTree = "a pruned tree",
        /// Every step chooses how many nodes it verifies.
        RowsChosen = "rows chosen at every step",
        /// Every step may choose its depth by a prediction.
        DepthPredicted = "depth predicted at every step, or fixed",
        /// Heads may be drafted ahead.
        Scheduled = "any schedule",
    }
}

impl Part {
    /// Whether a search of this part prices `shape`, which none does of a template; `verify_widths` are those measured.
    fn reaches(self, shape: &PricedShape, verify_widths: &[u32]) -> bool {
        let PricedShape { name: _, shape, growth, schedule, depth_rule, rule, .. } = shape;
        let wider_fits = |width: &u32| *width > shape.verify_width && u64::from(*width) <= shape.nodes();
        let is_whole = !verify_widths.iter().any(wider_fits);
        let is_plain = *schedule == Schedule::Plain;
        let is_fixed_depth = *depth_rule == DepthRule::Fixed;
        let is_fixed = *rule == RowRule::Widest && is_plain && is_fixed_depth;
        if *growth != GrowthRule::Equal {
            return false;
        }
        match self {
            Part::Chain => shape.draft_width == 1 && is_whole && is_fixed,
            Part::Tree => is_whole && is_fixed,
            Part::PrunedTree => is_fixed,
            Part::RowsChosen => is_plain && is_fixed_depth,
            Part::DepthPredicted => is_plain,
            Part::Scheduled => true,
        }
    }
}

/// What one part adds to the steps of one drafter.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PartGain {
    /// The part, with all before it.
    pub part: Part,
    /// The best shape that its search reaches.
    pub best: PricedShape,
    /// How many times faster than the best shape of the part before, plain decoding before the first.
    pub gain: f64,
}

/// The parts of every drafter in the band's order; a part that no shape was priced for is missing.
pub(in crate::planner) fn gains(table: &LatencyTable, band: &Band) -> Vec<PartGain> {
    band.drafting().flat_map(|sub_plan| gains_of(table, band, &sub_plan.name)).collect()
}

fn gains_of(table: &LatencyTable, band: &Band, name: &DrafterName) -> Vec<PartGain> {
    let mut before = 1.0;
    let gain = |part| {
        let best = best_within(table, band, name, part)?;
        let gain = best.speedup / before;
        before = best.speedup;
        Some(PartGain { part, best, gain })
    };
    Part::ALL.into_iter().filter_map(gain).collect()
}

/// The best shape of a drafter that the search of `part` reaches.
pub(super) fn best_within(
    table: &LatencyTable,
    band: &Band,
    name: &DrafterName,
    part: Part,
) -> Option<PricedShape> {
    let verify_widths = table.widths(&Stage::Verify);
    let shapes = band.priced().filter(|shape| shape.name == *name && part.reaches(shape, &verify_widths));
    best_by(shapes, |shape| shape.speedup)
}

/// The shape with the largest value; of equals the first.
pub(in crate::planner) fn best_by(
    shapes: impl Iterator<Item = PricedShape>,
    value: impl Fn(&PricedShape) -> f64,
) -> Option<PricedShape> {
    shapes.reduce(|best, next| if value(&next) > value(&best) { next } else { best })
}
