//! From a profile to a plan: supplies the planner with the drafters it has to replay.

use std::{num::NonZero, thread};

use ygg_profiler::{Profile, UnixTime};

use crate::{
    engine::{Error, ErrorKind, Hint},
    plan::{DrafterKind, Plan},
    planner::{Fix, FreeDrafter, MemoryBudget, SearchError, make_plan_watched, make_plan_within},
    speculate::make_replay,
};

use super::Progress;

/// Searches the plan that follows from a profile, within what `fix` leaves open; it says that it was made at `made_at`.
///
/// # Errors
/// [`Error`] of kind `Input` when the profile cannot be used, a corpus store of it is absent or another, or nothing satisfies the
/// fix.
pub fn plan_from_profile(profile: &Profile, fix: &Fix, made_at: UnixTime) -> Result<Plan, Error> {
    plan_from_profile_watched(profile, fix, made_at, &mut |_| {})
}

/// [`plan_from_profile`], on all processors; `progress` is called after every drafter.
///
/// # Errors
/// As [`plan_from_profile`].
pub fn plan_from_profile_watched(
    profile: &Profile,
    fix: &Fix,
    made_at: UnixTime,
    progress: &mut dyn FnMut(Progress),
) -> Result<Plan, Error> {
    plan(profile, (fix, None), made_at, progress)
}

/// [`plan_from_profile_watched`] of a profile whose weights are streamed from a file, within a budget of memory: which of them stay is chosen
/// together with drafters and shapes, and the plan is for that.
///
/// # Errors
/// As [`plan_from_profile`], and for a budget that is too small, needs no streaming, or that the profile says nothing of.
pub fn plan_within_memory(
    profile: &Profile,
    fix: &Fix,
    budget: MemoryBudget,
    made_at: UnixTime,
    progress: &mut dyn FnMut(Progress),
) -> Result<Plan, Error> {
    plan(profile, (fix, Some(budget)), made_at, progress)
}

fn plan(
    profile: &Profile,
    (fix, budget): (&Fix, Option<MemoryBudget>),
    made_at: UnixTime,
    progress: &mut dyn FnMut(Progress),
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
    let mut searched = |done, total| progress(Progress { what: "drafters", done, total });
    let free = &mut free.collect::<Vec<_>>();
    let plan = match budget {
        None => make_plan_watched(profile, free, fix, made_at, threads, &mut searched),
        Some(budget) => make_plan_within(profile, free, (fix, budget), made_at, threads, &mut searched),
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
