//! Which drafters share the tree of a step, each with its settings.

use std::collections::BTreeMap;

use super::{settings::*, *};
use crate::plan::{ProposalLimits, Shape};

/// Names of what a mixture sets for its model, beside the names of its drafters.
const GROWTHS: &str = "growths";
const CERTAIN: &str = "certain_percent";

/// Two or more different drafters, of which one at most runs a model.
///
/// Flat, so that no file can nest it. Beside a model stand only drafters whose proposals follow from the text
/// ([`RecordedAs::Requests`]): so every shape of the common tree is replayed from the recorded trees of the model and
/// the recorded text. A drafter is described with one file, so a corpus store and a drafter model exclude each other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mixture {
    /// Longest and shortest suffix looked for.
    lookup: Option<(u32, u32)>,
    suffix: Option<SuffixSettings>,
    /// The store, and the longest and shortest suffix looked for.
    retrieval: Option<(DrafterFile, u32, u32)>,
    /// The store, which is that of `retrieval` if there are both: a drafter is described with one file.
    prior: Option<DrafterFile>,
    ngram: Option<NgramSettings>,
    recycling: bool,
    model: Option<MixedModel>,
}

/// The drafter of a mixture that runs a model, and when it does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MixedModel {
    drafter: ModelPart,
    /// Most growths of its tree in a step, which may be fewer than copies are deep.
    pub growths: u32,
    /// How probable in percent it must be that the text follows a copy as deep as the model's tree grows, for a step to
    /// do without the model.
    pub certain_percent: u32,
}

/// The drafters that run a model and can share a tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ModelPart {
    LayerSkip(LayerSkipSettings),
    Model(ModelSettings),
    Substitute(SubstituteSettings),
}

impl ModelPart {
    fn kind(&self) -> DrafterKind {
        match self.clone() {
            Self::LayerSkip(settings) => settings.into(),
            Self::Model(settings) => settings.into(),
            Self::Substitute(settings) => settings.into(),
        }
    }

    fn facts(&self) -> DrafterFacts<'_> {
        match self {
            Self::LayerSkip(settings) => settings.facts(),
            Self::Model(settings) => settings.facts(),
            Self::Substitute(settings) => settings.facts(),
        }
    }

    fn of(kind: DrafterKind) -> Option<Self> {
        match kind {
            DrafterKind::LayerSkip(settings) => Some(Self::LayerSkip(settings)),
            DrafterKind::Model(settings) => Some(Self::Model(settings)),
            DrafterKind::Substitute(settings) => Some(Self::Substitute(settings)),
            _ => None,
        }
    }
}

impl MixedModel {
    /// Until a planner has chosen: as deep as trees are recorded, and run wherever a copy is not all but sure.
    const UNPLANNED: (u32, u32) = (6, 90);
    /// Growths that a file may ask for: many times what any tree was worth.
    const MOST_GROWTHS: u32 = 64;

    /// The drafter alone.
    pub fn kind(&self) -> DrafterKind {
        self.drafter.kind()
    }
}

impl Mixture {
    /// Continuations that each copying drafter proposes beside a model: the best, and one for where it fails. What the
    /// third and later ones guess, the model knows better.
    pub const COPIES: u32 = 2;

    /// The mixture of `parts`, in whatever order.
    ///
    /// # Errors
    /// [`PlanError::DrafterParameters`] if there are fewer than two, two of a kind, two that run a model, or ones that
    /// cannot be mixed.
    pub fn of(parts: &[DrafterKind]) -> Result<Self, PlanError> {
        let (lookup, suffix, retrieval, prior, ngram) = (None, None, None, None, None);
        let mut all = Self { lookup, suffix, retrieval, prior, ngram, recycling: false, model: None };
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
                DrafterKind::Prior(PriorSettings { store }) => all.prior.replace(store).is_some(),
                DrafterKind::Ngram(settings) => all.ngram.replace(settings).is_some(),
                DrafterKind::Recycling => std::mem::replace(&mut all.recycling, true),
                other => {
                    let Some(drafter) = ModelPart::of(other) else {
                        let expected = "lookup, suffix, retrieval without a lookup of its own, prior, ngram, recycling, and \
                                        one of layer_skip, model and substitute";
                        return Err(Self::fault(expected, format!("{part:?}")));
                    };
                    let (growths, certain_percent) = MixedModel::UNPLANNED;
                    all.model.replace(MixedModel { drafter, growths, certain_percent }).is_some()
                }
            };
            if is_second {
                return Err(Self::fault("every drafter once", format!("two of {}", part.name())));
            }
        }
        all.validate()?;
        Ok(all)
    }

    /// The same with a model that grows and is left out like this; itself without a model.
    #[must_use]
    pub fn with_model_steps(mut self, growths: u32, certain_percent: u32) -> Self {
        if let Some(model) = &mut self.model {
            (model.growths, model.certain_percent) = (growths, certain_percent);
        }
        self
    }

    /// The drafter that runs a model, if there is one.
    pub fn model(&self) -> Option<&MixedModel> {
        self.model.as_ref()
    }

    /// The drafters. Of nodes worth the same, those of earlier ones come first.
    pub fn parts(&self) -> Vec<DrafterKind> {
        let model = self.model.as_ref().map(MixedModel::kind);
        self.copies().into_iter().chain(model).collect()
    }

    /// The drafters that run no model.
    pub fn copies(&self) -> Vec<DrafterKind> {
        let Self { lookup, suffix, retrieval, prior, ngram, recycling, model: _ } = self;
        let lookup = lookup.map(|(longest_match, shortest_match)| {
            DrafterKind::from(LookupSettings { longest_match, shortest_match })
        });
        let retrieval = retrieval.clone().map(|(store, longest_match, shortest_match)| {
            RetrievalSettings { store, longest_match, shortest_match, lookup_match: None }.into()
        });
        let prior = prior.clone().map(|store| PriorSettings { store }.into());
        let suffix = suffix.map(DrafterKind::Suffix);
        let ngram = ngram.map(DrafterKind::Ngram);
        let recycling = recycling.then_some(DrafterKind::Recycling);
        [lookup, suffix, retrieval, prior, ngram, recycling].into_iter().flatten().collect()
    }

    fn store(&self) -> Option<&DrafterFile> {
        self.retrieval.as_ref().map(|(store, _, _)| store).or(self.prior.as_ref())
    }

    /// What steps of `shape` allow each copying drafter beside a model: as deep as the step, no more nodes than it
    /// verifies.
    pub fn limits_of_copies(shape: Shape) -> ProposalLimits {
        let Shape { depth, draft_width: _, verify_width } = shape;
        ProposalLimits {
            depth,
            width: Self::COPIES,
            nodes: verify_width.min(depth.saturating_mul(Self::COPIES).saturating_add(1)),
        }
    }

    /// The mixtures of copies with every drafter of `model` that runs a model, by name.
    fn with_models(model: &ProfiledModel<'_>, copies: &[DrafterKind]) -> Vec<(String, Self)> {
        // There a substitute is priced at divisions of memory that a common tree was never recorded for.
        if model.streams {
            return Vec::new();
        }
        let named = |(name, kind): (String, DrafterKind)| {
            let has_file = kind.draft_model().is_some();
            let mut parts: Vec<DrafterKind> =
                copies.iter().filter(|part| !has_file || part.store().is_none()).cloned().collect();
            parts.push(kind);
            (format!("{}_{name}", Self::NAME), Self::of(&parts).expect("copies, and one model"))
        };
        let skips = LayerSkipSettings::profiled(model).into_iter().map(|(n, s)| (n, s.into()));
        let models = ModelSettings::profiled(model).into_iter().map(|(n, s)| (n, s.into()));
        let substitutes = SubstituteSettings::profiled(model).into_iter().map(|(n, s)| (n, s.into()));
        skips.chain(models).chain(substitutes).map(named).collect()
    }
}

impl DrafterSettings for Mixture {
    const NAME: &'static str = "mixed";
    const SUMMARY: &'static str = "Several drafters in one tree, weighted by their recent \
                                   success: all without a model, or copies beside one with a model";
    const RECORDED_AS: RecordedAs = RecordedAs::LiveSteps;

    fn facts(&self) -> DrafterFacts<'_> {
        let facts = match &self.model {
            None => DrafterFacts::of(Self::RECORDED_AS),
            Some(model) => DrafterFacts { recorded_as: RecordedAs::Merged, ..model.drafter.facts() },
        };
        DrafterFacts {
            pinned_rows: self.ngram.map_or(0, |settings| settings.pool_rows()),
            store: self.store(),
            ..facts
        }
    }

    /// An empty list for every drafter, and its parameters after its name and a dot; what is set for a model under
    /// names of their own.
    fn parameters(&self) -> Parameters {
        let mut all = Parameters::new();
        for part in self.parts() {
            let kind = part.name();
            all.insert(kind.to_owned(), Vec::new());
            let parameters = part.parameters().into_iter();
            all.extend(parameters.map(|(key, values)| (format!("{kind}.{key}"), values)));
        }
        if let Some(MixedModel { growths, certain_percent, .. }) = self.model {
            all.insert(GROWTHS.to_owned(), vec![growths]);
            all.insert(CERTAIN.to_owned(), vec![certain_percent]);
        }
        all
    }

    fn from_description(given: &Described<'_>) -> Result<Self, PlanError> {
        let Described { name, parameters, file } = *given;
        let mut parts: BTreeMap<&str, Parameters> = BTreeMap::new();
        for (key, values) in parameters.iter().filter(|(key, _)| ![GROWTHS, CERTAIN].contains(&key.as_str()))
        {
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
                let with_files = [RetrievalSettings::NAME, PriorSettings::NAME, ModelSettings::NAME];
                let has_file = with_files.contains(&kind);
                let file = file.filter(|_| has_file).cloned();
                let (name, kind) = (name.clone(), kind.to_owned());
                DrafterKind::from_description(&DrafterDescription { name, kind, parameters, file })
            })
            .collect();
        let mixture = Self::of(&kinds?)?;
        if mixture.model.is_none() {
            return Ok(mixture);
        }
        let mixture = mixture.with_model_steps(u32::read(given, GROWTHS)?, u32::read(given, CERTAIN)?);
        mixture.validate()?;
        Ok(mixture)
    }

    fn validate(&self) -> Result<(), PlanError> {
        let parts = self.parts();
        if parts.len() < 2 {
            let names: Vec<_> = parts.iter().map(DrafterKind::name).collect();
            return Err(Self::fault("two or more drafters", format!("{names:?}")));
        }
        parts.iter().try_for_each(DrafterKind::validate)?;
        let stores = parts.iter().filter_map(DrafterKind::store);
        expect::<Self>(stores.clone().all(|store| Some(store) == self.store()), "one corpus store", || {
            stores.map(|store| store.path.clone()).collect::<Vec<_>>().join(", ")
        })?;
        let Some(MixedModel { drafter, growths, certain_percent }) = &self.model else { return Ok(()) };
        let growths_fit = (1..=MixedModel::MOST_GROWTHS).contains(growths);
        let expected = format!("{GROWTHS} 1 to {}, {CERTAIN} 1 to 100", MixedModel::MOST_GROWTHS);
        expect::<Self>(growths_fit && (1..=100).contains(certain_percent), &expected, || {
            format!("{growths}, {certain_percent}")
        })?;
        let learns = |part: &&DrafterKind| part.facts().recorded_as != RecordedAs::Requests;
        let copies = self.copies();
        let learner = copies.iter().find(learns);
        let expected = "beside a model lookup, suffix, retrieval and prior alone, which follow from the text";
        expect::<Self>(learner.is_none(), expected, || learner.map_or("", DrafterKind::name).to_owned())?;
        let has_two_files = drafter.facts().draft_model.is_some() && self.store().is_some();
        expect::<Self>(!has_two_files, "one file: a corpus store or a drafter model", || "both".to_owned())
    }

    fn profiled(model: &ProfiledModel<'_>) -> Vec<(String, Self)> {
        let stored = model.store.map(|store| {
            [RetrievalSettings::of(store).into(), PriorSettings { store: store.clone() }.into()]
        });
        let copies = [LookupSettings::SHORT.into(), SuffixSettings::DEFAULT.into()];
        let copies: Vec<DrafterKind> = copies.into_iter().chain(stored.into_iter().flatten()).collect();
        let parts = [&copies[..], &[RecyclingSettings.into()]].concat();
        let alone = Self::of(&parts).expect("different drafters that can be mixed");
        let mut all = vec![(Self::NAME.to_owned(), alone)];
        all.extend(Self::with_models(model, &copies));
        all
    }

    fn with_head(&self, tokens: Vec<u32>) -> Option<DrafterKind> {
        let mut trimmed = self.clone();
        let model = trimmed.model.as_mut()?;
        model.drafter = ModelPart::of(model.kind().trimmed_to(tokens)?)?;
        Some(trimmed.into())
    }

    fn with_file_at(&self, path: &str) -> Option<DrafterKind> {
        let mut moved = self.clone();
        if let Some((store, _, _)) = &mut moved.retrieval {
            path.clone_into(&mut store.path);
        }
        if let Some(store) = &mut moved.prior {
            path.clone_into(&mut store.path);
        }
        if let Some(MixedModel { drafter: ModelPart::Model(ModelSettings { model, .. }), .. }) =
            &mut moved.model
        {
            path.clone_into(&mut model.path);
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

    fn prior(path: &str) -> DrafterKind {
        PriorSettings { store: DrafterFile { path: path.to_owned(), ..store() } }.into()
    }

    fn retrieval(lookup_match: Option<(u32, u32)>) -> DrafterKind {
        RetrievalSettings { lookup_match, ..RetrievalSettings::of(&store()) }.into()
    }

    fn substitute() -> DrafterKind {
        SubstituteSettings { bits: 4, head_tokens: None }.into()
    }

    fn model() -> DrafterKind {
        ModelSettings { model: store(), head_tokens: None }.into()
    }

    #[test]
    fn a_mixture_with_a_model_is_what_its_model_is_and_what_copies_are() {
        let with = |parts: &[DrafterKind]| DrafterKind::Mixed(Mixture::of(parts).unwrap());
        let kind = with(&[substitute(), retrieval(None), LOOKUP]);
        assert!(kind.runs_a_model() && kind.learns() && !kind.grows_alone() && kind.needs_executables());
        assert!(!kind.keeps_a_cache());
        assert_eq!((kind.facts().substitute_bits, kind.store()), (Some(4), Some(&store())));
        assert_eq!(kind.mixed_model().map(MixedModel::kind), Some(substitute()));
        assert_eq!(kind.clone().with_store_at("b").store().map(|file| file.path.as_str()), Some("b"));
        let trimmed = kind.trimmed_to(vec![1, 5]).unwrap();
        assert_eq!(trimmed.head_tokens(), Some(&[1, 5][..]));
        assert_eq!(trimmed.mixed_model().map(MixedModel::kind), substitute().trimmed_to(vec![1, 5]));
        assert_eq!(trimmed.trimmed_to(vec![1]), None, "trimmed already");

        let kind = with(&[LOOKUP, model()]);
        assert!(kind.keeps_a_cache() && kind.draft_model() == Some(&store()));
        let moved = kind.with_draft_model_at(&DrafterFile { path: "b".to_owned(), ..store() });
        assert_eq!(moved.draft_model().map(|file| file.path.as_str()), Some("b"));
        assert_eq!(with(&[LOOKUP, DrafterKind::Recycling]).trimmed_to(vec![1]), None, "without a model");

        let skip = LayerSkipSettings { skipped: vec![2, 3], head_tokens: None };
        assert_eq!(with(&[LOOKUP, skip.into()]).facts().skipped, Some(&[2, 3][..]));
    }

    #[test]
    fn profiles_mix_copies_with_every_model_but_where_weights_are_streamed() {
        let (file, models) = (store(), [("model".to_owned(), store())]);
        let model = ProfiledModel {
            groups: 8,
            substitute_shares: &[(4, 0.3)],
            streams: false,
            store: Some(&file),
            draft_models: &models,
            block_drafters: &[],
        };
        let named = |model: &ProfiledModel<'_>| -> Vec<(String, usize)> {
            let all = Mixture::profiled(model).into_iter();
            all.map(|(name, mixture)| (name, mixture.parts().len())).collect()
        };
        let expected = [("mixed", 5), ("mixed_layer_skip", 5), ("mixed_model", 3), ("mixed_substitute4", 5)];
        assert_eq!(named(&model), expected.map(|(name, parts)| (name.to_owned(), parts)));
        for (name, _) in expected {
            assert_eq!(DrafterId::of_name(name), Some(DrafterId::Mixed));
        }
        assert_eq!(named(&ProfiledModel { streams: true, ..model }).len(), 1);
    }

    #[test]
    fn parts_are_in_one_order_whatever_order_they_came_in() {
        let pool = NgramSettings { pool: 2, ..NgramSettings::DEFAULT };
        let ngram = DrafterKind::Ngram(pool);
        let parts = [LOOKUP, retrieval(None), prior("a.store"), ngram.clone(), DrafterKind::Recycling];
        let forth = Mixture::of(&parts).unwrap();
        let back = Mixture::of(&parts.iter().rev().cloned().collect::<Vec<_>>()).unwrap();
        assert_eq!(forth, back);
        assert_eq!(forth.parts(), parts);
        let kind = DrafterKind::Mixed(forth);
        assert_eq!(kind.facts().pinned_rows, pool.pool_rows());
        assert_eq!(kind.store(), Some(&store()));
        let moved = kind.clone().with_store_at("elsewhere");
        assert_eq!(moved.store().map(|file| file.path.as_str()), Some("elsewhere"));
        moved.validate().unwrap();
        assert!(kind.learns() && !kind.runs_a_model());
    }

    #[test]
    fn what_cannot_be_mixed_is_refused() {
        let swift: DrafterKind = SwiftSettings { skipped: vec![2] }.into();
        let nested = DrafterKind::Mixed(Mixture::of(&[LOOKUP, DrafterKind::Recycling]).unwrap());
        for parts in [
            &[][..],
            &[LOOKUP],
            &[LOOKUP, LOOKUP],
            &[DrafterKind::Recycling, DrafterKind::Recycling],
            &[LOOKUP, DrafterKind::None],
            &[LOOKUP, swift.clone()],
            &[LOOKUP, nested],
            &[LOOKUP, retrieval(Some((3, 1)))],
            &[prior("another.store"), retrieval(None)],
            &[prior("a.store"), prior("a.store")],
            &[substitute()],
            &[substitute(), model()],
            &[substitute(), swift.clone()],
            // What learns cannot be replayed beside a model.
            &[substitute(), DrafterKind::Recycling],
            &[LOOKUP, substitute(), DrafterKind::Ngram(NgramSettings::DEFAULT)],
            // A description has one file.
            &[LOOKUP, model(), retrieval(None)],
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
