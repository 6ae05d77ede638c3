//! A plan for people and for programs.
use std::fmt::{self, Display, Write};

use serde_json::{Value, json as value};
use ygg_profiler::Fingerprints;

use super::{
    Alternative, Calibration, ChosenTuning, HeldOut, LeftOut, Plan, Refusal, RowChoice, RowRule, Shape,
    SubPlan, WidthCost,
};

/// The plan as text of several lines.
pub fn text(plan: &Plan) -> String {
    let mut out = String::new();
    write_text(plan, &mut out).expect("a string accepts every write");
    out
}

/// The plan as JSON: its fields, with the chosen sub-plan and the findings of the table beside them.
pub fn json(plan: &Plan) -> Value {
    let findings: Vec<String> = plan.table.findings().iter().map(ToString::to_string).collect();
    value!({ "chosen": plan.chosen(), "findings": findings, "plan": plan })
}

fn write_text(plan: &Plan, out: &mut String) -> fmt::Result {
    let Fingerprints { machine, model, build } = &plan.fingerprints;
    let widths = |widths: &[u32]| widths.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
    writeln!(out, "plan         {}", describe(plan.chosen()))?;
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

    writeln!(out, "\nbest shape of every drafter (predicted)")?;
    let mut rows = vec![
        ["", "drafter", "Dd", "Wd", "Wv", "tokens/step", "step us", "us/token", "speed-up"]
            .map(str::to_owned),
    ];
    for (i, sub_plan) in plan.by_drafter.iter().enumerate() {
        let chosen = if i == plan.chosen_index as usize { "*" } else { "" };
        let SubPlan { name, shape, row_choice, predicted, .. } = sub_plan;
        let Shape { depth, draft_width, verify_width } = *shape;
        rows.push([
            chosen.to_owned(),
            name.to_string(),
            depth.to_string(),
            draft_width.to_string(),
            describe_rows(row_choice.rule, verify_width),
            format!("{:.2}", predicted.aal),
            format!("{:.0}", predicted.step_us),
            format!("{:.0}", predicted.tpot_us),
            format!("{:.2}", predicted.speedup),
        ]);
    }
    write_table(out, &rows)?;

    writeln!(out, "\nstages of the chosen step (predicted)")?;
    let stages = &plan.chosen().predicted.stages;
    let rows: Vec<[String; 2]> =
        stages.iter().map(|s| [s.stage.to_string(), format!("{:.1} us", s.us)]).collect();
    write_table(out, &rows)?;
    let RowChoice { rule, widths, rate: _, calibration } = &plan.chosen().row_choice;
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
        if let Some(HeldOut { nodes, error, raw_error }) = held_out {
            writeln!(
                out,
                "  error on {nodes} nodes of other prompts: {:.1} % (of the drafter's own values: {:.1} %)",
                error * 100.0,
                raw_error * 100.0
            )?;
        }
    }
    let by_depth = &plan.chosen().acceptance.by_depth;
    if !by_depth.is_empty() {
        let shares: Vec<String> = by_depth.iter().map(|share| format!("{share:.2}")).collect();
        writeln!(out, "\naccepted to depth 1, 2, ...: {}", shares.join(" "))?;
    }

    writeln!(out, "\nbest of {} shapes", plan.considered)?;
    let mut rows =
        vec![["drafter", "Dd", "Wd", "Wv", "tokens/step", "step us", "speed-up"].map(str::to_owned)];
    for Alternative { name, shape, rule, aal, step_us, speedup } in &plan.alternatives {
        let Shape { depth, draft_width, verify_width } = *shape;
        rows.push([
            name.to_string(),
            depth.to_string(),
            draft_width.to_string(),
            describe_rows(*rule, verify_width),
            format!("{aal:.2}"),
            format!("{step_us:.0}"),
            format!("{speedup:.2}"),
        ]);
    }
    write_table(out, &rows)?;
    write_list(out, "refused: the traces do not reach", plan.refused.iter().map(describe_refusal))?;
    let left_out = plan.left_out.iter().map(|LeftOut { name, lacks }| format!("{name}: no {lacks}"));
    write_list(out, "drafters left out", left_out)?;
    write_tunings(out, &plan.tunings)?;
    write_list(out, "findings in the latency table", plan.table.findings())
}

/// Linears that do not go the default way; nothing if all do.
fn write_tunings(out: &mut String, tunings: &[ChosenTuning]) -> fmt::Result {
    if tunings.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nlinears tuned for their shape (measured; gain derived)")?;
    let mut rows = vec![
        ["kernel", "outputs", "inputs", "rows", "default us", "us", "gain", "tuning"].map(str::to_owned),
    ];
    for ChosenTuning { shape, tuning, default_us, tuned_us, gain } in tunings {
        rows.push([
            shape.kernel.clone(),
            shape.outputs.to_string(),
            shape.columns.to_string(),
            shape.rows.to_string(),
            format!("{default_us:.2}"),
            format!("{tuned_us:.2}"),
            format!("{gain:.3}"),
            tuning.clone(),
        ]);
    }
    write_table(out, &rows)
}

/// Wv, with a sign before it where a step may verify fewer rows.
fn describe_rows(rule: RowRule, verify_width: u32) -> String {
    match rule {
        RowRule::Widest => verify_width.to_string(),
        RowRule::BestRate => format!("<={verify_width}"),
    }
}

fn describe(sub_plan: &SubPlan) -> String {
    let SubPlan { name, shape, row_choice, predicted, .. } = sub_plan;
    let Shape { depth, draft_width, verify_width } = *shape;
    let rows = describe_rows(row_choice.rule, verify_width);
    if sub_plan.is_plain() {
        return format!("plain decoding, {:.0} us/token predicted", predicted.tpot_us);
    }
    format!(
        "{name}, Dd {depth}, Wd {draft_width}, Wv {rows}: {:.2} tokens/step, {:.2}x plain decoding predicted",
        predicted.aal, predicted.speedup
    )
}

fn describe_refusal(refusal: &Refusal) -> String {
    let Refusal { name, depth, draft_width, missing } = refusal;
    format!("{name}, Dd {depth}, Wd {draft_width}: {:.1} % of its nodes were never expanded", missing * 100.0)
}

fn write_list(out: &mut String, title: &str, items: impl IntoIterator<Item = impl Display>) -> fmt::Result {
    let mut items = items.into_iter().peekable();
    if items.peek().is_some() {
        writeln!(out, "\n{title}")?;
    }
    items.try_for_each(|item| writeln!(out, "  {item}"))
}

/// Right-aligned columns.
fn write_table<const N: usize>(out: &mut String, rows: &[[String; N]]) -> fmt::Result {
    let widths: [usize; N] =
        std::array::from_fn(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0));
    for row in rows {
        let cells: Vec<String> =
            row.iter().zip(widths).map(|(cell, width)| format!("{cell:>width$}")).collect();
        writeln!(out, "  {}", cells.join("  "))?;
    }
    Ok(())
}
