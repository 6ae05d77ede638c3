//! What a user fixes of a plan:
//! `--fix drafter=D,Dd=4,Wd=4,Wv=16,rows=all,predictor=on,growth=egt,schedule=plain,objective=aal`, or any part of it.
use std::fmt;

use crate::plan::{DepthRule, GrowthRule, RowRule, Schedule, Shape};

use crate::planner::SearchError;

/// Parts of a plan that are given instead of searched.
///
/// A fix that names no drafter narrows the shapes of every drafter; one that does leaves the others free. Any fix but
/// `drafter=none` and `objective=speedup` asks for speculation, so plain decoding is then not chosen even where it is
/// faster. Without a word about rows, a fixed Wv is verified whole.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fix {
    /// The drafter, by name or kind.
    pub drafter: Option<String>,
    /// Growths, Dd.
    pub depth: Option<u32>,
    /// Nodes per growth, Wd.
    pub draft_width: Option<u32>,
    /// Rows verified, Wv.
    pub verify_width: Option<FixedWidth>,
    /// How a step chooses its rows: `all` of Wv, or the `best` of the widths up to it.
    pub rows: Option<RowRule>,
    /// How steps choose their depth.
    pub depth_rule: Option<DepthRule>,
    /// How the trees of drafters that run a model grow; equally by default.
    pub growth: Option<GrowthRule>,
    /// When heads are drafted, and what the device runs by itself.
    pub schedule: Option<Schedule>,
    /// What the chosen shape is the largest in; eq. 3 by default.
    pub objective: Option<Objective>,
}

/// How Wv is fixed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FixedWidth {
    /// At this many rows.
    Rows(u32),
    /// At the most rows, among measured widths, that the nodes of the tree fill: next to nothing is pruned.
    Nodes,
}

/// What shapes are compared by. Predictions do not depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Objective {
    /// Speed-up over plain decoding, eq. 3.
    Speedup,
    /// Tokens per step, whatever a step takes: what eq. 3 is judged against.
    Aal,
}

impl Fix {
    /// Reads `drafter=D,Dd=4,Wd=4,Wv=16,rows=all,predictor=on,growth=egt,schedule=plain,objective=aal`; every part may
    /// be left out, none may come twice. `Wv` may be `nodes`, `rows` may be `best`, `predictor` may be `off`, `growth`
    /// may be `sequoia` or `kary`, `schedule` may be `head_ahead`, `one_launch`, `device_walk`, `two_launches` or
    /// `whole_step`, and `objective` may be `speedup`.
    ///
    /// # Errors
    /// [`SearchError::FixSyntax`] names the part that is wrong.
    pub fn parse(text: &str) -> Result<Self, SearchError> {
        let error = |found: String| SearchError::FixSyntax { text: text.to_owned(), found };
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
                "Wv" if value == "nodes" => fix.verify_width.replace(FixedWidth::Nodes).is_some(),
                "Wv" => fix.verify_width.replace(FixedWidth::Rows(number()?)).is_some(),
                "rows" => {
                    let rule =
                        [RowRule::Widest, RowRule::BestRate].into_iter().find(|r| rows_word(*r) == value);
                    let unknown = || error(format!("`{value}` instead of `all` or `best`"));
                    fix.rows.replace(rule.ok_or_else(unknown)?).is_some()
                }
                "predictor" => {
                    let rule = depth_rule(value);
                    let rule = rule.ok_or_else(|| error(format!("`{value}` instead of `on` or `off`")))?;
                    fix.depth_rule.replace(rule).is_some()
                }
                "growth" => {
                    let named = GrowthRule::parse(value);
                    let growth = named.map_err(|names| error(format!("`{value}` instead of {names}")))?;
                    fix.growth.replace(growth).is_some()
                }
                "schedule" => {
                    let named = Schedule::parse(value);
                    let schedule = named.map_err(|names| error(format!("`{value}` instead of {names}")))?;
                    fix.schedule.replace(schedule).is_some()
                }
                "objective" => {
                    let found = [Objective::Speedup, Objective::Aal].into_iter().find(|o| o.word() == value);
                    let unknown = || error(format!("`{value}` instead of `speedup` or `aal`"));
                    fix.objective.replace(found.ok_or_else(unknown)?).is_some()
                }
                _ => return Err(error(format!("the unknown part `{key}`"))),
            };
            if twice {
                return Err(error(format!("`{key}` twice")));
            }
        }
        let chooses = fix.rows == Some(RowRule::BestRate) || fix.depth_rule == Some(DepthRule::Predicted);
        if fix.growth().is_static() && chooses {
            let growth = fix.growth();
            return Err(error(format!(
                "`rows=best` or `predictor=on` for `growth={growth}`, which chooses nothing"
            )));
        }
        let is_more =
            fix.has_shape() || fix.growth.is_some() || fix.schedule.is_some() || fix.objective.is_some();
        if fix.is_plain() && is_more {
            return Err(error("a shape or schedule for `drafter=none`, which drafts nothing".to_owned()));
        }
        Ok(fix)
    }

    /// Whether plain decoding may not be chosen.
    pub fn asks_for_speculation(&self) -> bool {
        let names_a_drafter = self.drafter.is_some() && !self.is_plain();
        let has_schedule = self.schedule.is_some_and(|schedule| schedule != Schedule::Plain);
        let is_static = self.growth().is_static();
        names_a_drafter || self.has_shape() || is_static || has_schedule || self.objective() == Objective::Aal
    }

    /// How trees grow.
    pub fn growth(&self) -> GrowthRule {
        self.growth.unwrap_or(GrowthRule::Equal)
    }

    /// What shapes are compared by.
    pub fn objective(&self) -> Objective {
        self.objective.unwrap_or(Objective::Speedup)
    }

    /// The rules by which steps may choose their rows.
    pub fn row_rules(&self) -> &'static [RowRule] {
        match (self.rows, self.verify_width) {
            (Some(RowRule::Widest), _) | (None, Some(_)) => &[RowRule::Widest],
            (Some(RowRule::BestRate), _) => &[RowRule::BestRate],
            (None, None) => &[RowRule::Widest, RowRule::BestRate],
        }
    }

    /// Whether plain decoding is asked for.
    pub fn is_plain(&self) -> bool {
        self.drafter.as_deref() == Some("none")
    }

    /// Those of the shapes that may be drafted under this fix. They differ in Wv alone, ascending, and none is missing.
    pub fn admitted(&self, shapes: impl IntoIterator<Item = Shape>) -> Vec<Shape> {
        let agrees = |fixed: Option<u32>, value| fixed.is_none_or(|fixed| fixed == value);
        let mut admitted: Vec<Shape> = shapes.into_iter().collect();
        let most = admitted.iter().map(|shape| shape.verify_width).max();
        admitted.retain(|shape| {
            let is_wide_enough = match self.verify_width {
                None => true,
                Some(FixedWidth::Rows(rows)) => rows == shape.verify_width,
                Some(FixedWidth::Nodes) => most == Some(shape.verify_width),
            };
            agrees(self.depth, shape.depth) && agrees(self.draft_width, shape.draft_width) && is_wide_enough
        });
        admitted
    }

    /// Whether steps may keep the schedule under this fix.
    pub fn admits_schedule(&self, schedule: Schedule) -> bool {
        self.schedule.is_none_or(|fixed| fixed == schedule)
    }

    /// Whether steps may choose their depth by this rule.
    pub fn admits_rule(&self, rule: DepthRule) -> bool {
        self.depth_rule.is_none_or(|fixed| fixed == rule)
    }

    fn has_shape(&self) -> bool {
        let Fix {
            drafter: _,
            depth,
            draft_width,
            verify_width,
            rows,
            depth_rule,
            growth: _,
            schedule: _,
            objective: _,
        } = self;
        let is_predicted = *depth_rule == Some(DepthRule::Predicted);
        depth.is_some() || draft_width.is_some() || verify_width.is_some() || rows.is_some() || is_predicted
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

impl Objective {
    /// Its word in a fix.
    fn word(self) -> &'static str {
        match self {
            Objective::Speedup => "speedup",
            Objective::Aal => "aal",
        }
    }
}

impl fmt::Display for FixedWidth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FixedWidth::Rows(rows) => rows.fmt(f),
            FixedWidth::Nodes => f.write_str("nodes"),
        }
    }
}

/// A rule's word in a fix.
fn rows_word(rule: RowRule) -> &'static str {
    match rule {
        RowRule::Widest => "all",
        RowRule::BestRate => "best",
    }
}

impl fmt::Display for Fix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fix { drafter, depth, draft_width, verify_width, rows, depth_rule, growth, schedule, objective } =
            self;
        let number = |key, value: &Option<u32>| value.map(|value| format!("{key}={value}"));
        let parts = [
            drafter.as_ref().map(|name| format!("drafter={name}")),
            number("Dd", depth),
            number("Wd", draft_width),
            verify_width.map(|width| format!("Wv={width}")),
            rows.map(|rule| format!("rows={}", rows_word(rule))),
            depth_rule.map(|rule| match rule {
                DepthRule::Predicted => "predictor=on".to_owned(),
                DepthRule::Fixed => "predictor=off".to_owned(),
            }),
            growth.map(|growth| format!("growth={growth}")),
            schedule.map(|schedule| format!("schedule={schedule}")),
            objective.map(|objective| format!("objective={}", objective.word())),
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
            "drafter=layer_skip,Dd=4,Wd=4,Wv=16,rows=best,predictor=on,growth=egt,schedule=head_ahead,objective=speedup",
            "drafter=layer_skip,Wv=16,rows=all,predictor=off,growth=sequoia",
            "growth=kary,schedule=head_ahead",
            "Wv=8",
            "drafter=none",
            "Dd=1,Wd=2",
            "Dd=6,predictor=on",
            "predictor=off",
            "schedule=plain",
            "drafter=lookup,Wv=nodes,rows=all,objective=aal",
        ] {
            assert_eq!(Fix::parse(text).unwrap().to_string(), text);
        }
        let fix = Fix::parse("Wv=16,Dd=4").unwrap();
        assert_eq!(
            (fix.depth, fix.draft_width, fix.verify_width),
            (Some(4), None, Some(FixedWidth::Rows(16)))
        );
    }

    #[test]
    fn shapes_of_one_tree_are_narrowed_to_what_is_fixed() {
        let widths = |text: &str, depth| -> Vec<u32> {
            let shapes = [2, 4, 8, 16].map(|verify_width| Shape { depth, draft_width: 9, verify_width });
            Fix::parse(text).unwrap().admitted(shapes).iter().map(|shape| shape.verify_width).collect()
        };
        assert_eq!(widths("Wv=16,Dd=4", 4), [16]);
        assert!(widths("Wv=16,Dd=4", 3).is_empty() && widths("Wv=9", 4).is_empty());
        assert_eq!(widths("Wv=nodes", 4), [16]);
        assert_eq!(widths("Wv=nodes,Wd=9", 4), [16]);
        assert!(widths("Wv=nodes,Wd=8", 4).is_empty());
        assert_eq!(widths("rows=best", 4), [2, 4, 8, 16]);
    }

    #[test]
    fn a_fixed_verify_width_is_verified_whole_unless_rows_are_asked_for() {
        use RowRule::{BestRate, Widest};
        for (text, rules) in [
            ("Dd=4", &[Widest, BestRate][..]),
            ("Wv=4", &[Widest]),
            ("Wv=nodes", &[Widest]),
            ("Wv=4,rows=best", &[BestRate]),
            ("rows=all", &[Widest]),
            ("rows=best", &[BestRate]),
            ("objective=aal", &[Widest, BestRate]),
        ] {
            assert_eq!(Fix::parse(text).unwrap().row_rules(), rules, "{text}");
        }
    }

    #[test]
    fn only_some_fixes_leave_plain_decoding_open() {
        for (text, asks) in [
            ("drafter=none", false),
            ("objective=speedup", false),
            ("schedule=plain", false),
            ("schedule=head_ahead", true),
            ("objective=aal", true),
            ("drafter=lookup,objective=speedup", true),
            ("rows=all", true),
            ("Wv=nodes", true),
            ("Dd=1", true),
            ("growth=egt", false),
            ("growth=kary", true),
        ] {
            assert_eq!(Fix::parse(text).unwrap().asks_for_speculation(), asks, "{text}");
        }
        assert!(!Fix::default().asks_for_speculation());
        assert!(Fix::parse("schedule=head_ahead").unwrap().admits_schedule(Schedule::HeadAhead));
        assert!(!Fix::parse("schedule=plain").unwrap().admits_schedule(Schedule::HeadAhead));
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
            ("drafter=none,rows=all", "drafts nothing"),
            ("drafter=none,objective=aal", "drafts nothing"),
            ("Wv=node", "instead of a number"),
            ("Wv=nodes,Wv=4", "`Wv` twice"),
            ("rows=some", "instead of `all` or `best`"),
            ("rows=all,rows=all", "`rows` twice"),
            ("objective=speed", "instead of `speedup` or `aal`"),
            ("drafter=none,schedule=plain", "drafts nothing"),
            ("drafter=none,growth=egt", "drafts nothing"),
            ("growth=tree", "`tree` instead of egt or sequoia or kary"),
            ("growth=kary,growth=kary", "`growth` twice"),
            ("growth=sequoia,rows=best", "which chooses nothing"),
            ("growth=kary,predictor=on", "which chooses nothing"),
            (
                "schedule=ahead",
                "`ahead` instead of plain, head_ahead, one_launch, device_walk, two_launches or whole_step",
            ),
            ("schedule=plain,schedule=plain", "`schedule` twice"),
            ("Dd=4,", "without `=`"),
        ] {
            let error = Fix::parse(text).unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
