//! Judges candidates by a softmax in f64 over the fully sorted row.

use super::*;
use crate::candidates::{Candidates, candidate_columns};
use proptest::prelude::*;

fn candidates_of(logits: &[f32], k: usize, temperature: Option<f32>) -> Vec<(u32, f32)> {
    let mut out = vec![f32::NAN; candidate_columns(k)];
    let columns = out.len();
    let choice = Choice { k, temperature };
    candidates(Rows::new(logits, logits.len()), choice, None, RowsMut::new(&mut out, columns));
    Candidates::new(&out).iter().collect()
}

fn obvious(logits: &[f32], k: usize, temperature: f32) -> Vec<(u32, f64)> {
    let scaled: Vec<f64> = logits.iter().map(|&l| f64::from(l) / f64::from(temperature)).collect();
    let max = scaled.iter().copied().filter(|x| !x.is_nan()).fold(f64::NEG_INFINITY, f64::max);
    let log_sum = scaled.iter().filter(|x| !x.is_nan()).map(|x| (x - max).exp()).sum::<f64>().ln();
    let mut ids: Vec<u32> = (0..logits.len() as u32).filter(|&i| !logits[i as usize].is_nan()).collect();
    ids.sort_by(|&a, &b| logits[b as usize].partial_cmp(&logits[a as usize]).unwrap());
    ids.truncate(k);
    ids.into_iter().map(|i| (i, scaled[i as usize] - max - log_sum)).collect()
}

fn assert_close(found: &[(u32, f32)], expected: &[(u32, f64)]) {
    assert_eq!(found.len(), expected.len());
    for (&(id, found), &(token, log_prob)) in found.iter().zip(expected) {
        assert_eq!(id, token);
        let error = (f64::from(found) - log_prob).abs();
        assert!(error <= 2e-5 + 1e-6 * log_prob.abs(), "token {token}: {found} for {log_prob}");
    }
}

fn tokens(found: &[(u32, f32)]) -> Vec<u32> {
    found.iter().map(|(token, _)| *token).collect()
}

proptest! {
    #[test]
    fn candidates_are_the_head_of_the_sorted_softmax(
        logits in prop::collection::vec(prop_oneof![
            5 => (-20..20_i8).prop_map(|x| f32::from(x) / 4.0), 5 => -30.0..30.0_f32, 1 => Just(f32::NAN)], 1..600),
        k in 1..40_usize, temperature in prop_oneof![Just(1.0_f32), 0.1..2.0_f32]) {
        let expected = obvious(&logits, k, temperature);
        assert_close(&candidates_of(&logits, k, Some(temperature)), &expected);
        let plain = candidates_of(&logits, k, None);
        prop_assert_eq!(tokens(&plain), expected.iter().map(|(token, _)| *token).collect::<Vec<_>>());
        prop_assert!(plain.iter().all(|(token, logit)| logits[*token as usize].to_bits() == logit.to_bits()));
    }
}

#[test]
fn a_large_vocabulary_normalises() {
    let logits: Vec<f32> = (0..49_152).map(|i| 3.0 * ((i * 7919 % 49_152) as f32 / 4915.2).sin()).collect();
    assert_close(&candidates_of(&logits, 64, Some(0.2)), &obvious(&logits, 64, 0.2));
    let found = candidates_of(&vec![1.5; 49_152], 2, Some(1.0));
    let uniform = -(49_152.0_f32).ln();
    assert_eq!(tokens(&found), [0, 1]);
    assert!(found.iter().all(|(_, log_prob)| (log_prob - uniform).abs() < 1e-5));
}

#[test]
fn infinities_and_tiny_temperatures_give_no_nan() {
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let found = candidates_of(&[inf, 0.0, nan, inf], 3, Some(1.0));
    assert_eq!(tokens(&found), [0, 3, 1]);
    assert!((found[1].1 - 0.5_f32.ln()).abs() < 1e-6);
    assert_eq!(found[2].1, -inf);
    let found = candidates_of(&[-inf, -inf], 2, Some(1.0));
    assert!(found.iter().all(|(_, log_prob)| (log_prob - 0.5_f32.ln()).abs() < 1e-6));
    assert_eq!(candidates_of(&[1.0, 2.0], 2, Some(1e-40)), [(1, 0.0), (0, -inf)]);
    assert_eq!(candidates_of(&[nan; 20], 3, Some(1.0)), []);
}

#[test]
fn a_row_of_nothing_has_the_token_of_an_argmax() {
    let mut out = [f32::NAN; candidate_columns(2)];
    let nan = [f32::NAN; 5];
    candidates(Rows::new(&nan, 5), Choice::ARGMAX, None, RowsMut::new(&mut out, candidate_columns(2)));
    let found = Candidates::new(&out);
    assert!(found.is_empty() && found.best() == 0);
}

#[test]
#[should_panic(expected = "a draft temperature of 0 is not positive")]
fn a_zero_draft_temperature_is_a_broken_invariant() {
    candidates_of(&[1.0], 1, Some(0.0));
}

#[test]
#[should_panic(expected = "3 candidates of at most 2")]
fn more_than_there_is_room_for_is_a_broken_invariant() {
    let mut out = [0.0; candidate_columns(2)];
    let choice = Choice { k: 3, temperature: None };
    candidates(Rows::new(&[1.0], 1), choice, None, RowsMut::new(&mut out, candidate_columns(2)));
}
