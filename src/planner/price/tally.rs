//! What replayed steps gave, prompt by prompt: the evidence that a price rests on.
use std::collections::BTreeMap;

use ygg_profiler::TableError;

use crate::plan::{Prediction, StageTime, step_us};
use crate::planner::{
    AcceptedLengths,
    price::{objective::mean_step, prompt_speed::PromptSpeed},
};

/// Steps of one shape by what decides their time, `K`: the width they ran at, or the depth they drafted to and the
/// width.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tally<K> {
    accepted: AcceptedLengths,
    steps: BTreeMap<K, u64>,
    prompts: Vec<PromptTally<K>>,
}

/// The part of one prompt.
#[derive(Debug, Clone, Default, PartialEq)]
struct PromptTally<K> {
    /// Its place among the recorded prompts.
    place: usize,
    tokens: u64,
    steps: Vec<(K, KindTally)>,
    /// Tokens of the last step, and the sum over all pairs of neighbours of the product of their tokens.
    last: u64,
    products: u64,
}

/// Steps of one prompt and kind.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct KindTally {
    steps: u64,
    tokens: u64,
    /// Sum of the squares of the steps' tokens.
    squares: u64,
}

/// A shape with its price.
pub(in crate::planner) struct Priced {
    pub(in crate::planner) predicted: Prediction,
    pub(in crate::planner) by_prompt: Vec<PromptSpeed>,
}

impl<K: Copy + Ord> Tally<K> {
    /// Counts a step of the prompt at `place` that accepted `length` drafted tokens and emitted `most` tokens at most.
    /// Prompts come one after the other.
    pub fn record(&mut self, place: usize, length: usize, most: usize, kind: K) {
        self.accepted.record(length, most);
        *self.steps.entry(kind).or_default() += 1;
        if self.prompts.last().is_none_or(|prompt| prompt.place != place) {
            self.prompts.push(PromptTally { place, tokens: 0, steps: Vec::new(), last: 0, products: 0 });
        }
        let prompt = self.prompts.last_mut().expect("one was pushed");
        let tokens = (length + 1).min(most) as u64;
        prompt.tokens += tokens;
        prompt.products += prompt.last * tokens;
        prompt.last = tokens;
        let known = prompt.steps.iter().position(|(known, _)| *known == kind);
        let place = known.unwrap_or_else(|| {
            prompt.steps.push((kind, KindTally::default()));
            prompt.steps.len() - 1
        });
        let of_kind = &mut prompt.steps[place].1;
        of_kind.steps += 1;
        of_kind.tokens += tokens;
        of_kind.squares += tokens * tokens;
    }

    /// What the steps accepted and emitted.
    pub fn accepted(&self) -> &AcceptedLengths {
        &self.accepted
    }

    /// The steps by what decides their time.
    pub fn steps(&self) -> &BTreeMap<K, u64> {
        &self.steps
    }

    /// The price of the mean step, and that of every prompt's steps.
    ///
    /// # Errors
    /// [`TableError::Unmeasured`] from `stages_at`.
    pub(in crate::planner) fn priced(
        &self,
        ar_tpot_us: f64,
        stages_at: impl Fn(K) -> Result<Vec<StageTime>, TableError>,
    ) -> Result<Priced, TableError> {
        let stages = self.steps.keys().map(|kind| Ok((*kind, stages_at(*kind)?)));
        let stages = stages.collect::<Result<BTreeMap<K, Vec<StageTime>>, TableError>>()?;
        let mean = mean_step(&self.steps, |kind| Ok(stages[&kind].clone()))?;
        let times: BTreeMap<K, f64> = stages.iter().map(|(kind, stages)| (*kind, step_us(stages))).collect();
        let speed = |prompt: &PromptTally<K>| {
            let PromptTally { place, tokens, ref steps, last: _, products } = *prompt;
            let sum =
                |of: &dyn Fn(f64, KindTally) -> f64| steps.iter().map(|(kind, s)| of(times[kind], *s)).sum();
            PromptSpeed {
                place,
                tokens: tokens as f64,
                us: sum(&|us, s| s.steps as f64 * us),
                steps: sum(&|_, s| s.steps as f64),
                earned_squares: sum(&|us, KindTally { steps, tokens, squares }| {
                    let cost = us / ar_tpot_us;
                    squares as f64 - 2.0 * cost * tokens as f64 + steps as f64 * cost * cost
                }),
                token_squares: sum(&|_, s| s.squares as f64),
                token_products: products as f64,
            }
        };
        Ok(Priced {
            predicted: Prediction::new(self.accepted.aal(), mean, ar_tpot_us),
            by_prompt: self.prompts.iter().map(speed).collect(),
        })
    }
}
