//! What a plan holds in addition to its reasons: where the time of the chosen step goes, the shapes priced, depth
//! predictors, tunings, and what the plan was made for and by.
use std::fmt::{self, Write};

use ygg_profiler::{DrafterFile, Fingerprints};

use crate::{
    plan::{
        Band, Calibration, ChosenTuning, ContextRange, DepthReport, Header, HeldOut, Plan, PlannedPredictor,
        RowChoice, RowRule, SubPlan, WidthCost,
    },
    planner::report::{
        layout::{write_list, write_table, write_titled},
        step_chart::{write_memory, write_step},
        words::{TUNING_TITLES, expected_cell, shape_cells, tuning_cells},
    },
    policy::GuardTerms,
};

use super::tables;

/// Alternatives shown to people.
const ALTERNATIVES: usize = 20;

/// What `plan` holds of the shapes of a band.
pub(super) fn write_shapes(out: &mut String, plan: &Plan, band: &Band) -> fmt::Result {
    write_chosen_step(out, plan, band.chosen())?;
    write_memory(out, plan.header.memory.as_ref())?;
    write_longer_contexts(out, band.chosen())?;
    write_guard(out, band.chosen())?;
    writeln!(out, "\nbest of {} shapes (predicted)", band.alternatives.len())?;
    write_titled(out, tables::alternatives(band, ALTERNATIVES).0)?;
    if band.temperature == 0.0 {
        write_predictors(out, &plan.predictors)?;
    }
    write_tunings(out, &plan.tunings)
}

/// Where `plan` comes from and where it fits.
pub(super) fn write_origin(out: &mut String, plan: &Plan, band: &Band) -> fmt::Result {
    let Header { created_by, made_at, measured_at, fingerprints, calibration, .. } = &plan.header;
    let Fingerprints { machine, model, build } = fingerprints;
    let widths = |widths: &[u32]| widths.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
    let mut lines = vec![
        format!("machine      {machine}"),
        format!("model        {} ({})", model.name, model.digest),
        format!(
            "build        format {}, kernels {}, drafter models {}",
            build.plan_format, build.kernels, build.draft_formats
        ),
        format!("made by      {created_by}, calibration {calibration}"),
        format!("measured     {measured_at}; planned {made_at}"),
        format!(
            "widths       verify {}; draft {}",
            widths(&plan.planned.verify),
            widths(&plan.planned.draft)
        ),
    ];
    let sub_plans = || band.by_drafter.iter();
    let stores = sub_plans().filter_map(|sub_plan| sub_plan.drafter.store());
    lines.extend(files("store", stores));
    let models = sub_plans().filter_map(|sub_plan| sub_plan.drafter.draft_model());
    lines.extend(files("draft model", models));
    write_list(out, "made for and by", lines)
}

/// The files that drafters need.
fn files<'f>(what: &str, files: impl Iterator<Item = &'f DrafterFile>) -> Vec<String> {
    let mut files: Vec<&DrafterFile> = files.collect();
    files.dedup();
    files.into_iter().map(|DrafterFile { path, digest }| format!("{what:<12} {path} ({digest})")).collect()
}

/// Where the time of the chosen step goes, and how it chooses its rows.
fn write_chosen_step(out: &mut String, plan: &Plan, chosen: &SubPlan) -> fmt::Result {
    writeln!(
        out,
        "\nstages of the chosen step, each with the time that it adds to those before it (predicted)"
    )?;
    write_step(out, plan, chosen)?;
    let RowChoice { rule, widths, rate: _, calibration } = &chosen.first().row_choice;
    if *rule == RowRule::BestRate {
        writeln!(
            out,
            "\nevery step verifies the rows that let all steps give most tokens per time; a step of (predicted)"
        )?;
        let rows: Vec<[String; 2]> = widths
            .iter()
            .map(|WidthCost { width, step_us }| [format!("{width} rows"), format!("{step_us:.0} us")])
            .collect();
        write_table(out, &rows)?;
    }
    if let Some(Calibration { by_depth: _, fitted_nodes, held_out }) = calibration {
        writeln!(out, "\nacceptance probabilities calibrated on {fitted_nodes} drafted nodes")?;
        if let Some(HeldOut { nodes, error, raw_error, intervals: _ }) = held_out {
            writeln!(
                out,
                "  error on {nodes} nodes of other prompts: {:.1} % (of the drafter's own values: {:.1} %)",
                error * 100.0,
                raw_error * 100.0
            )?;
        }
    }
    Ok(())
}

/// What the chosen drafter's steps do as a request grows; nothing where no longer context was measured.
fn write_longer_contexts(out: &mut String, chosen: &SubPlan) -> fmt::Result {
    let longer_contexts = &chosen.ranges[1..];
    if longer_contexts.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "\nat longer contexts (predicted, if drafts are accepted as often as at the recorded ones)"
    )?;
    let titles =
        ["from", "priced at", "Dd", "Wv", "tokens/step", "plain us", "us/token", "on other prompts", ""];
    let mut rows = vec![titles.map(str::to_owned)];
    for range in longer_contexts {
        let ContextRange { from, context, drafts, predicted, unseen, .. } = range;
        let shape = chosen.shape_in(range);
        let [depth, _, wv] = shape_cells(&shape, chosen.depth_rule(), chosen.row_rule());
        rows.push([
            from.to_string(),
            context.to_string(),
            depth,
            wv,
            format!("{:.2}", predicted.aal),
            format!("{:.0}", predicted.ar_tpot_us),
            format!("{:.0}", predicted.tpot_us),
            expected_cell(unseen),
            if *drafts { "drafts" } else { "plain decoding" }.to_owned(),
        ]);
    }
    write_table(out, &rows)
}

/// What the guard lets a request lose.
fn write_guard(out: &mut String, chosen: &SubPlan) -> fmt::Result {
    if chosen.is_plain() {
        return Ok(());
    }
    let terms = GuardTerms::new(&chosen.first().predicted, chosen.guard);
    let lost = |tokens| format!("{:.1} of {tokens} tokens", terms.lost_by_refusals(tokens, terms.step_us));
    writeln!(
        out,
        "\nguard        a request stops drafting once it has lost {:.1} plain steps, and tries again {} tokens later\n             \
         with every draft refused, in steps of the mean cost, it loses at most the time of {}, {}, {}",
        terms.limits.may_lose,
        terms.first_pause(),
        lost(16),
        lost(128),
        lost(1024)
    )
}

/// What telling how deep to draft is worth; nothing if it was not trained.
fn write_predictors(out: &mut String, predictors: &[PlannedPredictor]) -> fmt::Result {
    if predictors.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "\ndepth predictors, on prompts they have not seen (predicted speed-up; losses of constant rates)"
    )?;
    let mut rows = vec![
        ["drafter", "steps", "log loss", "error", "fixed depth", "predicted depth", "used"]
            .map(str::to_owned),
    ];
    for PlannedPredictor { name, report, fixed_speedup, told_speedup, network } in predictors {
        let DepthReport { log_loss, base_log_loss, calibration_error, base_calibration_error, .. } = report;
        let speedup =
            |speedup: &Option<f64>| speedup.map_or("none".to_owned(), |speedup| format!("{speedup:.3}"));
        rows.push([
            name.to_string(),
            report.steps.to_string(),
            format!("{log_loss:.3} ({base_log_loss:.3})"),
            format!("{:.1} % ({:.1} %)", calibration_error * 100.0, base_calibration_error * 100.0),
            speedup(fixed_speedup),
            speedup(told_speedup),
            if network.is_some() { "yes" } else { "no" }.to_owned(),
        ]);
    }
    write_table(out, &rows)
}

/// Linears that do not go the default way; nothing if all do.
fn write_tunings(out: &mut String, tunings: &[ChosenTuning]) -> fmt::Result {
    if tunings.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nlinears tuned for their shape (measured; gain derived)")?;
    let mut rows = vec![TUNING_TITLES.map(str::to_owned)];
    rows.extend(tunings.iter().map(tuning_cells));
    write_table(out, &rows)
}
