//! A point in time, as profiles and plans carry it: seconds since 1970, its date in UTC, and its age.
use std::{
    fmt,
    time::{SystemTime, UNIX_EPOCH},
};

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

const MINUTE_S: u64 = 60;
const HOUR_S: u64 = 60 * MINUTE_S;
const DAY_S: u64 = 24 * HOUR_S;

/// Whole seconds since 1970-01-01 00:00 UTC. Nothing but reports follows from one.
///
/// Shown as the minute that it falls in.
///
/// ```
/// use ygg_profiler::UnixTime;
///
/// let measured = UnixTime::from_seconds(1_795_356_180);
/// assert_eq!(measured.to_string(), "2026-11-22 14:03 UTC");
/// assert_eq!(measured.age_at(UnixTime::from_seconds(1_795_620_000)), "3 days ago");
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UnixTime(u64);

impl UnixTime {
    /// The time so many seconds after 1970-01-01 00:00 UTC.
    pub const fn from_seconds(seconds: u64) -> Self {
        Self(seconds)
    }

    /// Seconds since 1970-01-01 00:00 UTC.
    pub const fn seconds(self) -> u64 {
        self.0
    }

    /// The present by the system's clock; 1970 if that is set before.
    #[expect(
        clippy::disallowed_methods,
        reason = "what is measured carries its date; nothing follows from it"
    )]
    pub fn now() -> Self {
        Self(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
    }

    /// How long before `now` it was, in the largest whole unit up to days: `3 days ago`.
    pub fn age_at(self, now: Self) -> String {
        let Some(age_s) = now.0.checked_sub(self.0) else {
            return "in the future by this machine's clock".to_owned();
        };
        let (count, unit) = match age_s {
            ..MINUTE_S => return "less than a minute ago".to_owned(),
            MINUTE_S..HOUR_S => (age_s / MINUTE_S, "minute"),
            HOUR_S..DAY_S => (age_s / HOUR_S, "hour"),
            DAY_S.. => (age_s / DAY_S, "day"),
        };
        format!("{count} {unit}{} ago", if count == 1 { "" } else { "s" })
    }

    /// Date and time by RFC 3339: `2026-11-22T14:03:00Z`.
    pub fn rfc3339(self) -> String {
        self.utc().format("%Y-%m-%dT%H:%M:%SZ").to_string()
    }

    /// In UTC; the last time that has a date, if a hostile file names a later one.
    fn utc(self) -> DateTime<Utc> {
        i64::try_from(self.0)
            .ok()
            .and_then(|s| DateTime::from_timestamp(s, 0))
            .unwrap_or(DateTime::<Utc>::MAX_UTC)
    }
}

impl fmt::Display for UnixTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.utc().format("%Y-%m-%d %H:%M UTC"))
    }
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
            let time = UnixTime::from_seconds(seconds);
            assert_eq!(time.rfc3339(), date);
            assert_eq!(time.to_string(), format!("{} {} UTC", &date[..10], &date[11..16]));
        }
        // The field of a hostile file.
        assert!(UnixTime::from_seconds(u64::MAX).to_string().ends_with(" UTC"));
    }

    #[test]
    fn ages_are_told_in_their_largest_whole_unit() {
        let then = UnixTime::from_seconds(1_000_000);
        for (age_s, said) in [
            (0, "less than a minute ago"),
            (59, "less than a minute ago"),
            (60, "1 minute ago"),
            (3_599, "59 minutes ago"),
            (3_600, "1 hour ago"),
            (86_399, "23 hours ago"),
            (86_400, "1 day ago"),
            (400 * 86_400, "400 days ago"),
        ] {
            assert_eq!(then.age_at(UnixTime::from_seconds(1_000_000 + age_s)), said);
        }
        let before = UnixTime::from_seconds(999_999);
        assert!(then.age_at(before).starts_with("in the future"), "{}", then.age_at(before));
    }
}
