//! From a plan and the caller's wish to a drafter and a shape.

use std::path::Path;

use crate::{
    plan::{
        ChosenTuning, ContextRange, DepthChoice, DepthCosts, DepthNetwork, DrafterFile, DrafterKind,
        Fingerprints, FittedPlan, GrowthChoice, Plan, Prediction, RowChoice, Schedule, Stage as PlanStage,
        SubPlan, Unseen, Worker,
    },
    policy::{GuardTerms, SkipTimes, StepCosts},
    runtime::{Session, SessionOptions},
    speculate::{
        Decoder, DraftGrowth, Drafter, ModelDrafter, Policy, SpeculateError, StepRange, StepShape,
        make_growing_drafter,
    },
};

use super::{
    DraftModel, DrafterChoice, Error, Hint, Loaded, Options, PlanSource, drafter_name,
    report::{Background, SWITCHED_OFF},
    self_tuning::self_tuning,
};

/// What was decided before the model is loaded.
#[derive(Clone, Debug)]
pub(super) struct Drafting {
    /// How requests of each temperature are stepped, by temperatures that ascend from 0.
    pub(super) bands: Vec<BandDrafting>,
    /// Widths to make executables for.
    pub(super) widths: Vec<usize>,
    /// Tunings of linears; none where the plan was made elsewhere and forced.
    pub(super) tunings: Vec<ChosenTuning>,
}

/// What a plan says of requests of one temperature: a way of stepping is made of it once the model is loaded.
#[derive(Clone, Debug)]
pub(super) struct BandDrafting {
    pub(super) temperature: f32,
    pub(super) kind: DrafterKind,
    /// As large as the largest range needs.
    pub(super) shape: StepShape,
    /// How trees grow.
    pub(super) growth: GrowthChoice,
    /// When heads are drafted.
    pub(super) schedule: Schedule,
    /// Times that the work of a drafter which tunes itself is counted by.
    pub(super) skip_times: Option<SkipTimes>,
    /// How steps go within each range of contexts, ascending from 0.
    pub(super) ranges: Vec<RangeDrafting>,
}

/// What a plan says of the steps within one range of contexts.
#[derive(Clone, Debug)]
pub(super) struct RangeDrafting {
    pub(super) steps: StepRange,
    /// How a step chooses its depth, if it does.
    pub(super) depths: Option<(DepthCosts, DepthNetwork)>,
    /// How steps choose their rows, and what guards requests unless a drafter is forced or nothing is to fall back; `None`
    /// without a plan.
    pub(super) policy: Option<Policy>,
    pub(super) background: Background,
}

/// The shape of a sub-plan's steps, as large as the largest range needs.
fn shape_of(sub_plan: &SubPlan) -> StepShape {
    if sub_plan.is_plain() {
        return StepShape::PLAIN;
    }
    let crate::plan::Shape { depth, draft_width, verify_width } = sub_plan.largest_shape();
    StepShape {
        depth: depth as usize,
        draft_width: draft_width as usize,
        verify_width: verify_width as usize,
        top_k: sub_plan.top_k as usize,
        draft_temperature: sub_plan.draft_temperature,
    }
}

/// Checks the plan against what is `here`, asked only if there is a plan, and picks a sub-plan for every temperature.
pub(super) fn decide(
    here: impl FnOnce() -> Result<Fingerprints, Error>,
    options: &Options,
) -> Result<Drafting, Error> {
    let plain = |reason: &str| {
        let range = RangeDrafting {
            steps: StepRange::whole(&StepShape::PLAIN),
            depths: None,
            policy: None,
            background: Background {
                drafter: "none".to_owned(),
                spec_off_reason: Some(reason.to_owned()),
                ..Background::default()
            },
        };
        let band = BandDrafting {
            temperature: 0.0,
            kind: DrafterKind::None,
            shape: StepShape::PLAIN,
            growth: GrowthChoice::Equal,
            schedule: Schedule::Plain,
            skip_times: None,
            ranges: vec![range],
        };
        Drafting { bands: vec![band], widths: Vec::new(), tunings: Vec::new() }
    };
    let Some(source) = &options.plan else {
        let absent = options.plan_absent_reason.as_deref().unwrap_or("no plan");
        return match &options.drafter {
            DrafterChoice::Planned | DrafterChoice::Unguarded => Ok(plain(absent)),
            DrafterChoice::Plain => Ok(plain(SWITCHED_OFF)),
            DrafterChoice::Forced(name) => {
                options.check_drafter(name)?;
                Ok(plain(SWITCHED_OFF))
            }
        };
    };
    let here = here()?;
    let plan = if source.force {
        FittedPlan::forced(source.plan.clone(), &here)
    } else {
        FittedPlan::new(source.plan.clone(), &here)?
    };
    let draft = options.draft_model.as_deref().map(|path| given_draft(path, &plan, source)).transpose()?;
    let mut bands = Vec::new();
    for (place, temperature) in plan.temperatures().enumerate() {
        let of_band = plan.of_band(place);
        match planned(&of_band, options, source) {
            Ok((sub_plan, reason)) => bands.push(
                band(temperature, &of_band, sub_plan, reason, options, source)?
                    .with_draft_model_at(draft.as_ref()),
            ),
            Err(error) if place == 0 => return Err(error),
            // A temperature at which the forced drafter has no sub-plan is served by the nearest one at which it has.
            Err(_) => {}
        }
    }
    let tunings = if plan.ignored().is_empty() { plan.tunings.clone() } else { Vec::new() };
    Ok(Drafting { bands, widths: plan.planned.widths(), tunings })
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
    let memory = options.plan.as_ref().and_then(|source| source.plan.memory.as_ref());
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

/// The sub-plan of a plan that the options ask for, and why nothing is drafted if it is plain decoding.
fn planned<'p>(
    plan: &'p Plan,
    options: &Options,
    source: &PlanSource,
) -> Result<(&'p SubPlan, &'static str), Error> {
    Ok(match &options.drafter {
        DrafterChoice::Planned | DrafterChoice::Unguarded => {
            (plan.chosen(), "the plan found no drafter that is faster than plain decoding here")
        }
        DrafterChoice::Plain => (&plan.by_drafter[0], SWITCHED_OFF),
        DrafterChoice::Forced(name) => (drafter_name::in_plan(name, plan, &source.name)?, SWITCHED_OFF),
    })
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
    let mut measured: Vec<&str> = plan
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

/// How a sub-plan steps requests of one temperature.
fn band(
    temperature: f32,
    plan: &Plan,
    sub_plan: &SubPlan,
    reason: &str,
    options: &Options,
    source: &PlanSource,
) -> Result<BandDrafting, Error> {
    let is_tuned = sub_plan.drafter.facts().tunes_itself;
    let skip_times = if is_tuned { Some(SkipTimes::of_plan(plan, sub_plan)?) } else { None };
    let is_confident = is_tuned && options.draft_growth == DraftGrowth::Confident;
    let planned = Planned { temperature, plan, sub_plan, is_confident, options, source };
    let SubPlan { shape, depth_choice, row_choice, predicted, unseen, .. } = sub_plan;
    let (depth, verify_width) = (shape.depth as usize, shape.verify_width as usize);
    let steps = StepRange { from: 0, drafts: true, depth, verify_width };
    let off = sub_plan.is_plain().then(|| reason.to_owned());
    let first = planned.range(steps, depth_choice, row_choice, (predicted, unseen), off);
    let is_forced = matches!(options.drafter, DrafterChoice::Forced(_));
    let further = sub_plan.longer_contexts.iter().map(|range| {
        let ContextRange { from, context: _, drafts, depth, depth_choice, row_choice, predicted, unseen } =
            range;
        let drafts = *drafts || is_forced;
        let (depth, verify_width) = (*depth as usize, row_choice.widest() as usize);
        let steps = StepRange { from: *from as usize, drafts, depth, verify_width };
        let off = (!drafts).then(|| format!("the plan expects no gain of drafting after {from} tokens"));
        planned.range(steps, depth_choice, row_choice, (predicted, unseen), off)
    });
    Ok(BandDrafting {
        temperature,
        kind: match &options.store {
            Some(path) => sub_plan.drafter.clone().with_store_at(&path.display().to_string()),
            None => sub_plan.drafter.clone(),
        },
        shape: shape_of(sub_plan),
        growth: sub_plan.growth.clone(),
        schedule: if is_confident { Schedule::Plain } else { sub_plan.schedule },
        skip_times,
        ranges: std::iter::once(first).chain(further).collect(),
    })
}

/// A sub-plan, with what it is run with.
struct Planned<'a> {
    temperature: f32,
    plan: &'a Plan,
    sub_plan: &'a SubPlan,
    /// Whether its drafts stop where the drafter is in doubt, which no prediction knows of.
    is_confident: bool,
    options: &'a Options,
    source: &'a PlanSource,
}

impl Planned<'_> {
    /// What its steps go by within one range, and what reports say of them; `off` says why they draft nothing, if so.
    fn range(
        &self,
        steps: StepRange,
        depth_choice: &DepthChoice,
        row_choice: &RowChoice,
        (predicted, unseen): (&Prediction, &Unseen),
        off: Option<String>,
    ) -> RangeDrafting {
        let Self { temperature, plan, sub_plan, is_confident, options, source } = *self;
        let is_guarded = options.drafter == DrafterChoice::Planned && !sub_plan.is_plain();
        let Prediction { aal, step_us, tpot_us, ar_tpot_us, speedup: _, ref stages } = *predicted;
        let limits = sub_plan.guard;
        let guard = is_guarded.then_some(GuardTerms { aal, step_us, plain_step_us: ar_tpot_us, limits });
        let depths = match depth_choice {
            DepthChoice::Fixed => None,
            DepthChoice::Predicted(costs) => {
                let network =
                    plan.network_of(sub_plan).expect("a valid plan has the network that it goes by");
                Some((costs.clone(), network.clone()))
            }
        };
        let name_of = |stage: &PlanStage| match stage {
            // Forwards and growths are waited for with the verification after them.
            PlanStage::FirstGrowth(_) | PlanStage::NextGrowth(_) if sub_plan.schedule.prunes_on_device() => {
                "verify"
            }
            stage => stage_name(stage),
        };
        let has_prediction = !is_confident && (steps.drafts || sub_plan.is_plain());
        let predicted_stages = stages.iter().map(|s| (name_of(&s.stage).to_owned(), s.us / 1e3)).collect();
        RangeDrafting {
            steps,
            depths,
            policy: Some(Policy {
                choice: row_choice.clone(),
                guard,
                costs: Some(StepCosts::new(ar_tpot_us)),
            }),
            background: Background {
                plan_temperature: Some(temperature),
                drafter: sub_plan.drafter.name().to_owned(),
                plan: Some(source.name.clone()),
                spec_off_reason: off,
                guard,
                predicted_tpot_ms: has_prediction.then_some(tpot_us / 1e3),
                predicted_speedup: has_prediction.then_some(unseen.speedup),
                predicted_stages: if has_prediction { predicted_stages } else { Vec::new() },
            },
        }
    }
}

/// Bytes that the sessions of drafter models take, and the hidden rows that they read.
///
/// # Errors
/// [`Error`] if a drafter model was not loaded.
pub(super) fn bytes_beside(
    loaded: &Loaded,
    options: &SessionOptions,
    bands: &[BandDrafting],
) -> Result<usize, Error> {
    let (mut bytes, mut of_hidden) = (0, 0);
    for BandDrafting { kind, shape, .. } in bands {
        let Some(file) = kind.draft_model() else { continue };
        let draft = loaded.set().draft(&file.digest)?;
        bytes += draft.memory(&ModelDrafter::session_options(options, draft, shape)).session_bytes;
        if loaded.reads_hidden_rows(kind)? {
            of_hidden = options.context * loaded.set().model_width() * size_of::<f32>();
        }
    }
    Ok(bytes + of_hidden)
}

/// The decoder with a way of stepping for each of `bands`, the first of which is for temperature 0, and what reports say of each range
/// of each.
///
/// # Errors
/// [`Error`] when the session or the model lacks what a way needs.
///
/// # Panics
/// Without a band, or if temperatures do not ascend.
pub(super) fn decoder(
    session: Session,
    bands: Vec<BandDrafting>,
    options: &Options,
) -> Result<(Decoder, Vec<Vec<Background>>), Error> {
    let drafters: Vec<_> =
        bands.iter().map(|band| band.drafter(&session, options)).collect::<Result<_, Error>>()?;
    let of_band = |band: &BandDrafting| band.ranges.iter().map(|range| range.background.clone()).collect();
    let backgrounds = bands.iter().map(of_band).collect();
    let mut bands = bands.into_iter().zip(drafters);
    let (first, drafter) = bands.next().expect("a band at least");
    let decoder = first.set(Decoder::new(session, drafter, first.first_shape())?)?;
    let decoder = bands.try_fold(decoder, |decoder, (band, drafter)| {
        band.set(decoder.with_way(band.temperature, drafter, band.first_shape())?)
    })?;
    Ok((decoder, backgrounds))
}

impl BandDrafting {
    /// The same with its drafter model where it was given, if it is that one.
    fn with_draft_model_at(mut self, given: Option<&DrafterFile>) -> Self {
        if let Some(file) = given {
            self.kind = self.kind.with_draft_model_at(file);
        }
        self
    }

    /// The drafter that serves its requests: one that tunes itself does.
    fn drafter(&self, session: &Session, options: &Options) -> Result<Option<Box<dyn Drafter>>, Error> {
        match (self.kind.facts().skipped, &self.skip_times) {
            (Some(skipped), Some(times)) => {
                let bank = self.shape.scratch_rows(self.schedule);
                let tuning = self_tuning(skipped, times.clone(), &self.shape, bank, session, options)?;
                Ok(Some(tuning))
            }
            _ => Ok(make_growing_drafter(&self.kind, &self.growth, &self.shape, session)?),
        }
    }

    /// The shape of steps in its first range.
    fn first_shape(&self) -> StepShape {
        let StepRange { depth, verify_width, .. } = self.ranges[0].steps;
        StepShape { depth, verify_width, ..self.shape }
    }

    /// Sets what the newest way of a decoder goes by in addition to drafter and shape.
    fn set(&self, mut decoder: Decoder) -> Result<Decoder, SpeculateError> {
        for (place, RangeDrafting { steps, depths, policy, background: _ }) in self.ranges.iter().enumerate()
        {
            if place > 0 {
                decoder = decoder.with_range(*steps)?;
            }
            if let Some(policy) = policy.clone() {
                decoder = decoder.with_policy(policy)?;
            }
            if let Some((costs, network)) = depths.clone() {
                decoder = decoder.with_depths(costs, network)?;
            }
        }
        decoder.with_schedule(self.schedule)
    }
}

/// The name under which a request reports the time of a planned stage.
fn stage_name(stage: &PlanStage) -> &'static str {
    match stage.worker() {
        Worker::Verifier => "verify",
        Worker::Drafter => "draft",
        Worker::Host(host) => host.name(),
    }
}
