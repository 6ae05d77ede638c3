//! Judges draft candidates by a softmax in f64 over the fully sorted row.

use super::*;
use proptest::prelude::*;

fn obvious(logits: &[f32], k: usize, temperature: f32) -> Vec<(u32, f64)> {
    let scaled: Vec<f64> = logits.iter().map(|&l| f64::from(l) / f64::from(temperature)).collect();
    let max = scaled.iter().copied().filter(|x| !x.is_nan()).fold(f64::NEG_INFINITY, f64::max);
    let log_sum = scaled.iter().filter(|x| !x.is_nan()).map(|x| (x - max).exp()).sum::<f64>().ln();
    let mut ids: Vec<u32> = (0..logits.len() as u32).filter(|&i| !logits[i as usize].is_nan()).collect();
    ids.sort_by(|&a, &b| logits[b as usize].partial_cmp(&logits[a as usize]).unwrap());
    ids.truncate(k);
    ids.into_iter().map(|i| (i, scaled[i as usize] - max - log_sum)).collect()
}

fn assert_close(found: &[Candidate], expected: &[(u32, f64)]) {
    assert_eq!(found.len(), expected.len());
    for (c, &(token, log_prob)) in found.iter().zip(expected) {
        assert_eq!(c.token, token);
        let error = (f64::from(c.log_prob) - log_prob).abs();
        assert!(error <= 2e-4 + 1e-6 * log_prob.abs(), "token {token}: {} for {log_prob}", c.log_prob);
    }
}

proptest! {
    #[test]
    fn candidates_are_the_head_of_the_sorted_softmax(
        logits in prop::collection::vec(prop_oneof![
            5 => (-20..20_i8).prop_map(|x| f32::from(x) / 4.0), 5 => -30.0..30.0_f32, 1 => Just(f32::NAN)], 0..300),
        k in 0..40_usize, temperature in prop_oneof![Just(1.0_f32), 0.1..2.0_f32]) {
        let mut out = Vec::with_capacity(k);
        let storage = out.as_ptr();
        draft_candidates(&logits, k, temperature, &mut out);
        assert_close(&out, &obvious(&logits, k, temperature));
        prop_assert_eq!(out.as_ptr(), storage);
    }
}

#[test]
fn a_large_vocabulary_normalises() {
    let logits: Vec<f32> = (0..49_152).map(|i| 3.0 * ((i * 7919 % 49_152) as f32 / 4915.2).sin()).collect();
    let mut out = Vec::new();
    draft_candidates(&logits, 64, 0.2, &mut out);
    assert_close(&out, &obvious(&logits, 64, 0.2));
    draft_candidates(&vec![1.5; 49_152], 2, 1.0, &mut out);
    let uniform = -(49_152.0_f32).ln();
    assert_eq!(out.iter().map(|c| c.token).collect::<Vec<_>>(), [0, 1]);
    assert!(out.iter().all(|c| (c.log_prob - uniform).abs() < 1e-5));
}

#[test]
fn infinities_and_tiny_temperatures_give_no_nan() {
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let mut out = Vec::new();
    draft_candidates(&[inf, 0.0, nan, inf], 3, 1.0, &mut out);
    assert_eq!(out.iter().map(|c| c.token).collect::<Vec<_>>(), [0, 3, 1]);
    assert!((out[1].log_prob - 0.5_f32.ln()).abs() < 1e-6);
    assert_eq!(out[2].log_prob, -inf);
    draft_candidates(&[-inf, -inf], 2, 1.0, &mut out);
    assert!(out.iter().all(|c| (c.log_prob - 0.5_f32.ln()).abs() < 1e-6));
    draft_candidates(&[1.0, 2.0], 2, 1e-40, &mut out);
    assert_eq!((out[0].token, out[0].log_prob, out[1].log_prob), (1, 0.0, -inf));
    draft_candidates(&[nan; 20], 3, 1.0, &mut out);
    assert!(out.is_empty());
}

#[test]
#[should_panic(expected = "a draft temperature of 0 is not positive")]
fn a_zero_draft_temperature_is_a_broken_invariant() {
    draft_candidates(&[1.0], 1, 0.0, &mut Vec::new());
}
