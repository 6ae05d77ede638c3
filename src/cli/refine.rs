//! `yggc plan refine`: measures longer than a first use did, and keeps the better plan for the next start.

use std::{sync::Arc, time::Duration};

use ygg_profiler::UnixTime;
use yggc::{
    engine::Loaded,
    measure::{self, ProfileOptions},
    planner::plan_first,
};

use crate::cli::{
    args::PlanRefineArgs,
    cache::CachePlace,
    error::Failure,
    fetch, loading, output,
    planning::{advance, budget_to_divide, load_options, memory_left, place},
    progress,
    settings::Machine,
};

/// Runs `yggc plan refine`.
pub(crate) fn command(args: &PlanRefineArgs, cache: &CachePlace) -> Result<(), Failure> {
    let machine = Machine::new(&args.device)?.within_memory(args.memory, args.context)?;
    let model = loading::open(&fetch::resolve(args.model.model.as_deref(), cache)?, cache)?;
    let draft_model = fetch::resolve_drafter(args.draft_model.as_deref(), cache)?;
    let (machine, divided) = machine.divided(&model, true)?;
    let place = place(&model, draft_model.as_deref(), (machine, divided), &cache.dir()?)?;
    let mut waiting = None;
    let locked =
        place.lock(|| waiting = Some(progress::waiting("waiting for another yggc that is making a plan")))?;
    drop(waiting);
    let budget = args.budget.map(|seconds| Duration::from_secs(u64::try_from(seconds).unwrap_or(u64::MAX)));
    let loaded = Arc::new(Loaded::new(model, &load_options(machine, ProfileOptions::WIDTHS.to_vec()))?);
    let options = ProfileOptions {
        draft_models: draft_model.into_iter().collect(),
        memory_limit: memory_left(&loaded, divided),
        ..ProfileOptions::of_refinement(&loaded, budget, divided.map(|(_, division)| division))
    };
    let bar = progress::parts();
    let profile = measure::profile(&loaded, &options, &mut |step| advance(&bar, step));
    bar.finish_and_clear();
    let profile = profile?;
    let plan = plan_first(&profile, budget_to_divide(divided), UnixTime::now())?;
    locked.store_refined(&profile, &plan)?;
    output::text(format_args!("{}: refined; the next start uses it\n", place.path().display()))
}
