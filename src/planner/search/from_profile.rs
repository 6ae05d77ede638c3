//! From a profile to a plan: supplies the planner with the drafters it has to replay.

use std::{num::NonZero, thread};

use ygg_profiler::{Profile, UnixTime, WeightMemory};

use crate::{
    engine::{Error, ErrorKind, Hint},
    plan::{DrafterKind, Plan},
    speculate::make_replay,
};

use crate::planner::{
    Fix, FreeDrafter, SearchError,
    search::{divisions::MemoryBudget, make_plan::make_plan_watched, memory_search::make_plan_within},
};

/// Told while a plan is searched: (drafters searched, drafters in all).
pub type Searching<'a> = &'a mut dyn FnMut(usize, usize);

/// Searches the plan that follows from a profile, within what `fix` leaves open; it says that it was made at `made_at`.
///
/// # Errors
/// [`Error`] of kind `Input` when the profile cannot be used, a corpus store of it is absent or another, or nothing
/// satisfies the fix.
pub fn plan_from_profile(profile: &Profile, fix: &Fix, made_at: UnixTime) -> Result<Plan, Error> {
    plan_from_profile_watched(profile, fix, made_at, &mut |_, _| {})
}

/// [`plan_from_profile`], on all processors; `progress` is called after every drafter.
///
/// # Errors
/// As [`plan_from_profile`].
pub fn plan_from_profile_watched(
    profile: &Profile,
    fix: &Fix,
    made_at: UnixTime,
    progress: Searching<'_>,
) -> Result<Plan, Error> {
    plan(profile, (fix, None), made_at, progress)
}

/// [`plan_from_profile_watched`] of a profile whose weights are streamed from a file, within a budget of memory: which
/// of them stay is chosen together with drafters and shapes, and the plan is for that.
///
/// # Errors
/// As [`plan_from_profile`], and for a budget that is too small, needs no streaming, or that the profile says nothing
/// of.
pub fn plan_within_memory(
    profile: &Profile,
    fix: &Fix,
    budget: MemoryBudget,
    made_at: UnixTime,
    progress: Searching<'_>,
) -> Result<Plan, Error> {
    plan(profile, (fix, Some(budget)), made_at, progress)
}

/// The plan of a first use: where a budget of memory was divided, for the best division of it, as far as the profile
/// says what steps take at others.
///
/// # Errors
/// As [`plan_from_profile`].
pub fn plan_first(
    profile: &Profile,
    divided: Option<MemoryBudget>,
    made_at: UnixTime,
) -> Result<Plan, Error> {
    let fix = Fix::default();
    let Some(budget) = divided else { return plan_from_profile(profile, &fix, made_at) };
    // What a session takes was estimated, so the budget may hold all weights by a little after all.
    let of_all = |memory: &WeightMemory| {
        let whole = memory.splits.iter().find(|split| split.streamed_bytes == 0)?;
        Some(whole.resident_bytes + whole.staging_bytes + memory.session_bytes(budget.context))
    };
    let all = profile.memory.as_ref().and_then(of_all);
    let bytes = all.map_or(budget.bytes, |all| budget.bytes.min(all - 1));
    let mut plan =
        plan_within_memory(profile, &fix, MemoryBudget { bytes, ..budget }, made_at, &mut |_, _| {})?;
    if let Some(memory) = &mut plan.header.memory {
        memory.budget_bytes = Some(budget.bytes);
    }
    Ok(plan)
}

fn plan(
    profile: &Profile,
    (fix, budget): (&Fix, Option<MemoryBudget>),
    made_at: UnixTime,
    progress: Searching<'_>,
) -> Result<Plan, Error> {
    let mut replays = Vec::new();
    for description in &profile.drafters {
        if let Some(replay) = make_replay(&DrafterKind::from_description(description)?)? {
            replays.push((description.name.clone(), replay));
        }
    }
    let free = replays.iter_mut().map(|(name, replay)| FreeDrafter {
        name: name.clone(),
        drafter: &mut *replay.drafter,
        depths: replay.depths.to_vec(),
        widths: replay.widths.to_vec(),
    });
    let threads = thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN);
    let free = &mut free.collect::<Vec<_>>();
    let plan = match budget {
        None => make_plan_watched(profile, free, fix, made_at, threads, progress),
        Some(budget) => make_plan_within(profile, free, (fix, budget), made_at, threads, progress),
    };
    Ok(plan?)
}

impl From<SearchError> for Error {
    fn from(error: SearchError) -> Self {
        match error {
            SearchError::Plan(error) => error.into(),
            SearchError::NoEvidence { .. } => Self::of(ErrorKind::Input, Some(Hint::Recording), error),
            SearchError::Table(_)
            | SearchError::Profile(_)
            | SearchError::IncompleteTrace { .. }
            | SearchError::Division { .. }
            | SearchError::Budget { .. }
            | SearchError::Fits { .. }
            | SearchError::FixSyntax { .. }
            | SearchError::FixImpossible { .. } => Self::of(ErrorKind::Input, None, error),
        }
    }
}
