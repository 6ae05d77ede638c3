//! `yggc verify`: proves on this machine that speculation changes no answer; prints one line per property.

use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use serde::Serialize;
use yggc::{
    engine::{DEFAULT_CONTEXT, Loaded, Options},
    measure::{calibration_prompts, read_prompts},
    verify::{self, Extent, Property, Verdict, Verification, VerifyOptions},
};

use crate::cli::{
    args::{PropertyName, VerifyArgs},
    cache::CachePlace,
    contents::{Compared, Remembered},
    error::Failure,
    fetch, loading, output,
    planning::{self, Prepared},
    progress,
    settings::{self, Machine},
};

/// Widths to verify without a plan.
const UNPLANNED_WIDTHS: [usize; 4] = [2, 4, 8, 16];

/// The object that `verify --json` prints; its fields are a contract.
#[derive(Debug, Serialize)]
struct VerificationJson<'a> {
    holds: bool,
    quick: bool,
    model: String,
    kernels: String,
    threads: usize,
    widths: &'a [usize],
    plan: Option<&'a str>,
    properties: Vec<PropertyJson<'a>>,
}

#[derive(Debug, Serialize)]
struct PropertyJson<'a> {
    name: &'static str,
    /// `null` if the property could not be checked.
    holds: Option<bool>,
    said: &'a str,
    seconds: f64,
}

impl<'a> PropertyJson<'a> {
    fn new(property: &'a Property) -> Self {
        let Property { name, verdict, said, seconds } = property;
        let holds = match verdict {
            Verdict::Holds => Some(true),
            Verdict::Broken => Some(false),
            Verdict::NotChecked => None,
        };
        Self { name, holds, said, seconds: *seconds }
    }
}

/// Runs `yggc verify`.
pub(crate) fn command(args: &VerifyArgs, cache: &CachePlace) -> Result<(), Failure> {
    let machine = Machine::new(&args.device)?;
    let given = args.plan.as_deref().map(|file| planning::given(file, false)).transpose()?;
    let machine = machine.within(&given);
    let planned = given.as_ref().and_then(|source| source.plan.header.memory.as_ref());
    let context = planned.map_or(DEFAULT_CONTEXT, |memory| (memory.context as usize).min(DEFAULT_CONTEXT));
    let prompts = args.prompts.as_deref().map_or_else(|| Ok(calibration_prompts()), read_prompts)?;
    let path = fetch::resolve(args.model.model.as_deref(), cache)?;
    let mut draft_model = fetch::resolve_drafter(args.draft_model.as_deref(), cache)?;
    let model = loading::open(&path, cache)?;
    let remembered = Remembered::new(&model, cache);
    // Reads the free memory, so it must come before the weights are loaded.
    let engine = machine.options(&path, Some(context));
    let (prepared, plan) = match given {
        Some(plan) => (Prepared::Open(Box::new(model)), Ok(plan)),
        None => {
            let (prepared, plan) = planning::first_use(model, draft_model.as_deref(), machine, cache)?;
            if let Ok(source) = &plan {
                planning::leave_out_unmeasured(&mut draft_model, &source.plan);
            }
            (prepared, plan)
        }
    };
    let widths =
        plan.as_ref().map_or_else(|_| UNPLANNED_WIDTHS.to_vec(), |source| source.plan.planned.widths());
    let loaded = prepared.loaded(machine, cache, widths)?;
    let (plan, plan_absent_reason) = match plan {
        Ok(plan) => (Some(plan), None),
        Err(reason) => (None, Some(reason)),
    };
    let engine =
        Options { plan, plan_absent_reason, store: settings::store(&args.store)?, draft_model, ..engine };
    let extent = if args.quick { Extent::Quick } else { Extent::Thorough };
    let asks_for = |name: PropertyName| args.only.is_empty() || args.only.contains(&name);
    let only = (!args.only.is_empty()).then(|| args.only.iter().map(|name| name.0).collect());
    let options = VerifyOptions { engine, prompts, extent, only };
    output::remark(format_args!(
        "verifying takes {} minutes at most, unless one case of every kind takes longer",
        extent.longest().as_secs().div_ceil(60)
    ));
    let contents = asks_for(PropertyName::MODEL).then(|| contents(remembered.as_ref())).transpose()?;
    let mut printed = match &contents {
        Some(contents) if !args.json => output::text(line(contents)),
        _ => Ok(()),
    };
    let bar = progress::parts();
    let mut verification = verify::verify(&loaded, &options, &mut |progress| match progress {
        verify::Progress::Checking { what, done, total, left } => advance(&bar, what, (done, total), left),
        verify::Progress::Checked(property) if !args.json && printed.is_ok() => {
            printed = bar.suspend(|| output::text(line(property)));
        }
        verify::Progress::Checked(_) => {}
    })?;
    bar.finish_and_clear();
    verification.properties.splice(0..0, contents);
    printed?;
    if args.json {
        output::json(&json(&verification, &loaded, &options))?;
    }
    result(&verification)
}

/// Whether the model holds what it held when it was first opened, as a property.
#[expect(clippy::disallowed_methods, reason = "how long it takes is reported")]
fn contents(model: Option<&Remembered>) -> Result<Property, Failure> {
    let start = Instant::now();
    let (verdict, said) = match model.map(Remembered::compare).transpose() {
        Err(Failure::Cache(error)) => (Verdict::NotChecked, error.to_string()),
        Err(error) => return Err(error),
        Ok(Some(Compared::Same(tensors))) => {
            (Verdict::Holds, format!("{tensors} tensors are as published or first opened"))
        }
        Ok(Some(Compared::Differs(how))) => (Verdict::Broken, how),
        Ok(Some(Compared::First(tensors))) => (
            Verdict::NotChecked,
            format!("no earlier state is known; {tensors} tensors are remembered from now on"),
        ),
        Ok(None) => (Verdict::NotChecked, "there is no cache folder to remember the model in".to_owned()),
    };
    Ok(Property { name: PropertyName::MODEL.0, verdict, said, seconds: start.elapsed().as_secs_f64() })
}

fn advance(bar: &ProgressBar, what: &'static str, (done, total): (usize, usize), left: Duration) {
    bar.set_length(total as u64);
    bar.set_position(done as u64);
    bar.set_message(format!("verifying {what}, at most {} left", clock(left)));
}

/// Minutes and seconds.
fn clock(span: Duration) -> String {
    format!("{}:{:02}", span.as_secs() / 60, span.as_secs() % 60)
}

/// A property on one line.
fn line(property: &Property) -> String {
    let Property { name, verdict, said, seconds } = property;
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    format!("{:<11}  {name:<15}  {seconds:>6.1} s  {said}\n", verdict.name())
}

fn json<'a>(
    verification: &'a Verification,
    loaded: &'a Loaded,
    options: &'a VerifyOptions,
) -> VerificationJson<'a> {
    VerificationJson {
        holds: verification.holds(),
        quick: options.extent == Extent::Quick,
        model: loaded.model().config.name.clone(),
        kernels: loaded.tier().to_string(),
        threads: loaded.threads(),
        widths: loaded.set().widths(),
        plan: options.engine.plan.as_ref().map(|source| source.name.as_str()),
        properties: verification.properties.iter().map(PropertyJson::new).collect(),
    }
}

/// # Errors
/// [`Failure::Broken`] names the properties that do not hold.
fn result(verification: &Verification) -> Result<(), Failure> {
    let unchecked = verification.properties.iter().filter(|property| property.verdict == Verdict::NotChecked);
    let unchecked: Vec<&str> = unchecked.map(|property| property.name).collect();
    if !unchecked.is_empty() {
        output::remark(format_args!("not checked, and so not proven: {}", unchecked.join(", ")));
    }
    let broken: Vec<&str> = verification.broken().map(|property| property.name).collect();
    if broken.is_empty() {
        return Ok(());
    }
    let advice = if broken == ["model"] {
        "the model is not what it was, so its answers are not; see what was printed"
    } else if broken == ["plan"] {
        "answers are exact all the same; make a plan here with `yggc profile` and `yggc plan`"
    } else {
        "answers with speculation may differ from plain decoding's here; decode with --no-spec, and report this with \
         what was printed"
    };
    Err(Failure::Broken(format!(
        "{} of {} properties do not hold ({}): {advice}",
        broken.len(),
        verification.properties.len(),
        broken.join(", ")
    )))
}
