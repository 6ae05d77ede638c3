//! Every op of every tier of this processor: against the reference with a tolerance; row invariance, and for all but
//! linears the tiers among each other, with equality.

#[cfg(target_arch = "x86_64")]
mod amx;
mod attention;
mod candidates;
mod int8;
mod linear;
mod pointwise;
mod race;
mod recurrence;
mod routed;
mod short_conv;
mod tuning;

#[cfg(target_arch = "x86_64")]
use ygg_kernels::cpu::{Avx2, Avx512, AvxVnni};
#[cfg(target_arch = "aarch64")]
use ygg_kernels::cpu::{I8mm, Neon};
use ygg_kernels::{Activations, Tier, cpu::Kernels};

/// Every way to compute a linear here: the tiers, with either kind of activations.
fn linears() -> impl Iterator<Item = Kernels> {
    tiers().flat_map(|kernels| Activations::ALL.map(|activations| kernels.with_activations(activations)))
}

/// The tiers that this processor can run, AVX2 without AVX-VNNI, NEON without products of matrices, and AMX with
/// emulated tiles in addition to AVX-512.
fn tiers() -> impl Iterator<Item = Kernels> {
    Tier::ALL.into_iter().filter_map(Kernels::for_tier).chain(plainer()).chain(emulated_amx())
}

/// A tier that has fewer instructions on other processors.
fn plainer() -> Option<Kernels> {
    #[cfg(target_arch = "aarch64")]
    return I8mm::detect().and(Neon::detect()).map(Kernels::neon);
    #[cfg(target_arch = "x86_64")]
    return AvxVnni::detect().and(Avx2::detect()).map(Kernels::avx2);
    #[cfg(not(any(target_arch = "aarch64", target_arch = "x86_64")))]
    None
}

#[cfg(target_arch = "x86_64")]
fn emulated_amx() -> Option<Kernels> {
    Avx512::detect().map(Kernels::emulated_amx)
}

#[cfg(not(target_arch = "x86_64"))]
fn emulated_amx() -> Option<Kernels> {
    None
}

#[test]
fn the_best_tier_is_available() {
    assert!(Tier::detect_best().is_available());
    let here: Vec<_> = Tier::ALL.into_iter().filter_map(Kernels::for_tier).collect();
    assert_eq!(here.last(), Some(&Kernels::best()));
    for kernels in here {
        assert_eq!(Kernels::for_tier(kernels.tier()), Some(kernels));
    }
}
