//! How an engine is opened.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    plan::{self, Plan},
    policy::SkipSearchSettings,
    prefix::PrefixStore,
    runtime::Pinning,
    speculate::DraftGrowth,
};

use super::{Activations, Error, KvFormat, Tier};

/// What drafts. Drafters without a model cost memory that they reserve when the engine opens, the others their share of
/// each step.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum DrafterChoice {
    /// What the plan chose.
    #[default]
    Planned,
    /// What the plan chose, at every step: a request that accepts little does not fall back to plain decoding.
    Unguarded,
    /// This drafter, by name, with the plan's best shape for it.
    Forced(String),
    /// Nothing.
    Plain,
}

/// A plan and where it came from. Plans of some hundred kilobytes are usual; cloning one copies it.
#[derive(Clone, Debug)]
pub struct PlanSource {
    /// The plan.
    pub plan: Plan,
    /// Its file, or what else to call it in reports.
    pub name: String,
    /// Use it even if its fingerprints differ from what is here.
    pub force: bool,
}

/// How an engine is opened: plain data, but for the plan. Start from [`Options::new`] and change fields.
///
/// ```
/// use yggc::engine::{DrafterChoice, Options};
///
/// let options = Options { threads: Some(2), context: Some(1024), ..Options::new("model.gguf") };
/// assert_eq!(options.drafter, DrafterChoice::Planned);
/// ```
///
/// With a plan, which is refused where it was not made unless `force` says otherwise:
///
/// ```no_run
/// use yggc::engine::Options;
///
/// let options = Options::new("model.gguf").plan_file("here.plan")?;
/// # Ok::<(), yggc::engine::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    /// Model file or folder.
    pub model: PathBuf,
    /// The plan; without one the engine decodes plainly.
    pub plan: Option<PlanSource>,
    /// Why there is no plan, for reports; `None` says only that there is none.
    pub plan_absent_reason: Option<String>,
    /// What drafts.
    pub drafter: DrafterChoice,
    /// Where the corpus store of the plan's drafter is; `None` takes the place where it was profiled. It must be the
    /// same store.
    pub store: Option<PathBuf>,
    /// Where a drafter model of the plan's is; others, and with `None` all, are taken from where they were profiled. It
    /// must be the same model.
    pub draft_model: Option<PathBuf>,
    /// Instruction-set tier; `None` takes the best this machine has.
    pub tier: Option<Tier>,
    /// What linears over quantised weights make of activations; `None` takes what is usual for the tier
    /// ([`Tier::activations`]). Another choice is another numeric class with other answers: [`Activations::Native`] is
    /// more exact and slower.
    pub activations: Option<Activations>,
    /// Element type of the key/value cache, another part of the numeric class: [`KvFormat::Q8`] takes half the memory
    /// of [`KvFormat::F16`] and is less exact.
    pub cache: KvFormat,
    /// Worker threads; `None` takes one per processor the process may use.
    pub threads: Option<usize>,
    /// Most bytes of packed weights in memory, the rest being streamed, as
    /// [`LoadOptions::resident`](super::LoadOptions::resident) says. `None` takes what the plan is for; without a plan
    /// all are in memory.
    pub resident: Option<usize>,
    /// Longest sequence in tokens; `None` takes [`DEFAULT_CONTEXT`](super::DEFAULT_CONTEXT), or the model's if that is
    /// shorter.
    pub context: Option<usize>,
    /// Rows of forwards that show the logits of all of them, in addition to those of the plan, for
    /// [`Engine::choose`](super::Engine::choose) and [`Engine::prompt_log_probs`](super::Engine::prompt_log_probs): as
    /// many rows as the widest holds share a forward, and the rest the smallest that holds them. Each costs
    /// executables, the widest the memory of so many rows of logits. With none, and without a plan, rows are run one at
    /// a time; the numbers are the same. Where the engine is opened over a [`Loaded`](super::Loaded) model, that one's
    /// widths are used.
    pub read_widths: Vec<usize>,
    /// Most bytes of the host's memory for weights and session together; on a GPU, which has memory of its own for
    /// these, for the streamed weights that are pinned in the host's. `None` leaves the refusal to the system.
    pub memory_limit: Option<usize>,
    /// Where prefixes are kept for later requests, which several engines may share; `None` keeps nothing but the text
    /// of the request before. Answers are the same either way. What it takes comes on top of an engine's
    /// [`memory`](super::Engine::memory).
    pub prefixes: Option<Arc<PrefixStore>>,
    /// Whether worker threads are bound to processors.
    pub pinning: Pinning,
    /// How a drafter that tunes its skip set searches.
    pub skip_search: SkipSearchSettings,
    /// How its drafts grow; predictions are for [`DraftGrowth::Equal`] only.
    pub draft_growth: DraftGrowth,
}

/// Most rows of a forward that reads: far more than make it quicker.
const MOST_READ: usize = 256;

impl Options {
    /// # Errors
    /// [`Error`] of kind `Input` for forwards of no rows, or of too many.
    pub(super) fn check_read_widths(&self) -> Result<(), Error> {
        match self.read_widths.iter().find(|width| !(1..=MOST_READ).contains(*width)) {
            None => Ok(()),
            Some(found) => Err(Error::input(format!(
                "a forward of {found} rows to read with: expected 1 to {MOST_READ}; correct the read widths"
            ))),
        }
    }

    /// Plain decoding of `model` with the best this machine has.
    pub fn new(model: impl Into<PathBuf>) -> Self {
        Self {
            model: model.into(),
            plan: None,
            plan_absent_reason: None,
            drafter: DrafterChoice::Planned,
            store: None,
            draft_model: None,
            tier: None,
            activations: None,
            cache: KvFormat::F16,
            threads: None,
            resident: None,
            context: None,
            read_widths: Vec::new(),
            memory_limit: None,
            prefixes: None,
            pinning: Pinning::default(),
            skip_search: SkipSearchSettings::default(),
            draft_growth: DraftGrowth::default(),
        }
    }

    /// These options with the plan of a file, which is refused where it was not made.
    ///
    /// # Errors
    /// [`Error`] of kind `Input` if the file cannot be read or is no plan.
    pub fn plan_file(self, path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let plan = plan::read(path)?;
        let name = path.display().to_string();
        Ok(Self { plan: Some(PlanSource { plan, name, force: false }), ..self })
    }
}
