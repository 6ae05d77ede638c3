//! From a recording to a depth predictor: what was seen before every step, and what became of it.

use std::time::{Duration, Instant};

use ygg_profiler::{CrossFit, DepthPredictor, DepthSample, Trace, TrainingSettings, cross_fit};

use crate::planner::recorded_outcome;

/// Where the first weights come from: one number, so that a recording always gives the same predictor.
const SEED: u64 = 1;

/// Trains on the steps of a trace, before which `features` were seen (by prompt and step), within `budget`, and writes
/// into every step its predicted depths. `None` if the trace holds too little to judge a predictor by.
#[allow(clippy::disallowed_methods, reason = "the caller's time budget ends the training")]
pub(super) fn train_predictor(
    trace: &mut Trace,
    features: Vec<Vec<Vec<f32>>>,
    budget: Duration,
) -> Option<DepthPredictor> {
    let sample = |(step, features)| {
        let (accepted, observed) = recorded_outcome(step, trace.depth);
        DepthSample { features, accepted, observed }
    };
    let prompts = trace.prompts.iter().zip(features);
    let samples: Vec<Vec<DepthSample>> =
        prompts.map(|(prompt, features)| prompt.steps.iter().zip(features).map(sample).collect()).collect();
    let start = Instant::now();
    let settings = TrainingSettings { seed: SEED, budget };
    let fitted = cross_fit(&samples, trace.depth as usize, &settings, &mut || start.elapsed())?;
    let CrossFit { network, predicted, report } = fitted;
    for (prompt, predicted) in trace.prompts.iter_mut().zip(predicted) {
        for (step, predicted) in prompt.steps.iter_mut().zip(predicted) {
            step.predicted = predicted;
        }
    }
    Some(DepthPredictor { drafter: trace.drafter.clone(), network, report })
}
