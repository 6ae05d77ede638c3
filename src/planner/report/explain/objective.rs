//! What the objective decides: most tokens per time (eq. 3) against most tokens per step (AAL).
use serde::Serialize;

use crate::{
    plan::{Band, PricedShape},
    planner::compare::parts::best_by,
};

/// The best shapes by either objective.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ObjectiveContrast {
    /// Over all drafters.
    pub overall: Contrast,
    /// By drafter, in the plan's order; plain decoding, which has one shape, is not among them.
    pub by_drafter: Vec<Contrast>,
}

/// The best shapes by either objective among some.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Contrast {
    /// The shape with most tokens per time.
    pub by_speed: PricedShape,
    /// The shape with most tokens per step; of equals the fastest.
    pub by_aal: PricedShape,
    /// How many times the time per token of the one by speed that by AAL takes.
    pub cost: f64,
}

impl Contrast {
    /// What the other objective would have meant, in words.
    pub fn words(&self) -> String {
        let Contrast { by_speed, by_aal, cost } = self;
        if by_speed == by_aal {
            return format!("one shape of {} has most of both", by_speed.name);
        }
        format!(
            "most tokens per step would take {} with {:.2} tokens a step instead of {:.2}, at {cost:.2} times the time per \
             token",
            by_aal.name, by_aal.aal, by_speed.aal
        )
    }
}

/// The best shapes of a band by either objective.
pub(super) fn contrast(band: &Band) -> ObjectiveContrast {
    let all: Vec<PricedShape> = band.priced().collect();
    let among = |is_in: &dyn Fn(&PricedShape) -> bool| {
        let shapes = || all.iter().filter(|shape| is_in(shape)).cloned();
        let by_speed = best_by(shapes(), |shape| shape.speedup)?;
        let by_aal = best_by(shapes(), |shape| shape.aal)?;
        let cost = by_aal.tpot_us / by_speed.tpot_us;
        Some(Contrast { by_speed, by_aal, cost })
    };
    ObjectiveContrast {
        overall: among(&|_| true).expect("a plan priced plain decoding"),
        by_drafter: band
            .drafting()
            .filter_map(|sub_plan| among(&|shape| shape.name == sub_plan.name))
            .collect(),
    }
}
