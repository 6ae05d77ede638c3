//! Proof tokens: a value of one proves that the running processor has the instructions.

#[cfg(target_arch = "x86_64")]
use super::amx;
#[cfg(target_arch = "x86_64")]
use std::sync::OnceLock;

/// Proof of NEON with dot products of bytes.
#[cfg(target_arch = "aarch64")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neon(());

#[cfg(target_arch = "aarch64")]
impl Neon {
    /// The proof, for code that was compiled for the features.
    ///
    /// # Safety
    /// This processor has them all.
    #[inline(always)]
    pub(super) const unsafe fn assume() -> Self {
        Self(())
    }

    /// The proof, if this processor has them all.
    pub fn detect() -> Option<Self> {
        std::arch::is_aarch64_feature_detected!("dotprod").then_some(Self(()))
    }
}

/// Proof of all of [`Neon`] and of products of matrices of bytes (`SMMLA`).
#[cfg(target_arch = "aarch64")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct I8mm(());

#[cfg(target_arch = "aarch64")]
impl I8mm {
    /// The proof, if this processor has them all.
    pub fn detect() -> Option<Self> {
        (Neon::detect().is_some() && std::arch::is_aarch64_feature_detected!("i8mm")).then_some(Self(()))
    }

    /// What it proves as well.
    pub(super) const fn neon(self) -> Neon {
        Neon(())
    }
}

/// Proof of AVX2, FMA and F16C, with the operating system saving their registers.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Avx2(());

#[cfg(target_arch = "x86_64")]
impl Avx2 {
    /// The proof, for code that was compiled for the features.
    ///
    /// # Safety
    /// This processor has them all.
    #[inline(always)]
    pub(super) const unsafe fn assume() -> Self {
        Self(())
    }

    /// The proof, if this processor has them all.
    pub fn detect() -> Option<Self> {
        let has = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c");
        has.then_some(Self(()))
    }
}

/// Proof of all of [`Avx2`] and of AVX-VNNI.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AvxVnni(());

#[cfg(target_arch = "x86_64")]
impl AvxVnni {
    /// The proof, if this processor has them all.
    pub fn detect() -> Option<Self> {
        (Avx2::detect().is_some() && is_x86_feature_detected!("avxvnni")).then_some(Self(()))
    }

    /// What it proves as well.
    pub(super) const fn avx2(self) -> Avx2 {
        Avx2(())
    }
}

/// Proof of AVX-512 F, BW, VL, DQ and VNNI, with the operating system saving their registers.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Avx512(());

#[cfg(target_arch = "x86_64")]
impl Avx512 {
    /// The proof, for code that was compiled for the features.
    ///
    /// # Safety
    /// This processor has them all.
    #[inline(always)]
    pub(super) const unsafe fn assume() -> Self {
        Self(())
    }

    /// The proof, if this processor has them all.
    pub fn detect() -> Option<Self> {
        let has = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vnni");
        has.then_some(Self(()))
    }
}

/// Proof of all of [`Avx512`] and of AVX-512 BF16.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Avx512Bf16(());

#[cfg(target_arch = "x86_64")]
impl Avx512Bf16 {
    /// The proof, if this processor has them all.
    pub fn detect() -> Option<Self> {
        (Avx512::detect().is_some() && is_x86_feature_detected!("avx512bf16")).then_some(Self(()))
    }

    /// What it proves as well.
    pub(super) const fn avx512(self) -> Avx512 {
        Avx512(())
    }
}

/// Proof of all of [`Avx512`] and of AMX tiles with BF16 products, which the operating system lets this process use and
/// which were seen to compute what they should.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amx(());

#[cfg(target_arch = "x86_64")]
impl Amx {
    /// Its proof of the vector instructions.
    pub(super) fn avx512(self) -> Avx512 {
        Avx512(())
    }

    /// The proof, if this processor has them all. The first call asks the system for the whole process.
    pub fn detect() -> Option<Self> {
        static USABLE: OnceLock<bool> = OnceLock::new();
        let usable = *USABLE.get_or_init(|| Avx512::detect().is_some() && amx::usable());
        usable.then_some(Self(()))
    }

    /// Runs a test with the kernels that were compiled for the processor's tiles. Where it has none, each of their
    /// instructions is trapped and computed on emulated tiles, on one thread: the proof may not outlive the test.
    ///
    /// False, and nothing is run, without AVX-512, and where tiles exist that this process may not use.
    #[cfg(all(feature = "testing", target_os = "linux"))]
    pub fn run_compiled(test: impl FnOnce(Self)) -> bool {
        Avx512::detect().is_some() && amx::trapped::run(|| test(Self(())))
    }
}
