//! Draws from rows of logits.

use super::Kernels;
use crate::{cpu::generic, noise::NoiseKey};

impl Kernels {
    /// The winner of the race of a row of logits `[V]` under a temperature, by the meaning in [`crate::noise`], among
    /// the tokens whose score without noise `keeps` admits; `None` if it admits none that is a number. Equal bits in
    /// every tier.
    ///
    /// # Panics
    /// If the temperature is not positive, or a token's id would exceed 32 bits.
    pub fn race(
        self,
        logits: &[f32],
        temperature: f32,
        key: NoiseKey,
        keeps: impl FnMut(f64) -> bool,
    ) -> Option<u32> {
        assert!(temperature > 0.0, "a race at temperature {temperature}");
        assert!(u32::try_from(logits.len()).is_ok(), "ids of {} tokens", logits.len());
        self.call(generic::Race { logits, temperature: f64::from(temperature), key, keeps })
    }
}
