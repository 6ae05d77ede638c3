//! From a plan and the caller's wish to a drafter and a shape.

use std::path::Path;

use crate::{
    plan::{Band, ChosenTuning, DrafterFile, Fingerprints, FittedPlan, Plan, Schedule, SubPlan},
    policy::SkipTimes,
    runtime::{Session, SessionOptions},
    speculate::{
        BandSteps, BlockDrafter, DraftGrowth, Drafter, ModelDrafter, StepShape, make_growing_drafter,
    },
};

use super::{
    DraftModel, DrafterChoice, Error, Hint, Loaded, Options, PlanSource, drafter_name,
    report::{Background, SWITCHED_OFF},
    self_tuning::self_tuning,
};

/// What was decided before the model is loaded.
#[derive(Debug)]
pub(super) struct Drafting {
    /// How requests of each temperature are stepped, still without drafters: they are made over a session.
    pub(super) bands: Vec<BandSteps>,
    /// What reports say of each of them.
    pub(super) backgrounds: Vec<Background>,
    /// Widths to make executables for.
    pub(super) widths: Vec<usize>,
    /// Tunings of linears; none where the plan was made elsewhere and forced.
    pub(super) tunings: Vec<ChosenTuning>,
}

/// Checks the plan against what is `here`, asked only if there is a plan, and picks a sub-plan for every temperature.
pub(super) fn decide(
    here: impl FnOnce() -> Result<Fingerprints, Error>,
    options: &Options,
) -> Result<Drafting, Error> {
    let Some(source) = &options.plan else {
        let absent = options.plan_absent_reason.as_deref().unwrap_or("no plan");
        let reason = match &options.drafter {
            DrafterChoice::Planned | DrafterChoice::Unguarded => absent,
            DrafterChoice::Plain => SWITCHED_OFF,
            DrafterChoice::Forced(name) => {
                options.check_drafter(name)?;
                SWITCHED_OFF
            }
        };
        let background = Background { off_reason: Some(reason.to_owned()), ..Background::default() };
        let (bands, backgrounds) = (vec![BandSteps::plain()], vec![background]);
        return Ok(Drafting { bands, backgrounds, widths: Vec::new(), tunings: Vec::new() });
    };
    let here = here()?;
    let plan = if source.force {
        FittedPlan::forced(source.plan.clone(), &here)
    } else {
        FittedPlan::new(source.plan.clone(), &here)?
    };
    let draft = options.draft_model.as_deref().map(|path| given_draft(path, &plan, source)).transpose()?;
    let (mut bands, mut backgrounds) = (Vec::new(), Vec::new());
    for (place, band) in plan.bands.iter().enumerate() {
        match sub_plan(band, options, source) {
            Ok((sub_plan, reason)) => {
                let steps = steps(&plan, band.temperature, sub_plan, draft.as_ref(), options);
                backgrounds.push(Background {
                    plan: Some(source.name.clone()),
                    off_reason: sub_plan.is_plain().then(|| reason.to_owned()),
                    is_predicted: !is_confident(sub_plan, options),
                });
                bands.push(steps);
            }
            Err(error) if place == 0 => return Err(error),
            // A temperature at which the forced drafter has no sub-plan is served by the nearest one at which it has.
            Err(_) => {}
        }
    }
    let tunings = if plan.ignored().is_empty() { plan.tunings.clone() } else { Vec::new() };
    Ok(Drafting { bands, backgrounds, widths: plan.planned.widths(), tunings })
}

/// The bytes of weights in memory that the plan of the options is for, if it streams any.
pub(super) fn planned_resident(options: &Options) -> Option<usize> {
    options.plan.as_ref()?.plan.resident()
}

/// The context of the options, or of the plan if that was made for a budget of memory.
///
/// # Errors
/// [`Error`] of kind `Input` for a context that takes more than the budget.
pub(super) fn planned_context(options: &Options) -> Result<Option<usize>, Error> {
    let memory = options.plan.as_ref().and_then(|source| source.plan.header.memory.as_ref());
    let Some((memory, budget)) = memory.and_then(|memory| Some((memory, memory.budget_bytes?))) else {
        return Ok(options.context);
    };
    let most = memory.context as usize;
    match options.context {
        Some(context) if context > most => Err(Error::input(format!(
            "a context of {context} tokens takes more than the {budget} bytes of memory that the plan is for: expected at most {most} tokens; \
             ask for fewer, or plan again with a longer context"
        ))
        .with_hint(Hint::Context)),
        Some(context) => Ok(Some(context)),
        None => Ok(Some(most)),
    }
}

/// The sub-plan of a band that the options ask for, and why nothing is drafted if it is plain decoding.
fn sub_plan<'p>(
    band: &'p Band,
    options: &Options,
    source: &PlanSource,
) -> Result<(&'p SubPlan, &'static str), Error> {
    Ok(match &options.drafter {
        DrafterChoice::Planned | DrafterChoice::Unguarded => {
            (band.chosen(), "the plan found no drafter that is faster than plain decoding here")
        }
        DrafterChoice::Plain => (&band.by_drafter[0], SWITCHED_OFF),
        DrafterChoice::Forced(name) => (drafter_name::in_band(name, band, &source.name)?, SWITCHED_OFF),
    })
}

/// Whether the drafts of a sub-plan stop where the drafter is in doubt, which no prediction knows of.
fn is_confident(sub_plan: &SubPlan, options: &Options) -> bool {
    sub_plan.drafter.facts().tunes_itself && options.draft_growth == DraftGrowth::Confident
}

/// How a sub-plan steps requests of one temperature under the options, with files where they are given.
fn steps(
    plan: &Plan,
    temperature: f32,
    sub_plan: &SubPlan,
    draft: Option<&DrafterFile>,
    options: &Options,
) -> BandSteps {
    let network = plan.network_of(sub_plan).cloned();
    let is_guarded = options.drafter == DrafterChoice::Planned && !sub_plan.is_plain();
    let is_confident = is_confident(sub_plan, options);
    let mut sub_plan = sub_plan.clone();
    if let Some(path) = &options.store {
        sub_plan.drafter = sub_plan.drafter.with_store_at(&path.display().to_string());
    }
    if let Some(file) = draft {
        sub_plan.drafter = sub_plan.drafter.with_draft_model_at(file);
    }
    if is_confident {
        sub_plan.schedule = Schedule::Plain;
    }
    let is_forced = matches!(options.drafter, DrafterChoice::Forced(_));
    sub_plan.ranges.iter_mut().for_each(|range| range.drafts |= is_forced);
    BandSteps { temperature, sub_plan, drafter: None, network, is_guarded, is_corrected: true }
}

/// The drafter model at `path`, which must be one that the plan measured.
///
/// # Errors
/// [`Error`] of kind `Input` if it is no model, or the plan measured none or others.
fn given_draft(path: &Path, plan: &Plan, source: &PlanSource) -> Result<DrafterFile, Error> {
    let shown = path.display();
    let model = DraftModel::open(path).map_err(|error| {
        Error::input(format!("{error}; expected a drafter model at `{shown}`")).with_hint(Hint::DraftModel)
    })?;
    let mut measured: Vec<&str> = plan.bands[0]
        .by_drafter
        .iter()
        .filter_map(|sub_plan| Some(sub_plan.drafter.draft_model()?.digest.as_str()))
        .collect();
    measured.sort_unstable();
    measured.dedup();
    let again = || Hint::Profile { drafter: "model".to_owned() };
    if measured.is_empty() {
        return Err(Error::input(format!(
            "the drafter model `{shown}` is of no use to the plan {}: expected a plan that measured drafter `model`, found none",
            source.name
        ))
        .with_hint(again()));
    }
    let file = model.file()?;
    if measured.contains(&file.digest.as_str()) {
        return Ok(file);
    }
    Err(Error::input(format!(
        "the drafter model `{shown}` is another than the one that was profiled for the plan {}: expected {}, found {}; give that \
         one, or measure this one",
        source.name,
        measured.join(" or "),
        file.digest
    ))
    .with_hint(again()))
}

/// Bytes that the sessions of drafter models take, and the hidden rows that they read.
///
/// # Errors
/// [`Error`] if a drafter model was not loaded.
pub(super) fn bytes_beside(
    loaded: &Loaded,
    options: &SessionOptions,
    bands: &[BandSteps],
) -> Result<usize, Error> {
    let (mut bytes, mut of_hidden) = (0, 0);
    for BandSteps { sub_plan, .. } in bands {
        let kind = &sub_plan.drafter;
        let shape = &StepShape::of(sub_plan).of_model(kind);
        let Some(file) = kind.draft_model() else { continue };
        let draft = loaded.set().draft(&file.digest)?;
        let own = match kind.drafts_blocks() {
            true => BlockDrafter::session_options(options, draft),
            false => ModelDrafter::session_options(options, draft, shape),
        };
        bytes += draft.memory(&own).session_bytes;
        if loaded.reads_hidden_rows(kind)? {
            let (layers, width) = (loaded.set().kept_layers().len(), loaded.set().model_width());
            of_hidden = options.context * layers * width * size_of::<f32>();
        }
    }
    Ok(bytes + of_hidden)
}

/// The drafter that serves the requests of a sub-plan: one that tunes itself does.
///
/// # Errors
/// [`Error`] when the session or the model lacks what it needs.
pub(super) fn make_drafter(
    sub_plan: &SubPlan,
    session: &Session,
    options: &Options,
) -> Result<Option<Box<dyn Drafter>>, Error> {
    let SubPlan { drafter, growth, .. } = sub_plan;
    let facts = drafter.facts();
    match (facts.skipped, &options.plan) {
        (Some(skipped), Some(PlanSource { plan, .. })) if facts.tunes_itself => {
            Ok(Some(self_tuning(skipped, SkipTimes::of_plan(plan, sub_plan)?, sub_plan, session, options)?))
        }
        _ => Ok(make_growing_drafter(drafter, growth, &StepShape::of(sub_plan), session)?),
    }
}
