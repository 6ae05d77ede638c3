//! From a profile to a plan: supplies the planner with the drafters it has to replay.

use std::{num::NonZero, thread};

use ygg_profiler::{Profile, UnixTime};

use crate::{
    engine::{Error, ErrorKind, Hint},
    plan::{DrafterKind, Plan},
    planner::{Fix, FreeDrafter, SearchError, make_plan_watched},
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
    Ok(make_plan_watched(profile, &mut free.collect::<Vec<_>>(), fix, made_at, threads, &mut searched)?)
}

impl From<SearchError> for Error {
    fn from(error: SearchError) -> Self {
        match error {
            SearchError::Plan(error) => error.into(),
            SearchError::NoEvidence { .. } => Self::of(ErrorKind::Input, Some(Hint::Recording), error),
            SearchError::Table(_)
            | SearchError::Profile(_)
            | SearchError::IncompleteTrace { .. }
            | SearchError::FixSyntax { .. }
            | SearchError::FixImpossible { .. } => Self::of(ErrorKind::Input, None, error),
        }
    }
}
