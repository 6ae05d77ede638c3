//! Provenance of a bench's figures: program, date, machine, model, kernels.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use ygg_profiler::{Fingerprints, MachineFingerprint, ModelFingerprint};
use yggc::engine::Loaded;

use crate::cli::error::Failure;

#[derive(Debug, Serialize)]
pub(super) struct MachineJson {
    #[serde(flatten)]
    pub(super) facts: MachineFingerprint,
    digest: String,
}

/// The provenance of a bench.
#[derive(Debug, Serialize)]
pub(super) struct Provenance {
    version: &'static str,
    /// Date and time in UTC.
    date: String,
    pub(super) machine: MachineJson,
    model: ModelFingerprint,
    kernels: String,
    threads: usize,
}

impl Provenance {
    /// # Errors
    /// [`Failure::Engine`] of kind `Device` if the machine cannot be read.
    pub(super) fn new(loaded: &Loaded) -> Result<Self, Failure> {
        let Fingerprints { machine, model, build } = loaded.fingerprints()?;
        Ok(Self {
            version: env!("CARGO_PKG_VERSION"),
            date: utc(now_s()),
            machine: MachineJson { digest: machine.digest(), facts: machine },
            model,
            kernels: build.kernels,
            threads: loaded.threads(),
        })
    }
}

#[expect(clippy::disallowed_methods, reason = "a bench says when it was run; nothing follows from it")]
fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Seconds since 1970 as an RFC 3339 time, by the calendar's 400-year cycle
/// (<https://howardhinnant.github.io/date_algorithms.html#civil_from_days>).
fn utc(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // Years begin in March here, so that the leap day is the last.
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, date) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_799, "2000-02-29T23:59:59Z"),
            (1_709_251_200, "2024-03-01T00:00:00Z"),
            (1_767_225_599, "2025-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc(seconds), date);
        }
    }
}
