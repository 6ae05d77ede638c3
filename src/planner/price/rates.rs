//! What a step's time is worth to a choice by rate, found round by round (Dinkelbach, *On Nonlinear Fractional
//! Programming*, 1967).
use std::collections::BTreeMap;

use crate::plan::{RowRule, Shape};

/// What the time of each shape's steps is worth: at first what plain decoding makes of it, then what choosing by the
/// last worth reached. The rate reached rises from round to round and hardly after the second.
#[derive(Debug)]
pub(in crate::planner) struct Rates {
    plain: f64,
    by_shape: BTreeMap<Shape, f64>,
    rounds: u32,
}

impl Rates {
    const ROUNDS: u32 = 3;

    pub(in crate::planner) fn new(ar_tpot_us: f64) -> Self {
        Rates { plain: 1.0 / ar_tpot_us, by_shape: BTreeMap::new(), rounds: 0 }
    }

    pub(in crate::planner) fn of(&self, shape: &Shape) -> f64 {
        self.by_shape.get(shape).copied().unwrap_or(self.plain)
    }

    pub(in crate::planner) fn reached(&mut self, shape: Shape, rate: f64) {
        self.by_shape.insert(shape, rate);
    }

    /// Whether the replay just made is the last: at once where no step chooses by rate.
    pub(in crate::planner) fn are_found(&mut self, rule: RowRule) -> bool {
        self.rounds += 1;
        match rule {
            RowRule::Widest => true,
            RowRule::BestRate => self.rounds == Self::ROUNDS,
        }
    }
}
