//! `yggc profile`: measures this machine and the drafters on it, and writes a profile; shows one.

use std::{fmt, path::Path, time::Duration};

use ygg_profiler::{LatencyTable, Profile, ProfileError};
use yggc::{
    engine::{DraftModel, Loaded},
    measure::{
        self, ProfileOptions, RemeasureOptions,
        profile_file::{self, ProfileFileError},
    },
    model::Model,
    runtime::Pinning,
};

use crate::cli::{
    args::{ProfileArgs, ProfileCommand},
    cache::CachePlace,
    error::Failure,
    fetch::{self, FetchError},
    loading, output,
    planning::{advance, load_options},
    progress,
    settings::{self, Machine},
};

mod show;

/// Runs `yggc profile`.
pub(crate) fn command(args: &ProfileArgs, cache: &CachePlace) -> Result<(), Failure> {
    match (&args.command, &args.output) {
        (Some(ProfileCommand::Show(show)), _) => show::command(show),
        (None, Some(output)) => measure(args, output, cache),
        (None, None) => unreachable!("the command line needs one of them"),
    }
}

fn measure(args: &ProfileArgs, output: &Path, cache: &CachePlace) -> Result<(), Failure> {
    settings::output_file(output)?;
    let machine = Machine::new(&args.device)?;
    let budget = Duration::from_secs(u64::try_from(args.budget).unwrap_or(u64::MAX));
    let open = || -> Result<Model, Failure> {
        let path = fetch::resolve(args.model.model.as_deref(), cache)?;
        Ok(loading::open(&path, cache)?)
    };
    let load = |model| Loaded::new(model, &load_options(machine, ProfileOptions::WIDTHS.to_vec()));
    let draft_models = args.draft_models.iter().map(|typed| {
        let path = fetch::resolve_drafter(Some(typed), cache)?;
        Ok(path.expect("one was named"))
    });
    let draft_models = draft_models.collect::<Result<Vec<_>, FetchError>>()?;
    if let Some(file) = &args.again {
        let mut profile = profile_file::read(file)?;
        draft_models.iter().try_for_each(|path| draft_model_at(&mut profile, path))?;
        let cells = args.cells.clone();
        let options =
            RemeasureOptions { cells, budget, pinning: Pinning::default(), is_rehearsal: args.rehearsal };
        let loaded = load(open()?)?;
        let bar = progress::parts();
        let again = measure::remeasure(&loaded, profile, &options, &mut |step| advance(&bar, step));
        bar.finish_and_clear();
        let (profile, measured) = again?;
        profile_file::write(&profile, output)?;
        return report(output, &profile, format_args!("{measured} cells measured again"));
    }
    let mut options = ProfileOptions::new(budget);
    options.drafters = args.drafters.iter().map(|drafter| drafter.name().to_owned()).collect();
    options.store.clone_from(&args.store);
    options.is_rehearsal = args.rehearsal;
    if !args.contexts.is_empty() {
        options.contexts.clone_from(&args.contexts);
    }
    if let Some(file) = &args.prompts {
        options.prompts = measure::read_prompts(file)?;
        options.calibration = file.display().to_string();
    }
    let model = open()?;
    options.draft_models = draft_models;
    let loaded = load(model)?;
    options.memory_limit = yggc::storage::free_memory();
    let bar = progress::parts();
    let profile = measure::profile(&loaded, &options, &mut |step| advance(&bar, step));
    bar.finish_and_clear();
    let profile = profile?;
    profile_file::write(&profile, output)?;
    let done = format_args!("{} cells measured", profile.measurements.len());
    report(output, &profile, done)
}

/// Points the profile's drafter model to `path`, where it is now.
fn draft_model_at(profile: &mut Profile, path: &Path) -> Result<(), Failure> {
    let now = DraftModel::open(path)?.file()?;
    let files = profile.drafters.iter_mut().filter_map(|drafter| drafter.file.as_mut());
    let mut same = files.filter(|file| file.digest == now.digest).peekable();
    if same.peek().is_none() {
        return Err(Failure::Input(format!(
            "the profile measured no drafter model like `{}`: expected one of fingerprint {}, found none; leave \
             --again out to measure it",
            path.display(),
            now.digest
        )));
    }
    same.for_each(|file| file.path.clone_from(&now.path));
    Ok(())
}

/// Prints a summary of the profile.
fn report(file: &Path, profile: &Profile, done: fmt::Arguments<'_>) -> Result<(), Failure> {
    let findings = table(profile)?.findings().len();
    let lacking: Vec<_> = profile.without_latencies().into_iter().map(ToString::to_string).collect();
    output::text(format_args!(
        "{}: {done} on {}, {} requests recorded at {}{}{}\n",
        file.display(),
        profile.fingerprints.machine,
        profile.token_traces.len(),
        temperatures(profile),
        if findings == 0 { String::new() } else { format!("; {findings} findings, see `yggc profile show`") },
        match &lacking[..] {
            [] => String::new(),
            _ => format!(
                "; no time was left for the latencies of {}, which no plan can use: a new profile with a larger \
                 --budget has them",
                lacking.join(", ")
            ),
        }
    ))
}

/// The temperatures of what was recorded, in words, with the requests of each.
fn temperatures(profile: &Profile) -> String {
    let requests = |temperature: f32| {
        profile.token_traces.iter().filter(|request| request.temperature == temperature).count()
    };
    match &profile.temperatures()[..] {
        [] | [_] => "temperature 0 alone".to_owned(),
        several => {
            let each = |temperature: &f32| format!("{temperature} ({})", requests(*temperature));
            format!("temperatures {}", several.iter().map(each).collect::<Vec<_>>().join(", "))
        }
    }
}

fn table(profile: &Profile) -> Result<LatencyTable, Failure> {
    Ok(profile.table().map_err(|error| ProfileFileError::from(ProfileError::from(error)))?)
}
