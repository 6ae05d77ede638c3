//! From a plan and the caller's wish to a drafter and a shape.

use crate::{
    plan::{
        ChosenTuning, DepthChoice, DepthCosts, DepthNetwork, DrafterKind, Fingerprints, FittedPlan, GroupSet,
        GuardTerms, Schedule, SkipCosts, SkipSearch, SkipTimes, Stage as PlanStage, StepCosts, SubPlan,
    },
    runtime::{Session, SkipSet},
    speculate::{DraftGrowth, Drafter, LayerSkip, Lookup, Policy, Shape, SpeculateError, Swift},
};

use super::{DrafterChoice, Error, Options, report::Background};

/// What was decided before the model is loaded.
#[derive(Clone, Debug)]
pub(super) struct Drafting {
    pub(super) kind: DrafterKind,
    pub(super) shape: Shape,
    /// When heads are drafted.
    pub(super) schedule: Schedule,
    /// How a step chooses its depth, if it does.
    pub(super) depths: Option<(DepthCosts, DepthNetwork)>,
    /// How steps choose their rows, and what guards requests unless a drafter is forced or nothing is to fall back; `None`
    /// without a plan.
    pub(super) policy: Option<Policy>,
    /// Widths to make executables for.
    pub(super) widths: Vec<usize>,
    /// Tunings of linears; none where the plan was made elsewhere and forced.
    pub(super) tunings: Vec<ChosenTuning>,
    /// Times that the work of a drafter which tunes itself is counted by.
    pub(super) skip_times: Option<SkipTimes>,
    pub(super) background: Background,
}

/// The shape of a sub-plan's steps.
fn shape_of(sub_plan: &SubPlan) -> Shape {
    if sub_plan.is_plain() {
        return Shape::PLAIN;
    }
    let crate::plan::Shape { depth, draft_width, verify_width } = sub_plan.shape;
    Shape {
        depth: depth as usize,
        draft_width: draft_width as usize,
        verify_width: verify_width as usize,
        top_k: sub_plan.top_k as usize,
        draft_temperature: sub_plan.draft_temperature,
    }
}

/// Makes a drafter of the given kind, set as the kind says and tuned by nothing, over a session, whose executables have its trimmed head if it drafts with one.
///
/// # Errors
/// [`SpeculateError`] when the session or the model has not what the drafter needs.
pub fn make_drafter(
    kind: &DrafterKind,
    shape: &Shape,
    session: &Session,
) -> Result<Option<Box<dyn Drafter>>, SpeculateError> {
    match kind {
        DrafterKind::None => Ok(None),
        DrafterKind::Lookup { longest_match, shortest_match } => {
            Ok(Some(Box::new(Lookup::new(*longest_match as usize, *shortest_match as usize, shape)?)))
        }
        DrafterKind::LayerSkip { skipped, head_tokens } => {
            let skip = SkipSet::new(session.set().groups(), skipped)?;
            let whole = LayerSkip::new(session, skip, shape)?;
            Ok(Some(Box::new(match head_tokens {
                Some(tokens) => whole.with_head(session.set().head(tokens)?),
                None => whole,
            })))
        }
        DrafterKind::Swift { skipped } => {
            let skip = SkipSet::new(session.set().groups(), skipped)?;
            Ok(Some(Box::new(LayerSkip::new(session, skip, shape)?)))
        }
    }
}

impl Drafting {
    /// Widths to load a model with: those that are planned, and one that holds a try where none does, lest it takes several
    /// forwards.
    pub(super) fn widths_to_load(&self, options: &Options) -> Vec<usize> {
        let window = options.skip_search.window;
        let lacks = self.skip_times.is_some() && self.widths.iter().all(|width| *width < window);
        self.widths.iter().copied().chain(lacks.then_some(window)).collect()
    }

    /// Rows behind the committed prefix that steps write: those of the shape, and behind them those of tries.
    pub(super) fn scratch_rows(&self, options: &Options) -> usize {
        let rows = self.shape.scratch_rows(self.schedule);
        rows + if self.skip_times.is_some() { options.skip_search.window } else { 0 }
    }

    /// Makes the drafter that serves requests: one that tunes itself does.
    pub(super) fn drafter(
        &self,
        session: &Session,
        options: &Options,
    ) -> Result<Option<Box<dyn Drafter>>, Error> {
        let (DrafterKind::Swift { skipped }, Some(times)) = (&self.kind, &self.skip_times) else {
            return Ok(make_drafter(&self.kind, &self.shape, session)?);
        };
        let groups = session.set().groups();
        if groups > GroupSet::MOST_GROUPS {
            return Err(Error::input(format!(
                "drafter `swift` searches at most {} sub-layers, found {groups}; force another drafter or plan again without it",
                GroupSet::MOST_GROUPS
            )));
        }
        // Names the group that the model has not, if there is one.
        SkipSet::new(groups, skipped).map_err(SpeculateError::from)?;
        let settings = options.skip_search;
        if settings.window == 0 || settings.interval == 0 {
            return Err(Error::input(format!(
                "the search for a skip set: expected a window and an interval of 1 or more, found {} and {}",
                settings.window, settings.interval
            )));
        }
        let costs = SkipCosts::new(times.clone(), 1.0 - skipped.len() as f64 / f64::from(groups));
        let depth = u32::try_from(self.shape.depth).expect("shapes are small");
        let search = SkipSearch::new(groups, skipped, depth, costs, settings);
        let bank = self.shape.scratch_rows(self.schedule);
        Ok(Some(Box::new(Swift::new(session, search, &self.shape, options.draft_growth, bank)?)))
    }
}

/// Checks the plan against what is `here`, asked only if there is a plan, and picks the sub-plan.
pub(super) fn decide(
    here: impl FnOnce() -> Result<Fingerprints, Error>,
    options: &Options,
) -> Result<Drafting, Error> {
    let plain = |reason: &str| Drafting {
        kind: DrafterKind::None,
        shape: Shape::PLAIN,
        schedule: Schedule::Plain,
        depths: None,
        policy: None,
        widths: Vec::new(),
        tunings: Vec::new(),
        skip_times: None,
        background: Background {
            drafter: "none".to_owned(),
            spec_off_reason: Some(reason.to_owned()),
            ..Background::default()
        },
    };
    let Some(source) = &options.plan else {
        let absent = options.plan_absent_reason.as_deref().unwrap_or("no plan");
        return match &options.drafter {
            DrafterChoice::Planned | DrafterChoice::Unguarded => Ok(plain(absent)),
            DrafterChoice::Plain => Ok(plain("switched off by the request")),
            DrafterChoice::Forced(name) if name == "none" => Ok(plain("switched off by the request")),
            DrafterChoice::Forced(name) => Err(Error::input(format!(
                "drafter `{name}` cannot be forced without a plan: expected a plan that measured it, found none ({absent}); make one with `yggc profile --drafter {name}` and `yggc plan`"
            ))),
        };
    };
    let here = here()?;
    let plan = if source.force {
        FittedPlan::forced(source.plan.clone(), &here)
    } else {
        FittedPlan::new(source.plan.clone(), &here)?
    };
    let (sub_plan, reason) = match &options.drafter {
        DrafterChoice::Planned | DrafterChoice::Unguarded => {
            (plan.chosen(), "the plan found no drafter that is faster than plain decoding here")
        }
        DrafterChoice::Plain => (&plan.by_drafter[0], "switched off by the request"),
        DrafterChoice::Forced(name) => {
            let sub_plan = plan.for_drafter(name).ok_or_else(|| {
                let measured: Vec<_> = plan.by_drafter.iter().map(|p| p.name.as_str()).collect();
                let left_out = plan.left_out.iter().find(|l| l.name.as_str() == name);
                let why = left_out.map_or("it never measured it".to_owned(), |l| format!("no {}", l.lacks));
                Error::input(format!(
                    "the plan {} has no shape for drafter `{name}` ({why}): expected one of {}; measure it with `yggc profile --drafter {name} -o FILE` and plan again with `yggc plan --profile FILE`",
                    source.name,
                    measured.join(", ")
                ))
            })?;
            (sub_plan, "switched off by the request")
        }
    };
    let is_guarded = options.drafter == DrafterChoice::Planned && !sub_plan.is_plain();
    let guard = is_guarded.then_some(GuardTerms {
        aal: sub_plan.predicted.aal,
        step_us: sub_plan.predicted.step_us,
        plain_step_us: sub_plan.predicted.ar_tpot_us,
    });
    let depths = match &sub_plan.depth_choice {
        DepthChoice::Fixed => None,
        DepthChoice::Predicted(costs) => {
            let network = plan.network_of(sub_plan).expect("a valid plan has the network that it goes by");
            Some((costs.clone(), network.clone()))
        }
    };
    let is_tuned = matches!(sub_plan.drafter, DrafterKind::Swift { .. });
    let skip_times = if is_tuned { Some(SkipTimes::of_plan(&plan, sub_plan)?) } else { None };
    let is_confident = is_tuned && options.draft_growth == DraftGrowth::Confident;
    let stages = sub_plan.predicted.stages.iter();
    let predicted_stages = stages.map(|s| (stage_name(&s.stage).to_owned(), s.us / 1e3)).collect();
    Ok(Drafting {
        kind: sub_plan.drafter.clone(),
        shape: shape_of(sub_plan),
        schedule: if is_confident { Schedule::Plain } else { sub_plan.schedule },
        depths,
        policy: Some(Policy {
            choice: sub_plan.row_choice.clone(),
            guard,
            costs: Some(StepCosts::new(sub_plan.predicted.ar_tpot_us)),
        }),
        widths: plan.planned.widths(),
        tunings: if plan.ignored().is_empty() { plan.tunings.clone() } else { Vec::new() },
        skip_times,
        background: Background {
            drafter: sub_plan.drafter.name().to_owned(),
            plan: Some(source.name.clone()),
            spec_off_reason: sub_plan.is_plain().then(|| reason.to_owned()),
            guard,
            predicted_tpot_ms: (!is_confident).then_some(sub_plan.predicted.tpot_us / 1e3),
            predicted_speedup: (!is_confident).then_some(sub_plan.predicted.speedup),
            predicted_stages: if is_confident { Vec::new() } else { predicted_stages },
        },
    })
}

/// The name under which a request reports the time of a planned stage.
fn stage_name(stage: &PlanStage) -> &'static str {
    match stage {
        PlanStage::Verify => "verify",
        PlanStage::Draft(_) => "draft",
        PlanStage::Host(host) => host.name(),
    }
}
