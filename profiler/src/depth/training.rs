//! Training: back-propagation, Adam, and early stopping on validation samples.
use super::network::{DepthNetwork, Layers, UNITS, lengths};
use crate::random::Random;

/// Adam's step, decays and floor (Kingma and Ba, <https://arxiv.org/abs/1412.6980>).
const RATE: f32 = 1e-3;
const DECAYS: [f32; 2] = [0.9, 0.999];
const FLOOR: f32 = 1e-8;
/// Weight decay, as a share of the rate: there are more inputs than training samples can determine.
const WEIGHT_DECAY: f32 = 0.05;
/// Samples of one step of Adam.
const BATCH: usize = 32;
/// Most passes over the samples.
const MOST_EPOCHS: u32 = 40;
/// Passes without a better loss on the validation samples after which training ends.
const PATIENCE: u32 = 3;

/// A recorded step: what was known before drafting, and how much of the draft was accepted.
#[derive(Debug, Clone, PartialEq)]
pub struct DepthSample {
    /// Inputs `[I]`.
    pub features: Vec<f32>,
    /// Drafted tokens accepted.
    pub accepted: u32,
    /// Depths whose outcome is known: all drafted, or only those accepted where the request ended inside the draft.
    pub observed: u32,
}

impl DepthSample {
    /// For depths 1, 2, ... with a known outcome: whether, after d - 1 accepted tokens, another was accepted.
    pub(super) fn events(&self) -> impl Iterator<Item = bool> {
        let (accepted, last) = (self.accepted, self.observed.min(self.accepted + 1));
        (1..=last).map(move |depth| depth <= accepted)
    }
}

/// A trained network, and the passes that gave it.
#[derive(Debug, Clone)]
pub(super) struct Trained {
    pub(super) network: DepthNetwork,
    pub(super) epochs: u32,
}

/// When training ends.
#[derive(Debug, Clone, Copy)]
pub(super) enum End<'a> {
    /// When the loss on these samples stops falling; the best network is kept.
    Validation(&'a [&'a DepthSample]),
    /// After as many passes.
    Epochs(u32),
}

/// For every depth d: of the steps that accept d - 1 tokens and have a known outcome, the share that accepts another.
pub(super) fn base_rates(samples: &[&DepthSample], depths: usize) -> Vec<f64> {
    let mut rates = vec![(1.0, 2.0); depths];
    for sample in samples {
        for (rate, accepted) in rates.iter_mut().zip(sample.events()) {
            rate.0 += f64::from(u8::from(accepted));
            rate.1 += 1.0;
        }
    }
    rates.into_iter().map(|(accepted, all)| accepted / all).collect()
}

/// A network that gives the constant base rates until it is trained: its heads have no weights yet.
pub(super) fn untrained(samples: &[&DepthSample], depths: usize, random: &mut Random) -> DepthNetwork {
    let inputs = samples[0].features.len();
    let mut network = DepthNetwork::blank(inputs, depths);
    let count = samples.len() as f64;
    for i in 0..inputs {
        let mean = samples.iter().map(|s| f64::from(s.features[i])).sum::<f64>() / count;
        let square = |s: &&DepthSample| (f64::from(s.features[i]) - mean).powi(2);
        let deviation = (samples.iter().map(square).sum::<f64>() / count).sqrt();
        network.mean[i] = mean as f32;
        network.scale[i] = if deviation > 1e-6 { (1.0 / deviation) as f32 } else { 0.0 };
    }
    let [first, first_bias, second, second_bias, heads, _] = lengths(inputs, depths);
    let spread = |fan_in: usize| (3.0 / fan_in as f32).sqrt();
    let (head, rest) = network.parameters.split_at_mut(first);
    head.iter_mut().for_each(|weight| *weight = spread(inputs) * random.signed());
    let rest = &mut rest[first_bias..];
    rest[..second].iter_mut().for_each(|weight| *weight = spread(UNITS) * random.signed());
    let biases = &mut rest[second + second_bias + heads..];
    for (bias, rate) in biases.iter_mut().zip(base_rates(samples, depths)) {
        *bias = (rate / (1.0 - rate)).ln() as f32;
    }
    network
}

/// Trains from a seed until the stopping rule applies, or `is_over` is true after a pass.
pub(super) fn train(
    samples: &[&DepthSample],
    depths: usize,
    end: End<'_>,
    seed: u64,
    is_over: &mut dyn FnMut() -> bool,
) -> Trained {
    let mut random = Random::new(seed);
    let mut network = untrained(samples, depths, &mut random);
    let mut adam = Adam::new(network.parameters.len());
    let mut gradient = vec![0.0; network.parameters.len()];
    let mut order: Vec<usize> = (0..samples.len()).collect();
    let mut best = Trained { network: network.clone(), epochs: 0 };
    let mut best_loss = match end {
        End::Validation(others) => mean_loss(&network, others),
        End::Epochs(_) => f64::INFINITY,
    };
    let most = match end {
        End::Validation(_) => MOST_EPOCHS,
        End::Epochs(epochs) => epochs,
    };
    for epoch in 1..=most {
        random.shuffle(&mut order);
        for batch in order.chunks(BATCH) {
            gradient.fill(0.0);
            for place in batch {
                add_gradient(&network, samples[*place], &mut gradient);
            }
            adam.step(&mut network.parameters, &gradient, batch.len());
        }
        match end {
            End::Validation(others) => {
                let loss = mean_loss(&network, others);
                if loss < best_loss {
                    best_loss = loss;
                    best = Trained { network: network.clone(), epochs: epoch };
                }
            }
            End::Epochs(_) => best = Trained { network: network.clone(), epochs: epoch },
        }
        if is_over() || (matches!(end, End::Validation(_)) && epoch >= best.epochs + PATIENCE) {
            break;
        }
    }
    best
}

/// Mean loss over the events of samples; 0 without one.
fn mean_loss(network: &DepthNetwork, samples: &[&DepthSample]) -> f64 {
    let events: usize = samples.iter().map(|sample| sample.events().count()).sum();
    samples.iter().map(|sample| loss(network, sample)).sum::<f64>() / events.max(1) as f64
}

/// Negative log-likelihood of a step's known outcomes, natural logarithm.
pub(super) fn loss(network: &DepthNetwork, sample: &DepthSample) -> f64 {
    let states = forward(network, &sample.features);
    let layers = network.layers();
    sample
        .events()
        .enumerate()
        .map(|(depth, happened)| {
            let x = f64::from(head(&layers, &states, depth));
            // ln(1 + e^-x) for what happened and ln(1 + e^x) for what did not, without overflow.
            let x = if happened { -x } else { x };
            x.max(0.0) + (-x.abs()).exp().ln_1p()
        })
        .sum()
}

/// P(accepted d-th, d - 1 being accepted) for every depth `[D]`.
pub(super) fn conditionals(network: &DepthNetwork, features: &[f32]) -> Vec<f64> {
    let (states, layers) = (forward(network, features), network.layers());
    (0..network.depths as usize).map(|depth| f64::from(sigmoid(head(&layers, &states, depth)))).collect()
}

/// What every layer has computed, for going back through them.
struct States {
    inputs: Vec<f32>,
    before: [[f32; UNITS]; 2],
    after: [[f32; UNITS]; 2],
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

fn silu(x: f32) -> f32 {
    x * sigmoid(x)
}

fn silu_slope(x: f32) -> f32 {
    let s = sigmoid(x);
    s * (1.0 + x * (1.0 - s))
}

fn layer(inputs: &[f32], weights: &[f32], bias: &[f32]) -> [f32; UNITS] {
    let mut sums = [0.0; UNITS];
    sums.copy_from_slice(bias);
    for (x, weights) in inputs.iter().zip(weights.chunks_exact(UNITS)) {
        for (sum, weight) in sums.iter_mut().zip(weights) {
            *sum += x * weight;
        }
    }
    sums
}

fn forward(network: &DepthNetwork, features: &[f32]) -> States {
    let layers = network.layers();
    let standard = features.iter().zip(&network.mean).zip(&network.scale);
    let inputs: Vec<f32> = standard.map(|((x, mean), scale)| (x - mean) * scale).collect();
    let first = layer(&inputs, layers.first, layers.first_bias);
    let hidden = first.map(silu);
    let second = layer(&hidden, layers.second, layers.second_bias);
    States { inputs, before: [first, second], after: [hidden, second.map(silu)] }
}

fn head(layers: &Layers<'_>, states: &States, depth: usize) -> f32 {
    let weights = &layers.heads[depth * UNITS..][..UNITS];
    weights.iter().zip(&states.after[1]).map(|(w, h)| w * h).sum::<f32>() + layers.head_bias[depth]
}

/// Adds the slope of a sample's loss by every weight.
pub(super) fn add_gradient(network: &DepthNetwork, sample: &DepthSample, gradient: &mut [f32]) {
    let (states, layers) = (forward(network, &sample.features), network.layers());
    let depths = network.depths as usize;
    let mut rest = gradient;
    let [first, first_bias, second, second_bias, heads, head_bias] =
        lengths(network.inputs(), depths).map(|length| {
            let (layer, remaining) = std::mem::take(&mut rest).split_at_mut(length);
            rest = remaining;
            layer
        });
    let mut back = [0.0; UNITS];
    for (depth, happened) in sample.events().enumerate() {
        let slope = sigmoid(head(&layers, &states, depth)) - f32::from(u8::from(happened));
        head_bias[depth] += slope;
        let weights = &layers.heads[depth * UNITS..][..UNITS];
        let gradients = &mut heads[depth * UNITS..][..UNITS];
        for unit in 0..UNITS {
            gradients[unit] += slope * states.after[1][unit];
            back[unit] += slope * weights[unit];
        }
    }
    let back: [f32; UNITS] = std::array::from_fn(|unit| back[unit] * silu_slope(states.before[1][unit]));
    add_outer(&states.after[0], &back, second, second_bias);
    let weights = layers.second.chunks_exact(UNITS);
    let mut below = [0.0; UNITS];
    for (unit, weights) in weights.enumerate() {
        let sum: f32 = weights.iter().zip(&back).map(|(w, b)| w * b).sum();
        below[unit] = sum * silu_slope(states.before[0][unit]);
    }
    add_outer(&states.inputs, &below, first, first_bias);
}

/// Adds the slopes of a layer's weights `[inputs, U]` and biases, from its inputs and the slopes of its sums.
fn add_outer(inputs: &[f32], slopes: &[f32; UNITS], weights: &mut [f32], bias: &mut [f32]) {
    for (x, weights) in inputs.iter().zip(weights.chunks_exact_mut(UNITS)) {
        for (weight, slope) in weights.iter_mut().zip(slopes) {
            *weight += x * slope;
        }
    }
    for (bias, slope) in bias.iter_mut().zip(slopes) {
        *bias += slope;
    }
}

/// Adam's running means.
#[derive(Debug)]
struct Adam {
    mean: Vec<f32>,
    square: Vec<f32>,
    steps: i32,
}

impl Adam {
    fn new(parameters: usize) -> Self {
        Adam { mean: vec![0.0; parameters], square: vec![0.0; parameters], steps: 0 }
    }

    /// One step against the gradient of `samples` samples.
    fn step(&mut self, parameters: &mut [f32], gradient: &[f32], samples: usize) {
        self.steps += 1;
        let [fast, slow] = DECAYS;
        let (mean_bias, square_bias) = (1.0 - fast.powi(self.steps), 1.0 - slow.powi(self.steps));
        let share = 1.0 / samples as f32;
        for (((parameter, slope), mean), square) in
            parameters.iter_mut().zip(gradient).zip(&mut self.mean).zip(&mut self.square)
        {
            let slope = slope * share;
            *mean = fast * *mean + (1.0 - fast) * slope;
            *square = slow * *square + (1.0 - slow) * slope * slope;
            let step = *mean / mean_bias / ((*square / square_bias).sqrt() + FLOOR);
            *parameter -= RATE * (step + WEIGHT_DECAY * *parameter);
        }
    }
}
