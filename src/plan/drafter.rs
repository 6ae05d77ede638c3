//! The drafters a plan can choose, with the parameters it chooses for them.
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use ygg_profiler::{DrafterDescription, DrafterName};

use super::PlanError;

/// Who drafts, and how it is set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DrafterKind {
    /// Plain decoding.
    None,
    /// Continuations of earlier occurrences of the last tokens.
    Lookup {
        /// Longest suffix looked for.
        longest_match: u32,
        /// Shortest suffix looked for.
        shortest_match: u32,
    },
    /// The verifier without some of its sub-layers.
    LayerSkip {
        /// Groups left out, ascending: `2 * layer` for attention, `2 * layer + 1` for the MLP.
        skipped: Vec<u32>,
    },
}

const LONGEST: &str = "longest_match";
const SHORTEST: &str = "shortest_match";
const SKIPPED: &str = "skipped";

impl DrafterKind {
    /// The names of all kinds, as the command line calls them.
    pub const NAMES: [&'static str; 3] = ["none", "lookup", "layer_skip"];

    /// The name of the kind, as the command line calls it.
    pub fn name(&self) -> &'static str {
        match self {
            DrafterKind::None => "none",
            DrafterKind::Lookup { .. } => "lookup",
            DrafterKind::LayerSkip { .. } => "layer_skip",
        }
    }

    /// Whether drafting runs forwards of a model, and so grows Equal-Growth Trees.
    pub fn runs_a_model(&self) -> bool {
        match self {
            DrafterKind::None | DrafterKind::Lookup { .. } => false,
            DrafterKind::LayerSkip { .. } => true,
        }
    }

    /// The drafter as a profile describes it, under `name`.
    pub fn describe(&self, name: DrafterName) -> DrafterDescription {
        let parameters = match self {
            DrafterKind::None => BTreeMap::new(),
            DrafterKind::Lookup { longest_match, shortest_match } => BTreeMap::from([
                (LONGEST.to_owned(), vec![*longest_match]),
                (SHORTEST.to_owned(), vec![*shortest_match]),
            ]),
            DrafterKind::LayerSkip { skipped } => BTreeMap::from([(SKIPPED.to_owned(), skipped.clone())]),
        };
        DrafterDescription { name, kind: self.name().to_owned(), parameters }
    }

    /// The drafter that a profile describes.
    ///
    /// # Errors
    /// [`PlanError::UnknownDrafter`] or [`PlanError::DrafterParameters`] if this build has no such drafter.
    pub fn from_description(description: &DrafterDescription) -> Result<Self, PlanError> {
        let DrafterDescription { name, kind, parameters } = description;
        let expect = |names: &[&str]| {
            let found: Vec<&str> = parameters.keys().map(String::as_str).collect();
            if found == names {
                return Ok(());
            }
            Err(PlanError::DrafterParameters {
                drafter: name.to_string(),
                expected: format!("parameters {names:?}"),
                found: format!("{found:?}"),
            })
        };
        let one = |key: &str| match parameters[key][..] {
            [value] => Ok(value),
            ref other => Err(PlanError::DrafterParameters {
                drafter: name.to_string(),
                expected: format!("one number for {key}"),
                found: format!("{other:?}"),
            }),
        };
        let drafter = match kind.as_str() {
            "none" => {
                expect(&[])?;
                DrafterKind::None
            }
            "lookup" => {
                expect(&[LONGEST, SHORTEST])?;
                DrafterKind::Lookup { longest_match: one(LONGEST)?, shortest_match: one(SHORTEST)? }
            }
            "layer_skip" => {
                expect(&[SKIPPED])?;
                DrafterKind::LayerSkip { skipped: parameters[SKIPPED].clone() }
            }
            _ => {
                return Err(PlanError::UnknownDrafter {
                    expected: DrafterKind::NAMES.join(", "),
                    found: kind.clone(),
                });
            }
        };
        drafter.validate()?;
        Ok(drafter)
    }

    /// Checks the parameters against each other.
    ///
    /// # Errors
    /// [`PlanError::DrafterParameters`] names the rule that is broken.
    pub fn validate(&self) -> Result<(), PlanError> {
        let error = |expected: &str, found: String| {
            Err(PlanError::DrafterParameters {
                drafter: self.name().to_owned(),
                expected: expected.to_owned(),
                found,
            })
        };
        match self {
            DrafterKind::None => Ok(()),
            DrafterKind::Lookup { longest_match, shortest_match } => {
                if 1 <= *shortest_match && shortest_match <= longest_match {
                    return Ok(());
                }
                error("1 <= shortest_match <= longest_match", format!("{shortest_match}, {longest_match}"))
            }
            DrafterKind::LayerSkip { skipped } => {
                if !skipped.is_empty() && skipped.is_sorted_by(|a, b| a < b) {
                    return Ok(());
                }
                error("ascending, distinct groups to skip", format!("{skipped:?}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> [DrafterKind; 3] {
        [
            DrafterKind::None,
            DrafterKind::Lookup { longest_match: 4, shortest_match: 2 },
            DrafterKind::LayerSkip { skipped: vec![2, 3, 9] },
        ]
    }

    #[test]
    fn every_kind_survives_its_description() {
        for (kind, name) in all().into_iter().zip(DrafterKind::NAMES) {
            assert_eq!(kind.name(), name);
            let description = kind.describe(DrafterName::new("any").unwrap());
            assert_eq!(DrafterKind::from_description(&description).unwrap(), kind);
        }
    }

    #[test]
    fn other_descriptions_are_refused() {
        for kind in all() {
            let good = kind.describe(DrafterName::new("any").unwrap());
            let mut extra = good.clone();
            extra.parameters.insert("more".into(), vec![1]);
            let mut unknown = good;
            unknown.kind = "oracle".into();
            assert!(matches!(
                DrafterKind::from_description(&extra),
                Err(PlanError::DrafterParameters { .. })
            ));
            assert!(matches!(DrafterKind::from_description(&unknown), Err(PlanError::UnknownDrafter { .. })));
        }
        for kind in [
            DrafterKind::Lookup { longest_match: 1, shortest_match: 2 },
            DrafterKind::Lookup { longest_match: 1, shortest_match: 0 },
            DrafterKind::LayerSkip { skipped: vec![] },
            DrafterKind::LayerSkip { skipped: vec![3, 2] },
            DrafterKind::LayerSkip { skipped: vec![2, 2] },
        ] {
            let description = kind.describe(DrafterName::new("any").unwrap());
            assert!(DrafterKind::from_description(&description).is_err(), "{kind:?}");
        }
    }
}
