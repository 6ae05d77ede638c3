//! `yggc plan refine`: measures longer than a first use did, and keeps the better plan for the next start.

use std::{sync::Arc, time::Duration};

use ygg_profiler::UnixTime;
use yggc::{
    engine::{DraftModel, Loaded},
    measure::{self, ProfileOptions, plan_from_profile},
    planner::Fix,
};

use crate::cli::{
    args::PlanRefineArgs,
    cache::CachePlace,
    error::Failure,
    fetch, loading, memory, output,
    plan_cache::CachedPlan,
    planning::{advance, load_options},
    progress,
    settings::Machine,
};

/// Runs `yggc plan refine`.
pub(crate) fn command(args: &PlanRefineArgs, cache: &CachePlace) -> Result<(), Failure> {
    let machine = Machine::new(&args.device)?;
    let model = loading::open(&fetch::resolve(args.model.model.as_deref(), cache)?, cache)?;
    let here = machine.fingerprints(&model)?;
    let draft_model = fetch::resolve_drafter(args.draft_model.as_deref(), cache)?;
    let digest =
        draft_model.as_deref().map(DraftModel::open).transpose()?.map(|d| d.fingerprint().to_string());
    let place = CachedPlan::new(&cache.dir()?, here, digest.as_deref());
    let mut waiting = None;
    let locked =
        place.lock(|| waiting = Some(progress::waiting("waiting for another yggc that is making a plan")))?;
    drop(waiting);
    let budget = Duration::from_secs(u64::try_from(args.budget).unwrap_or(u64::MAX));
    let loaded = Arc::new(Loaded::new(model, &load_options(machine, ProfileOptions::WIDTHS.to_vec()))?);
    let options = ProfileOptions {
        draft_models: draft_model.into_iter().collect(),
        memory_limit: memory::available(),
        ..ProfileOptions::new(budget)
    };
    let bar = progress::parts();
    let profile = measure::profile(&loaded, &options, &mut |step| advance(&bar, step));
    bar.finish_and_clear();
    let profile = profile?;
    let plan = plan_from_profile(&profile, &Fix::default(), UnixTime::now())?;
    locked.store_refined(&profile, &plan)?;
    output::text(format_args!("{}: refined; the next start uses it\n", place.path().display()))
}
