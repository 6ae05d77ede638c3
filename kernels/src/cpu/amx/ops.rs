//! The ops of the tier, on either kind of tiles.

/// On the processor's tiles. Callers hold the proof that they can be used.
pub(in crate::cpu) mod on_hardware {
    linears!("avx512f,avx512bw,avx512vl,avx512dq", amx, crate::cpu::amx::hardware::Hardware);
}

/// On tiles in memory, for tests where the processor has none.
#[cfg(feature = "testing")]
pub(in crate::cpu) mod on_emulated {
    linears!("avx512f,avx512bw,avx512vl,avx512dq", amx, crate::cpu::amx::emulated::Emulated);
}
