//! A plan for people and for programs.
use std::fmt::{self, Display, Write};

use serde_json::{Value, json as value};
use ygg_profiler::{DrafterFile, DrafterName, Fingerprints};

use super::{
    explain::tables::{self, Table},
    verdict::{Verdict, findings, notable_stages, verdict},
};
use crate::plan::{
    Calibration, ChosenTuning, DepthReport, DepthRule, GrowthRule, HeldOut, LeftOut, Plan, PlannedPredictor,
    Refusal, RowChoice, RowRule, Schedule, Shape, SubPlan, Unseen, WidthCost,
};

/// Alternatives shown to people.
const ALTERNATIVES: usize = 20;

/// The plan as text of several lines.
pub fn text(plan: &Plan) -> String {
    let mut out = String::new();
    write_text(plan, &mut out).expect("a string accepts every write");
    out
}

/// The plan as JSON: its fields, the alternatives spelled out, with the chosen sub-plan and the findings of the table beside
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

fn write_text(plan: &Plan, out: &mut String) -> fmt::Result {
    let Fingerprints { machine, model, build } = &plan.fingerprints;
    let widths = |widths: &[u32]| widths.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
    write_verdict(out, &verdict(plan))?;
    writeln!(out, "plan         {}", describe(plan.chosen()))?;
    for band in &plan.bands {
        writeln!(out, "{:<12} {}", format!("at {}", band.temperature), describe(band.chosen()))?;
    }
    match &plan.bands[..] {
        [] => writeln!(out, "temperature  0 alone was recorded; requests of every temperature go by it")?,
        [_, ..] => {
            writeln!(out, "temperature  0 where nothing is said; a request goes by the nearest to its own")?
        }
    }
    if !plan.fixed.is_empty() {
        writeln!(out, "fixed        {}", plan.fixed)?;
    }
    writeln!(out, "machine      {machine}")?;
    writeln!(out, "model        {} ({})", model.name, model.digest)?;
    writeln!(out, "build        format {}, kernels {}", build.plan_format, build.kernels)?;
    writeln!(
        out,
        "made by      {}, calibration {}, context {}",
        plan.created_by, plan.calibration, plan.context
    )?;
    writeln!(
        out,
        "widths       verify {}; draft {}",
        widths(&plan.planned.verify),
        widths(&plan.planned.draft)
    )?;

    write_files(out, plan)?;
    write_best_shapes(out, plan)?;
    write_chosen_step(out, plan.chosen())?;
    writeln!(out, "\nbest of {} shapes", plan.alternatives.len())?;
    write_titled(out, tables::alternatives(plan, ALTERNATIVES).0)?;
    write_list(out, "refused: the traces do not reach", plan.refused.iter().map(describe_refusal))?;
    let left_out = plan.left_out.iter().map(|LeftOut { name, lacks }| format!("{name}: no {lacks}"));
    write_list(out, "drafters left out", left_out)?;
    write_predictors(out, &plan.predictors)?;
    write_tunings(out, &plan.tunings)?;
    write_list(out, "findings in the latency table", findings(plan))
}

/// The verdict, and what would give more.
pub(super) fn write_verdict(out: &mut String, Verdict { gain, advice }: &Verdict) -> fmt::Result {
    writeln!(out, "verdict      {gain}")?;
    let heads = std::iter::once("for more    ").chain(std::iter::repeat("            "));
    advice.iter().zip(heads).try_for_each(|(advice, head)| writeln!(out, "{head} {advice}"))
}

/// The files that drafters need.
fn write_files(out: &mut String, plan: &Plan) -> fmt::Result {
    let mut stores: Vec<_> = plan.by_drafter.iter().filter_map(|sub_plan| sub_plan.drafter.store()).collect();
    stores.dedup();
    for DrafterFile { path, digest } in stores {
        writeln!(out, "store        {path} ({digest})")?;
    }
    let mut models: Vec<_> =
        plan.by_drafter.iter().filter_map(|sub_plan| sub_plan.drafter.draft_model()).collect();
    models.dedup();
    for DrafterFile { path, digest } in models {
        writeln!(out, "draft model  {path} ({digest})")?;
    }
    Ok(())
}

/// The sub-plan of every drafter, the chosen one marked.
fn write_best_shapes(out: &mut String, plan: &Plan) -> fmt::Result {
    writeln!(
        out,
        "\nbest shape of every drafter (predicted; the last column on other prompts than the recorded)"
    )?;
    let mut rows = vec![
        [
            "",
            "drafter",
            "Dd",
            "Wd",
            "Wv",
            "schedule",
            "tokens/step",
            "step us",
            "us/token",
            "speed-up",
            "on others",
        ]
        .map(str::to_owned),
    ];
    for (i, sub_plan) in plan.by_drafter.iter().enumerate() {
        let chosen = if i == plan.chosen_index as usize { "*" } else { "" };
        let SubPlan { name, shape, growth, schedule, depth_choice, row_choice, predicted, unseen, .. } =
            sub_plan;
        let Shape { depth, draft_width, verify_width } = *shape;
        rows.push([
            chosen.to_owned(),
            drafter_cell(name, growth.rule(), Schedule::Plain),
            describe_depth(depth_choice.rule(), depth),
            draft_width.to_string(),
            describe_rows(row_choice.rule, verify_width),
            schedule.to_string(),
            format!("{:.2}", predicted.aal),
            format!("{:.0}", predicted.step_us),
            format!("{:.0}", predicted.tpot_us),
            format!("{:.2}", predicted.speedup),
            if sub_plan.is_plain() { String::new() } else { expected_cell(unseen) },
        ]);
    }
    write_table(out, &rows)
}

/// An expected speed-up with its interval.
pub(super) fn expected_cell(unseen: &Unseen) -> String {
    let Unseen { speedup, low, high, .. } = unseen;
    format!("{speedup:.2} ({low:.2} to {high:.2})")
}

/// Where the time of the chosen step goes, how it chooses its rows, and what it accepts.
fn write_chosen_step(out: &mut String, chosen: &SubPlan) -> fmt::Result {
    writeln!(out, "\nstages of the chosen step (predicted)")?;
    let (stages, others, others_us) = notable_stages(chosen);
    let mut rows: Vec<[String; 2]> =
        stages.iter().map(|(stage, us)| [stage.to_string(), format!("{us:.0} us")]).collect();
    if others > 0 {
        rows.push([format!("{others} others"), format!("{others_us:.0} us")]);
    }
    write_table(out, &rows)?;
    let RowChoice { rule, widths, rate: _, calibration } = &chosen.row_choice;
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
        writeln!(
            out,
            "
acceptance probabilities calibrated on {fitted_nodes} drafted nodes"
        )?;
        if let Some(HeldOut { nodes, error, raw_error, intervals: _ }) = held_out {
            writeln!(
                out,
                "  error on {nodes} nodes of other prompts: {:.1} % (of the drafter's own values: {:.1} %)",
                error * 100.0,
                raw_error * 100.0
            )?;
        }
    }
    let by_depth = &chosen.acceptance.by_depth;
    if !by_depth.is_empty() {
        let shares: Vec<String> = by_depth.iter().map(|share| format!("{share:.2}")).collect();
        writeln!(out, "\naccepted to depth 1, 2, ...: {}", shares.join(" "))?;
    }
    Ok(())
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

/// A drafter as the cell of a table, with how its trees grow unless equally, and its schedule unless that is plain.
pub fn drafter_cell(name: &DrafterName, growth: GrowthRule, schedule: Schedule) -> String {
    let growth = if growth.is_static() { format!(", {growth}") } else { String::new() };
    match schedule {
        Schedule::Plain => format!("{name}{growth}"),
        Schedule::HeadAhead
        | Schedule::OneLaunch
        | Schedule::DeviceWalk
        | Schedule::TwoLaunches
        | Schedule::WholeStep => {
            format!("{name}{growth}, {schedule}")
        }
    }
}

/// Dd, Wd and Wv as the cells of a table.
pub(super) fn shape_cells(shape: &Shape, depth_rule: DepthRule, rule: RowRule) -> [String; 3] {
    let Shape { depth, draft_width, verify_width } = *shape;
    [describe_depth(depth_rule, depth), draft_width.to_string(), describe_rows(rule, verify_width)]
}

/// Titles of [`tuning_cells`].
pub const TUNING_TITLES: [&str; 8] =
    ["kernel", "outputs", "inputs", "rows", "default us", "us", "gain", "tuning"];

/// A tuned linear as the cells of a table.
pub fn tuning_cells(tuned: &ChosenTuning) -> [String; 8] {
    let ChosenTuning { shape, tuning, default_us, tuned_us, gain } = tuned;
    [
        shape.kernel.clone(),
        shape.outputs.to_string(),
        shape.columns.to_string(),
        shape.rows.to_string(),
        format!("{default_us:.2}"),
        format!("{tuned_us:.2}"),
        format!("{gain:.3}"),
        tuning.clone(),
    ]
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

/// Dd, with a sign before it where a step may draft less deep.
fn describe_depth(rule: DepthRule, depth: u32) -> String {
    match rule {
        DepthRule::Fixed => depth.to_string(),
        DepthRule::Predicted => format!("<={depth}"),
    }
}

/// Wv, with a sign before it where a step may verify fewer rows.
pub(super) fn describe_rows(rule: RowRule, verify_width: u32) -> String {
    match rule {
        RowRule::Widest => verify_width.to_string(),
        RowRule::BestRate => format!("<={verify_width}"),
    }
}

/// How trees grow, behind a shape; nothing where they grow equally.
pub(super) fn describe_growth(growth: GrowthRule) -> &'static str {
    match growth {
        GrowthRule::Equal => "",
        GrowthRule::ByRank => ", one tree of best ranks (sequoia)",
        GrowthRule::Kary => ", one k-ary tree (kary)",
    }
}

pub(super) fn describe(sub_plan: &SubPlan) -> String {
    let SubPlan { name, shape, growth, schedule, depth_choice, row_choice, predicted, unseen, .. } = sub_plan;
    let Shape { depth, draft_width, verify_width } = *shape;
    let depth = describe_depth(depth_choice.rule(), depth);
    let ahead = words(*schedule);
    let rows = describe_rows(row_choice.rule, verify_width);
    let growth = describe_growth(growth.rule());
    if sub_plan.is_plain() {
        return format!("plain decoding, {:.0} us/token predicted", predicted.tpot_us);
    }
    format!(
        "{name}, Dd {depth}, Wd {draft_width}, Wv {rows}{growth}{ahead}: {:.2} tokens/step, {:.2}x plain decoding expected",
        predicted.aal, unseen.speedup
    )
}

pub(super) fn describe_refusal(refusal: &Refusal) -> String {
    let Refusal { name, growth, depth, draft_width, missing } = refusal;
    let growth = describe_growth(*growth);
    format!(
        "{name}, Dd {depth}, Wd {draft_width}{growth}: {:.1} % of its nodes were never expanded",
        missing * 100.0
    )
}

pub(super) fn write_list(
    out: &mut String,
    title: &str,
    items: impl IntoIterator<Item = impl Display>,
) -> fmt::Result {
    let mut items = items.into_iter().peekable();
    if items.peek().is_some() {
        writeln!(out, "\n{title}")?;
    }
    items.try_for_each(|item| writeln!(out, "  {item}"))
}

/// Right-aligned columns.
pub(super) fn write_table(out: &mut String, rows: &[impl AsRef<[String]>]) -> fmt::Result {
    let columns = rows.iter().map(|row| row.as_ref().len()).max().unwrap_or(0);
    let width_of =
        |column: usize| rows.iter().filter_map(|row| row.as_ref().get(column)).map(String::len).max();
    let widths: Vec<usize> = (0..columns).map(|column| width_of(column).unwrap_or(0)).collect();
    for row in rows {
        let cells = row.as_ref().iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}"));
        writeln!(out, "  {}", cells.collect::<Vec<_>>().join("  "))?;
    }
    Ok(())
}

/// A table with its titles.
pub(super) fn write_titled(out: &mut String, Table { titles, rows }: Table) -> fmt::Result {
    let titles = titles.into_iter().map(str::to_owned).collect();
    write_table(out, &[vec![titles], rows].concat())
}

/// What a schedule adds to the description of a shape: nothing, or words behind a comma.
pub(super) fn words(schedule: Schedule) -> &'static str {
    match schedule {
        Schedule::Plain => "",
        Schedule::HeadAhead => ", heads drafted ahead",
        Schedule::OneLaunch => ", drafted in one launch",
        Schedule::DeviceWalk => ", verified and walked in one launch",
        Schedule::TwoLaunches => ", drafted in one launch, verified and walked in another",
        Schedule::WholeStep => ", drafted, pruned, verified and walked without the host",
    }
}
