//! An explanation for people: words and tables.
use std::{
    collections::BTreeMap,
    fmt::{self, Write},
};

use ygg_profiler::Stage;

use crate::{
    plan::{Acceptance, LeftOut, PricedShape},
    planner::report::show::{describe_refusal, drafter_cell, shape_cells, write_list, write_table},
};

use super::{
    BandReason, ChainAnalysis, Contrast, DrafterReason, Explanation, Margin, ObjectiveContrast, PartGain,
    Stair, Staircase, StepShares,
};

/// The explanation as text of several lines.
pub fn text(explanation: &Explanation) -> String {
    let mut out = String::new();
    write_text(explanation, &mut out).expect("a string accepts every write");
    out
}

fn write_text(explanation: &Explanation, out: &mut String) -> fmt::Result {
    let Explanation {
        temperature,
        chosen,
        fixed,
        context,
        considered,
        bands,
        margin,
        drafters,
        parts,
        objective,
        chains,
        staircases,
        refused,
        left_out,
        findings,
    } = explanation;
    writeln!(out, "chosen       {chosen}, for requests of temperature {temperature}")?;
    if !fixed.is_empty() {
        writeln!(out, "fixed        {fixed}")?;
    }
    writeln!(out, "priced       {considered} shapes, at {context} committed tokens")?;
    let Margin { needed, best, as_good } = margin;
    writeln!(
        out,
        "margin       {:.0} % may be noise; the best is {:.1} % faster than plain decoding; {as_good} of {considered} \
         shapes are as good within the noise",
        needed * 100.0,
        best * 100.0
    )?;
    write_bands(out, bands)?;
    write_drafters(out, drafters)?;
    write_parts(out, parts)?;
    write_objective(out, objective)?;
    write_acceptance(out, drafters)?;
    write_chains(out, chains)?;
    write_staircases(out, staircases)?;
    write_list(out, "refused: the traces do not reach", refused.iter().map(describe_refusal))?;
    let lacking = left_out.iter().map(|LeftOut { name, lacks }| format!("{name}: no {lacks}"));
    write_list(out, "drafters left out", lacking)?;
    write_list(out, "findings in the latency table", findings)
}

/// A table of the temperatures; a line where there is only one.
fn write_bands(out: &mut String, bands: &[BandReason]) -> fmt::Result {
    if bands.len() == 1 {
        return writeln!(out, "temperatures only greedy requests were recorded, so all requests go by them");
    }
    writeln!(
        out,
        "\nwhat requests of each temperature get (predicted); the rest is said of one temperature"
    )?;
    let titles = ["recorded", "requests", "drafter", "Dd", "Wd", "Wv", "tokens/step", "us/token", "speed-up"];
    let mut rows = vec![cells(titles)];
    for band in bands {
        rows.push(band_cells(band));
    }
    write_table(out, &rows)?;
    bands
        .iter()
        .skip(1)
        .try_for_each(|BandReason { temperature, reason, .. }| writeln!(out, "  at {temperature}: {reason}"))
}

/// Temperature, requests that go by it, and the chosen shape.
fn band_cells(BandReason { temperature, up_to, chosen, reason: _ }: &BandReason) -> Vec<String> {
    let requests = up_to.map_or("above".to_owned(), |up_to| format!("to {up_to}"));
    let mut row = vec![temperature.to_string(), requests];
    row.extend(priced_cells(chosen));
    row
}

fn write_drafters(out: &mut String, drafters: &[DrafterReason]) -> fmt::Result {
    writeln!(out, "\nwhy each drafter won or lost (predicted)")?;
    for DrafterReason { name, reason, .. } in drafters {
        writeln!(out, "  {name}: {reason}")?;
    }
    writeln!(out, "\nbest shape of every drafter (predicted; where the time of a step goes)")?;
    let titles =
        ["drafter", "Dd", "Wd", "Wv", "tokens/step", "us/token", "speed-up", "step us", "draft", "verify"];
    let mut rows = vec![cells(titles.into_iter().chain(["host"]))];
    for reason in drafters {
        let DrafterReason { name, shape, growth, schedule, depth_rule, rule, predicted, shares, .. } = reason;
        let StepShares { draft_us, verify_us, host_us } = shares;
        let mut row = vec![drafter_cell(name, *growth, *schedule)];
        row.extend(shape_cells(shape, *depth_rule, *rule));
        row.push(format!("{:.2}", predicted.aal));
        row.push(format!("{:.0}", predicted.tpot_us));
        row.push(format!("{:.2}", predicted.speedup));
        row.extend([predicted.step_us, *draft_us, *verify_us, *host_us].map(|us| format!("{us:.0}")));
        rows.push(row);
    }
    write_table(out, &rows)
}

fn write_parts(out: &mut String, parts: &[PartGain]) -> fmt::Result {
    if parts.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nwhat each part adds (predicted; the best shape with it and all parts before it)")?;
    let titles = ["drafter", "Dd", "Wd", "Wv", "tokens/step", "us/token", "speed-up", "adds", "part"];
    let mut rows = vec![cells(titles)];
    for PartGain { part, best, gain } in parts {
        let mut row = priced_cells(best);
        row.push(format!("{:+.1} %", (gain - 1.0) * 100.0));
        row.push(part.words().to_owned());
        rows.push(row);
    }
    write_table(out, &rows)
}

fn write_objective(out: &mut String, objective: &ObjectiveContrast) -> fmt::Result {
    let ObjectiveContrast { overall, by_drafter } = objective;
    writeln!(out, "\nmost tokens per time (eq. 3) against most tokens per step (predicted)")?;
    writeln!(out, "  {}", overall.words())?;
    let titles = ["drafter", "Dd", "Wd", "Wv", "tokens/step", "us/token", "speed-up", "most per"];
    let mut rows = vec![cells(titles)];
    for Contrast { by_speed, by_aal, cost: _ } in by_drafter {
        for (shape, objective) in [(by_speed, "time"), (by_aal, "step")] {
            let mut row = priced_cells(shape);
            row.push(objective.to_owned());
            rows.push(row);
        }
    }
    if rows.len() > 1 { write_table(out, &rows) } else { Ok(()) }
}

fn write_acceptance(out: &mut String, drafters: &[DrafterReason]) -> fmt::Result {
    let shares = |shares: &[f64]| {
        let shares: Vec<String> = shares.iter().map(|share| format!("{share:.2}")).collect();
        shares.join(" ")
    };
    let recorded = drafters.iter().filter(|drafter| drafter.acceptance.steps > 0);
    let lines: Vec<String> = recorded
        .flat_map(|DrafterReason { name, acceptance: Acceptance { steps, by_depth, by_rank }, .. }| {
            let depths = format!("{name}: to depth 1, 2, ... of {steps} steps: {}", shares(by_depth));
            let ranks = format!("{name}: the drafter's candidate 1, 2, ...: {}", shares(by_rank));
            [Some(depths), (!by_rank.is_empty()).then_some(ranks)]
        })
        .flatten()
        .collect();
    write_list(out, "acceptance (measured)", lines)
}

fn write_chains(out: &mut String, chains: &[ChainAnalysis]) -> fmt::Result {
    if chains.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "\nchains by analysis, where verifying costs the same whatever its rows, and the best chain priced (alpha and c \
         measured)"
    )?;
    let titles = ["drafter", "alpha", "c", "tokens", "gain", "priced Dd", "speed-up", "alpha of"];
    let mut rows = vec![cells(titles)];
    for ChainAnalysis { name, alpha, alpha_from, cost, gamma, gain, best_chain } in chains {
        let chain = |cell: fn(&PricedShape) -> String| best_chain.as_ref().map_or("-".to_owned(), cell);
        rows.push(vec![
            name.to_string(),
            format!("{alpha:.2}"),
            format!("{cost:.4}"),
            gamma.to_string(),
            format!("{gain:.2}"),
            chain(|shape| shape.shape.depth.to_string()),
            chain(|shape| format!("{:.2}", shape.speedup)),
            alpha_from.words().to_owned(),
        ]);
    }
    write_table(out, &rows)
}

/// A table for each stage: widths down, contexts across.
fn write_staircases(out: &mut String, staircases: &[Staircase]) -> fmt::Result {
    let mut by_stage: BTreeMap<&Stage, Vec<&Staircase>> = BTreeMap::new();
    for staircase in staircases {
        by_stage.entry(&staircase.stage).or_default().push(staircase);
    }
    for (stage, staircases) in by_stage {
        writeln!(out, "\n{stage}: time of a forward over that of one row, by committed tokens (measured)")?;
        let contexts = staircases.iter().map(|staircase| staircase.context.to_string());
        let mut rows: Vec<Vec<String>> = vec![["rows".to_owned()].into_iter().chain(contexts).collect()];
        let mut widths: Vec<u32> = staircases.iter().flat_map(|s| s.stairs.iter().map(|s| s.width)).collect();
        widths.sort_unstable();
        widths.dedup();
        for width in widths {
            let ratio = |staircase: &&Staircase| {
                let stair: Option<&Stair> = staircase.stairs.iter().find(|stair| stair.width == width);
                stair.and_then(|stair| stair.ratio).map_or("-".to_owned(), |ratio| format!("{ratio:.2}"))
            };
            rows.push([width.to_string()].into_iter().chain(staircases.iter().map(ratio)).collect());
        }
        write_table(out, &rows)?;
    }
    Ok(())
}

fn cells<'a>(cells: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    cells.into_iter().map(str::to_owned).collect()
}

/// Drafter, Dd, Wd, Wv, tokens per step, time per token and speed-up.
fn priced_cells(priced: &PricedShape) -> Vec<String> {
    let PricedShape { name, shape, growth, schedule, depth_rule, rule, aal, step_us: _, tpot_us, speedup } =
        priced;
    let mut row = vec![drafter_cell(name, *growth, *schedule)];
    row.extend(shape_cells(shape, *depth_rule, *rule));
    row.extend([format!("{aal:.2}"), format!("{tpot_us:.0}"), format!("{speedup:.2}")]);
    row
}
