//! What every kind of drafter says of itself, and how profiles write its settings down: lists of numbers by name.

use std::collections::BTreeMap;

use ygg_profiler::{DrafterFile, DrafterName};

use super::{DrafterKind, PlanError};

/// Settings as profiles hold them: lists of numbers by name.
pub type Parameters = BTreeMap<String, Vec<u32>>;

/// The settings of one kind of drafter, and what other rooms need to know of the kind.
pub trait DrafterSettings: Into<DrafterKind> {
    /// Name of the kind in plans, in profiles and on the command line.
    const NAME: &'static str;
    /// What it drafts from, as the help of the command line says it.
    const SUMMARY: &'static str;

    /// What a profile records of it.
    const RECORDED_AS: RecordedAs;

    /// What other rooms need to know of it.
    fn facts(&self) -> DrafterFacts<'_> {
        DrafterFacts::of(Self::RECORDED_AS)
    }

    /// Its settings as a profile describes them. A file is not among them.
    fn parameters(&self) -> Parameters;

    /// The settings that a profile describes; parameters that it does not read are refused by the caller.
    ///
    /// # Errors
    /// [`PlanError::DrafterParameters`] if one is absent or not of its form.
    fn from_description(given: &Described<'_>) -> Result<Self, PlanError>;

    /// Checks the settings against each other.
    ///
    /// # Errors
    /// [`PlanError::DrafterParameters`] names the rule that is broken.
    fn validate(&self) -> Result<(), PlanError> {
        Ok(())
    }

    /// The variants that a profile of `model` measures, by name; none that need files which are not there.
    fn profiled(_model: &ProfiledModel<'_>) -> Vec<(String, Self)> {
        Vec::new()
    }

    /// The same with a head trimmed to these tokens, if it has one.
    fn with_head(&self, _tokens: Vec<u32>) -> Option<DrafterKind> {
        None
    }

    /// The same with its file, if it has one, at another path.
    fn with_file_at(&self, _path: &str) -> Option<DrafterKind> {
        None
    }

    /// The error of settings that break a rule.
    fn fault(expected: &str, found: String) -> PlanError {
        let (drafter, expected) = (Self::NAME.to_owned(), expected.to_owned());
        PlanError::DrafterParameters { drafter, expected, found }
    }
}

/// What a profile records of a drafter, from which the planner replays its acceptance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordedAs {
    /// Nothing: it never drafts.
    Nothing,
    /// The widest trees along recorded requests, from which smaller ones are cut: it runs a model.
    Trees,
    /// Its own steps in a few shapes: it learns from the verifier, so its proposals depend on earlier steps.
    LiveSteps,
    /// The requests alone: its proposals follow from the text.
    Requests,
    /// Nothing of its own: its tree is made of one that is recorded as another drafter's, and of what follows from the
    /// text.
    Merged,
}

/// What other rooms need to know of a drafter.
#[derive(Debug, Clone, Copy)]
pub struct DrafterFacts<'a> {
    /// What a profile records of it.
    pub recorded_as: RecordedAs,
    /// Rows that are verified at every step whatever their value.
    pub pinned_rows: u32,
    /// Groups that its forwards of the verifier leave out, ascending, if it runs the verifier.
    pub skipped: Option<&'a [u32]>,
    /// Whether it changes its skip set while it serves.
    pub tunes_itself: bool,
    /// Tokens of the trimmed head that it drafts with, ascending, if it has one.
    pub head_tokens: Option<&'a [u32]>,
    /// Bits of the matrices that it multiplies by in place of the verifier's, if it does.
    pub substitute_bits: Option<u32>,
    /// The corpus store that it drafts from, if it needs one.
    pub store: Option<&'a DrafterFile>,
    /// The drafter model that it runs, if that is not the verifier; it keeps keys and values of its own then.
    pub draft_model: Option<&'a DrafterFile>,
    /// Whether one forward gives the candidates of all depths, so that growths cost no further one.
    pub drafts_blocks: bool,
}

impl DrafterFacts<'_> {
    /// A drafter that is recorded like this and has nothing else.
    pub const fn of(recorded_as: RecordedAs) -> Self {
        Self {
            recorded_as,
            pinned_rows: 0,
            skipped: None,
            tunes_itself: false,
            head_tokens: None,
            substitute_bits: None,
            store: None,
            draft_model: None,
            drafts_blocks: false,
        }
    }
}

/// What drafters of a profile can be made of.
#[derive(Debug, Clone, Copy)]
pub struct ProfiledModel<'a> {
    /// Sub-layers of the model.
    pub groups: u32,
    /// Bits of substitutes, and bytes that they read as a share of what the model reads.
    pub substitute_shares: &'a [(u32, f64)],
    /// Whether weights are streamed: then only drafters that need none of those pay, and they do whatever they read
    /// from memory.
    pub streams: bool,
    /// The corpus store of its vocabulary, if there is one.
    pub store: Option<&'a DrafterFile>,
    /// Drafter models, by the names that their drafters get.
    pub draft_models: &'a [(String, DrafterFile)],
    /// Block drafters, by the names that they get.
    pub block_drafters: &'a [(String, DrafterFile)],
}

/// A drafter as a profile describes it.
#[derive(Debug, Clone, Copy)]
pub struct Described<'a> {
    /// Its name in the profile.
    pub name: &'a DrafterName,
    /// Its settings.
    pub parameters: &'a Parameters,
    /// Its file, if it has one.
    pub file: Option<&'a DrafterFile>,
}

impl Described<'_> {
    pub(super) fn fault(&self, expected: &str, found: String) -> PlanError {
        let (drafter, expected) = (self.name.to_string(), expected.to_owned());
        PlanError::DrafterParameters { drafter, expected, found }
    }
}

/// A setting as a profile holds it.
pub(super) trait Parameter: Sized {
    /// Its numbers; `None` for a file, and where nothing is set.
    fn numbers(&self) -> Option<Vec<u32>>;

    /// The setting of a name.
    fn read(given: &Described<'_>, key: &str) -> Result<Self, PlanError>;
}

impl Parameter for u32 {
    fn numbers(&self) -> Option<Vec<u32>> {
        Some(vec![*self])
    }

    fn read(given: &Described<'_>, key: &str) -> Result<Self, PlanError> {
        match Vec::read(given, key)?[..] {
            [value] => Ok(value),
            ref other => Err(given.fault(&format!("one number for {key}"), format!("{other:?}"))),
        }
    }
}

impl Parameter for bool {
    fn numbers(&self) -> Option<Vec<u32>> {
        u32::from(*self).numbers()
    }

    fn read(given: &Described<'_>, key: &str) -> Result<Self, PlanError> {
        Ok(u32::read(given, key)? != 0)
    }
}

impl Parameter for Vec<u32> {
    fn numbers(&self) -> Option<Vec<u32>> {
        Some(self.clone())
    }

    fn read(given: &Described<'_>, key: &str) -> Result<Self, PlanError> {
        let names = || format!("{:?}", given.parameters.keys().collect::<Vec<_>>());
        Option::read(given, key)?.ok_or_else(|| given.fault(&format!("a parameter {key}"), names()))
    }
}

impl Parameter for Option<Vec<u32>> {
    fn numbers(&self) -> Option<Vec<u32>> {
        self.clone()
    }

    fn read(given: &Described<'_>, key: &str) -> Result<Self, PlanError> {
        Ok(given.parameters.get(key).cloned())
    }
}

impl Parameter for Option<(u32, u32)> {
    fn numbers(&self) -> Option<Vec<u32>> {
        self.map(|(first, second)| vec![first, second])
    }

    fn read(given: &Described<'_>, key: &str) -> Result<Self, PlanError> {
        match given.parameters.get(key).map(Vec::as_slice) {
            None => Ok(None),
            Some([first, second]) => Ok(Some((*first, *second))),
            Some(other) => Err(given.fault(&format!("two numbers for {key}"), format!("{other:?}"))),
        }
    }
}

impl Parameter for DrafterFile {
    fn numbers(&self) -> Option<Vec<u32>> {
        None
    }

    fn read(given: &Described<'_>, key: &str) -> Result<Self, PlanError> {
        given.file.cloned().ok_or_else(|| given.fault(&format!("a file, the {key}"), "none".to_owned()))
    }
}

/// The two methods of [`DrafterSettings`] between settings and profiles, for settings whose fields are [`Parameter`]s.
macro_rules! parameters {
    ($($field:ident),*) => {
        fn parameters(&self) -> Parameters {
            let fields: &[(&str, Option<Vec<u32>>)] = &[$((stringify!($field), self.$field.numbers())),*];
            fields.iter().filter_map(|(name, numbers)| Some(((*name).to_owned(), numbers.clone()?))).collect()
        }

        fn from_description(_given: &Described<'_>) -> Result<Self, PlanError> {
            Ok(Self { $($field: Parameter::read(_given, stringify!($field))?),* })
        }
    };
}
pub(super) use parameters;

/// Whether settings keep a rule; else the rule and what was found.
pub(super) fn expect<S: DrafterSettings>(
    holds: bool,
    expected: &str,
    found: impl FnOnce() -> String,
) -> Result<(), PlanError> {
    if holds { Ok(()) } else { Err(S::fault(expected, found())) }
}

/// Whether a head can be trimmed to these tokens.
pub(super) fn expect_head<S: DrafterSettings>(tokens: Option<&[u32]>) -> Result<(), PlanError> {
    let tokens = tokens.filter(|tokens| !is_ascending(tokens)).map(|tokens| {
        let breach = tokens.windows(2).find(|pair| pair[0] >= pair[1]);
        breach.map_or("none".to_owned(), |pair| format!("{pair:?}"))
    });
    expect::<S>(tokens.is_none(), "one or more ascending, distinct tokens of a trimmed head", || {
        tokens.unwrap_or_default()
    })
}

/// Whether a file, which is a `what`, has a path and a digest.
pub(super) fn expect_file<S: DrafterSettings>(file: &DrafterFile, what: &str) -> Result<(), PlanError> {
    let DrafterFile { path, digest } = file;
    let is_digest = digest.len() == 64 && digest.bytes().all(|b| b.is_ascii_hexdigit());
    let expected = format!("a {what} with a path and a digest of 64 digits");
    expect::<S>(!path.is_empty() && is_digest, &expected, || format!("`{path}`, `{digest}`"))
}

/// Whether there are ids, and they ascend.
pub(super) fn is_ascending(ids: &[u32]) -> bool {
    !ids.is_empty() && ids.is_sorted_by(|a, b| a < b)
}
