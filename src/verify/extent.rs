//! The number of cases, and when a check may stop.

use std::time::{Duration, Instant};

/// How much [`verify`](super::verify) tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// A few cases of everything.
    Quick,
    /// Many cases.
    Thorough,
}

impl Extent {
    /// `quick` or `thorough` of something.
    pub(super) fn of(self, quick: usize, thorough: usize) -> usize {
        match self {
            Self::Quick => quick,
            Self::Thorough => thorough,
        }
    }

    /// How long a verification takes at most, unless one case of every kind takes longer.
    pub fn longest(self) -> Duration {
        match self {
            Self::Quick => Duration::from_secs(180),
            Self::Thorough => Duration::from_secs(900),
        }
    }
}

/// A clock that started with a check, and runs until no further case is begun if one of every kind has been tried.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    start: Instant,
    patience: Duration,
}

impl Clock {
    #[expect(
        clippy::disallowed_methods,
        reason = "how long a check takes is reported, and bounds how many cases it tries; no verdict depends on it"
    )]
    pub(super) fn start(patience: Duration) -> Self {
        Self { start: Instant::now(), patience }
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    pub(super) fn left(&self) -> Duration {
        self.patience.saturating_sub(self.elapsed())
    }

    pub(super) fn is_up(&self) -> bool {
        self.left().is_zero()
    }

    /// Whether the first `part` of `parts` equal shares of the time are over.
    pub(super) fn is_up_for(&self, part: usize, parts: usize) -> bool {
        self.elapsed() * parts as u32 >= self.patience * part as u32
    }
}
