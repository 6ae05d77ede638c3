//! Recorded candidates as if their drafter had valued them at a lower temperature.
//!
//! A substitute's first candidate is accepted more often than its probability says, so trees that grow by sharper
//! values go deeper where that pays (SubSpec, <https://arxiv.org/abs/2509.18344>). Candidates and their order do not
//! depend on the temperature, and answers never do.
use ygg_profiler::{Candidate, Expansion, PromptTrace, StepTrace, Trace};

use crate::plan::DrafterKind;

/// Temperatures that are tried of a substitute, in addition to the recorded one if they are below it.
const TEMPERATURES: [f32; 4] = [1.0, 0.7, 0.5, 0.35];

/// The temperatures at which trees of a drafter are searched that were recorded at `recorded`, that one first.
pub(in crate::planner) fn temperatures(kind: &DrafterKind, recorded: f32) -> Vec<f32> {
    let is_sharper = |temperature: &f32| *temperature < recorded && kind.facts().substitute_bits.is_some();
    std::iter::once(recorded).chain(TEMPERATURES.into_iter().filter(is_sharper)).collect()
}

/// The trace at a temperature at or below the one it was recorded at. Tokens beyond the recorded candidates of a node
/// count as if each had the probability of the last: the more that is, the nearer to what they had.
pub(in crate::planner) fn sharpened(trace: &Trace, temperature: f32) -> Trace {
    if temperature == trace.draft_temperature {
        return trace.clone();
    }
    let power = f64::from(trace.draft_temperature / temperature);
    let expanded = |expansion: &Expansion| Expansion {
        node: expansion.node,
        candidates: sharper(&expansion.candidates, power),
    };
    let step = |step: &StepTrace| StepTrace {
        expanded: step.expanded.iter().map(expanded).collect(),
        ..step.clone()
    };
    let prompt = |prompt: &PromptTrace| PromptTrace {
        kind: prompt.kind.clone(),
        steps: prompt.steps.iter().map(step).collect(),
    };
    Trace {
        drafter: trace.drafter.clone(),
        draft_temperature: temperature,
        prompts: trace.prompts.iter().map(prompt).collect(),
        ..*trace
    }
}

/// Candidates whose probabilities, and those of all other tokens, are raised to a power of 1 or more and made to sum to
/// 1 again.
fn sharper(candidates: &[Candidate], power: f64) -> Vec<Candidate> {
    let Some(last) = candidates.last() else { return Vec::new() };
    let last = f64::from(last.log_prob);
    let sum = |power: f64| candidates.iter().map(|c| (power * f64::from(c.log_prob)).exp()).sum::<f64>();
    let others = (1.0 - sum(1.0)).max(0.0) * ((power - 1.0) * last).exp();
    let total = (sum(power) + others).ln();
    let candidate = |c: &Candidate| {
        let log_prob = (power * f64::from(c.log_prob) - total).min(0.0) as f32;
        Candidate { token: c.token, log_prob }
    };
    candidates.iter().map(candidate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Log-probabilities of all tokens at a temperature, best first.
    fn softmax(logits: &[f64], temperature: f64) -> Vec<f64> {
        let total = logits.iter().map(|logit| (logit / temperature).exp()).sum::<f64>().ln();
        logits.iter().map(|logit| logit / temperature - total).collect()
    }

    #[test]
    fn candidates_are_those_of_a_softmax_at_the_temperature() {
        for tail in [-6.0, -9.0] {
            let mut logits = vec![4.0, 3.5, 1.0, 0.5, -1.0];
            logits.extend((0..50).map(|i| tail - 0.05 * f64::from(i)));
            for (recorded, temperature) in [(1.0, 0.7), (1.0, 0.35), (0.7, 0.5), (0.5, 0.5)] {
                let kept = softmax(&logits, recorded);
                let kept: Vec<Candidate> = (0..)
                    .zip(&kept[..5])
                    .map(|(token, l)| Candidate { token, log_prob: *l as f32 })
                    .collect();
                let found = sharper(&kept, recorded / temperature);
                for (found, expected) in found.iter().zip(softmax(&logits, temperature)) {
                    let off = (f64::from(found.log_prob) - expected).abs();
                    assert!(off < 0.01, "{off} at {temperature}, recorded at {recorded}");
                }
                assert!(found.is_sorted_by(|a, b| a.log_prob >= b.log_prob && a.token < b.token));
            }
        }
        assert!(sharper(&[], 2.0).is_empty());
        let sure = [Candidate { token: 3, log_prob: 0.0 }];
        assert_eq!(sharper(&sure, 2.0)[0].log_prob, 0.0);
    }
}
