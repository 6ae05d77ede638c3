//! Profile and plan in one go, within a time budget: what the program does on first use.

use std::{path::PathBuf, time::Duration};

use ygg_profiler::{Profile, UnixTime};

use crate::{
    engine::{Error, Loaded},
    plan::Plan,
    planner::Fix,
    runtime::Pinning,
};

use super::{Learners, ProfileOptions, Substitutes, plan_from_profile, profile};

/// How far a profile is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What is being done.
    pub what: &'static str,
    /// Parts done of it.
    pub done: usize,
    /// Parts in all.
    pub total: usize,
}

/// What an automatic plan may cost.
#[derive(Clone, Debug)]
pub struct AutoplanOptions {
    /// Drafter models to measure too.
    pub draft_models: Vec<PathBuf>,
    /// Time for measuring and recording.
    pub budget: Duration,
    /// Whether worker threads are bound to processors.
    pub pinning: Pinning,
    /// Bytes that may be allocated for drafters; no limit if `None`.
    pub memory_limit: Option<usize>,
    /// What says when the profile was measured and the plan made.
    pub clock: fn() -> UnixTime,
}

impl Default for AutoplanOptions {
    fn default() -> Self {
        Self {
            draft_models: Vec::new(),
            budget: Duration::from_secs(55),
            pinning: Pinning::default(),
            memory_limit: None,
            clock: UnixTime::now,
        }
    }
}

/// Profiles `loaded`, which must have been opened with [`ProfileOptions::WIDTHS`], without trimmed heads, with the closest substitute
/// alone where weights are streamed, and of drafters that learn with mixtures alone, and plans from it.
///
/// # Errors
/// As [`profile`] and [`plan_from_profile`].
pub fn autoplan(
    loaded: &Loaded,
    options: &AutoplanOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<(Profile, Plan), Error> {
    // Trimmed heads and learners by themselves are left to profiles with more time: the cells of the heads would take a fourth of it.
    let profile_options = ProfileOptions {
        pinning: options.pinning,
        draft_models: options.draft_models.clone(),
        head_sizes: Vec::new(),
        learners: Learners::Mixtures,
        substitutes: Substitutes::Closest,
        memory_limit: options.memory_limit,
        clock: options.clock,
        ..ProfileOptions::new(options.budget)
    };
    let profile = profile(loaded, &profile_options, progress)?;
    let plan = plan_from_profile(&profile, &Fix::default(), (options.clock)())?;
    Ok((profile, plan))
}
