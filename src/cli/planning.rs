//! The plan of a command without `--plan`: the cached one, made on first use.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use indicatif::ProgressBar;
use ygg_profiler::UnixTime;
use yggc::{
    engine::{
        DraftModel, DrafterChoice, Engine, Error, LoadOptions, Loaded, Options, PlanSource, weight_splits,
    },
    measure::{self, FirstDivision, ProfileOptions},
    model::Model,
    plan::{self, Plan},
    planner::{MemoryBudget, plan_first},
    runtime::{Pinning, SessionOptions},
};

use crate::cli::{
    cache::{CacheDir, CachePlace},
    error::Failure,
    loading,
    output::remark,
    plan_cache::{CachedPlan, Found, LockedPlan},
    progress,
    settings::Machine,
};

/// A model before its engine is opened: only open, or already loaded because a plan was made with it.
#[derive(Debug)]
pub(crate) enum Prepared {
    Open(Box<Model>),
    Loaded(Arc<Loaded>),
}

impl Prepared {
    /// The engine of these options.
    pub(crate) fn engine(self, options: &Options) -> Result<Engine, Error> {
        match self {
            Self::Open(model) => Engine::with_model(*model, options),
            Self::Loaded(loaded) => Engine::with_loaded(loaded, options),
        }
    }

    /// The model loaded with at least the `widths`.
    pub(crate) fn loaded(
        self,
        machine: Machine,
        cache: &CachePlace,
        mut widths: Vec<usize>,
    ) -> Result<Arc<Loaded>, Error> {
        let model = match self {
            Self::Open(model) => *model,
            Self::Loaded(loaded) if widths.iter().all(|w| loaded.set().widths().contains(w)) => {
                return Ok(loaded);
            }
            Self::Loaded(loaded) => {
                widths.extend(loaded.set().widths());
                loading::open(&loaded.model().path, cache)?
            }
        };
        Ok(Arc::new(Loaded::new(model, &load_options(machine, widths))?))
    }
}

/// A budget of memory, and how it is divided before anything is measured.
pub(crate) type Divided = (MemoryBudget, FirstDivision);

/// How a model is loaded on `machine`.
pub(crate) fn load_options(machine: Machine, widths: Vec<usize>) -> LoadOptions {
    let Machine { tier, activations, cache, threads, resident, memory: _ } = machine;
    LoadOptions { tier: Some(tier), activations, cache, threads: Some(threads), widths, resident }
}

impl Machine {
    /// The machine with as many weights in memory as its budget gives at first to a model that `drafts`, or is decoded
    /// plainly, and that division; the same machine where it has no budget.
    ///
    /// # Errors
    /// [`Failure::Engine`] of kind `Input` for a budget that is too small.
    pub(crate) fn divided(self, model: &Model, drafts: bool) -> Result<(Self, Option<Divided>), Failure> {
        let Some(memory) = self.memory else { return Ok((self, None)) };
        let budget = memory.budget(model);
        let load = load_options(self, ProfileOptions::WIDTHS.to_vec());
        let (splits, session_bytes) = weight_splits(model, &load, budget.context as usize)?;
        let division = FirstDivision::of(&splits, budget, session_bytes, drafts).map_err(Error::from)?;
        Ok((Self { resident: division.resident(), ..self }, Some((budget, division))))
    }
}

/// The plan of a file that the user named.
///
/// # Errors
/// [`Failure::Engine`] of kind `Input` if the file is no plan.
pub(crate) fn given(file: &Path, force: bool) -> Result<PlanSource, Failure> {
    let plan = plan::read(file)?;
    Ok(PlanSource { plan, name: file.display().to_string(), force })
}

/// The options with the given plan, or with the cached one unless the command decodes plainly.
///
/// # Errors
/// If the model cannot be loaded at all.
pub(crate) fn with_plan(
    model: Model,
    mut options: Options,
    given: Option<PlanSource>,
    machine: Machine,
    cache: &CachePlace,
) -> Result<(Prepared, Options), Failure> {
    if given.is_some() || options.drafter == DrafterChoice::Plain {
        options.resident = machine.divided(&model, false)?.0.resident;
        options.plan = given;
        return Ok((Prepared::Open(Box::new(model)), options));
    }
    let draft_model = options.draft_model.as_deref();
    let (prepared, plan) = first_use(model, draft_model, machine, cache)?;
    match plan {
        Ok(plan) => {
            leave_out_unmeasured(&mut options.draft_model, &plan.plan);
            options.plan = Some(plan);
        }
        Err(reason) => {
            if let Prepared::Open(model) = &prepared {
                options.resident = machine.divided(model, false)?.0.resident;
            }
            options.plan_absent_reason = Some(reason);
        }
    }
    Ok((prepared, options))
}

/// Goes on without a drafter model that the time of a first use was too short to measure: speculation changes no
/// answer.
pub(crate) fn leave_out_unmeasured(draft_model: &mut Option<PathBuf>, plan: &Plan) {
    let mut measured = plan.bands[0].by_drafter.iter().filter_map(|sub_plan| sub_plan.drafter.draft_model());
    let is_unmeasured = |path: &mut PathBuf| {
        // One that cannot be opened is refused where it is loaded.
        let digest = DraftModel::open(path).map(|model| model.fingerprint().to_string());
        digest.is_ok_and(|digest| measured.all(|file| file.digest != digest))
    };
    if let Some(path) = draft_model.take_if(is_unmeasured) {
        let path = path.display();
        remark(format_args!(
            "going on without the drafter model `{path}`: the first use had no time to measure it; measure it with \
             `yggc profile --drafter model --draft-model {path} -o FILE`, then plan with `yggc plan --profile FILE -o \
             FILE.plan`"
        ));
    }
}

/// A plan, or the reason why there is none.
pub(crate) type PlanOrReason = Result<PlanSource, String>;

/// The plan that fits this machine, model and drafter model, if there is one: from the cache, or made now and cached.
/// Without a plan the reason is printed on stderr.
///
/// # Errors
/// If the model cannot be loaded at all, or the drafter model cannot be opened.
pub(crate) fn first_use(
    model: Model,
    draft_model: Option<&Path>,
    machine: Machine,
    cache: &CachePlace,
) -> Result<(Prepared, PlanOrReason), Failure> {
    let folder = match cache.dir() {
        Ok(folder) => folder,
        Err(error) => {
            return Ok(without(Prepared::Open(Box::new(model)), format!("a plan has no place: {error}")));
        }
    };
    let (machine, divided) = machine.divided(&model, true)?;
    let place = place(&model, draft_model, (machine, divided), &folder)?;
    match place.find() {
        Found::Plan(plan) => return Ok((Prepared::Open(Box::new(model)), Ok(source(*plan, &place.path())))),
        Found::Failure(reason) => return Ok(failed_before(model, &place, &reason)),
        Found::Nothing => {}
        Found::Unusable(why) => {
            remark(format_args!("the cached plan cannot be used, making it again: {why}"))
        }
    }
    let mut waiting = None;
    let locked =
        place.lock(|| waiting = Some(progress::waiting("waiting for another yggc that is making a plan")));
    drop(waiting);
    let locked = match locked {
        Ok(locked) => locked,
        Err(error) => {
            return Ok(without(Prepared::Open(Box::new(model)), format!("a plan has no place: {error}")));
        }
    };
    // The process that held the lock has usually made the same plan.
    match place.find() {
        Found::Plan(plan) => Ok((Prepared::Open(Box::new(model)), Ok(source(*plan, &place.path())))),
        Found::Failure(reason) => Ok(failed_before(model, &place, &reason)),
        Found::Nothing | Found::Unusable(_) => {
            make(model, draft_model, (machine, divided), cache, (&place, &locked))
        }
    }
}

/// The place of the cached plan of a model and drafter model on a machine whose memory is divided.
///
/// # Errors
/// If the drafter model cannot be opened, or the machine cannot be read.
pub(crate) fn place(
    model: &Model,
    draft_model: Option<&Path>,
    (machine, divided): (Machine, Option<Divided>),
    folder: &CacheDir,
) -> Result<CachedPlan, Failure> {
    let here = machine.fingerprints(model)?;
    let digest = draft_model.map(DraftModel::open).transpose()?.map(|d| d.fingerprint().to_string());
    Ok(CachedPlan::new(folder, here, digest.as_deref(), divided.map(|(budget, _)| budget)))
}

/// Bytes that drafters may take in addition to a loaded model: what the machine has left, and the budget if it holds
/// the whole model.
pub(crate) fn memory_left(loaded: &Loaded, divided: Option<Divided>) -> Option<usize> {
    let free = yggc::storage::free_memory();
    let Some((budget, FirstDivision::Whole)) = divided else { return free };
    let (context, threads) = (budget.context as usize, loaded.threads());
    let options = SessionOptions { context, tree_nodes: 1, threads, pinning: Pinning::default() };
    let taken = loaded.set().memory(&options);
    let bytes = usize::try_from(budget.bytes).unwrap_or(usize::MAX);
    let left = bytes.saturating_sub(taken.weight_bytes + taken.session_bytes);
    Some(free.map_or(left, |free| free.min(left)))
}

fn failed_before(model: Model, place: &CachedPlan, reason: &str) -> (Prepared, PlanOrReason) {
    without(
        Prepared::Open(Box::new(model)),
        format!(
            "no plan could be made on first use: {reason}; it is tried again an hour later, or when `{}` is removed; \
             or give a plan with --plan",
            place.failure_path().display()
        ),
    )
}

fn make(
    model: Model,
    draft_model: Option<&Path>,
    (machine, divided): (Machine, Option<Divided>),
    cache: &CachePlace,
    (place, locked): (&CachedPlan, &LockedPlan<'_>),
) -> Result<(Prepared, PlanOrReason), Failure> {
    let loaded = Arc::new(Loaded::new(model, &load_options(machine, ProfileOptions::WIDTHS.to_vec()))?);
    let streamed = match loaded.set().graph().streams() {
        true => ", since forwards read weights from disk",
        false => "",
    };
    remark(format_args!(
        "first use of this model on this machine: measuring for {} s at most{streamed}, once; --no-spec does without",
        ProfileOptions::first_use_budget(&loaded).as_secs()
    ));
    let options = ProfileOptions {
        draft_models: draft_model.map(Path::to_owned).into_iter().collect(),
        memory_limit: memory_left(&loaded, divided),
        ..ProfileOptions::of_first_use(&loaded, None, divided.map(|(_, division)| division))
    };
    let bar = progress::parts();
    let made = measure::profile(&loaded, &options, &mut |step| advance(&bar, step)).and_then(|profile| {
        let plan = plan_first(&profile, budget_to_divide(divided), UnixTime::now())?;
        Ok((profile, plan))
    });
    bar.finish_and_clear();
    let (profile, plan) = match made {
        Ok(made) => made,
        Err(error) => {
            let reason = error.to_string();
            if let Err(error) = locked.store_failure(&reason) {
                remark(format_args!("the reason could not be kept, so the next run tries again: {error}"));
            }
            return Ok(without(Prepared::Loaded(loaded), format!("no plan could be made: {reason}")));
        }
    };
    let path = place.path();
    match locked.store(&profile, &plan) {
        Ok(()) => remark(format_args!("the plan is {}; look at it with `yggc plan show`", path.display())),
        Err(error) => remark(format_args!("the plan is used but could not be kept: {error}")),
    }
    // What was measured may pay best with other weights in memory.
    let prepared = if plan.resident() == loaded.resident() {
        Prepared::Loaded(loaded)
    } else {
        let file = loaded.model().path.clone();
        drop(loaded);
        Prepared::Open(Box::new(loading::open(&file, cache)?))
    };
    Ok((prepared, Ok(source(plan, &path))))
}

/// The budget of memory that the plan divides: without a substitute nothing but the weights takes memory, and as many
/// as fit are there.
pub(crate) fn budget_to_divide(divided: Option<Divided>) -> Option<MemoryBudget> {
    divided.filter(|(_, division)| division.substitute_bits().is_some()).map(|(budget, _)| budget)
}

/// Shows the progress of a measurement.
pub(crate) fn advance(bar: &ProgressBar, step: measure::Progress) {
    progress::advance(bar, "measuring", step);
}

fn without(prepared: Prepared, reason: String) -> (Prepared, PlanOrReason) {
    remark(format_args!("decoding plainly: {reason}"));
    (prepared, Err(reason))
}

fn source(plan: Plan, path: &Path) -> PlanSource {
    PlanSource { plan, name: path.display().to_string(), force: false }
}
