//! The sampler: any parameters over any logits.

use arbitrary::{Arbitrary, Unstructured};
use yggc::sample::{Adjuster, Adjustment, LogNormaliser, Sampler, Sampling, argmax};

/// A row of logits, and what a request makes of it.
#[derive(Debug, Arbitrary)]
struct Case {
    temperature: f32,
    top_k: u32,
    top_p: f32,
    min_p: f32,
    seed: u64,
    position: u64,
    bias: Vec<(u8, f32)>,
    repetition: f32,
    frequency: f32,
    presence: f32,
    prompt: Vec<u8>,
    output: Vec<u8>,
    logits: Vec<f32>,
}

/// Draws a token, which must have a probability above 0.
pub fn check(input: &[u8]) -> bool {
    let Ok(case) = Case::arbitrary_take_rest(Unstructured::new(input)) else { return false };
    let Case { temperature, top_k, top_p, min_p, seed, position, bias, prompt, output, logits, .. } = case;
    let vocabulary = logits.len();
    if vocabulary == 0 {
        return false;
    }
    let token = |byte: u8| u32::from(byte) % vocabulary as u32;
    let sampling = Sampling { temperature, top_k, top_p, min_p, seed };
    let adjustment = Adjustment {
        bias: bias.into_iter().map(|(byte, added)| (u32::from(byte), added)).collect(),
        repetition: case.repetition,
        frequency: case.frequency,
        presence: case.presence,
    };
    let prompt: Vec<u32> = prompt.into_iter().map(token).collect();
    let mut adjuster = Adjuster::default();
    let (Ok(mut sampler), Ok(())) =
        (Sampler::new(sampling, vocabulary), adjuster.begin(&adjustment, &prompt, vocabulary))
    else {
        return false;
    };
    output.into_iter().for_each(|byte| adjuster.push(token(byte)));
    let row = adjuster.adjust(&logits).to_vec();
    let drawn = sampler.draw(&row, position);
    assert_eq!(drawn, sampler.draw(&row, position), "a draw depends on what was drawn before");
    if sampling.is_greedy() {
        assert_eq!(drawn, argmax(&row));
    }
    let mut shares = vec![f64::NAN; vocabulary];
    sampler.probabilities(&row, &mut shares);
    let sum: f64 = shares.iter().sum();
    assert!((sum - 1.0).abs() < 1e-9 && shares.iter().all(|share| *share >= 0.0), "{shares:?}");
    assert!(shares[drawn as usize] > 0.0, "{drawn} of {shares:?}");
    assert!(!row[drawn as usize].is_nan() || row.iter().all(|logit| logit.is_nan()), "{drawn} of {row:?}");
    let normaliser = LogNormaliser::new(&logits);
    assert!(logits.iter().all(|logit| normaliser.log_prob(*logit) <= 0.0), "{logits:?}");
    true
}
