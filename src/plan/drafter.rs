//! The drafters a plan can choose, with the parameters it chooses for them.
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use ygg_profiler::{DrafterDescription, DrafterName};

use super::PlanError;

mod settings;

use self::settings::Fault;
pub use self::settings::{MOST_ORDER, NgramSettings, SuffixSettings};

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
    /// Continuations of the longest suffix that occurred earlier, in this request or those before it.
    Suffix(SuffixSettings),
    /// What the verifier last offered behind every token, gathered along a fixed tree.
    Recycling,
    /// Dictionaries of the n-grams of the text and of what the verifier makes of a pool of sequences.
    Ngram(NgramSettings),
}

const LONGEST: &str = "longest_match";
const SHORTEST: &str = "shortest_match";
const SKIPPED: &str = "skipped";
const HEAD_TOKENS: &str = "head_tokens";

impl DrafterKind {
    /// The names of all kinds, as the command line calls them.
    pub const NAMES: [&'static str; 6] = ["none", "lookup", "layer_skip", "suffix", "recycling", "ngram"];

    /// The name of the kind, as the command line calls it.
    pub fn name(&self) -> &'static str {
        match self {
            DrafterKind::None => "none",
            DrafterKind::Lookup { .. } => "lookup",
            DrafterKind::LayerSkip { .. } => "layer_skip",
            DrafterKind::Suffix(_) => "suffix",
            DrafterKind::Recycling => "recycling",
            DrafterKind::Ngram(_) => "ngram",
        }
    }

    /// Whether drafting runs forwards of a model, and so grows Equal-Growth Trees.
    pub fn runs_a_model(&self) -> bool {
        match self {
            DrafterKind::None
            | DrafterKind::Lookup { .. }
            | DrafterKind::Suffix(_)
            | DrafterKind::Recycling
            | DrafterKind::Ngram(_) => false,
            DrafterKind::LayerSkip { .. } => true,
        }
    }

    /// Whether it learns from what the verifier says to its rows, so that only its own steps tell what it drafts.
    pub fn learns(&self) -> bool {
        match self {
            DrafterKind::None
            | DrafterKind::Lookup { .. }
            | DrafterKind::Suffix(_)
            | DrafterKind::LayerSkip { .. } => false,
            DrafterKind::Recycling | DrafterKind::Ngram(_) => true,
        }
    }

    /// Rows that it has verified at every step whatever they are worth.
    pub fn pinned_rows(&self) -> u32 {
        match self {
            DrafterKind::None
            | DrafterKind::Lookup { .. }
            | DrafterKind::Suffix(_)
            | DrafterKind::Recycling
            | DrafterKind::LayerSkip { .. } => 0,
            DrafterKind::Ngram(settings) => settings.pool_rows(),
        }
    }

    /// Tokens of the trimmed head that it drafts with, if it has one.
    pub fn head_tokens(&self) -> Option<&[u32]> {
        match self {
            DrafterKind::None
            | DrafterKind::Lookup { .. }
            | DrafterKind::Suffix(_)
            | DrafterKind::Recycling
            | DrafterKind::Ngram(_) => None,
            DrafterKind::LayerSkip { skipped: _, head_tokens } => head_tokens.as_deref(),
        }
    }

    /// The drafter as a profile describes it, under `name`.
    pub fn describe(&self, name: DrafterName) -> DrafterDescription {
        let parameters = match self {
            DrafterKind::None | DrafterKind::Recycling => BTreeMap::new(),
            DrafterKind::Lookup { longest_match, shortest_match } => BTreeMap::from([
                (LONGEST.to_owned(), vec![*longest_match]),
                (SHORTEST.to_owned(), vec![*shortest_match]),
            ]),
            DrafterKind::LayerSkip { skipped, head_tokens } => {
                let trimmed = head_tokens.iter().map(|tokens| (HEAD_TOKENS.to_owned(), tokens.clone()));
                std::iter::once((SKIPPED.to_owned(), skipped.clone())).chain(trimmed).collect()
            }
            DrafterKind::Suffix(settings) => named(SuffixSettings::NAMES, settings.values()),
            DrafterKind::Ngram(settings) => named(NgramSettings::NAMES, settings.values()),
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
            "suffix" => {
                expect(&SuffixSettings::NAMES)?;
                DrafterKind::Suffix(SuffixSettings::from_values(values(SuffixSettings::NAMES, one)?))
            }
            "recycling" => {
                expect(&[])?;
                DrafterKind::Recycling
            }
            "ngram" => {
                expect(&NgramSettings::NAMES)?;
                DrafterKind::Ngram(NgramSettings::from_values(values(NgramSettings::NAMES, one)?))
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
            DrafterKind::None | DrafterKind::Recycling => Ok(()),
            DrafterKind::Lookup { longest_match, shortest_match } => {
                if 1 <= *shortest_match && shortest_match <= longest_match {
                    return Ok(());
                }
                error("1 <= shortest_match <= longest_match", format!("{shortest_match}, {longest_match}"))
            }
            DrafterKind::LayerSkip { skipped, head_tokens } => {
                let ascending = |ids: &[u32]| !ids.is_empty() && ids.is_sorted_by(|a, b| a < b);
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
            DrafterKind::Suffix(settings) => {
                settings.validate().or_else(|(rule, found): Fault| error(rule, found))
            }
            DrafterKind::Ngram(settings) => {
                settings.validate().or_else(|(rule, found): Fault| error(rule, found))
            }
        }
    }
}

/// Settings under their names.
fn named<const N: usize>(names: [&str; N], values: [u32; N]) -> BTreeMap<String, Vec<u32>> {
    names.map(str::to_owned).into_iter().zip(values.map(|value| vec![value])).collect()
}

/// The settings of these names.
fn values<const N: usize>(
    names: [&str; N],
    one: impl Fn(&str) -> Result<u32, PlanError>,
) -> Result<[u32; N], PlanError> {
    let mut values = [0; N];
    for (value, name) in values.iter_mut().zip(names) {
        *value = one(name)?;
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer_skip(skipped: &[u32], head_tokens: Option<&[u32]>) -> DrafterKind {
        DrafterKind::LayerSkip { skipped: skipped.to_vec(), head_tokens: head_tokens.map(<[u32]>::to_vec) }
    }

    fn all() -> [DrafterKind; 7] {
        [
            DrafterKind::None,
            DrafterKind::Lookup { longest_match: 4, shortest_match: 2 },
            layer_skip(&[2, 3, 9], None),
            DrafterKind::Suffix(SuffixSettings::DEFAULT),
            DrafterKind::Recycling,
            DrafterKind::Ngram(NgramSettings::DEFAULT),
            layer_skip(&[2, 3, 9], Some(&[0, 7, 8])),
        ]
    }

    #[test]
    fn every_kind_survives_its_description() {
        assert_eq!(all().map(|kind| kind.name())[..6], DrafterKind::NAMES);
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
            DrafterKind::Suffix(SuffixSettings { counted: 1, ..SuffixSettings::DEFAULT }),
            DrafterKind::Suffix(SuffixSettings { remembered: 1 << 25, ..SuffixSettings::DEFAULT }),
            DrafterKind::Ngram(NgramSettings { order: 1, ..NgramSettings::DEFAULT }),
            DrafterKind::Ngram(NgramSettings { order: 9, ..NgramSettings::DEFAULT }),
            DrafterKind::Ngram(NgramSettings { explored_percent: 101, ..NgramSettings::DEFAULT }),
        ] {
            let description = kind.describe(DrafterName::new("any").unwrap());
            assert!(DrafterKind::from_description(&description).is_err(), "{kind:?}");
        }
    }
}
