//! Which drafters share the tree of a step, each with its settings.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use ygg_profiler::{DrafterDescription, DrafterFile, DrafterName};

use super::{DrafterKind, NgramSettings, PlanError, SuffixSettings};

/// Two or more different drafters that run no model.
///
/// Flat, so that no file can nest it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mixture {
    /// Longest and shortest suffix looked for.
    lookup: Option<(u32, u32)>,
    suffix: Option<SuffixSettings>,
    /// The store, and the longest and shortest suffix looked for.
    retrieval: Option<(DrafterFile, u32, u32)>,
    ngram: Option<NgramSettings>,
    recycling: bool,
}

impl Mixture {
    /// The mixture of `parts`, in whatever order.
    ///
    /// # Errors
    /// [`PlanError::DrafterParameters`] if there are fewer than two, two of a kind, or one that cannot be mixed.
    pub fn of(parts: &[DrafterKind]) -> Result<Self, PlanError> {
        let mut all = Self { lookup: None, suffix: None, retrieval: None, ngram: None, recycling: false };
        for part in parts {
            let is_second = match part.clone() {
                DrafterKind::Lookup { longest_match, shortest_match } => {
                    all.lookup.replace((longest_match, shortest_match)).is_some()
                }
                DrafterKind::Suffix(settings) => all.suffix.replace(settings).is_some(),
                DrafterKind::Retrieval { store, longest_match, shortest_match, lookup_match: None } => {
                    all.retrieval.replace((store, longest_match, shortest_match)).is_some()
                }
                DrafterKind::Ngram(settings) => all.ngram.replace(settings).is_some(),
                DrafterKind::Recycling => std::mem::replace(&mut all.recycling, true),
                DrafterKind::None
                | DrafterKind::Retrieval { lookup_match: Some(_), .. }
                | DrafterKind::LayerSkip { .. }
                | DrafterKind::Swift { .. }
                | DrafterKind::Model { .. }
                | DrafterKind::Mixed(_) => {
                    let expected =
                        "lookup, suffix, retrieval without a lookup of its own, ngram and recycling";
                    return Err(fault(expected, format!("{part:?}")));
                }
            };
            if is_second {
                return Err(fault("every drafter once", format!("two of {}", part.name())));
            }
        }
        all.validate()?;
        Ok(all)
    }

    /// The drafters. Of nodes worth the same, those of earlier ones come first.
    pub fn parts(&self) -> Vec<DrafterKind> {
        let Self { lookup, suffix, retrieval, ngram, recycling } = self;
        let lookup = lookup.map(|(longest, shortest)| DrafterKind::Lookup {
            longest_match: longest,
            shortest_match: shortest,
        });
        let retrieval = retrieval.clone().map(|(store, longest_match, shortest_match)| {
            DrafterKind::Retrieval { store, longest_match, shortest_match, lookup_match: None }
        });
        let suffix = suffix.map(DrafterKind::Suffix);
        let ngram = ngram.map(DrafterKind::Ngram);
        let recycling = recycling.then_some(DrafterKind::Recycling);
        [lookup, suffix, retrieval, ngram, recycling].into_iter().flatten().collect()
    }

    /// Rows that they have verified at every step whatever those are worth.
    pub(super) fn pinned_rows(&self) -> u32 {
        self.ngram.map_or(0, |settings| settings.pool_rows())
    }

    pub(super) fn store(&self) -> Option<&DrafterFile> {
        self.retrieval.as_ref().map(|(store, _, _)| store)
    }

    pub(super) fn store_mut(&mut self) -> Option<&mut DrafterFile> {
        self.retrieval.as_mut().map(|(store, _, _)| store)
    }

    /// An empty list for every drafter, and its parameters behind its name and a dot.
    pub(super) fn parameters(&self, name: &DrafterName) -> BTreeMap<String, Vec<u32>> {
        let mut all = BTreeMap::new();
        for part in self.parts() {
            let kind = part.name();
            all.insert(kind.to_owned(), Vec::new());
            let DrafterDescription { parameters, .. } = part.describe(name.clone());
            all.extend(parameters.into_iter().map(|(key, values)| (format!("{kind}.{key}"), values)));
        }
        all
    }

    /// The mixture of these [`parameters`](Self::parameters), with the file of the one that needs one.
    pub(super) fn from_parameters(
        name: &DrafterName,
        parameters: &BTreeMap<String, Vec<u32>>,
        file: Option<&DrafterFile>,
    ) -> Result<Self, PlanError> {
        let mut parts: BTreeMap<&str, BTreeMap<String, Vec<u32>>> = BTreeMap::new();
        for (key, values) in parameters {
            match key.split_once('.') {
                None if values.is_empty() => {
                    parts.entry(key).or_default();
                }
                None => return Err(fault("no numbers for a drafter's name", format!("{key}: {values:?}"))),
                Some((kind, key)) => {
                    parts.entry(kind).or_default().insert(key.to_owned(), values.clone());
                }
            }
        }
        if let Some(kind) = parts.keys().find(|kind| !parameters.contains_key(**kind)) {
            return Err(fault("the name of every drafter that has parameters", format!("none for {kind}")));
        }
        let kinds: Result<Vec<_>, PlanError> = parts
            .into_iter()
            .map(|(kind, parameters)| {
                if kind == MIXED {
                    return Err(fault("drafters, not mixtures of them", kind.to_owned()));
                }
                let file = file.filter(|_| kind == RETRIEVAL).cloned();
                let (name, kind) = (name.clone(), kind.to_owned());
                DrafterKind::from_description(&DrafterDescription { name, kind, parameters, file })
            })
            .collect();
        Self::of(&kinds?)
    }

    pub(super) fn validate(&self) -> Result<(), PlanError> {
        let parts = self.parts();
        if parts.len() < 2 {
            let names: Vec<_> = parts.iter().map(DrafterKind::name).collect();
            return Err(fault("two or more drafters", format!("{names:?}")));
        }
        parts.iter().try_for_each(DrafterKind::validate)
    }
}

/// The name of a mixture.
pub(super) const MIXED: &str = "mixed";
/// The name of the only part that needs a file.
const RETRIEVAL: &str = "retrieval";

fn fault(expected: &str, found: String) -> PlanError {
    PlanError::DrafterParameters { drafter: MIXED.to_owned(), expected: expected.to_owned(), found }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOKUP: DrafterKind = DrafterKind::Lookup { longest_match: 3, shortest_match: 1 };

    fn store() -> DrafterFile {
        DrafterFile { path: "a.store".to_owned(), digest: "0a".repeat(32) }
    }

    fn retrieval(lookup_match: Option<(u32, u32)>) -> DrafterKind {
        DrafterKind::Retrieval { store: store(), longest_match: 16, shortest_match: 2, lookup_match }
    }

    #[test]
    fn parts_are_in_one_order_whatever_order_they_came_in() {
        let pool = NgramSettings { pool: 2, ..NgramSettings::DEFAULT };
        let ngram = DrafterKind::Ngram(pool);
        let parts = [LOOKUP, retrieval(None), ngram.clone(), DrafterKind::Recycling];
        let forth = Mixture::of(&parts).unwrap();
        let back = Mixture::of(&parts.iter().rev().cloned().collect::<Vec<_>>()).unwrap();
        assert_eq!(forth, back);
        assert_eq!(forth.parts(), parts);
        assert_eq!(forth.pinned_rows(), pool.pool_rows());
        let kind = DrafterKind::Mixed(forth);
        assert_eq!(kind.pinned_rows(), pool.pool_rows());
        assert_eq!(kind.store(), Some(&store()));
        let moved = kind.clone().with_store_at("elsewhere");
        assert_eq!(moved.store().map(|file| file.path.as_str()), Some("elsewhere"));
        assert!(kind.learns() && !kind.runs_a_model());
    }

    #[test]
    fn what_cannot_be_mixed_is_refused() {
        let swift = DrafterKind::Swift { skipped: vec![2] };
        let nested = DrafterKind::Mixed(Mixture::of(&[LOOKUP, DrafterKind::Recycling]).unwrap());
        for parts in [
            &[][..],
            &[LOOKUP],
            &[LOOKUP, LOOKUP],
            &[DrafterKind::Recycling, DrafterKind::Recycling],
            &[LOOKUP, DrafterKind::None],
            &[LOOKUP, swift],
            &[LOOKUP, nested],
            &[LOOKUP, retrieval(Some((3, 1)))],
            &[DrafterKind::Recycling, DrafterKind::Lookup { longest_match: 1, shortest_match: 2 }],
        ] {
            assert!(matches!(Mixture::of(parts), Err(PlanError::DrafterParameters { .. })), "{parts:?}");
        }
    }

    #[test]
    fn parameters_without_a_drafter_and_drafters_without_parameters_are_refused() {
        let name = DrafterName::new("any").unwrap();
        let good = Mixture::of(&[LOOKUP, DrafterKind::Recycling]).unwrap().parameters(&name);
        assert!(Mixture::from_parameters(&name, &good, None).is_ok());
        let changes: [(&str, Option<&[u32]>); 8] = [
            ("lookup", None),
            ("recycling", None),
            ("lookup.longest_match", None),
            ("recycling", Some(&[1])),
            ("recycling.depth", Some(&[1])),
            ("oracle", Some(&[])),
            ("mixed", Some(&[])),
            ("retrieval", Some(&[])),
        ];
        for (key, values) in changes {
            let mut changed = good.clone();
            match values {
                Some(values) => changed.insert(key.to_owned(), values.to_vec()),
                None => changed.remove(key),
            };
            let read = Mixture::from_parameters(&name, &changed, None);
            assert!(read.is_err(), "{changed:?} is {read:?}");
        }
    }
}
