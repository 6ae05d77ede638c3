//! The registry of drafters: every kind with its settings, and what other rooms ask of a kind.
//!
//! A kind is an entry of [`drafters!`], a file here for its settings and facts ([`DrafterSettings`]), and a file of its
//! name in `speculate/drafter` that makes it.

use serde::{Deserialize, Serialize};
use ygg_profiler::{DrafterDescription, DrafterFile, DrafterName};

use super::PlanError;
use crate::tree::Source;

mod block;
mod layer_skip;
mod lookup;
mod mixed;
mod model;
mod ngram;
mod plain;
mod prior;
mod recycling;
mod retrieval;
mod settings;
mod substitute;
mod suffix;
mod swift;
#[cfg(test)]
mod tests;

pub use block::BlockSettings;
pub use layer_skip::LayerSkipSettings;
pub use lookup::LookupSettings;
pub use mixed::{MixedModel, Mixture};
pub use model::ModelSettings;
pub use ngram::{MOST_ORDER, NgramSettings};
pub use plain::PlainDecoding;
pub use prior::PriorSettings;
pub use recycling::RecyclingSettings;
pub use retrieval::RetrievalSettings;
pub use settings::{Described, DrafterFacts, DrafterSettings, Parameters, ProfiledModel, RecordedAs};
pub use substitute::SubstituteSettings;
pub use suffix::SuffixSettings;
pub use swift::SwiftSettings;

/// Makes of the list of kinds, `Variant(Settings)` or `Variant = Settings` where a kind has nothing to set: the enum of
/// kinds, that of their ids, and the match that gives the settings of a kind.
macro_rules! drafters {
    ($d:tt $($(#[$doc:meta])* $variant:ident $(($settings:ident))? $(= $unit:ident)?,)+) => {
        /// A drafter, with its settings. The order of the kinds is part of the plan format.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum DrafterKind {
            $($(#[$doc])* $variant $(($settings))?,)+
        }

        /// A kind of drafter, without its settings.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum DrafterId {
            $($(#[$doc])* $variant,)+
        }

        impl DrafterId {
            /// All kinds.
            pub const ALL: [Self; DrafterKind::NAMES.len()] = [$(Self::$variant),+];

            /// The mark of its nodes in a tree.
            pub const fn source(self) -> Source {
                Source::new(self as u8)
            }

            /// What it drafts from, for a reader who chooses among kinds.
            pub const fn summary(self) -> &'static str {
                [$(<$($settings)? $($unit)?>::SUMMARY),+][self as usize]
            }
        }

        impl DrafterKind {
            /// The names of all kinds, as the command line calls them, by [`DrafterId`].
            pub const NAMES: [&'static str; [$(stringify!($variant)),+].len()] =
                [$(<$($settings)? $($unit)?>::NAME),+];

            /// Its kind.
            pub const fn id(&self) -> DrafterId {
                match self {
                    $(Self::$variant { .. } => DrafterId::$variant,)+
                }
            }

            /// The variants of every kind that a profile of `model` measures, by name.
            pub fn profiled(model: &ProfiledModel<'_>) -> Vec<(String, Self)> {
                let mut all = Vec::new();
                $({
                    let variants = <$($settings)? $($unit)?>::profiled(model);
                    all.extend(variants.into_iter().map(|(name, settings)| (name, settings.into())));
                })+
                all
            }

            fn read(kind: &str, given: &Described<'_>) -> Result<Self, PlanError> {
                $(if kind == <$($settings)? $($unit)?>::NAME {
                    return Ok(<$($settings)? $($unit)?>::from_description(given)?.into());
                })+
                let (expected, found) = (DrafterKind::NAMES.join(", "), kind.to_owned());
                Err(PlanError::UnknownDrafter { expected, found })
            }
        }

        $($(impl From<$settings> for DrafterKind {
            fn from(settings: $settings) -> Self {
                Self::$variant(settings)
            }
        })?
        $(impl From<$unit> for DrafterKind {
            fn from(_: $unit) -> Self {
                Self::$variant
            }
        })?)+

        /// An expression of the settings of a kind, whichever it is.
        macro_rules! with_settings {
            ($d kind:expr, $d name:ident => $d result:expr) => {
                match $d kind {
                    $($crate::plan::DrafterKind::$variant
                        $(($d name @ $crate::plan::$settings { .. }))? => {
                            $(let $d name = &$crate::plan::$unit;)?
                            $d result
                        })+
                }
            };
        }
        pub(crate) use with_settings;
    };
}

drafters! { $
    /// Plain decoding.
    None = PlainDecoding,
    /// Continuations of earlier occurrences of the last tokens.
    Lookup(LookupSettings),
    /// The verifier without some of its sub-layers.
    LayerSkip(LayerSkipSettings),
    /// Continuations that texts of a corpus store had after the last tokens.
    Retrieval(RetrievalSettings),
    /// Continuations of the longest suffix that occurred earlier, in this request or those before it.
    Suffix(SuffixSettings),
    /// The verifier's last candidates after every token, gathered along a fixed tree.
    Recycling = RecyclingSettings,
    /// Dictionaries of n-grams: of the text, and of a pool of sequences that the verifier extends.
    Ngram(NgramSettings),
    /// The verifier without some of its sub-layers, which are searched while it serves.
    Swift(SwiftSettings),
    /// Several drafters that share the rows of a step, each as far as it is trusted.
    Mixed(Mixture),
    /// A drafter model: one of the same vocabulary, or one that reads the verifier's hidden rows; its files say which.
    Model(ModelSettings),
    /// The verifier with its own matrices in fewer bits.
    Substitute(SubstituteSettings),
    /// A model over the verifier's hidden rows, one forward of which proposes several tokens.
    Block(BlockSettings),
    /// What the model usually offers after the last one to three tokens, by the tables of a corpus store.
    Prior(PriorSettings),
}

impl DrafterId {
    /// Its name in plans, profiles and on the command line.
    pub const fn name(self) -> &'static str {
        DrafterKind::NAMES[self as usize]
    }

    /// The kind that a name is of: its own, or that of a variant, which profiles call by the kind's name with digits or
    /// `_` and more after it (`substitute4`, `lookup_short`, `layer_skip_v8192`). Whether a plan has the variant, the
    /// plan says.
    pub fn of_name(name: &str) -> Option<Self> {
        let is_variant = |rest: &str| {
            let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
            rest.is_empty()
                || rest.starts_with(|first: char| first == '_' || first.is_ascii_digit())
                    && rest.bytes().all(good)
        };
        Self::ALL.into_iter().find(|kind| name.strip_prefix(kind.name()).is_some_and(is_variant))
    }

    /// The kind that runs the model of a mixture of this name, `substitute` of `mixed_substitute4`; `None` of mixtures
    /// without a model and of other drafters. Profiles have the mixture if they measure both kinds.
    pub fn of_mixed_model(name: &str) -> Option<Self> {
        let variant = name.strip_prefix(Self::Mixed.name())?.strip_prefix('_')?;
        let kind = Self::of_name(variant)?;
        matches!(kind, Self::LayerSkip | Self::Model | Self::Substitute).then_some(kind)
    }
}

impl DrafterKind {
    /// The name of the kind, as the command line calls it.
    pub const fn name(&self) -> &'static str {
        self.id().name()
    }

    /// What other rooms need to know of it.
    pub fn facts(&self) -> DrafterFacts<'_> {
        with_settings!(self, settings => settings.facts())
    }

    /// Whether drafting runs forwards of a model, and so grows Equal-Growth Trees.
    pub fn runs_a_model(&self) -> bool {
        matches!(self.facts().recorded_as, RecordedAs::Trees | RecordedAs::Merged)
    }

    /// Whether the trees that its model grows are what it proposes: then they are measured and recorded as its own.
    pub fn grows_alone(&self) -> bool {
        self.facts().recorded_as == RecordedAs::Trees
    }

    /// Whether one forward gives the candidates of all depths, so that growths cost no further one.
    pub fn drafts_blocks(&self) -> bool {
        self.facts().drafts_blocks
    }

    /// Whether it proposes the trees that its model grows, and every growth of them is a forward.
    pub fn grows_by_forwards(&self) -> bool {
        self.grows_alone() && !self.drafts_blocks()
    }

    /// Whether it learns from its own steps.
    pub fn learns(&self) -> bool {
        matches!(self.facts().recorded_as, RecordedAs::LiveSteps | RecordedAs::Merged)
    }

    /// Its part that runs a model, if that shares a tree with others.
    pub fn mixed_model(&self) -> Option<&MixedModel> {
        match self {
            Self::Mixed(mixture) => mixture.model(),
            _ => None,
        }
    }

    /// Whether it keeps keys and values of its own, which steps must bring as far as the verifier's.
    pub fn keeps_a_cache(&self) -> bool {
        self.draft_model().is_some()
    }

    /// Whether it runs executables in addition to the verifier's.
    pub fn needs_executables(&self) -> bool {
        let DrafterFacts { head_tokens, substitute_bits, draft_model, .. } = self.facts();
        head_tokens.is_some() || substitute_bits.is_some() || draft_model.is_some()
    }

    /// Tokens of the trimmed head that it drafts with, if it has one.
    pub fn head_tokens(&self) -> Option<&[u32]> {
        self.facts().head_tokens
    }

    /// The corpus store that it drafts from, if it needs one.
    pub fn store(&self) -> Option<&DrafterFile> {
        self.facts().store
    }

    /// The drafter model that it runs, if that is not the verifier.
    pub fn draft_model(&self) -> Option<&DrafterFile> {
        self.facts().draft_model
    }

    /// The fixed drafter that a self-tuning one starts as: measurements and recordings of that one hold for both.
    pub fn starts_as(&self) -> Option<DrafterKind> {
        let DrafterFacts { tunes_itself, skipped, .. } = self.facts();
        let skipped = skipped.filter(|_| tunes_itself)?.to_vec();
        Some(LayerSkipSettings { skipped, head_tokens: None }.into())
    }

    /// The same with its drafter model, if that has the digest of `file`, at the path of `file`.
    #[must_use]
    pub fn with_draft_model_at(self, file: &DrafterFile) -> Self {
        if self.draft_model().is_none_or(|model| model.digest != file.digest) {
            return self;
        }
        with_settings!(&self, settings => settings.with_file_at(&file.path)).unwrap_or(self)
    }

    /// The same with its store, if it needs one, at another path.
    #[must_use]
    pub fn with_store_at(self, path: &str) -> Self {
        if self.store().is_none() {
            return self;
        }
        with_settings!(&self, settings => settings.with_file_at(path)).unwrap_or(self)
    }

    /// The same with a head trimmed to these tokens; `None` if its head cannot be trimmed, or is trimmed already.
    pub fn trimmed_to(&self, tokens: Vec<u32>) -> Option<Self> {
        match self.head_tokens() {
            Some(_) => None,
            None => with_settings!(self, settings => settings.with_head(tokens)),
        }
    }

    /// The drafter as a profile describes it, under `name`.
    pub fn describe(&self, name: DrafterName) -> DrafterDescription {
        let file = self.store().or(self.draft_model()).cloned();
        DrafterDescription { name, kind: self.name().to_owned(), parameters: self.parameters(), file }
    }

    fn parameters(&self) -> Parameters {
        with_settings!(self, settings => settings.parameters())
    }

    /// The drafter that a profile describes.
    ///
    /// # Errors
    /// [`PlanError::UnknownDrafter`] or [`PlanError::DrafterParameters`] if this build has no such drafter.
    pub fn from_description(description: &DrafterDescription) -> Result<Self, PlanError> {
        let DrafterDescription { name, kind, parameters, file } = description;
        let given = Described { name, parameters, file: file.as_ref() };
        let drafter = Self::read(kind, &given)?;
        let expected = drafter.parameters();
        if !expected.keys().eq(parameters.keys()) {
            let names = |of: &Parameters| format!("{:?}", of.keys().collect::<Vec<_>>());
            return Err(given.fault(&format!("parameters {}", names(&expected)), names(parameters)));
        }
        if let (None, Some(file)) = (drafter.store().or(drafter.draft_model()), file) {
            return Err(given.fault("no file", file.path.clone()));
        }
        drafter.validate()?;
        Ok(drafter)
    }

    /// Checks the settings against each other.
    ///
    /// # Errors
    /// [`PlanError::DrafterParameters`] names the rule that is broken.
    pub fn validate(&self) -> Result<(), PlanError> {
        with_settings!(self, settings => settings.validate())
    }
}
