//! The number of cases, and when a check may stop.

use std::time::{Duration, Instant};

/// How much [`verify`](super::verify) tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// A few cases of everything: a minute or two for a small model.
    Quick,
    /// Many cases: several times as long.
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

    /// Time after which a check begins no further case, once it has tried one of every kind.
    pub(super) fn patience(self) -> Duration {
        match self {
            Self::Quick => Duration::from_secs(25),
            Self::Thorough => Duration::from_secs(300),
        }
    }
}

/// A clock that started with a check.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stopwatch {
    start: Instant,
}

impl Stopwatch {
    #[expect(
        clippy::disallowed_methods,
        reason = "how long a check takes is reported, and bounds how many cases it tries; no verdict depends on it"
    )]
    pub(super) fn start() -> Self {
        Self { start: Instant::now() }
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }
}
