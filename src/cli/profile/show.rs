//! `yggc profile show`: a profile for people, and whole for programs.

use std::fmt::{self, Write};

use ygg_profiler::{
    DrafterDescription, DrafterFile, DrafterName, Finding, Fingerprints, LatencyTable, LiveTrace, Profile,
    Swing, Trace,
};
use yggc::measure::profile_file;

use super::{table, temperatures};
use crate::cli::{args::ProfileShowArgs, error::Failure, output};

/// Runs `yggc profile show`.
pub(super) fn command(args: &ProfileShowArgs) -> Result<(), Failure> {
    let profile = profile_file::read(&args.file)?;
    if args.json {
        return output::json(&profile);
    }
    let mut text = String::new();
    write_text(&profile, &table(&profile)?, &mut text).expect("a string accepts every write");
    output::text(text)
}

fn write_text(profile: &Profile, table: &LatencyTable, out: &mut String) -> fmt::Result {
    let Fingerprints { machine, model, build } = &profile.fingerprints;
    let findings = table.findings();
    let noisy = findings.iter().filter(|finding| matches!(finding, Finding::Noisy { .. })).count();
    writeln!(out, "machine      {machine}")?;
    writeln!(out, "model        {} ({})", model.name, model.digest)?;
    writeln!(out, "build        plan format {}, kernels {}", build.plan_format, build.kernels)?;
    writeln!(out, "made by      {}, calibration {}", profile.created_by, profile.calibration)?;
    writeln!(
        out,
        "measured     {} cells, {noisy} of them noisy; {} linears under several tunings",
        profile.measurements.len(),
        profile.tunings.len()
    )?;
    if !profile.visits.is_empty() {
        let Swing { visits, deviation, independent: _ } = profile.swing(u32::MAX);
        writeln!(
            out,
            "visited      {visits} times while it was recorded: the cost of several rows relative to one changed by \
             {:.0} % (standard deviation, at most)",
            100.0 * deviation
        )?;
    }
    let tokens: usize = profile.token_traces.iter().map(|request| request.output.len()).sum();
    writeln!(
        out,
        "recorded     {} requests at {}, {tokens} tokens answered",
        profile.token_traces.len(),
        temperatures(profile)
    )?;
    for DrafterDescription { name, file, .. } in &profile.drafters {
        if let Some(DrafterFile { path, digest }) = file {
            writeln!(out, "file         {path} ({digest}), of {name}")?;
        }
    }
    for predictor in &profile.predictors {
        writeln!(out, "predictor    of {}, trained on {} steps", predictor.drafter, predictor.report.steps)?;
    }
    writeln!(
        out,
        "\ndrafters (one without steps is replayed along the recorded requests, or on the steps of the drafter that \
         it starts as)"
    )?;
    out.push_str(&output::table(&drafter_rows(profile)));
    if !findings.is_empty() {
        writeln!(out, "\nfindings in the latency table")?;
    }
    findings.iter().try_for_each(|finding| writeln!(out, "  {finding}"))
}

/// Columns of the table of drafters.
const COLUMNS: usize = 7;

/// A row for every recording of a drafter, one row for a drafter without any.
fn drafter_rows(profile: &Profile) -> Vec<[String; COLUMNS]> {
    let head = ["drafter", "kind", "cells", "temperature", "shape", "prompts", "steps"].map(str::to_owned);
    let of_drafter = |DrafterDescription { name, kind, parameters: _, file: _ }: &DrafterDescription| {
        let of_drafter = |other: Option<&DrafterName>| other == Some(name);
        let cells = profile.measurements.iter().filter(|m| of_drafter(m.cell.stage.drafter())).count();
        let trees = profile.traces.iter().filter(|trace| of_drafter(Some(&trace.drafter))).map(tree_row);
        let live = profile.live_traces.iter().filter(|trace| of_drafter(Some(&trace.drafter))).map(live_row);
        let mut recordings: Vec<_> = trees.chain(live).collect();
        if recordings.is_empty() {
            recordings.push(["", "", "", ""].map(str::to_owned));
        }
        let rows = recordings.into_iter().map(|[temperature, shape, prompts, steps]| {
            [name.to_string(), kind.clone(), cells.to_string(), temperature, shape, prompts, steps]
        });
        rows.collect::<Vec<_>>()
    };
    std::iter::once(head).chain(profile.drafters.iter().flat_map(of_drafter)).collect()
}

fn tree_row(trace: &Trace) -> [String; 4] {
    let shape = format!("Dd {}, Wd {}", trace.depth, trace.width);
    let [prompts, steps] = [trace.prompts.len(), trace.steps().count()].map(|count| count.to_string());
    [trace.temperature.to_string(), shape, prompts, steps]
}

fn live_row(trace: &LiveTrace) -> [String; 4] {
    let shape = format!("Dd {}, Wd {}, Wv {}", trace.depth, trace.width, trace.nodes);
    let [prompts, steps] = [trace.prompts.len(), trace.steps().count()].map(|count| count.to_string());
    [trace.temperature.to_string(), shape, prompts, steps]
}
