//! Cross-fitting: every recorded step gets the prediction of a network that was not trained on its prompt.
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    network::{DEEPEST, DepthNetwork},
    training::{DepthSample, End, Trained, base_rates, conditionals, train},
};
use crate::subject::DrafterName;

/// Most parts that the prompts are dealt into.
const MOST_FOLDS: usize = 5;
/// Fewest prompts with a step: one part to train on, one for early stopping, one to predict.
const FEWEST_PROMPTS: usize = 3;
/// Fewest steps.
const FEWEST_STEPS: usize = 48;
/// Intervals of predicted probability over which predictions are compared with what happened.
const ERROR_BINS: usize = 10;

/// How a predictor is trained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrainingSettings {
    /// Of the first weights and the order of the steps.
    pub seed: u64,
    /// Time for all networks, shared evenly; each is trained for one pass at least.
    pub budget: Duration,
}

/// A trained predictor as a profile keeps it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DepthPredictor {
    /// The drafter whose acceptance it predicts.
    pub drafter: DrafterName,
    /// Trained on all recorded steps.
    pub network: DepthNetwork,
    /// Quality of equally trained networks on prompts that they were not trained on.
    pub report: DepthReport,
}

/// Quality of out-of-sample predictions, compared with constant base rates of the same prompts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DepthReport {
    /// What the training began with.
    pub seed: u64,
    /// Steps predicted.
    pub steps: u64,
    /// Passes of every part's network.
    pub epochs: Vec<u32>,
    /// Mean negative log-likelihood of "another token is accepted", natural logarithm.
    pub log_loss: f64,
    /// The same of the base rates.
    pub base_log_loss: f64,
    /// Expected calibration error of P(accepted >= d): the mean over ten intervals of predicted probability, weighted
    /// by how often they were predicted, of the difference between mean prediction and share.
    pub calibration_error: f64,
    /// The same of the base rates.
    pub base_calibration_error: f64,
}

/// What cross-fitting gives.
#[derive(Debug, Clone, PartialEq)]
pub struct CrossFit {
    /// Trained on all steps.
    pub network: DepthNetwork,
    /// By prompt and step: P(accepted >= d) for d = 1, 2, ..., by a network that did not see the prompt.
    pub predicted: Vec<Vec<Vec<f32>>>,
    /// Quality of these predictions.
    pub report: DepthReport,
}

impl DepthNetwork {
    /// P(accepted >= d) for every depth `[D]`, the slow way; never rising with depth.
    ///
    /// # Panics
    /// If the features are not as many as the inputs, or the network is not valid.
    pub fn probabilities(&self, features: &[f32]) -> Vec<f64> {
        assert_eq!(features.len(), self.inputs(), "features and inputs");
        running_products(&conditionals(self, features))
    }
}

impl DepthReport {
    /// Why the numbers cannot be, if so.
    pub(crate) fn fault(&self) -> Option<String> {
        let DepthReport { seed: _, steps: _, epochs: _, log_loss, base_log_loss, .. } = self;
        let numbers = [*log_loss, *base_log_loss, self.calibration_error, self.base_calibration_error];
        numbers.iter().find(|n| !(n.is_finite() && **n >= 0.0)).map(ToString::to_string)
    }
}

fn running_products(conditionals: &[f64]) -> Vec<f64> {
    let product = |product: &mut f64, share: &f64| {
        *product *= share;
        Some(*product)
    };
    conditionals.iter().scan(1.0, product).collect()
}

/// Splits the prompts into parts and predicts every part by a network trained on the others, one of which serves early
/// stopping. The network to keep is trained on all parts, for the median of the passes of these networks. `None` with
/// too few prompts or steps. `elapsed` is the time since the caller's start.
///
/// # Panics
/// If steps have different numbers of features, or known outcomes for more than `depths` depths.
pub fn cross_fit(
    prompts: &[Vec<DepthSample>],
    depths: usize,
    settings: &TrainingSettings,
    elapsed: &mut dyn FnMut() -> Duration,
) -> Option<CrossFit> {
    let TrainingSettings { seed, budget } = *settings;
    let all: Vec<&DepthSample> = prompts.iter().flatten().collect();
    let with_steps = prompts.iter().filter(|steps| !steps.is_empty()).count();
    if with_steps < FEWEST_PROMPTS || all.len() < FEWEST_STEPS || !(1..=DEEPEST).contains(&depths) {
        return None;
    }
    let inputs = all[0].features.len();
    for DepthSample { features, accepted, observed } in &all {
        assert_eq!(features.len(), inputs, "every step has the same features");
        assert!(
            accepted <= observed && *observed as usize <= depths,
            "{accepted} accepted, {observed} observed"
        );
    }
    // Prompts with steps are dealt in turn, so that every part has one.
    let folds = MOST_FOLDS.min(with_steps);
    let mut dealt = (0..folds).cycle();
    let fold_of: Vec<usize> =
        prompts.iter().map(|steps| if steps.is_empty() { 0 } else { dealt.next().unwrap_or(0) }).collect();
    let of_folds = |wanted: &dyn Fn(usize) -> bool| -> Vec<&DepthSample> {
        let chosen = prompts.iter().zip(&fold_of).filter(|(_, fold)| wanted(**fold));
        chosen.flat_map(|(steps, _)| steps).collect()
    };

    let mut predicted: Vec<Vec<Vec<f32>>> = vec![Vec::new(); prompts.len()];
    let mut epochs = Vec::new();
    let (mut judged, mut base) = (Judged::default(), Judged::default());
    for fold in 0..folds {
        let next = (fold + 1) % folds;
        let training = of_folds(&|f| f != fold && f != next);
        let validation = of_folds(&|f| f == next);
        let until = share(budget, fold + 1, folds + 1);
        let mut is_over = || elapsed() >= until;
        let Trained { network, epochs: passes } =
            train(&training, depths, End::Validation(&validation), seed, &mut is_over);
        epochs.push(passes);
        let rates = base_rates(&of_folds(&|f| f != fold), depths);
        for (prompt, steps) in prompts.iter().enumerate().filter(|(prompt, _)| fold_of[*prompt] == fold) {
            for sample in steps {
                let conditionals = conditionals(&network, &sample.features);
                let probabilities = running_products(&conditionals);
                judged.add(sample, &conditionals);
                base.add(sample, &rates);
                predicted[prompt].push(probabilities.iter().map(|p| *p as f32).collect());
            }
        }
    }
    let mut sorted = epochs.clone();
    sorted.sort_unstable();
    let passes = End::Epochs(sorted[sorted.len() / 2]);
    let Trained { network, .. } = train(&all, depths, passes, seed, &mut || elapsed() >= budget);
    let report = DepthReport {
        seed,
        steps: all.len() as u64,
        epochs,
        log_loss: judged.log_loss(),
        base_log_loss: base.log_loss(),
        calibration_error: judged.calibration_error(),
        base_calibration_error: base.calibration_error(),
    };
    Some(CrossFit { network, predicted, report })
}

fn share(budget: Duration, parts: usize, of: usize) -> Duration {
    budget.mul_f64(parts as f64 / of as f64)
}

/// Predictions compared with outcomes.
#[derive(Debug, Default)]
struct Judged {
    loss: f64,
    events: u64,
    bins: [Bin; ERROR_BINS],
}

/// One interval of predicted probability.
#[derive(Debug, Default, Clone, Copy)]
struct Bin {
    predicted: f64,
    happened: f64,
    count: f64,
}

impl Judged {
    fn add(&mut self, sample: &DepthSample, conditionals: &[f64]) {
        for (probability, happened) in conditionals.iter().zip(sample.events()) {
            let of_this = if happened { *probability } else { 1.0 - probability };
            self.loss -= of_this.max(f64::MIN_POSITIVE).ln();
            self.events += 1;
        }
        for (depth, probability) in (1..=sample.observed).zip(running_products(conditionals)) {
            let bin = &mut self.bins[((probability * ERROR_BINS as f64) as usize).min(ERROR_BINS - 1)];
            bin.predicted += probability;
            bin.happened += f64::from(u8::from(depth <= sample.accepted));
            bin.count += 1.0;
        }
    }

    fn log_loss(&self) -> f64 {
        self.loss / self.events.max(1) as f64
    }

    fn calibration_error(&self) -> f64 {
        let all: f64 = self.bins.iter().map(|bin| bin.count).sum();
        self.bins.iter().map(|bin| (bin.predicted - bin.happened).abs()).sum::<f64>() / all.max(1.0)
    }
}
