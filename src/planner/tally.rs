//! What replayed steps gave, prompt by prompt: the evidence that a price rests on.
use std::collections::BTreeMap;

use ygg_profiler::TableError;

use super::{AcceptedLengths, objective::mean_step, unseen::PromptSpeed};
use crate::plan::{Prediction, StageTime, step_us};

/// Steps of one shape by what decides their time, `K`: the width they ran at, or the depth they drafted to and the width.
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
    steps: Vec<(K, u64)>,
}

/// A shape with its price.
pub(super) struct Priced {
    pub(super) predicted: Prediction,
    pub(super) by_prompt: Vec<PromptSpeed>,
}

impl<K: Copy + Ord> Tally<K> {
    /// Counts a step of the prompt at `place` that accepted `length` drafted tokens and emitted `most` tokens at most. Prompts come one
    /// after the other.
    pub fn record(&mut self, place: usize, length: usize, most: usize, kind: K) {
        self.accepted.record(length, most);
        *self.steps.entry(kind).or_default() += 1;
        if self.prompts.last().is_none_or(|prompt| prompt.place != place) {
            self.prompts.push(PromptTally { place, tokens: 0, steps: Vec::new() });
        }
        let prompt = self.prompts.last_mut().expect("one was pushed");
        prompt.tokens += (length + 1).min(most) as u64;
        match prompt.steps.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, steps)) => *steps += 1,
            None => prompt.steps.push((kind, 1)),
        }
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
    pub(super) fn priced(
        &self,
        ar_tpot_us: f64,
        stages_at: impl Fn(K) -> Result<Vec<StageTime>, TableError>,
    ) -> Result<Priced, TableError> {
        let stages = self.steps.keys().map(|kind| Ok((*kind, stages_at(*kind)?)));
        let stages = stages.collect::<Result<BTreeMap<K, Vec<StageTime>>, TableError>>()?;
        let mean = mean_step(&self.steps, |kind| Ok(stages[&kind].clone()))?;
        let times: BTreeMap<K, f64> = stages.iter().map(|(kind, stages)| (*kind, step_us(stages))).collect();
        let speed = |PromptTally { place, tokens, steps }: &PromptTally<K>| PromptSpeed {
            place: *place,
            tokens: *tokens as f64,
            us: steps.iter().map(|(kind, steps)| *steps as f64 * times[kind]).sum(),
        };
        Ok(Priced {
            predicted: Prediction::new(self.accepted.aal(), mean, ar_tpot_us),
            by_prompt: self.prompts.iter().map(speed).collect(),
        })
    }
}
