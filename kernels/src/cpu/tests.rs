//! Every op of every tier of this processor: against the reference with a tolerance, and row invariance with equality.

mod attention;
mod linear;
mod pointwise;

use super::Kernels;
use crate::Tier;

/// The tiers that this processor can run.
fn tiers() -> impl Iterator<Item = Kernels> {
    Tier::ALL.into_iter().filter_map(Kernels::for_tier)
}

#[test]
fn the_best_tier_is_available() {
    assert!(Tier::detect_best().is_available());
    assert_eq!(tiers().last(), Some(Kernels::best()));
    for kernels in tiers() {
        assert_eq!(Kernels::for_tier(kernels.tier()), Some(kernels));
    }
}
