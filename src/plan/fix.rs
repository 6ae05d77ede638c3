//! What a user fixes of a plan: `--fix drafter=D,Dd=4,Wd=4,Wv=16`, or any part of it.
use std::fmt;

use super::{PlanError, Schedule, Shape};

/// Parts of a plan that are given instead of searched.
///
/// A fix that names no drafter narrows the shapes of every drafter; one that does leaves the others free. Any fix but
/// `drafter=none` asks for speculation, so plain decoding is then not chosen even where it is faster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fix {
    /// The drafter, by name or kind.
    pub drafter: Option<String>,
    /// Growths, Dd.
    pub depth: Option<u32>,
    /// Nodes per growth, Wd.
    pub draft_width: Option<u32>,
    /// Rows verified, Wv.
    pub verify_width: Option<u32>,
    /// When heads are drafted.
    pub schedule: Option<Schedule>,
}

impl Fix {
    /// Reads `drafter=D,Dd=4,Wd=4,Wv=16,schedule=plain`; every part may be left out, none may come twice.
    ///
    /// # Errors
    /// [`PlanError::FixSyntax`] names the part that is wrong.
    pub fn parse(text: &str) -> Result<Self, PlanError> {
        let error = |found: String| PlanError::FixSyntax { text: text.to_owned(), found };
        let mut fix = Fix::default();
        for part in text.split(',') {
            let (key, value) = part.split_once('=').ok_or_else(|| error(format!("`{part}` without `=`")))?;
            let number = || {
                value
                    .parse()
                    .ok()
                    .filter(|n| *n >= 1)
                    .ok_or_else(|| error(format!("`{value}` instead of a number from 1 on")))
            };
            let twice = match key {
                "drafter" if value.is_empty() => return Err(error("no name after `drafter=`".to_owned())),
                "drafter" => fix.drafter.replace(value.to_owned()).is_some(),
                "Dd" => fix.depth.replace(number()?).is_some(),
                "Wd" => fix.draft_width.replace(number()?).is_some(),
                "Wv" => fix.verify_width.replace(number()?).is_some(),
                "schedule" => {
                    let named = Schedule::parse(value);
                    let schedule = named.map_err(|names| error(format!("`{value}` instead of {names}")))?;
                    fix.schedule.replace(schedule).is_some()
                }
                _ => return Err(error(format!("the unknown part `{key}`"))),
            };
            if twice {
                return Err(error(format!("`{key}` twice")));
            }
        }
        if fix.is_plain() && (fix.has_shape() || fix.schedule.is_some()) {
            return Err(error("a shape or schedule for `drafter=none`, which drafts nothing".to_owned()));
        }
        Ok(fix)
    }

    /// Whether nothing is fixed.
    pub fn is_empty(&self) -> bool {
        self.drafter.is_none() && !self.has_shape() && self.schedule.is_none()
    }

    /// Whether plain decoding is asked for.
    pub fn is_plain(&self) -> bool {
        self.drafter.as_deref() == Some("none")
    }

    /// Whether the shape may be drafted under this fix.
    pub fn admits(&self, shape: &Shape) -> bool {
        let agrees = |fixed: Option<u32>, value| fixed.is_none_or(|fixed| fixed == value);
        agrees(self.depth, shape.depth)
            && agrees(self.draft_width, shape.draft_width)
            && agrees(self.verify_width, shape.verify_width)
    }

    /// Whether heads may be drafted by the schedule under this fix.
    pub fn admits_schedule(&self, schedule: Schedule) -> bool {
        self.schedule.is_none_or(|fixed| fixed == schedule)
    }

    fn has_shape(&self) -> bool {
        self.depth.is_some() || self.draft_width.is_some() || self.verify_width.is_some()
    }
}

impl fmt::Display for Fix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fix { drafter, depth, draft_width, verify_width, schedule } = self;
        let number = |key, value: &Option<u32>| value.map(|value| format!("{key}={value}"));
        let parts = [
            drafter.as_ref().map(|name| format!("drafter={name}")),
            number("Dd", depth),
            number("Wd", draft_width),
            number("Wv", verify_width),
            schedule.map(|schedule| format!("schedule={schedule}")),
        ];
        f.write_str(&parts.into_iter().flatten().collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_read_and_written() {
        for text in [
            "drafter=layer_skip,Dd=4,Wd=4,Wv=16,schedule=head_ahead",
            "Wv=8",
            "drafter=none",
            "Dd=1,Wd=2",
            "schedule=plain",
        ] {
            assert_eq!(Fix::parse(text).unwrap().to_string(), text);
        }
        let fix = Fix::parse("Wv=16,Dd=4").unwrap();
        assert_eq!((fix.depth, fix.draft_width, fix.verify_width), (Some(4), None, Some(16)));
        assert!(fix.admits(&Shape { depth: 4, draft_width: 9, verify_width: 16 }));
        assert!(!fix.admits(&Shape { depth: 4, draft_width: 9, verify_width: 8 }));
        assert!(fix.admits_schedule(Schedule::HeadAhead));
        let fix = Fix::parse("schedule=plain").unwrap();
        assert!(!fix.is_empty() && !fix.admits_schedule(Schedule::HeadAhead));
    }

    #[test]
    fn other_texts_are_refused_with_the_reason() {
        for (text, reason) in [
            ("", "without `=`"),
            ("Dd", "without `=`"),
            ("Dd=0", "instead of a number"),
            ("Dd=-1", "instead of a number"),
            ("Dd=x", "instead of a number"),
            ("Wv=4294967296", "instead of a number"),
            ("dd=4", "unknown part `dd`"),
            ("Dd=4,Dd=4", "`Dd` twice"),
            ("drafter=", "no name"),
            ("drafter=none,Dd=4", "drafts nothing"),
            ("drafter=none,schedule=plain", "drafts nothing"),
            ("schedule=ahead", "`ahead` instead of plain or head_ahead"),
            ("schedule=plain,schedule=plain", "`schedule` twice"),
            ("Dd=4,", "without `=`"),
        ] {
            let error = Fix::parse(text).unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
