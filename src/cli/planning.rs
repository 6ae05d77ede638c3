//! The plan of a command without `--plan`: the cached one, made on first use.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use indicatif::ProgressBar;
use yggc::{
    engine::{DraftModel, DrafterChoice, Engine, Error, LoadOptions, Loaded, Options, PlanSource},
    measure::{self, AutoplanOptions, ProfileOptions},
    model::Model,
    plan::{self, Plan},
};

use crate::cli::{
    cache::CachePlace,
    error::Failure,
    loading, memory,
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

/// How a model is loaded on `machine`.
pub(crate) fn load_options(machine: Machine, widths: Vec<usize>) -> LoadOptions {
    let Machine { tier, activations, cache, threads, resident } = machine;
    LoadOptions { tier: Some(tier), activations, cache, threads: Some(threads), widths, resident }
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
        Err(reason) => options.plan_absent_reason = Some(reason),
    }
    Ok((prepared, options))
}

/// Goes on without a drafter model that the time of a first use was too short to measure: speculation changes no answer.
pub(crate) fn leave_out_unmeasured(draft_model: &mut Option<PathBuf>, plan: &Plan) {
    if plan.by_drafter.iter().any(|sub_plan| sub_plan.drafter.draft_model().is_some()) {
        return;
    }
    if let Some(path) = draft_model.take() {
        let path = path.display();
        remark(format_args!(
            "going on without the drafter model `{path}`: the first use had no time to measure it; measure it with `yggc profile --drafter \
             model --draft-model {path} -o FILE`, then plan with `yggc plan --profile FILE -o FILE.plan`"
        ));
    }
}

/// A plan, or the reason why there is none.
pub(crate) type PlanOrReason = Result<PlanSource, String>;

/// The plan that fits this machine, model and drafter model, if there is one: from the cache, or made now and cached. Without
/// a plan the reason is printed on stderr.
///
/// # Errors
/// If the model cannot be loaded at all, or the drafter model cannot be opened.
pub(crate) fn first_use(
    model: Model,
    draft_model: Option<&Path>,
    machine: Machine,
    cache: &CachePlace,
) -> Result<(Prepared, PlanOrReason), Failure> {
    let here = machine.fingerprints(&model)?;
    let folder = match cache.dir() {
        Ok(folder) => folder,
        Err(error) => {
            return Ok(without(Prepared::Open(Box::new(model)), format!("a plan has no place: {error}")));
        }
    };
    let draft_digest = draft_model.map(DraftModel::open).transpose()?.map(|d| d.fingerprint().to_string());
    let place = CachedPlan::new(&folder, here, draft_digest.as_deref());
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
        Found::Nothing | Found::Unusable(_) => make(model, draft_model, machine, &place, &locked),
    }
}

fn failed_before(model: Model, place: &CachedPlan, reason: &str) -> (Prepared, PlanOrReason) {
    without(
        Prepared::Open(Box::new(model)),
        format!(
            "no plan could be made on first use: {reason}; it is tried again an hour later, or when `{}` is removed; or give a plan with --plan",
            place.failure_path().display()
        ),
    )
}

fn make(
    model: Model,
    draft_model: Option<&Path>,
    machine: Machine,
    place: &CachedPlan,
    locked: &LockedPlan<'_>,
) -> Result<(Prepared, PlanOrReason), Failure> {
    let draft_models = draft_model.map(Path::to_owned).into_iter().collect();
    let mut options = AutoplanOptions { draft_models, ..AutoplanOptions::default() };
    remark(format_args!(
        "first use of this model on this machine: measuring for {} s at most, once; --no-spec does without",
        options.budget.as_secs()
    ));
    let loaded = Arc::new(Loaded::new(model, &load_options(machine, ProfileOptions::WIDTHS.to_vec()))?);
    options.memory_limit = memory::available();
    let bar = progress::parts();
    let made = measure::autoplan(&loaded, &options, &mut |step| advance(&bar, step));
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
    Ok((Prepared::Loaded(loaded), Ok(source(plan, &path))))
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
