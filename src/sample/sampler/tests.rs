//! Judges the sampler by a version that sorts the whole vocabulary, and its draws by a chi-square test.

use super::*;
use proptest::prelude::*;

const PLAIN: Sampling = Sampling { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, seed: 7 };

/// The contract at the top of `sampler.rs`, word by word. Survivors in id order with their weights.
fn obvious(sampling: &Sampling, logits: &[f32]) -> Vec<(u32, f64)> {
    let max = logits.iter().copied().filter(|l| !l.is_nan()).fold(f32::NEG_INFINITY, f32::max);
    let weight = |l: f32| match l == max {
        true => 1.0,
        false => exp_nonpositive((f64::from(l) - f64::from(max)) / f64::from(sampling.temperature)),
    };
    let mut ranked: Vec<(u32, f64)> = Vec::new();
    for (id, &l) in logits.iter().enumerate().filter(|(_, l)| !l.is_nan()) {
        ranked.push((id as u32, weight(l)));
    }
    ranked
        .sort_by(|a, b| logits[b.0 as usize].partial_cmp(&logits[a.0 as usize]).unwrap().then(a.0.cmp(&b.0)));
    if sampling.top_k > 0 {
        ranked.truncate(sampling.top_k as usize);
    }
    if sampling.top_p < 1.0 {
        let mut in_id_order = ranked.clone();
        in_id_order.sort_by_key(|t| t.0);
        let wanted = f64::from(sampling.top_p) * in_id_order.iter().map(|t| t.1).sum::<f64>();
        let mut sum = 0.0;
        let reached = ranked.iter().position(|t| {
            sum += t.1;
            sum >= wanted
        });
        ranked.truncate(reached.map_or(ranked.len(), |last| last + 1));
    }
    ranked.retain(|t| t.1 >= f64::from(sampling.min_p));
    ranked.sort_by_key(|t| t.0);
    ranked
}

fn obvious_draw(sampling: &Sampling, logits: &[f32], position: u64) -> u32 {
    if sampling.temperature == 0.0 {
        return argmax(logits);
    }
    let max = logits.iter().copied().filter(|l| !l.is_nan()).fold(f32::NEG_INFINITY, f32::max);
    let key = NoiseKey::at(sampling.seed, position);
    let noisy = |id: u32| {
        let x = score(logits[id as usize], max, f64::from(sampling.temperature));
        if x == f64::NEG_INFINITY { x } else { x + key.gumbel(id) }
    };
    let kept = obvious(sampling, logits).into_iter().map(|(id, _)| id);
    kept.reduce(|best, id| if noisy(id) > noisy(best) { id } else { best }).unwrap_or(0)
}

/// Uniform in [0, 1).
fn uniform(seed: u64, place: u64) -> f64 {
    f64::from(NoiseKey::at(seed, place).0[3]) / 2_f64.powi(32)
}

fn assert_same(sampling: Sampling, logits: &[f32], positions: std::ops::Range<u64>) {
    let mut sampler = Sampler::new(sampling, logits.len()).unwrap();
    let capacities =
        |s: &Sampler| (s.ids.capacity(), s.weights.capacity(), s.top.capacity(), s.keys.capacity());
    let before = capacities(&sampler);
    for position in positions {
        let expected = obvious_draw(&sampling, logits, position);
        assert_eq!(sampler.draw(logits, position), expected, "{sampling:?} at {position}");
    }
    if sampling.temperature > 0.0 {
        let kept = obvious(&sampling, logits);
        let total: f64 = kept.iter().map(|t| t.1).sum();
        let mut expected = vec![0.0; logits.len()];
        for &(id, weight) in &kept {
            expected[id as usize] = weight / total;
        }
        if total == 0.0 {
            expected[0] = 1.0;
        }
        let mut found = vec![f64::NAN; logits.len()];
        sampler.probabilities(logits, &mut found);
        assert_eq!(found, expected, "{sampling:?}");
        assert!((found.iter().sum::<f64>() - 1.0).abs() < 1e-12);
    }
    assert_eq!(capacities(&sampler), before, "a row reallocated the scratch");
}

fn any_logit() -> impl Strategy<Value = f32> {
    prop_oneof![
        6 => (-20..20_i8).prop_map(|x| f32::from(x) / 4.0),
        6 => -30.0..30.0_f32,
        1 => prop::sample::select(vec![f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0, f32::MAX, -2000.0]),
    ]
}

fn any_sampling() -> impl Strategy<Value = Sampling> {
    let off_or = |range: std::ops::RangeInclusive<f32>, off: f32| prop_oneof![Just(off), range];
    (
        prop_oneof![Just(0.0_f32), Just(1.0), 0.01..3.0_f32, Just(1e-30)],
        prop_oneof![Just(0_u32), 1..20_u32, 20..400_u32],
        prop_oneof![off_or(0.01..=0.999, 1.0), Just(1e-9_f32), Just(0.999_999_94)],
        off_or(0.0..=1.0, 0.0),
        any::<u64>(),
    )
        .prop_map(|(temperature, top_k, top_p, min_p, seed)| Sampling {
            temperature,
            top_k,
            top_p,
            min_p,
            seed,
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]
    #[test]
    fn draws_and_probabilities_are_those_of_the_full_sort(logits in prop::collection::vec(any_logit(), 1..400),
                                                         sampling in any_sampling(), position: u64) {
        let position = position.min(u64::MAX - 8);
        assert_same(sampling, &logits, position..position + 8);
    }
}

/// A row like a language model's: a few likely tokens above a wide bell.
fn row(vocab: usize, seed: u64) -> Vec<f32> {
    let bell = |i: u64| (0..6).map(|j| uniform(seed, 6 * i + j)).sum::<f64>() - 3.0;
    (0..vocab as u64)
        .map(|i| (4.0 * bell(i)) as f32 + if i % 997 == seed % 997 { 6.0 } else { 0.0 })
        .collect()
}

#[test]
fn large_vocabularies_agree_with_the_full_sort() {
    for (seed, (temperature, top_k, top_p, min_p)) in [
        (1.0, 0, 1.0, 0.0),
        (0.7, 40, 0.95, 0.05),
        (1.0, 0, 0.9, 0.0),
        (2.5, 0, 0.99, 0.0),
        (1.0, 5000, 0.8, 0.01),
    ]
    .into_iter()
    .enumerate()
    {
        let sampling = Sampling { temperature, top_k, top_p, min_p, seed: seed as u64 };
        assert_same(sampling, &row(49_152, seed as u64), 100..104);
    }
    assert_same(Sampling { top_p: 0.5, ..PLAIN }, &[0.25; 49_152], 0..2);
}

/// Chi-square statistic of counts against probabilities.
fn chi_square(counts: &[u32], probabilities: &[f64]) -> f64 {
    let n = f64::from(counts.iter().sum::<u32>());
    counts.iter().zip(probabilities).map(|(&c, p)| (f64::from(c) - n * p).powi(2) / (n * p)).sum()
}

#[test]
fn draws_follow_the_distribution_and_a_biased_draw_would_be_noticed() {
    // The 0.999 quantile of chi-square with 7 degrees of freedom.
    const LIMIT: f64 = 24.32;
    let logits = [0.5, -1.0, 2.0, 0.0, 1.0, -0.5, 1.5, -2.0];
    let mut probabilities = [0.0; 8];
    let (mut honest, mut biased) = ([0; 8], [0; 8]);
    let sampling = Sampling { temperature: 0.8, ..PLAIN };
    let mut sampler = Sampler::new(sampling, 8).unwrap();
    sampler.probabilities(&logits, &mut probabilities);
    let exact: Vec<f64> = logits.iter().map(|l| (f64::from(*l) / f64::from(0.8_f32)).exp()).collect();
    for (p, e) in probabilities.iter().zip(&exact) {
        assert!((p - e / exact.iter().sum::<f64>()).abs() < 1e-15);
    }
    for position in 0..20_000 {
        honest[sampler.draw(&logits, position) as usize] += 1;
        let mut left = uniform(sampling.seed, position).powf(1.05);
        let token = probabilities.iter().position(|p| {
            left -= p;
            left < 0.0
        });
        biased[token.unwrap()] += 1;
    }
    assert!(chi_square(&honest, &probabilities) < LIMIT, "{honest:?}");
    assert!(chi_square(&biased, &probabilities) > LIMIT, "{biased:?}");
}

#[test]
fn filters_apply_in_the_order_of_the_contract() {
    // Probabilities 0.4, 0.3, 0.2, 0.1, in the order of ids 2, 0, 3, 1.
    let logits = [0.3_f32, 0.1, 0.4, 0.2].map(f32::ln);
    let support = |sampling: Sampling| {
        let mut out = [0.0; 4];
        Sampler::new(sampling, 4).unwrap().probabilities(&logits, &mut out);
        out.map(|p| (p * 100.0).round() as u32)
    };
    assert_eq!(support(PLAIN), [30, 10, 40, 20]);
    assert_eq!(support(Sampling { top_k: 3, ..PLAIN }), [33, 0, 44, 22]);
    assert_eq!(support(Sampling { top_p: 0.65, ..PLAIN }), [43, 0, 57, 0]);
    // Of the two that top-k leaves, 0.57 and 0.43, the first alone reaches 0.55; of all four it would not.
    assert_eq!(support(Sampling { top_k: 2, top_p: 0.55, ..PLAIN }), [0, 0, 100, 0]);
    assert_eq!(support(Sampling { min_p: 0.6, ..PLAIN }), [43, 0, 57, 0]);
    // Temperature first: at 0.5 the weights are squared and 0.3 is worth 0.56 of 0.4.
    assert_eq!(support(Sampling { temperature: 0.5, min_p: 0.6, ..PLAIN }), [0, 0, 100, 0]);
    assert_eq!(support(Sampling { temperature: 0.0, ..PLAIN }), [0, 0, 100, 0]);
}

#[test]
fn ties_at_a_cut_go_to_the_lowest_ids() {
    for sampling in [Sampling { top_k: 2, ..PLAIN }, Sampling { top_p: 0.5, ..PLAIN }] {
        let mut out = [0.0; 4];
        Sampler::new(sampling, 4).unwrap().probabilities(&[1.0; 4], &mut out);
        assert_eq!(out, [0.5, 0.5, 0.0, 0.0]);
    }
}

#[test]
fn degenerate_rows_never_panic() {
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let filtered = Sampling { top_k: 2, top_p: 0.9, min_p: 0.1, ..PLAIN };
    for sampling in [PLAIN, filtered, Sampling::GREEDY, Sampling { top_p: 0.9, ..PLAIN }] {
        let mut sampler = Sampler::new(sampling, 3).unwrap();
        for position in 0..20 {
            assert_eq!(sampler.draw(&[nan; 3], position), 0);
            assert_eq!(sampler.draw(&[nan, -inf, 1.0], position), 2);
            assert_eq!(sampler.draw(&[0.0, inf, nan], position), 1);
            assert!(sampler.draw(&[nan, -inf, -inf], position) > 0);
        }
    }
}

#[test]
fn a_draw_depends_on_seed_and_position_and_not_on_history() {
    let logits = row(500, 3);
    let mut sampler = Sampler::new(PLAIN, 500).unwrap();
    let forward: Vec<u32> = (0..64).map(|p| sampler.draw(&logits, p)).collect();
    let mut backward: Vec<u32> = (0..64).rev().map(|p| sampler.draw(&logits, p)).collect();
    backward.reverse();
    assert_eq!(forward, backward);
    sampler.set_sampling(Sampling { seed: 8, ..PLAIN }).unwrap();
    assert_ne!(forward, (0..64).map(|p| sampler.draw(&logits, p)).collect::<Vec<_>>());
}

#[test]
fn bad_requests_are_refused_and_change_nothing() {
    assert_eq!(Sampler::new(PLAIN, 0).unwrap_err(), SampleError::Vocabulary { found: 0 });
    let mut sampler = Sampler::new(PLAIN, 4).unwrap();
    let bad = Sampling { top_p: 0.0, ..PLAIN };
    assert_eq!(
        sampler.set_sampling(bad),
        Err(SampleError::Parameter { parameter: &crate::sample::Parameter::TOP_P, found: 0.0 })
    );
    assert_eq!(*sampler.sampling(), PLAIN);
}

#[test]
#[should_panic(expected = "one number per token")]
fn a_row_of_the_wrong_length_is_a_broken_invariant() {
    Sampler::new(PLAIN, 4).unwrap().draw(&[0.0; 3], 0);
}
