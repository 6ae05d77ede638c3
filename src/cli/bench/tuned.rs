//! `yggc bench --kernels --plan P`: every linear and every forward with the default tunings and with the plan's, in
//! turn.

use std::{fmt::Write, path::Path};

use serde::Serialize;
use yggc::{
    engine::Loaded,
    measure::{self, KernelOptions, Timing, TunedForward, TunedOp},
    plan::FittedPlan,
};

use crate::cli::{
    args::BenchArgs,
    cache::CachePlace,
    error::Failure,
    fetch, loading, output,
    planning::{advance, given, load_options},
    progress,
    settings::Machine,
};

use super::{kernels::widths, provenance::Provenance};

/// Committed tokens before the forwards; the time of linears does not depend on them.
const CONTEXT: usize = 200;

/// Runs `yggc bench --kernels --plan P`.
pub(super) fn command(args: &BenchArgs, file: &Path, cache: &CachePlace) -> Result<(), Failure> {
    let machine = Machine::new(&args.device)?;
    let source = given(file, args.force)?;
    let path = fetch::resolve(args.model.model.as_deref(), cache)?;
    let loaded = Loaded::new(loading::open(&path, cache)?, &load_options(machine, widths(args)))?;
    let here = loaded.fingerprints()?;
    let plan = if source.force {
        FittedPlan::forced(source.plan, &here)
    } else {
        FittedPlan::new(source.plan, &here).map_err(yggc::engine::Error::from)?
    };
    let defaults = KernelOptions::default();
    let repetitions = args.repetitions.unwrap_or(defaults.repetitions);
    let options = KernelOptions { repetitions, contexts: vec![CONTEXT], ..defaults };
    let bar = progress::parts();
    let forwards = measure::tuned_report(&loaded, &plan.tunings, &options, &mut |step| advance(&bar, step));
    bar.finish_and_clear();
    let forwards = forwards?;
    let provenance = Provenance::new(&loaded)?;
    if args.json {
        let plan = source.name;
        return output::json(&TunedJson { provenance, plan, repetitions, forwards: &forwards });
    }
    output::text(text(&provenance, repetitions, &forwards))
}

/// The object that `bench --kernels --plan P --json` prints.
#[derive(Debug, Serialize)]
struct TunedJson<'a> {
    #[serde(flatten)]
    provenance: Provenance,
    plan: String,
    repetitions: usize,
    forwards: &'a [TunedForward],
}

/// The comparison as tables.
fn text(provenance: &Provenance, repetitions: usize, forwards: &[TunedForward]) -> String {
    let times = |default: &Timing, tuned: &Timing, gain: f64| {
        [
            format!("{:.1}", default.median_us),
            format!("{:.2}", default.spread),
            format!("{:.1}", tuned.median_us),
            format!("{:.2}", tuned.spread),
            format!("{gain:.3}"),
        ]
    };
    let head = ["op", "kernel", "width", "default us", "spread", "tuned us", "spread", "gain", "tuning"];
    let mut rows = vec![head.map(str::to_owned)];
    for TunedForward { width, ops, .. } in forwards {
        for TunedOp { name, kernel, tuning, default, tuned, gain } in ops {
            let Some(tuning) = tuning else { continue };
            let [a, b, c, d, e] = times(default, tuned, *gain);
            rows.push([name.clone(), kernel.clone(), width.to_string(), a, b, c, d, e, tuning.clone()]);
        }
    }
    let mut out = if rows.len() == 1 {
        "the plan chooses the default for every linear\n".to_owned()
    } else {
        output::table(&rows)
    };
    out.push('\n');
    let head = ["forward", "default T(W) us", "spread", "tuned T(W) us", "spread", "gain"];
    let mut rows = vec![head.map(str::to_owned)];
    for TunedForward { width, context: _, default, tuned, gain, ops: _ } in forwards {
        let [a, b, c, d, e] = times(default, tuned, *gain);
        rows.push([format!("width {width}"), a, b, c, d, e]);
    }
    out.push_str(&output::table(&rows));
    writeln!(
        out,
        "\nmedians; of ops one call, of each forward the median of its calls; gain: the median of default by tuned \
         time, round by round\n\
         spread: the middle half of the runs, by the median\n\
         {repetitions} repetitions, {CONTEXT} committed tokens, default and tuned in turn; {}",
        provenance.machine.facts
    )
    .expect("a string accepts every write");
    out
}
