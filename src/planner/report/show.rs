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
    words::{describe_shape, shape_cells, words},
};
use crate::plan::{Band, ContextRange, DepthRule, LeftOut, Plan, RowRule, Schedule, Shape, SubPlan, Unseen};

/// Digits that are shown of a digest.
const DIGEST: usize = 12;

/// The plan on one screen: what is chosen, what that promises, what every other drafter lost by, and what all of it rests on. Ages are told as
/// of `now`. Lines have at most 100 columns; [`explain`](super::explain::text) has the whole.
///
/// # Panics
/// If the plan is not valid.
pub fn text(plan: &Plan, now: UnixTime) -> String {
    let mut out = String::new();
    write_text(plan, now, &mut out).expect("a string accepts every write");
    out
}

/// The plan as JSON: its fields, the alternatives spelled out, with the chosen sub-plan and the findings of the table as well
/// them. Of a depth network its sizes stand for its weights, which are for programs of this build alone.
pub fn json(plan: &Plan) -> Value {
    let findings: Vec<String> = plan.table.findings().iter().map(ToString::to_string).collect();
    let mut out = value!({ "chosen": plan.chosen(), "findings": findings, "plan": plan });
    out["plan"]["alternatives"] = value!(plan.priced().collect::<Vec<_>>());
    for place in 0..plan.bands.len() {
        let band = plan.of_band(place + 1);
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
    write_memory_facts(out, plan.memory.as_ref())?;
    writeln!(out)?;
    write_losers(out, plan)?;
    write_evidence(out, plan, now)
}

/// Drafter, shape, schedule and rules of the steps of greedy requests.
fn write_choice(out: &mut String, plan: &Plan) -> fmt::Result {
    let chosen = plan.chosen();
    let facts = if chosen.is_plain() {
        vec!["plain decoding".to_owned()]
    } else {
        let rows = match chosen.row_choice.rule {
            RowRule::Widest => "all rows verified",
            RowRule::BestRate => "rows chosen at every step",
        };
        let depth = match chosen.depth_choice.rule() {
            DepthRule::Fixed => "fixed depth",
            DepthRule::Predicted => "predicted depth",
        };
        vec![describe_shape(chosen), describe_schedule(chosen.schedule), rows.to_owned(), depth.to_owned()]
    };
    write_facts(out, "chosen", &facts)?;
    if plan.fixed.is_empty() { Ok(()) } else { write_facts(out, "fixed", std::slice::from_ref(&plan.fixed)) }
}

fn describe_schedule(schedule: Schedule) -> String {
    match words(schedule).trim_start_matches(", ") {
        "" => format!("schedule {schedule}"),
        words => format!("schedule {schedule} ({words})"),
    }
}

/// What the choice should give, and what requests of other temperatures get.
fn write_promise(out: &mut String, plan: &Plan) -> fmt::Result {
    let chosen = plan.chosen();
    let Unseen { speedup, low, high, .. } = chosen.unseen;
    let predicted = &chosen.predicted;
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
                    "{:.2}x on the recorded prompts, after {} tokens in the mean",
                    predicted.speedup, plan.context
                ),
                format!("{:.2} tokens in a step of {}", predicted.aal, ms(predicted.step_us)),
            ],
        )?;
    }
    for ContextRange { from, drafts, depth, row_choice, unseen, predicted, .. } in &chosen.longer_contexts {
        let facts = if *drafts {
            let shape = Shape { depth: *depth, verify_width: row_choice.widest(), ..chosen.shape };
            let [depth, _, rows] = shape_cells(&shape, chosen.depth_choice.rule(), chosen.row_choice.rule);
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
    for band in &plan.bands {
        let chosen = band.chosen();
        let label = format!("at {}", band.temperature);
        let facts = if chosen.is_plain() {
            vec!["plain decoding".to_owned()]
        } else {
            vec![
                describe_shape(chosen),
                interval(&chosen.unseen),
                format!("{} a token", ms(expected_us(chosen))),
            ]
        };
        write_facts(out, &label, &facts)?;
    }
    if plan.bands.is_empty() {
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
    sub_plan.predicted.ar_tpot_us / sub_plan.unseen.speedup
}

/// Microseconds as milliseconds.
fn ms(us: f64) -> String {
    let digits = if us < 1e3 { 3 } else { 2 };
    format!("{:.digits$} ms", us / 1e3)
}

/// A line for every other drafter, the most promising first, and for each that was no candidate; with an empty line after them.
fn write_losers(out: &mut String, plan: &Plan) -> fmt::Result {
    let is_loser =
        |(place, sub_plan): &(usize, &SubPlan)| *place != plan.chosen_index as usize && !sub_plan.is_plain();
    let mut losers: Vec<(usize, &SubPlan)> = plan.by_drafter.iter().enumerate().filter(is_loser).collect();
    losers.sort_by(|(_, a), (_, b)| b.unseen.speedup.total_cmp(&a.unseen.speedup));
    let names = losers.iter().map(|(_, sub_plan)| &sub_plan.name);
    let names = names.chain(plan.left_out.iter().map(|left_out| &left_out.name));
    let Some(columns) = names.map(|name| name.as_str().len()).max() else { return Ok(()) };
    let of_losers = losers.iter().map(|(place, sub_plan)| {
        let Unseen { speedup, low, high, .. } = sub_plan.unseen;
        let reason = reason(plan, *place);
        format!("{:<columns$}  {speedup:>5.2}x  {low:.2} to {high:.2}  {reason}", sub_plan.name.as_str())
    });
    let without = plan
        .left_out
        .iter()
        .map(|LeftOut { name, lacks }| format!("{:<columns$}  no evidence: no {lacks}", name.as_str()));
    let labels = std::iter::once("lost").chain(std::iter::repeat(""));
    for (label, line) in labels.zip(of_losers.chain(without)) {
        writeln!(out, "{label:<LABEL$}{}", cut(&line, COLUMNS - LABEL))?;
    }
    writeln!(out)
}

/// What the drafter at a place of the plan lost by, in a few words.
fn reason(plan: &Plan, place: usize) -> String {
    let chosen = plan.chosen();
    match outcome(plan, place) {
        Outcome::SlowerThanPlain => "slower than plain decoding".to_owned(),
        Outcome::Doubtful => "not faster than plain decoding beyond doubt".to_owned(),
        Outcome::Slower => {
            let slower = chosen.unseen.speedup / plan.by_drafter[place].unseen.speedup - 1.0;
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
    let drafters = plan.by_drafter.iter().filter(|sub_plan| !sub_plan.is_plain());
    let best = drafters.max_by(|a, b| a.unseen.speedup.total_cmp(&b.unseen.speedup));
    let chosen = Some(plan.chosen()).filter(|chosen| !chosen.is_plain());
    let mut facts = match chosen.or(best) {
        Some(SubPlan { name, unseen, acceptance, .. }) => vec![
            format!(
                "{} (calibration {})",
                counted(unseen.prompts.into(), "recorded prompt"),
                plan.calibration
            ),
            format!("{} of {name}", counted(acceptance.steps, "step")),
        ],
        None => vec!["nothing was recorded".to_owned()],
    };
    let NoisyCells { noisy, measured } = noisy_cells(plan);
    if noisy > 0 {
        facts.push(format!("{noisy} of {measured} latencies are noisy"));
    }
    write_facts(out, "rests on", &facts)?;
    let dated = |time: UnixTime| format!("{}, {time}", time.age_at(now));
    let (measured, planned) = (dated(plan.measured_at), dated(plan.made_at));
    write_facts(out, "measured", &[measured, format!("planned {planned}")])?;
    let Fingerprints { machine, model, build } = &plan.fingerprints;
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
    let chosen = std::iter::once(plan.chosen()).chain(plan.bands.iter().map(Band::chosen));
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
