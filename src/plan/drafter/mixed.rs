//! Which drafters share the tree of a step, each with its settings.

use std::collections::BTreeMap;

use super::{settings::*, *};

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
                DrafterKind::Lookup(LookupSettings { longest_match, shortest_match }) => {
                    all.lookup.replace((longest_match, shortest_match)).is_some()
                }
                DrafterKind::Suffix(settings) => all.suffix.replace(settings).is_some(),
                DrafterKind::Retrieval(RetrievalSettings {
                    store,
                    longest_match,
                    shortest_match,
                    lookup_match: None,
                }) => all.retrieval.replace((store, longest_match, shortest_match)).is_some(),
                DrafterKind::Ngram(settings) => all.ngram.replace(settings).is_some(),
                DrafterKind::Recycling => std::mem::replace(&mut all.recycling, true),
                _ => {
                    let expected =
                        "lookup, suffix, retrieval without a lookup of its own, ngram and recycling";
                    return Err(Self::fault(expected, format!("{part:?}")));
                }
            };
            if is_second {
                return Err(Self::fault("every drafter once", format!("two of {}", part.name())));
            }
        }
        all.validate()?;
        Ok(all)
    }

    /// The drafters. Of nodes worth the same, those of earlier ones come first.
    pub fn parts(&self) -> Vec<DrafterKind> {
        let Self { lookup, suffix, retrieval, ngram, recycling } = self;
        let lookup = lookup.map(|(longest_match, shortest_match)| {
            DrafterKind::from(LookupSettings { longest_match, shortest_match })
        });
        let retrieval = retrieval.clone().map(|(store, longest_match, shortest_match)| {
            RetrievalSettings { store, longest_match, shortest_match, lookup_match: None }.into()
        });
        let suffix = suffix.map(DrafterKind::Suffix);
        let ngram = ngram.map(DrafterKind::Ngram);
        let recycling = recycling.then_some(DrafterKind::Recycling);
        [lookup, suffix, retrieval, ngram, recycling].into_iter().flatten().collect()
    }
}

impl DrafterSettings for Mixture {
    const NAME: &'static str = "mixed";
    const SUMMARY: &'static str =
        "All drafters without a model in one tree, weighted by their recent success";
    const RECORDED_AS: RecordedAs = RecordedAs::LiveSteps;

    fn facts(&self) -> DrafterFacts<'_> {
        DrafterFacts {
            pinned_rows: self.ngram.map_or(0, |settings| settings.pool_rows()),
            store: self.retrieval.as_ref().map(|(store, _, _)| store),
            ..DrafterFacts::of(Self::RECORDED_AS)
        }
    }

    /// An empty list for every drafter, and its parameters after its name and a dot.
    fn parameters(&self) -> Parameters {
        let mut all = Parameters::new();
        for part in self.parts() {
            let kind = part.name();
            all.insert(kind.to_owned(), Vec::new());
            let parameters = part.parameters().into_iter();
            all.extend(parameters.map(|(key, values)| (format!("{kind}.{key}"), values)));
        }
        all
    }

    fn from_description(given: &Described<'_>) -> Result<Self, PlanError> {
        let Described { name, parameters, file } = *given;
        let mut parts: BTreeMap<&str, Parameters> = BTreeMap::new();
        for (key, values) in parameters {
            match key.split_once('.') {
                None if values.is_empty() => {
                    parts.entry(key).or_default();
                }
                None => {
                    return Err(Self::fault("no numbers for a drafter's name", format!("{key}: {values:?}")));
                }
                Some((kind, key)) => {
                    parts.entry(kind).or_default().insert(key.to_owned(), values.clone());
                }
            }
        }
        if let Some(kind) = parts.keys().find(|kind| !parameters.contains_key(**kind)) {
            return Err(Self::fault(
                "the name of every drafter that has parameters",
                format!("none for {kind}"),
            ));
        }
        let kinds: Result<Vec<_>, PlanError> = parts
            .into_iter()
            .map(|(kind, parameters)| {
                if kind == Self::NAME {
                    return Err(Self::fault("drafters, not mixtures of them", kind.to_owned()));
                }
                let file = file.filter(|_| kind == RetrievalSettings::NAME).cloned();
                let (name, kind) = (name.clone(), kind.to_owned());
                DrafterKind::from_description(&DrafterDescription { name, kind, parameters, file })
            })
            .collect();
        Self::of(&kinds?)
    }

    fn validate(&self) -> Result<(), PlanError> {
        let parts = self.parts();
        if parts.len() < 2 {
            let names: Vec<_> = parts.iter().map(DrafterKind::name).collect();
            return Err(Self::fault("two or more drafters", format!("{names:?}")));
        }
        parts.iter().try_for_each(DrafterKind::validate)
    }

    fn profiled(model: &ProfiledModel<'_>) -> Vec<(String, Self)> {
        let retrieval = model.store.map(|store| RetrievalSettings::of(store).into());
        let parts = [LookupSettings::SHORT.into(), SuffixSettings::DEFAULT.into(), RecyclingSettings.into()];
        let parts: Vec<DrafterKind> = parts.into_iter().chain(retrieval).collect();
        vec![(Self::NAME.to_owned(), Self::of(&parts).expect("different drafters that can be mixed"))]
    }

    fn with_file_at(&self, path: &str) -> Option<DrafterKind> {
        let mut moved = self.clone();
        if let Some((store, _, _)) = &mut moved.retrieval {
            path.clone_into(&mut store.path);
        }
        Some(moved.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOKUP: DrafterKind = DrafterKind::Lookup(LookupSettings { longest_match: 3, shortest_match: 1 });

    fn store() -> DrafterFile {
        DrafterFile { path: "a.store".to_owned(), digest: "0a".repeat(32) }
    }

    fn retrieval(lookup_match: Option<(u32, u32)>) -> DrafterKind {
        RetrievalSettings { lookup_match, ..RetrievalSettings::of(&store()) }.into()
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
        let kind = DrafterKind::Mixed(forth);
        assert_eq!(kind.facts().pinned_rows, pool.pool_rows());
        assert_eq!(kind.store(), Some(&store()));
        let moved = kind.clone().with_store_at("elsewhere");
        assert_eq!(moved.store().map(|file| file.path.as_str()), Some("elsewhere"));
        assert!(kind.learns() && !kind.runs_a_model());
    }

    #[test]
    fn what_cannot_be_mixed_is_refused() {
        let swift = SwiftSettings { skipped: vec![2] }.into();
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
            &[DrafterKind::Recycling, LookupSettings { longest_match: 1, shortest_match: 2 }.into()],
        ] {
            assert!(matches!(Mixture::of(parts), Err(PlanError::DrafterParameters { .. })), "{parts:?}");
        }
    }

    #[test]
    fn parameters_without_a_drafter_and_drafters_without_parameters_are_refused() {
        let name = DrafterName::new("any").unwrap();
        let read = |parameters: &Parameters| {
            Mixture::from_description(&Described { name: &name, parameters, file: None })
        };
        let good = Mixture::of(&[LOOKUP, DrafterKind::Recycling]).unwrap().parameters();
        assert!(read(&good).is_ok());
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
            let found = read(&changed);
            assert!(found.is_err(), "{changed:?} is {found:?}");
        }
    }
}
