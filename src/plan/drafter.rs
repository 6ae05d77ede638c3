//! The drafters a plan can choose, with the parameters it chooses for them.
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use ygg_profiler::{DrafterDescription, DrafterFile, DrafterName};

use super::{GroupSet, PlanError, token_list};

mod mixture;
mod settings;

use self::mixture::MIXED;
pub use self::mixture::Mixture;
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
        #[serde(with = "token_list")]
        head_tokens: Option<Vec<u32>>,
    },
    /// Continuations that texts of a corpus store had after the last tokens.
    Retrieval {
        /// The store.
        store: DrafterFile,
        /// Longest suffix looked for.
        longest_match: u32,
        /// Shortest suffix looked for.
        shortest_match: u32,
        /// Longest and shortest suffix of a lookup in the sequence itself, whose guesses come first; none without one.
        lookup_match: Option<(u32, u32)>,
    },
    /// Continuations of the longest suffix that occurred earlier, in this request or those before it.
    Suffix(SuffixSettings),
    /// What the verifier last offered behind every token, gathered along a fixed tree.
    Recycling,
    /// Dictionaries of the n-grams of the text and of what the verifier makes of a pool of sequences.
    Ngram(NgramSettings),
    /// The same, with sub-layers that change while it runs, as they are found to be spared more easily.
    Swift {
        /// Groups left out at first, ascending.
        skipped: Vec<u32>,
    },
    /// Several drafters that share the rows of a step, each as far as it is trusted.
    Mixed(Mixture),
    /// Another model of the same vocabulary, or one that reads the verifier's hidden rows: its files say which.
    Model {
        /// The model's file or folder, by its fingerprint.
        model: DrafterFile,
        /// Tokens that its head knows, ascending; all where its head is not trimmed.
        #[serde(with = "token_list")]
        head_tokens: Option<Vec<u32>>,
    },
}

const LOOKUP: &str = "lookup_match";
const LONGEST: &str = "longest_match";
const SHORTEST: &str = "shortest_match";
const SKIPPED: &str = "skipped";
const HEAD_TOKENS: &str = "head_tokens";

impl DrafterKind {
    /// The names of all kinds, as the command line calls them.
    pub const NAMES: [&'static str; 10] = [
        "none",
        "lookup",
        "layer_skip",
        "retrieval",
        "suffix",
        "recycling",
        "ngram",
        "swift",
        MIXED,
        "model",
    ];

    /// The name of the kind, as the command line calls it.
    pub fn name(&self) -> &'static str {
        match self {
            DrafterKind::None => "none",
            DrafterKind::Lookup { .. } => "lookup",
            DrafterKind::LayerSkip { .. } => "layer_skip",
            DrafterKind::Retrieval { .. } => "retrieval",
            DrafterKind::Suffix(_) => "suffix",
            DrafterKind::Recycling => "recycling",
            DrafterKind::Ngram(_) => "ngram",
            DrafterKind::Swift { .. } => "swift",
            DrafterKind::Mixed(_) => MIXED,
            DrafterKind::Model { .. } => "model",
        }
    }

    /// Whether drafting runs forwards of a model, and so grows Equal-Growth Trees.
    pub fn runs_a_model(&self) -> bool {
        match self {
            DrafterKind::None
            | DrafterKind::Lookup { .. }
            | DrafterKind::Retrieval { .. }
            | DrafterKind::Suffix(_)
            | DrafterKind::Recycling
            | DrafterKind::Ngram(_)
            | DrafterKind::Mixed(_) => false,
            DrafterKind::LayerSkip { .. } | DrafterKind::Swift { .. } | DrafterKind::Model { .. } => true,
        }
    }

    /// Whether it keeps keys and values of its own, which steps must bring as far as the verifier's.
    pub fn keeps_a_cache(&self) -> bool {
        matches!(self, DrafterKind::Model { .. })
    }

    /// The drafter that one which tunes itself is until it has found something better: what is recorded of that one tells of both.
    pub fn begins_as(&self) -> Option<DrafterKind> {
        let DrafterKind::Swift { skipped } = self else { return None };
        Some(DrafterKind::LayerSkip { skipped: skipped.clone(), head_tokens: None })
    }

    /// Whether it learns from its own steps, so that only these tell what it drafts.
    pub fn learns(&self) -> bool {
        matches!(self, DrafterKind::Recycling | DrafterKind::Ngram(_) | DrafterKind::Mixed(_))
    }

    /// Rows that it has verified at every step whatever they are worth.
    pub fn pinned_rows(&self) -> u32 {
        match self {
            DrafterKind::Ngram(settings) => settings.pool_rows(),
            DrafterKind::Mixed(mixture) => mixture.pinned_rows(),
            DrafterKind::None
            | DrafterKind::Lookup { .. }
            | DrafterKind::LayerSkip { .. }
            | DrafterKind::Retrieval { .. }
            | DrafterKind::Suffix(_)
            | DrafterKind::Recycling
            | DrafterKind::Swift { .. }
            | DrafterKind::Model { .. } => 0,
        }
    }

    /// Tokens of the trimmed head that it drafts with, if it has one.
    pub fn head_tokens(&self) -> Option<&[u32]> {
        match self {
            DrafterKind::LayerSkip { head_tokens, .. } | DrafterKind::Model { head_tokens, .. } => {
                head_tokens.as_deref()
            }
            DrafterKind::None
            | DrafterKind::Lookup { .. }
            | DrafterKind::Retrieval { .. }
            | DrafterKind::Suffix(_)
            | DrafterKind::Recycling
            | DrafterKind::Ngram(_)
            | DrafterKind::Swift { .. }
            | DrafterKind::Mixed(_) => None,
        }
    }

    /// The corpus store that it drafts from, if it needs one.
    pub fn store(&self) -> Option<&DrafterFile> {
        match self {
            DrafterKind::Retrieval { store, .. } => Some(store),
            DrafterKind::Mixed(mixture) => mixture.store(),
            DrafterKind::None
            | DrafterKind::Lookup { .. }
            | DrafterKind::LayerSkip { .. }
            | DrafterKind::Suffix(_)
            | DrafterKind::Recycling
            | DrafterKind::Ngram(_)
            | DrafterKind::Swift { .. }
            | DrafterKind::Model { .. } => None,
        }
    }

    /// The drafter model that it runs, if that is not the verifier.
    pub fn draft_model(&self) -> Option<&DrafterFile> {
        if let DrafterKind::Model { model, .. } = self { Some(model) } else { None }
    }

    /// The same with its drafter model, if that is the one of this digest, at the file's place.
    #[must_use]
    pub fn with_draft_model_at(mut self, file: &DrafterFile) -> Self {
        if let DrafterKind::Model { model, .. } = &mut self
            && model.digest == file.digest
        {
            file.path.clone_into(&mut model.path);
        }
        self
    }

    /// The same with a head trimmed to these tokens; `None` if its head cannot be or is trimmed already.
    pub fn trimmed_to(&self, tokens: Vec<u32>) -> Option<Self> {
        let head_tokens = Some(tokens);
        match self {
            DrafterKind::LayerSkip { skipped, head_tokens: None } => {
                Some(DrafterKind::LayerSkip { skipped: skipped.clone(), head_tokens })
            }
            DrafterKind::Model { model, head_tokens: None } => {
                Some(DrafterKind::Model { model: model.clone(), head_tokens })
            }
            DrafterKind::LayerSkip { head_tokens: Some(_), .. }
            | DrafterKind::Model { head_tokens: Some(_), .. }
            | DrafterKind::None
            | DrafterKind::Lookup { .. }
            | DrafterKind::Retrieval { .. }
            | DrafterKind::Suffix(_)
            | DrafterKind::Recycling
            | DrafterKind::Ngram(_)
            | DrafterKind::Swift { .. }
            | DrafterKind::Mixed(_) => None,
        }
    }

    /// The same with its store, if it needs one, at another place.
    #[must_use]
    pub fn with_store_at(mut self, path: &str) -> Self {
        let store = match &mut self {
            DrafterKind::Retrieval { store, .. } => Some(store),
            DrafterKind::Mixed(mixture) => mixture.store_mut(),
            DrafterKind::None
            | DrafterKind::Lookup { .. }
            | DrafterKind::LayerSkip { .. }
            | DrafterKind::Suffix(_)
            | DrafterKind::Recycling
            | DrafterKind::Ngram(_)
            | DrafterKind::Swift { .. }
            | DrafterKind::Model { .. } => None,
        };
        if let Some(store) = store {
            path.clone_into(&mut store.path);
        }
        self
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
            DrafterKind::Retrieval { store: _, longest_match, shortest_match, lookup_match } => {
                let lookup = lookup_match.map(|(longest, shortest)| vec![longest, shortest]);
                let lookup = lookup.map(|lengths| (LOOKUP.to_owned(), lengths));
                let lengths = [(LONGEST, *longest_match), (SHORTEST, *shortest_match)];
                lengths
                    .map(|(key, length)| (key.to_owned(), vec![length]))
                    .into_iter()
                    .chain(lookup)
                    .collect()
            }
            DrafterKind::Suffix(settings) => named(SuffixSettings::NAMES, settings.values()),
            DrafterKind::Ngram(settings) => named(NgramSettings::NAMES, settings.values()),
            DrafterKind::Swift { skipped } => BTreeMap::from([(SKIPPED.to_owned(), skipped.clone())]),
            DrafterKind::Mixed(mixture) => mixture.parameters(&name),
            DrafterKind::Model { model: _, head_tokens } => {
                head_tokens.iter().map(|tokens| (HEAD_TOKENS.to_owned(), tokens.clone())).collect()
            }
        };
        let file = self.store().or(self.draft_model()).cloned();
        DrafterDescription { name, kind: self.name().to_owned(), parameters, file }
    }

    /// The drafter that a profile describes.
    ///
    /// # Errors
    /// [`PlanError::UnknownDrafter`] or [`PlanError::DrafterParameters`] if this build has no such drafter.
    pub fn from_description(description: &DrafterDescription) -> Result<Self, PlanError> {
        let DrafterDescription { name, kind, parameters, file } = description;
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
        let wrong = |expected: &str, found: String| PlanError::DrafterParameters {
            drafter: name.to_string(),
            expected: expected.to_owned(),
            found,
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
            "retrieval" => {
                let lookup_match = match parameters.get(LOOKUP).map(Vec::as_slice) {
                    None => None,
                    Some([longest, shortest]) => Some((*longest, *shortest)),
                    Some(other) => return Err(wrong("two numbers for lookup_match", format!("{other:?}"))),
                };
                let all = [LONGEST, LOOKUP, SHORTEST];
                expect(if lookup_match.is_some() { &all } else { &[LONGEST, SHORTEST] })?;
                let store =
                    file.clone().ok_or_else(|| wrong("a file, the corpus store", "none".to_owned()))?;
                let (longest_match, shortest_match) = (one(LONGEST)?, one(SHORTEST)?);
                DrafterKind::Retrieval { store, longest_match, shortest_match, lookup_match }
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
            "swift" => {
                expect(&[SKIPPED])?;
                DrafterKind::Swift { skipped: parameters[SKIPPED].clone() }
            }
            MIXED => DrafterKind::Mixed(Mixture::from_parameters(name, parameters, file.as_ref())?),
            "model" => {
                let head_tokens = parameters.get(HEAD_TOKENS).cloned();
                expect(if head_tokens.is_some() { &[HEAD_TOKENS] } else { &[] })?;
                let model =
                    file.clone().ok_or_else(|| wrong("a file, the drafter model", "none".to_owned()))?;
                DrafterKind::Model { model, head_tokens }
            }
            _ => {
                return Err(PlanError::UnknownDrafter {
                    expected: DrafterKind::NAMES.join(", "),
                    found: kind.clone(),
                });
            }
        };
        if let (None, Some(file)) = (drafter.store().or(drafter.draft_model()), file) {
            return Err(wrong("no file", file.path.clone()));
        }
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
            DrafterKind::Retrieval { store, longest_match, shortest_match, lookup_match } => {
                for (longest, shortest) in
                    std::iter::once(&(*longest_match, *shortest_match)).chain(lookup_match)
                {
                    if *shortest < 1 || shortest > longest {
                        return error(
                            "1 <= shortest match <= longest match",
                            format!("{shortest}, {longest}"),
                        );
                    }
                }
                is_file(store).or_else(|found| error("a store with a path and a digest of 64 digits", found))
            }
            DrafterKind::LayerSkip { skipped, head_tokens } => {
                if !ascending(skipped) {
                    return error("ascending, distinct groups to skip", format!("{skipped:?}"));
                }
                is_head(head_tokens.as_deref()).or_else(|(rule, found): Fault| error(rule, found))
            }
            DrafterKind::Model { model, head_tokens } => {
                is_file(model)
                    .or_else(|found| error("a model with a path and a digest of 64 digits", found))?;
                is_head(head_tokens.as_deref()).or_else(|(rule, found): Fault| error(rule, found))
            }
            DrafterKind::Suffix(settings) => {
                settings.validate().or_else(|(rule, found): Fault| error(rule, found))
            }
            DrafterKind::Ngram(settings) => {
                settings.validate().or_else(|(rule, found): Fault| error(rule, found))
            }
            DrafterKind::Swift { skipped } => {
                let known = skipped.last().is_none_or(|last| *last < GroupSet::MOST_GROUPS);
                if ascending(skipped) && known {
                    return Ok(());
                }
                let most = GroupSet::MOST_GROUPS;
                error(&format!("ascending, distinct groups to skip, below {most}"), format!("{skipped:?}"))
            }
            DrafterKind::Mixed(mixture) => mixture.validate(),
        }
    }
}

fn ascending(ids: &[u32]) -> bool {
    !ids.is_empty() && ids.is_sorted_by(|a, b| a < b)
}

/// Whether a head can be trimmed to these tokens.
fn is_head(tokens: Option<&[u32]>) -> Result<(), Fault> {
    match tokens {
        Some(tokens) if !ascending(tokens) => {
            let breach = tokens.windows(2).find(|pair| pair[0] >= pair[1]);
            let found = breach.map_or("none".to_owned(), |pair| format!("{pair:?}"));
            Err(("one or more ascending, distinct tokens of a trimmed head", found))
        }
        Some(_) | None => Ok(()),
    }
}

/// Whether a file has a place and a digest; else what it has.
fn is_file(file: &DrafterFile) -> Result<(), String> {
    let DrafterFile { path, digest } = file;
    let is_digest = digest.len() == 64 && digest.bytes().all(|b| b.is_ascii_hexdigit());
    if path.is_empty() || !is_digest { Err(format!("`{path}`, `{digest}`")) } else { Ok(()) }
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

    fn retrieval(longest_match: u32, shortest_match: u32, lookup_match: Option<(u32, u32)>) -> DrafterKind {
        let store = DrafterFile { path: "a.store".to_owned(), digest: "0a".repeat(32) };
        DrafterKind::Retrieval { store, longest_match, shortest_match, lookup_match }
    }

    fn swift(skipped: &[u32]) -> DrafterKind {
        DrafterKind::Swift { skipped: skipped.to_vec() }
    }

    fn mixed(parts: &[DrafterKind]) -> DrafterKind {
        DrafterKind::Mixed(Mixture::of(parts).unwrap())
    }

    fn model(path: &str, head_tokens: Option<&[u32]>) -> DrafterKind {
        let model = DrafterFile { path: path.to_owned(), digest: "b1".repeat(32) };
        DrafterKind::Model { model, head_tokens: head_tokens.map(<[u32]>::to_vec) }
    }

    fn all() -> [DrafterKind; 14] {
        let lookup = DrafterKind::Lookup { longest_match: 4, shortest_match: 2 };
        let (ngram, suffix) =
            (DrafterKind::Ngram(NgramSettings::DEFAULT), DrafterKind::Suffix(SuffixSettings::DEFAULT));
        [
            mixed(&[DrafterKind::Recycling, lookup.clone()]),
            mixed(&[retrieval(16, 2, None), ngram, DrafterKind::Recycling, suffix, lookup]),
            DrafterKind::None,
            DrafterKind::Lookup { longest_match: 4, shortest_match: 2 },
            layer_skip(&[2, 3, 9], None),
            retrieval(16, 2, None),
            retrieval(16, 2, Some((3, 1))),
            DrafterKind::Suffix(SuffixSettings::DEFAULT),
            DrafterKind::Recycling,
            DrafterKind::Ngram(NgramSettings::DEFAULT),
            swift(&[2, 3, 9]),
            layer_skip(&[2, 3, 9], Some(&[0, 7, 8])),
            model("a", None),
            model("a", Some(&[0, 7, 8])),
        ]
    }

    #[test]
    fn every_kind_survives_its_description() {
        let names = all().map(|kind| kind.name());
        assert!(
            DrafterKind::NAMES.iter().all(|name| names.contains(name))
                && names.iter().all(|n| DrafterKind::NAMES.contains(n))
        );
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
            let mut other_file = good.clone();
            other_file.file = match &good.file {
                Some(_) => None,
                None => Some(DrafterFile { path: "x".to_owned(), digest: "0".repeat(64) }),
            };
            assert!(matches!(
                DrafterKind::from_description(&other_file),
                Err(PlanError::DrafterParameters { .. })
            ));
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
            retrieval(1, 2, None),
            retrieval(2, 0, None),
            retrieval(2, 1, Some((1, 2))),
            retrieval(2, 1, None).with_store_at(""),
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
            swift(&[]),
            swift(&[2, 2]),
            swift(&[2, 512]),
            model("", None),
            model("a", Some(&[7, 0])),
        ] {
            let description = kind.describe(DrafterName::new("any").unwrap());
            assert!(DrafterKind::from_description(&description).is_err(), "{kind:?}");
        }
    }
}
