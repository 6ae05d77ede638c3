//! `yggc profile`: measures this machine and the drafters on it, and writes what it measured.

use std::time::Duration;

use yggc::{
    engine::Loaded,
    measure::{self, ProfileOptions},
    model::Model,
};

use crate::cli::{
    args::ProfileArgs,
    cache::CachePlace,
    error::Failure,
    fetch, output,
    planning::{advance, load_options},
    progress::Progress,
    settings::{self, Machine},
};

/// Runs `yggc profile`.
pub(crate) fn command(args: &ProfileArgs, cache: &CachePlace) -> Result<(), Failure> {
    settings::output_file(&args.output)?;
    let machine = Machine::new(&args.device)?;
    let budget = Duration::from_secs(u64::try_from(args.budget).unwrap_or(u64::MAX));
    let mut options = ProfileOptions::new(budget);
    options.drafters = args.drafters.iter().map(|drafter| drafter.name().to_owned()).collect();
    options.store.clone_from(&args.store);
    if let Some(file) = &args.prompts {
        options.prompts = measure::read_prompts(file)?;
        options.calibration = file.display().to_string();
    }
    let path = fetch::resolve(args.model.model.as_deref(), || cache.dir(), Progress::OnStderr)?;
    let widths = ProfileOptions::WIDTHS.to_vec();
    let loaded = Loaded::new(Model::open(&path)?, &load_options(machine, widths))?;
    let bar = Progress::OnStderr.parts();
    let profile = measure::profile(&loaded, &options, &mut |step| advance(&bar, step));
    bar.finish_and_clear();
    let profile = profile?;
    profile.write(&args.output)?;
    let findings = profile.table().map_err(ygg_profiler::ProfileError::from)?.findings().len();
    output::text(format_args!(
        "{}: {} cells measured on {}, {} requests recorded{}\n",
        args.output.display(),
        profile.measurements.len(),
        profile.fingerprints.machine,
        profile.token_traces.len(),
        if findings == 0 { String::new() } else { format!("; {findings} findings, see `yggc plan show`") }
    ))
}
