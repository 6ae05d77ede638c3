//! A plan on one screen for people, and whole for programs.
use std::{
    ffi::OsStr,
    fmt::{self, Write},
    path::Path,
};

use serde_json::{Value, json as value};
use ygg_profiler::{BuildFingerprint, DrafterFile, Fingerprints, MachineFingerprint, UnixTime};

use super::{
    explain::drafters::{Outcome, outcome},
    layout::{COLUMNS, LABEL, cut, write_facts},
    step_chart::write_memory_facts,
    verdict::{NoisyCells, noisy_cells},
    words::{describe_model, describe_shape, shape_cells, words},
};
use crate::plan::{Band, ContextRange, DepthRule, Header, LeftOut, Plan, RowRule, Schedule, SubPlan, Unseen};

/// Digits that are shown of a digest.
const DIGEST: usize = 12;

/// Lines of a screen, and the fewest of what other drafters lost by where all else takes more.
const LINES: usize = 24;
const FEWEST_LOSERS: usize = 3;

/// The plan on one screen: what is chosen, what that promises, what every other drafter lost by, and what all of it
/// rests on. Ages are told as of `now`. Lines have at most 100 columns; [`explain`](super::explain::text) has the
/// whole.
///
/// # Panics
/// If the plan is not valid.
pub fn text(plan: &Plan, now: UnixTime) -> String {
    let mut out = String::new();
    write_text(plan, now, &mut out).expect("a string accepts every write");
    out
}

/// The plan as JSON: its fields, the alternatives spelled out, with the chosen sub-plan and the findings of the table
/// as well them. Of a depth network its sizes stand for its weights, which are for programs of this build alone.
pub fn json(plan: &Plan) -> Value {
    let findings: Vec<String> = plan.table.findings().iter().map(ToString::to_string).collect();
    let mut out = value!({ "chosen": plan.bands[0].chosen(), "findings": findings, "plan": plan });
    for (place, band) in plan.bands.iter().enumerate() {
        out["plan"]["bands"][place]["alternatives"] = value!(band.priced().collect::<Vec<_>>());
    }
    for (i, predictor) in plan.predictors.iter().enumerate() {
        if let Some(network) = &predictor.network {
            out["plan"]["predictors"][i]["network"] =
                value!({ "inputs": network.inputs(), "depths": network.depths });
        }
    }
    out
}

fn write_text(plan: &Plan, now: UnixTime, out: &mut String) -> fmt::Result {
    write_choice(out, plan)?;
    writeln!(out)?;
    write_promise(out, plan)?;
    write_memory_facts(out, plan.header.memory.as_ref())?;
    writeln!(out)?;
    let mut evidence = String::new();
    write_evidence(&mut evidence, plan, now)?;
    let taken = out.lines().count() + evidence.lines().count() + 1;
    write_losers(out, plan, LINES.saturating_sub(taken).max(FEWEST_LOSERS))?;
    out.push_str(&evidence);
    Ok(())
}

/// Drafter, shape, schedule and rules of the steps of greedy requests.
fn write_choice(out: &mut String, plan: &Plan) -> fmt::Result {
    let (chosen, fixed) = (plan.bands[0].chosen(), &plan.header.fixed);
    let facts = if chosen.is_plain() {
        vec!["plain decoding".to_owned()]
    } else {
        let rows = match chosen.row_rule() {
            RowRule::Widest => "all rows verified",
            RowRule::BestRate => "rows chosen at every step",
        };
        let depth = match chosen.depth_rule() {
            DepthRule::Fixed => "fixed depth",
            DepthRule::Predicted => "predicted depth",
        };
        let steps = [describe_schedule(chosen.schedule), rows.to_owned(), depth.to_owned()];
        let shape = std::iter::once(describe_shape(chosen)).chain(describe_model(chosen));
        shape.chain(steps).collect()
    };
    write_facts(out, "chosen", &facts)?;
    if fixed.is_empty() { Ok(()) } else { write_facts(out, "fixed", std::slice::from_ref(fixed)) }
}

fn describe_schedule(schedule: Schedule) -> String {
    match words(schedule).trim_start_matches(", ") {
        "" => format!("schedule {schedule}"),
        words => format!("schedule {schedule} ({words})"),
    }
}

/// What the choice should give, and what requests of other temperatures get.
fn write_promise(out: &mut String, plan: &Plan) -> fmt::Result {
    let chosen = plan.bands[0].chosen();
    let ContextRange { context, predicted, unseen, .. } = chosen.first();
    let Unseen { speedup, low, high, .. } = *unseen;
    if chosen.is_plain() {
        write_facts(out, "expected", &[format!("{} a token", ms(predicted.tpot_us))])?;
    } else {
        write_facts(
            out,
            "expected",
            &[
                format!(
                    "{speedup:.2}x plain decoding on other prompts, {low:.2} to {high:.2} in nine of ten cases"
                ),
                format!("{} a token instead of {}", ms(expected_us(chosen)), ms(predicted.ar_tpot_us)),
            ],
        )?;
        write_facts(
            out,
            "predicted",
            &[
                format!(
                    "{:.2}x on the recorded prompts, after {context} tokens in the mean",
                    predicted.speedup
                ),
                format!("{:.2} tokens in a step of {}", predicted.aal, ms(predicted.step_us)),
            ],
        )?;
    }
    for range in &chosen.ranges[1..] {
        let ContextRange { from, drafts, unseen, predicted, .. } = range;
        let facts = if *drafts {
            let shape = chosen.shape_in(range);
            let [depth, _, rows] = shape_cells(&shape, chosen.depth_rule(), chosen.row_rule());
            let per_token = format!(
                "{} a token instead of {}",
                ms(predicted.ar_tpot_us / unseen.speedup),
                ms(predicted.ar_tpot_us)
            );
            vec![format!("Dd {depth}, Wv {rows}"), interval(unseen), per_token]
        } else {
            vec![format!("plain decoding; drafting gave {}", interval(unseen))]
        };
        write_facts(out, &format!("from {from}"), &facts)?;
    }
    for band in &plan.bands[1..] {
        let chosen = band.chosen();
        let label = format!("at {}", band.temperature);
        let facts = if chosen.is_plain() {
            vec!["plain decoding".to_owned()]
        } else {
            let promise = [interval(&chosen.first().unseen), format!("{} a token", ms(expected_us(chosen)))];
            let shape = std::iter::once(describe_shape(chosen)).chain(describe_model(chosen));
            shape.chain(promise).collect()
        };
        write_facts(out, &label, &facts)?;
    }
    if plan.bands.len() == 1 {
        let alone = "0 alone was recorded; requests of every temperature go by it";
        write_facts(out, "temperature", &[alone.to_owned()])?;
    }
    Ok(())
}

/// An expected speed-up with its interval.
fn interval(unseen: &Unseen) -> String {
    let Unseen { speedup, low, high, .. } = unseen;
    format!("{speedup:.2}x, {low:.2} to {high:.2}")
}

/// A number of things, each called `what`.
fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Time per token to expect on prompts that were not recorded, in microseconds.
fn expected_us(sub_plan: &SubPlan) -> f64 {
    sub_plan.first().predicted.ar_tpot_us / sub_plan.first().unseen.speedup
}

/// Microseconds as milliseconds.
fn ms(us: f64) -> String {
    let digits = if us < 1e3 { 3 } else { 2 };
    format!("{:.digits$} ms", us / 1e3)
}

/// A line for every other drafter, the most promising first, and for each that was no candidate, `most` at most; with
/// an empty line after them.
fn write_losers(out: &mut String, plan: &Plan, most: usize) -> fmt::Result {
    let band = &plan.bands[0];
    let is_loser =
        |(place, sub_plan): &(usize, &SubPlan)| *place != band.chosen_index as usize && !sub_plan.is_plain();
    let mut losers: Vec<(usize, &SubPlan)> = band.by_drafter.iter().enumerate().filter(is_loser).collect();
    losers.sort_by(|(_, a), (_, b)| b.first().unseen.speedup.total_cmp(&a.first().unseen.speedup));
    let names = losers.iter().map(|(_, sub_plan)| &sub_plan.name);
    let names = names.chain(band.left_out.iter().map(|left_out| &left_out.name));
    let Some(columns) = names.map(|name| name.as_str().len()).max() else { return Ok(()) };
    let of_losers = losers.iter().map(|(place, sub_plan)| {
        let Unseen { speedup, low, high, .. } = sub_plan.first().unseen;
        let reason = reason(plan, *place);
        format!("{:<columns$}  {speedup:>5.2}x  {low:.2} to {high:.2}  {reason}", sub_plan.name.as_str())
    });
    let without = band
        .left_out
        .iter()
        .map(|LeftOut { name, lacks }| format!("{:<columns$}  no evidence: no {lacks}", name.as_str()));
    let mut lines: Vec<String> = of_losers.chain(without).collect();
    if lines.len() > most {
        let others = lines.split_off(most - 1).len();
        lines.push(format!("and {others} others, of which `yggc plan explain` tells"));
    }
    let labels = std::iter::once("lost").chain(std::iter::repeat(""));
    for (label, line) in labels.zip(&lines) {
        writeln!(out, "{label:<LABEL$}{}", cut(line, COLUMNS - LABEL))?;
    }
    writeln!(out)
}

/// What the drafter at a place of the plan lost by at temperature 0, in a few words.
fn reason(plan: &Plan, place: usize) -> String {
    let band = &plan.bands[0];
    let chosen = band.chosen();
    match outcome(plan, band, place) {
        Outcome::SlowerThanPlain => "slower than plain decoding".to_owned(),
        Outcome::Doubtful => "not faster than plain decoding beyond doubt".to_owned(),
        Outcome::Slower => {
            let expected = |sub_plan: &SubPlan| sub_plan.first().unseen.speedup;
            let slower = expected(chosen) / expected(&band.by_drafter[place]) - 1.0;
            format!("{:.0} % slower than {}", slower * 100.0, chosen.name)
        }
        Outcome::Excluded => "excluded by what was fixed".to_owned(),
        Outcome::OtherSubstitute => {
            "faster, but all temperatures share a substitute of other bits".to_owned()
        }
        Outcome::Won | Outcome::AskedFor | Outcome::NothingBetter => "chosen".to_owned(),
    }
}

/// What was recorded, how noisy and how old it is, and on which machine, with which model and build.
fn write_evidence(out: &mut String, plan: &Plan, now: UnixTime) -> fmt::Result {
    let (band, Header { calibration, fingerprints, measured_at, made_at, .. }) =
        (&plan.bands[0], &plan.header);
    let best = band.drafting().max_by(|a, b| a.first().unseen.speedup.total_cmp(&b.first().unseen.speedup));
    let chosen = Some(band.chosen()).filter(|chosen| !chosen.is_plain());
    let mut facts = match chosen.or(best) {
        Some(sub_plan) => vec![
            format!(
                "{} (calibration {calibration})",
                counted(sub_plan.first().unseen.prompts.into(), "recorded prompt")
            ),
            format!("{} of {}", counted(sub_plan.acceptance.steps, "step"), sub_plan.name),
        ],
        None => vec!["nothing was recorded".to_owned()],
    };
    let NoisyCells { noisy, measured } = noisy_cells(plan);
    if noisy > 0 {
        facts.push(format!("{noisy} of {measured} latencies are noisy"));
    }
    write_facts(out, "rests on", &facts)?;
    let dated = |time: UnixTime| format!("{}, {time}", time.age_at(now));
    let (measured, planned) = (dated(*measured_at), dated(*made_at));
    write_facts(out, "measured", &[measured, format!("planned {planned}")])?;
    let Fingerprints { machine, model, build } = fingerprints;
    let MachineFingerprint { vendor, name, threads, isa, gpu, .. } = machine;
    let name = if name.is_empty() { vendor } else { name };
    let gpu = gpu.as_ref().map_or(String::new(), |gpu| format!(", {gpu}"));
    let BuildFingerprint { plan_format, kernels, draft_formats } = build;
    write_facts(
        out,
        "for",
        &[
            format!("{name}, {}, {isa}{gpu}", counted((*threads).into(), "thread")),
            format!("{} ({})", model.name, short(&model.digest)),
            format!("kernels {kernels}"),
            format!("drafter models {draft_formats}"),
            format!("plan format {plan_format}"),
        ],
    )?;
    write_needed_files(out, plan)
}

/// The files that the chosen drafters need in addition to the model, by name; nothing if they need none.
fn write_needed_files(out: &mut String, plan: &Plan) -> fmt::Result {
    let chosen = plan.bands.iter().map(Band::chosen);
    let files = chosen.flat_map(|sub_plan| [sub_plan.drafter.store(), sub_plan.drafter.draft_model()]);
    let mut facts: Vec<String> = Vec::new();
    for DrafterFile { path, digest } in files.flatten() {
        let name = Path::new(path).file_name().map_or(path.into(), OsStr::to_string_lossy);
        let fact = format!("{name} ({})", short(digest));
        if !facts.contains(&fact) {
            facts.push(fact);
        }
    }
    if facts.is_empty() { Ok(()) } else { write_facts(out, "needs", &facts) }
}

/// The first digits of a digest.
fn short(digest: &str) -> String {
    digest.chars().take(DIGEST).collect()
}
