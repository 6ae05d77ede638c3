//! The drafters a plan can choose, with the parameters it chooses for them.
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use ygg_profiler::{DrafterDescription, DrafterName};

use super::{GroupSet, PlanError};

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
        /// Tokens that its head knows, ascending; all that the model knows where its head is not trimmed.
        head_tokens: Option<Vec<u32>>,
    },
    /// The same, with sub-layers that change while it runs, as they are found to be spared more easily.
    Swift {
        /// Groups left out at first, ascending.
        skipped: Vec<u32>,
    },
}

const LONGEST: &str = "longest_match";
const SHORTEST: &str = "shortest_match";
const SKIPPED: &str = "skipped";
const HEAD_TOKENS: &str = "head_tokens";

impl DrafterKind {
    /// The names of all kinds, as the command line calls them.
    pub const NAMES: [&'static str; 4] = ["none", "lookup", "layer_skip", "swift"];

    /// The name of the kind, as the command line calls it.
    pub fn name(&self) -> &'static str {
        match self {
            DrafterKind::None => "none",
            DrafterKind::Lookup { .. } => "lookup",
            DrafterKind::LayerSkip { .. } => "layer_skip",
            DrafterKind::Swift { .. } => "swift",
        }
    }

    /// Whether drafting runs forwards of a model, and so grows Equal-Growth Trees.
    pub fn runs_a_model(&self) -> bool {
        match self {
            DrafterKind::None | DrafterKind::Lookup { .. } => false,
            DrafterKind::LayerSkip { .. } | DrafterKind::Swift { .. } => true,
        }
    }

    /// The drafter that one which tunes itself is until it has found something better: what is recorded of that one tells of both.
    pub fn begins_as(&self) -> Option<DrafterKind> {
        match self {
            DrafterKind::None | DrafterKind::Lookup { .. } | DrafterKind::LayerSkip { .. } => None,
            DrafterKind::Swift { skipped } => {
                Some(DrafterKind::LayerSkip { skipped: skipped.clone(), head_tokens: None })
            }
        }
    }

    /// Tokens of the trimmed head that it drafts with, if it has one.
    pub fn head_tokens(&self) -> Option<&[u32]> {
        match self {
            DrafterKind::None | DrafterKind::Lookup { .. } | DrafterKind::Swift { .. } => None,
            DrafterKind::LayerSkip { skipped: _, head_tokens } => head_tokens.as_deref(),
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
            DrafterKind::LayerSkip { skipped, head_tokens } => {
                let trimmed = head_tokens.iter().map(|tokens| (HEAD_TOKENS.to_owned(), tokens.clone()));
                std::iter::once((SKIPPED.to_owned(), skipped.clone())).chain(trimmed).collect()
            }
            DrafterKind::Swift { skipped } => BTreeMap::from([(SKIPPED.to_owned(), skipped.clone())]),
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
                let head_tokens = parameters.get(HEAD_TOKENS).cloned();
                expect(if head_tokens.is_some() { &[HEAD_TOKENS, SKIPPED] } else { &[SKIPPED] })?;
                DrafterKind::LayerSkip { skipped: parameters[SKIPPED].clone(), head_tokens }
            }
            "swift" => {
                expect(&[SKIPPED])?;
                DrafterKind::Swift { skipped: parameters[SKIPPED].clone() }
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
        let ascending = |ids: &[u32]| !ids.is_empty() && ids.is_sorted_by(|a, b| a < b);
        match self {
            DrafterKind::None => Ok(()),
            DrafterKind::Lookup { longest_match, shortest_match } => {
                if 1 <= *shortest_match && shortest_match <= longest_match {
                    return Ok(());
                }
                error("1 <= shortest_match <= longest_match", format!("{shortest_match}, {longest_match}"))
            }
            DrafterKind::LayerSkip { skipped, head_tokens } => {
                if !ascending(skipped) {
                    return error("ascending, distinct groups to skip", format!("{skipped:?}"));
                }
                match head_tokens {
                    Some(tokens) if !ascending(tokens) => {
                        let breach = tokens.windows(2).find(|pair| pair[0] >= pair[1]);
                        let found = breach.map_or("none".to_owned(), |pair| format!("{pair:?}"));
                        error("one or more ascending, distinct tokens of a trimmed head", found)
                    }
                    Some(_) | None => Ok(()),
                }
            }
            DrafterKind::Swift { skipped } => {
                let known = skipped.last().is_none_or(|last| *last < GroupSet::MOST_GROUPS);
                if ascending(skipped) && known {
                    return Ok(());
                }
                let most = GroupSet::MOST_GROUPS;
                error(&format!("ascending, distinct groups to skip, below {most}"), format!("{skipped:?}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer_skip(skipped: &[u32], head_tokens: Option<&[u32]>) -> DrafterKind {
        DrafterKind::LayerSkip { skipped: skipped.to_vec(), head_tokens: head_tokens.map(<[u32]>::to_vec) }
    }

    fn swift(skipped: &[u32]) -> DrafterKind {
        DrafterKind::Swift { skipped: skipped.to_vec() }
    }

    fn all() -> [DrafterKind; 5] {
        [
            DrafterKind::None,
            DrafterKind::Lookup { longest_match: 4, shortest_match: 2 },
            layer_skip(&[2, 3, 9], None),
            swift(&[2, 3, 9]),
            layer_skip(&[2, 3, 9], Some(&[0, 7, 8])),
        ]
    }

    #[test]
    fn every_kind_survives_its_description() {
        assert_eq!(all().map(|kind| kind.name())[..4], DrafterKind::NAMES);
        for kind in all() {
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
            layer_skip(&[], None),
            layer_skip(&[3, 2], None),
            layer_skip(&[2, 2], None),
            layer_skip(&[2], Some(&[])),
            layer_skip(&[2], Some(&[3, 2])),
            layer_skip(&[2], Some(&[4, 4])),
            swift(&[]),
            swift(&[2, 2]),
            swift(&[2, 512]),
        ] {
            let description = kind.describe(DrafterName::new("any").unwrap());
            assert!(DrafterKind::from_description(&description).is_err(), "{kind:?}");
        }
    }
}
