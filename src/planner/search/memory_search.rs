//! Within a budget of memory: which weights stay, the bits of the substitute, and the trees, chosen together.
//!
//! A matrix in memory saves its reading, once a step. It takes memory from the substitute, and time from every draft,
//! as it has more bits than its substitute. So neither as many as fit nor as few as possible are best of all: for every
//! number of bits, all splits that fit are priced with all shapes whose acceptance was recorded ([`best_divisions`]),
//! at steps of the plain schedule that verify all their rows. The best split of each is then planned in full.
//! Acceptance is that of the recorded split, as a substitute of other matrices was not recorded.
use std::num::NonZero;

use ygg_profiler::{Profile, UnixTime};

use crate::plan::{ContextRange, Division, Plan};
use crate::planner::{
    Fix, FreeDrafter, SearchError,
    price::splits::SplitPrices,
    search::{
        divisions::{MemoryBudget, best_divisions, substitute_bytes},
        make_plan::make_plan_watched,
    },
};

/// Makes the plan of a profile whose weights are streamed within a budget of memory, as [`make_plan_watched`] does for
/// the division of memory that was measured. Times at other divisions are derived from the measured ones; the plan says
/// which division it is for ([`Header::memory`](crate::plan::Header::memory)), and is bound to it.
///
/// # Errors
/// [`SearchError::Budget`] and [`SearchError::Fits`] for a budget that is too small, or needs no streaming,
/// [`SearchError::Division`] for a profile from which other divisions cannot be priced; else as `make_plan_watched`.
///
/// # Panics
/// As `make_plan_watched`.
pub fn make_plan_within(
    profile: &Profile,
    free_drafters: &mut [FreeDrafter<'_>],
    (fix, budget): (&Fix, MemoryBudget),
    made_at: UnixTime,
    threads: NonZero<usize>,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Plan, SearchError> {
    profile.validate()?;
    let prices = SplitPrices::new(profile)?;
    let candidates = best_divisions(&prices, budget, fix)?;
    let temperatures = profile.temperatures();
    let (mut best, mut refused): (Option<Plan>, Option<SearchError>) = (None, None);
    let mut divisions = Vec::new();
    for (place, candidate) in candidates.iter().enumerate() {
        let own = prices.profile_at(candidate.split, candidate.bits)?;
        let mut advance = |done, all| progress(place * all + done, candidates.len() * all);
        let plan = match make_plan_watched(&own, free_drafters, fix, made_at, threads, &mut advance) {
            Ok(plan) => plan,
            // The fix may be about the substitute.
            Err(error @ (SearchError::FixImpossible { .. } | SearchError::NoEvidence { .. })) => {
                refused.get_or_insert(error);
                continue;
            }
            Err(other) => return Err(other),
        };
        let split = &prices.memory.splits[candidate.split];
        divisions.push(Division {
            substitute_bits: candidate.bits,
            resident_bytes: split.resident_bytes,
            substitute_bytes: substitute_bytes(split, candidate.bits),
            tpot_us: expected_us(&plan, &temperatures),
        });
        let expected_us = |plan: &Plan| expected_us(plan, &temperatures);
        if best.as_ref().is_none_or(|best| expected_us(&plan) < expected_us(best)) {
            best = Some(plan);
        }
    }
    let Some(mut plan) = best else { return Err(refused.expect("a plan or a refusal of each candidate")) };
    let memory = plan.header.memory.as_mut().expect("the profile has it");
    memory.budget_bytes = Some(budget.bytes);
    memory.context = budget.context;
    memory.session_bytes = prices.memory.session_bytes(budget.context);
    memory.divisions = divisions;
    plan.validate()?;
    Ok(plan)
}

/// Time of a token to expect on other prompts, as the mean of requests of these temperatures, or of greedy ones where
/// there are none.
fn expected_us(plan: &Plan, temperatures: &[f32]) -> f64 {
    let temperatures = if temperatures.is_empty() { &[0.0] } else { temperatures };
    let expected_us = |temperature: &f32| {
        let ContextRange { predicted, unseen, .. } = plan.band_for(*temperature).chosen().first();
        predicted.ar_tpot_us / unseen.speedup
    };
    temperatures.iter().map(expected_us).sum::<f64>() / temperatures.len() as f64
}
