//! What a user fixes of a plan: `--fix drafter=D,Dd=4,Wd=4,Wv=16,predictor=on`, or any part of it.
use std::fmt;

use super::{DepthRule, PlanError, Shape};

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
    /// How steps choose their depth.
    pub depth_rule: Option<DepthRule>,
}

impl Fix {
    /// Reads `drafter=D,Dd=4,Wd=4,Wv=16,predictor=on`; every part may be left out, none may come twice.
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
                "predictor" => {
                    let rule = depth_rule(value);
                    let rule = rule.ok_or_else(|| error(format!("`{value}` instead of `on` or `off`")))?;
                    fix.depth_rule.replace(rule).is_some()
                }
                _ => return Err(error(format!("the unknown part `{key}`"))),
            };
            if twice {
                return Err(error(format!("`{key}` twice")));
            }
        }
        if fix.is_plain() && fix.has_shape() {
            return Err(error("a shape for `drafter=none`, which drafts nothing".to_owned()));
        }
        Ok(fix)
    }

    /// Whether nothing is fixed.
    pub fn is_empty(&self) -> bool {
        self.drafter.is_none() && !self.has_shape()
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

    /// Whether steps may choose their depth by this rule.
    pub fn admits_rule(&self, rule: DepthRule) -> bool {
        self.depth_rule.is_none_or(|fixed| fixed == rule)
    }

    fn has_shape(&self) -> bool {
        let Fix { drafter: _, depth, draft_width, verify_width, depth_rule } = self;
        depth.is_some() || draft_width.is_some() || verify_width.is_some() || depth_rule.is_some()
    }
}

/// What `predictor=` is followed by.
fn depth_rule(value: &str) -> Option<DepthRule> {
    match value {
        "on" => Some(DepthRule::Predicted),
        "off" => Some(DepthRule::Fixed),
        _ => None,
    }
}

impl fmt::Display for Fix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fix { drafter, depth, draft_width, verify_width, depth_rule } = self;
        let number = |key, value: &Option<u32>| value.map(|value| format!("{key}={value}"));
        let parts = [
            drafter.as_ref().map(|name| format!("drafter={name}")),
            number("Dd", depth),
            number("Wd", draft_width),
            number("Wv", verify_width),
            depth_rule.map(|rule| match rule {
                DepthRule::Predicted => "predictor=on".to_owned(),
                DepthRule::Fixed => "predictor=off".to_owned(),
            }),
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
            "drafter=layer_skip,Dd=4,Wd=4,Wv=16",
            "Wv=8",
            "drafter=none",
            "Dd=1,Wd=2",
            "Dd=6,predictor=on",
            "predictor=off",
        ] {
            assert_eq!(Fix::parse(text).unwrap().to_string(), text);
        }
        let fix = Fix::parse("Wv=16,Dd=4").unwrap();
        assert_eq!((fix.depth, fix.draft_width, fix.verify_width), (Some(4), None, Some(16)));
        assert!(fix.admits(&Shape { depth: 4, draft_width: 9, verify_width: 16 }));
        assert!(!fix.admits(&Shape { depth: 4, draft_width: 9, verify_width: 8 }));
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
            ("predictor=yes", "instead of `on` or `off`"),
            ("predictor=on,predictor=off", "`predictor` twice"),
            ("drafter=none,predictor=on", "drafts nothing"),
            ("drafter=", "no name"),
            ("drafter=none,Dd=4", "drafts nothing"),
            ("Dd=4,", "without `=`"),
        ] {
            let error = Fix::parse(text).unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
