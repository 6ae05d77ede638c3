//! The trainer against finite differences and a rule that it must find; cross-fitting against its own leaks.
use std::time::Duration;

use super::{
    CrossFit, DepthNetwork, DepthSample, TrainingSettings, UNITS, cross_fit,
    network::lengths,
    training::{add_gradient, base_rates, loss, untrained},
};
use crate::random::Random;

const FREE: TrainingSettings = TrainingSettings { seed: 7, budget: Duration::from_secs(3600) };

fn fit(prompts: &[Vec<DepthSample>], depths: usize, settings: &TrainingSettings) -> Option<CrossFit> {
    cross_fit(prompts, depths, settings, &mut || Duration::ZERO)
}

/// Steps whose acceptance hangs on the first feature alone: with it positive, nearly everything is accepted.
fn ruled(prompts: usize, steps: usize, depths: u32) -> Vec<Vec<DepthSample>> {
    let mut random = Random::new(3);
    let mut step = || {
        let features: Vec<f32> = (0..6).map(|_| 5.0 + 2.0 * random.signed()).collect();
        let chance = if features[0] > 5.0 { 90 } else { 15 };
        let accepted = (0..depths).take_while(|_| random.bits() % 100 < chance).count();
        DepthSample { features, accepted: u32::try_from(accepted).unwrap(), observed: depths }
    };
    (0..prompts).map(|_| (0..steps).map(|_| step()).collect()).collect()
}

#[test]
fn every_weight_has_the_slope_of_the_loss() {
    let samples = [
        DepthSample { features: vec![0.3, -1.2, 2.0], accepted: 1, observed: 3 },
        DepthSample { features: vec![-0.7, 0.4, 1.0], accepted: 3, observed: 3 },
        // Cut inside the draft: what would have followed is not observed.
        DepthSample { features: vec![1.5, 0.1, 0.2], accepted: 2, observed: 2 },
        DepthSample { features: vec![0.0, 0.9, -0.4], accepted: 0, observed: 3 },
    ];
    let all: Vec<&DepthSample> = samples.iter().collect();
    let mut network = untrained(&all, 3, &mut Random::new(1));
    let mut random = Random::new(2);
    // Heads and biases start at 0, where some slopes are 0 too.
    network.parameters.iter_mut().for_each(|weight| *weight += 0.2 * random.signed());
    let mut gradient = vec![0.0; network.parameters.len()];
    all.iter().for_each(|sample| add_gradient(&network, sample, &mut gradient));

    let total = |network: &DepthNetwork| all.iter().map(|sample| loss(network, sample)).sum::<f64>();
    let largest = gradient.iter().fold(0f32, |most, slope| most.max(slope.abs()));
    let mut start = 0;
    for (kind, length) in lengths(3, 3).into_iter().enumerate() {
        let slopes = &gradient[start..start + length];
        for (i, predicted) in slopes.iter().enumerate() {
            let at = |change: f32| {
                let mut network = network.clone();
                network.parameters[start + i] += change;
                total(&network)
            };
            let step = 1e-2f32;
            // Fourth order, so that the step can be large compared with the rounding of single precision.
            let [near, far] = [1.0, 2.0].map(|steps| at(steps * step) - at(-steps * step));
            let slope = (8.0 * near - far) / (12.0 * f64::from(step));
            let error = (slope - f64::from(*predicted)).abs();
            assert!(error < 2e-4 * f64::from(largest), "layer {kind}, weight {i}: {slope} and {predicted}");
        }
        assert!(slopes.iter().any(|slope| slope.abs() > 1e-3), "layer {kind} has no slope to judge");
        start += length;
    }
    assert_eq!(start, network.parameters.len());
}

#[test]
fn only_what_a_step_tells_has_a_loss() {
    let events = |accepted, observed| {
        DepthSample { features: Vec::new(), accepted, observed }.events().collect::<Vec<_>>()
    };
    assert_eq!(events(0, 4), [false]);
    assert_eq!(events(2, 4), [true, true, false]);
    assert_eq!(events(4, 4), [true; 4]);
    assert_eq!(events(2, 2), [true; 2]);
    assert!(events(0, 0).is_empty());
}

#[test]
fn base_rates_are_those_of_the_steps_that_tell() {
    let samples: Vec<DepthSample> = [(0, 2), (1, 2), (2, 2), (1, 1)]
        .map(|(accepted, observed)| DepthSample { features: vec![0.0], accepted, observed })
        .to_vec();
    let all: Vec<&DepthSample> = samples.iter().collect();
    // One imagined success in two is added to each.
    assert_eq!(base_rates(&all, 3), [4.0 / 6.0, 2.0 / 4.0, 0.5]);
    let network = untrained(&all, 3, &mut Random::new(5));
    let predicted = network.probabilities(&[0.0]);
    for (predicted, expected) in predicted.iter().zip([2.0 / 3.0, 1.0 / 3.0, 1.0 / 6.0]) {
        assert!((predicted - expected).abs() < 1e-6, "{predicted} instead of {expected}");
    }
}

#[test]
fn a_rule_is_found_and_told_of_prompts_not_seen() {
    let prompts = ruled(20, 60, 4);
    let CrossFit { network, predicted, report } = fit(&prompts, 4, &FREE).unwrap();
    assert!(report.log_loss < 0.8 * report.base_log_loss, "{report:?}");
    assert!(report.calibration_error < 0.06, "{report:?}");
    assert_eq!((report.steps, report.epochs.len(), report.seed), (1200, 5, 7));
    let mut split = [(0.0, 0.0); 2];
    for (steps, predicted) in prompts.iter().zip(&predicted) {
        assert_eq!(steps.len(), predicted.len());
        for (step, predicted) in steps.iter().zip(predicted) {
            assert!(predicted.len() == 4 && predicted.is_sorted_by(|a, b| a >= b), "{predicted:?}");
            let side = &mut split[usize::from(step.features[0] > 5.0)];
            *side = (side.0 + f64::from(predicted[0]), side.1 + 1.0);
        }
    }
    let [bad, good] = split.map(|(sum, count)| sum / count);
    assert!(bad < 0.3 && good > 0.75, "{bad} and {good}");
    let certain = network.probabilities(&[6.5, 5.0, 5.0, 5.0, 5.0, 5.0]);
    let hopeless = network.probabilities(&[3.5, 5.0, 5.0, 5.0, 5.0, 5.0]);
    assert!(certain[3] > 0.5 && hopeless[0] < 0.3, "{certain:?} and {hopeless:?}");
}

#[test]
fn what_is_told_of_a_prompt_does_not_hang_on_its_outcome() {
    let prompts = ruled(5, 40, 3);
    let honest = fit(&prompts, 3, &FREE).unwrap();
    let mut turned = prompts.clone();
    turned[2].iter_mut().for_each(|step| step.accepted = 3 - step.accepted);
    let other = fit(&turned, 3, &FREE).unwrap();
    assert_eq!(honest.predicted[2], other.predicted[2], "the prompt's own outcome was used");
    assert_ne!(honest.predicted[0], other.predicted[0], "other prompts' outcomes are used");
}

#[test]
fn noise_is_told_by_its_base_rate() {
    let mut random = Random::new(11);
    let mut prompts = ruled(10, 30, 3);
    prompts.iter_mut().flatten().for_each(|step| step.features.iter_mut().for_each(|x| *x = random.signed()));
    let CrossFit { report, .. } = fit(&prompts, 3, &FREE).unwrap();
    assert!(report.log_loss < 1.05 * report.base_log_loss, "{report:?}");
}

#[test]
fn the_same_seed_gives_the_same_numbers_and_a_spent_budget_an_early_end() {
    let prompts = ruled(6, 20, 3);
    let first = fit(&prompts, 3, &FREE).unwrap();
    assert_eq!(first, fit(&prompts, 3, &FREE).unwrap());
    assert_ne!(first.network, fit(&prompts, 3, &TrainingSettings { seed: 8, ..FREE }).unwrap().network);
    let spent = TrainingSettings { budget: Duration::ZERO, ..FREE };
    let CrossFit { report, .. } = fit(&prompts, 3, &spent).unwrap();
    assert!(report.epochs.iter().all(|epochs| *epochs <= 1), "{:?}", report.epochs);
}

#[test]
fn too_little_to_judge_by_trains_nothing() {
    assert_eq!(fit(&ruled(2, 100, 3), 3, &FREE), None);
    assert_eq!(fit(&ruled(5, 9, 3), 3, &FREE), None);
    let mut empty = ruled(2, 60, 3);
    empty.push(Vec::new());
    assert_eq!(fit(&empty, 3, &FREE), None);
    empty.push(ruled(1, 20, 3).remove(0));
    let predicted = fit(&empty, 3, &FREE).unwrap().predicted;
    assert_eq!(predicted.iter().map(Vec::len).collect::<Vec<_>>(), [60, 60, 0, 20]);
}

/// What the error must mention, and the change that causes it.
type Break = (&'static str, fn(&mut DepthNetwork));

#[test]
fn contradictory_networks_are_refused() {
    let good = DepthNetwork::blank(2, 3);
    assert_eq!((good.validate(), good.inputs()), (Ok(()), 2));
    assert_eq!(good.layers().heads.len(), 3 * UNITS);
    let breaks: [Break; 6] = [
        ("inputs", |n| n.mean.clear()),
        ("inputs", |n| n.scale.push(1.0)),
        ("depths", |n| n.depths = 0),
        ("depths", |n| n.depths = 65),
        ("weights", |n| n.parameters.push(0.0)),
        ("weights", |n| n.parameters[5] = f32::NAN),
    ];
    for (what, change) in breaks {
        let mut bad = good.clone();
        change(&mut bad);
        let error = bad.validate().unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    }
}
