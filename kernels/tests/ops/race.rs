//! Races against the reference, by equality.

use super::tiers;
use proptest::prelude::*;
use ygg_kernels::{noise::NoiseKey, reference, testing::Noise};

proptest! {
    #[test]
    fn the_winner_is_that_of_the_reference(
        len in 1..1500_usize,
        key: [u32; 4],
        temperature in prop::sample::select(vec![0.01_f32, 0.6, 1.0, 3.0, f32::MIN_POSITIVE]),
        spread in prop::sample::select(vec![0.0_f32, 1.0, 20.0]),
        least in prop::sample::select(vec![f64::NEG_INFINITY, -1.5, 0.0]),
        seed: u64,
    ) {
        let mut noise = Noise::new(seed);
        let special = [f32::NAN, f32::NEG_INFINITY, f32::INFINITY, -0.0, f32::MAX];
        let mut logits: Vec<f32> = noise.values(len).iter().map(|x| spread * x).collect();
        for _ in 0..noise.below(4) {
            let (at, what) = (noise.below(len), noise.below(special.len()));
            logits[at] = special[what];
        }
        let expected = reference::race(&logits, temperature, NoiseKey(key), |x| x >= least);
        for kernels in tiers() {
            let found = kernels.race(&logits, temperature, NoiseKey(key), |x| x >= least);
            prop_assert_eq!(found, expected, "{}", kernels.tier());
        }
    }
}

#[test]
fn a_row_without_numbers_has_no_winner_and_one_of_infinities_has() {
    let key = NoiseKey([1, 2, 3, 4]);
    for kernels in tiers() {
        for len in [1, 256, 300] {
            assert_eq!(kernels.race(&vec![f32::NAN; len], 1.0, key, |_| true), None);
            for x in [f32::NEG_INFINITY, f32::INFINITY] {
                let found = kernels.race(&vec![x; len], 1.0, key, |_| true);
                assert_eq!(found, kernels.race(&vec![0.0; len], 1.0, key, |_| true), "equal logits");
                assert!(found.is_some());
            }
        }
    }
}
