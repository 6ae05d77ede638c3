//! `yggc plan`: makes a plan from a profile; shows, explains and compares plans.

use std::path::Path;

use ygg_profiler::{Profile, UnixTime};
use yggc::{
    measure::{Progress, profile_file},
    model::Model,
    plan::{self, DEFAULT_CONTEXT, PLAN_FORMAT},
    planner::{MemoryBudget, plan_from_profile_watched, plan_within_memory, report},
};

use crate::cli::{
    args::{PlanArgs, PlanCommand, PlanDiffArgs, PlanExplainArgs, PlanSearchArgs, PlanShowArgs},
    cache::CachePlace,
    error::Failure,
    fetch, output, progress, refine, report as html_report, settings,
};

/// Runs `yggc plan`.
pub(crate) fn command(args: &PlanArgs, cache: &CachePlace) -> Result<(), Failure> {
    match (&args.command, &args.search) {
        (Some(PlanCommand::Show(show)), _) => show_plan(show),
        (Some(PlanCommand::Explain(explain)), _) => explain_plan(explain),
        (Some(PlanCommand::Diff(diff)), _) => diff_plans(diff),
        (Some(PlanCommand::Refine(refine)), _) => refine::command(refine, cache),
        (None, Some(search)) => search_plan(search, cache),
        (None, None) => unreachable!("the command line needs one of them"),
    }
}

fn show_plan(args: &PlanShowArgs) -> Result<(), Failure> {
    let plan = plan::read(&args.file)?;
    if args.json {
        output::json(&report::json(&plan))
    } else {
        output::text(report::text(&plan, UnixTime::now()))
    }
}

fn explain_plan(args: &PlanExplainArgs) -> Result<(), Failure> {
    let plan = plan::read(&args.file)?;
    if let Some(file) = &args.html {
        html_report::write(&plan, args.temperature, file)?;
        return output::text(format_args!("{}\n", file.display()));
    }
    let explanation = report::explain_at(&plan, args.temperature);
    if args.json {
        output::json(&explanation)
    } else {
        output::text(report::explain::text(&plan, &explanation))
    }
}

fn diff_plans(args: &PlanDiffArgs) -> Result<(), Failure> {
    let diff = report::diff(&plan::read(&args.a)?, &plan::read(&args.b)?);
    if args.json { output::json(&diff) } else { output::text(report::diff::text(&diff)) }
}

/// Points the profile's drafters to the present path of their store.
fn store_at(profile: &mut Profile, store: &Path) {
    let drafters = profile.drafters.iter_mut().filter(|drafter| drafter.kind != "model");
    for file in drafters.filter_map(|drafter| drafter.file.as_mut()) {
        file.path = store.display().to_string();
    }
}

fn search_plan(args: &PlanSearchArgs, cache: &CachePlace) -> Result<(), Failure> {
    settings::output_file(&args.output)?;
    let mut profile = profile_file::read(&args.profile)?;
    if let Some(store) = &args.store {
        store_at(&mut profile, store);
    }
    let name = args.profile.display();
    let format = profile.fingerprints.build.plan_format;
    if format != PLAN_FORMAT {
        return Err(Failure::Input(format!(
            "the profile `{name}` is for plans of format {format}, expected {PLAN_FORMAT}; measure again with `yggc \
             profile`"
        )));
    }
    if args.model.is_some() {
        let path = fetch::resolve(args.model.as_deref(), cache)?;
        let model = Model::open(&path)?;
        let (expected, found) = (model.fingerprint().to_string(), &profile.fingerprints.model);
        if expected != found.digest {
            return Err(Failure::Input(format!(
                "the profile `{name}` is of another model: expected {} ({expected}), found {} ({}); measure this model \
                 with `yggc profile -m {}`",
                model.config.name,
                found.name,
                found.digest,
                path.display()
            )));
        }
    }
    let bar = progress::parts();
    let advance =
        &mut |done, total| progress::advance(&bar, "searching", Progress { what: "drafters", done, total });
    let (made_at, fix) = (UnixTime::now(), args.fix.clone().unwrap_or_default());
    let made = match args.memory {
        None => plan_from_profile_watched(&profile, &fix, made_at, advance),
        Some(bytes) => {
            let most = profile.memory.as_ref().map_or(u32::MAX, |memory| memory.model_context);
            let context =
                args.context.map_or(DEFAULT_CONTEXT, |context| u32::try_from(context).unwrap_or(u32::MAX));
            let budget = MemoryBudget { bytes, context: context.min(most) };
            plan_within_memory(&profile, &fix, budget, made_at, advance)
        }
    };
    bar.finish_and_clear();
    let plan = made?;
    plan::write(&plan, &args.output)?;
    output::text(report::text(&plan, made_at))
}
