//! Profile and plan in one go, within a time budget: what the program does on first use.

use std::{path::PathBuf, time::Duration};

use ygg_profiler::{Profile, UnixTime, WeightMemory};

use crate::{
    engine::{Error, Loaded},
    plan::Plan,
    planner::{Fix, MemoryBudget},
    runtime::Pinning,
};

use super::{
    FirstDivision, Learners, ProfileOptions, Substitutes, plan_from_profile, plan_within_memory, profile,
};

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

/// A budget of memory, and how it is divided before anything is measured.
pub type Divided = (MemoryBudget, FirstDivision);

/// What an automatic plan may cost.
#[derive(Clone, Debug)]
pub struct AutoplanOptions {
    /// Drafter models to measure too.
    pub draft_models: Vec<PathBuf>,
    /// Time for measuring and recording; what [`budget`](Self::budget) says if `None`.
    pub budget: Option<Duration>,
    /// Whether worker threads are bound to processors.
    pub pinning: Pinning,
    /// Bytes that may be allocated for drafters; no limit if `None`.
    pub memory_limit: Option<usize>,
    /// The budget of memory that the plan divides, and the division of it that `loaded` was opened with.
    pub division: Option<Divided>,
    /// What says when the profile was measured and the plan made.
    pub clock: fn() -> UnixTime,
}

impl Default for AutoplanOptions {
    fn default() -> Self {
        Self {
            draft_models: Vec::new(),
            budget: None,
            pinning: Pinning::default(),
            memory_limit: None,
            division: None,
            clock: UnixTime::now,
        }
    }
}

/// Time for measuring and recording where none is given.
const BUDGET: Duration = Duration::from_secs(55);
/// Time for refining the plan of a first use, and the same where weights are streamed.
const REFINEMENT: Duration = Duration::from_secs(240);
const STREAMED_REFINEMENT: Duration = Duration::from_secs(600);
/// The context at which latencies are measured then: those of longer ones would take the time of recordings.
const STREAMED_CONTEXT: usize = 128;

impl AutoplanOptions {
    /// The same where weights are streamed: every forward takes a reading, and speculation pays most.
    pub(super) const STREAMED_BUDGET: Duration = Duration::from_secs(180);

    /// Time for measuring and recording `loaded`.
    pub fn budget(&self, loaded: &Loaded) -> Duration {
        let usual = if loaded.set().graph().streams() { Self::STREAMED_BUDGET } else { BUDGET };
        self.budget.unwrap_or(usual)
    }
}

/// Profiles `loaded`, which must have been opened with [`ProfileOptions::WIDTHS`], without trimmed heads and of drafters that learn with
/// mixtures alone, and plans from it. Where weights are streamed it spends the time on the closest substitute alone, for greedy requests.
///
/// # Errors
/// As [`profile`] and [`plan_from_profile`].
pub fn autoplan(
    loaded: &Loaded,
    options: &AutoplanOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<(Profile, Plan), Error> {
    // Trimmed heads and learners by themselves are left to profiles with more time: the cells of the heads would take a fourth of it.
    let mut profile_options = ProfileOptions {
        pinning: options.pinning,
        draft_models: options.draft_models.clone(),
        head_sizes: Vec::new(),
        learners: Learners::Mixtures,
        memory_limit: options.memory_limit,
        clock: options.clock,
        ..ProfileOptions::new(options.budget(loaded))
    };
    if loaded.set().graph().streams() {
        profile_options = of_streamed(profile_options, options.division);
        profile_options.temperatures = Vec::new();
        profile_options.contexts = vec![STREAMED_CONTEXT];
    }
    let profile = profile(loaded, &profile_options, progress)?;
    let plan = plan_first(&profile, options.division, (options.clock)())?;
    Ok((profile, plan))
}

/// What is measured when the plan of a first use is refined, within `budget` or the usual time.
pub fn refine_options(
    loaded: &Loaded,
    budget: Option<Duration>,
    division: Option<Divided>,
) -> ProfileOptions {
    if !loaded.set().graph().streams() {
        return ProfileOptions::new(budget.unwrap_or(REFINEMENT));
    }
    of_streamed(ProfileOptions::new(budget.unwrap_or(STREAMED_REFINEMENT)), division)
}

/// What is measured of a model whose weights are streamed, the substitute of the division or the closest alone: what learns from the verifier has
/// to decode all prompts by itself, and so have networks that choose depths to be trained on more steps than there is time for.
fn of_streamed(options: ProfileOptions, division: Option<Divided>) -> ProfileOptions {
    let substitutes = match division {
        Some((_, division)) => Substitutes::Of(division.substitute_bits()),
        None => Substitutes::Closest,
    };
    ProfileOptions { learners: Learners::None, predictors: false, substitutes, ..options }
}

/// The plan of a profile that was measured at a division of a budget of memory, if there is one: for the best division of it, as far as the
/// profile says what steps take at others.
///
/// # Errors
/// As [`plan_from_profile`].
pub fn plan_first(profile: &Profile, division: Option<Divided>, made_at: UnixTime) -> Result<Plan, Error> {
    let fix = Fix::default();
    match division {
        // Without a substitute nothing but the weights takes memory, and as many as fit are there.
        Some((budget, division)) if division.substitute_bits().is_some() => {
            // What a session takes was estimated, so the budget may hold all weights by a little after all.
            let of_all = |memory: &WeightMemory| {
                let whole = memory.splits.iter().find(|split| split.streamed_bytes == 0)?;
                Some(whole.resident_bytes + whole.staging_bytes + memory.session_bytes(budget.context))
            };
            let all = profile.memory.as_ref().and_then(of_all);
            let bytes = all.map_or(budget.bytes, |all| budget.bytes.min(all - 1));
            let within = MemoryBudget { bytes, ..budget };
            let mut plan = plan_within_memory(profile, &fix, within, made_at, &mut |_| {})?;
            if let Some(memory) = &mut plan.header.memory {
                memory.budget_bytes = Some(budget.bytes);
            }
            Ok(plan)
        }
        _ => plan_from_profile(profile, &fix, made_at),
    }
}
