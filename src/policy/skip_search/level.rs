//! How well drafts are accepted now, compared with how well they were: what tells that a text has changed.

use serde::{Deserialize, Serialize};

/// Steps that the recent mean forgets over.
const RECENT: u32 = 64;
/// Steps that the long mean forgets over.
const LONG: u32 = 1024;
/// How far the recent mean must be below the long one: more than three deviations of a mean over as many steps.
const FALL: f64 = 0.15;

/// Two running means of whether a step's first drafted token was accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Level {
    steps: u32,
    recent: f64,
    long: f64,
}

impl Level {
    /// Takes note of a step that drafted.
    pub(super) fn add(&mut self, accepted: bool) {
        let Self { steps, recent, long } = self;
        *steps = steps.saturating_add(1);
        let value = f64::from(u8::from(accepted));
        *recent += (value - *recent) / f64::from((*steps).min(RECENT));
        *long += (value - *long) / f64::from((*steps).min(LONG));
    }

    /// Whether drafts are accepted clearly less often than they were.
    pub(super) fn fell(&self) -> bool {
        self.steps >= 2 * RECENT && self.recent < self.long - FALL
    }

    /// Whether the means are what means can be.
    pub(super) fn is_sound(&self) -> bool {
        [self.recent, self.long].iter().all(|mean| (0.0..=1.0).contains(mean))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_lasting_fall_is_one() {
        let mut level = Level::default();
        for step in 0..2_000 {
            level.add(step % 10 < 7);
            assert!(!level.fell() && level.is_sound(), "after {step} steady steps");
        }
        let fell_after = (0..200).find(|step| {
            level.add(step % 10 < 3);
            level.fell()
        });
        assert!(fell_after.is_some_and(|steps| (10..120).contains(&steps)), "{fell_after:?}");
        let mut early = Level::default();
        (0..100).for_each(|step| early.add(step < 20));
        assert!(!early.fell(), "too few steps tell nothing");
    }
}
