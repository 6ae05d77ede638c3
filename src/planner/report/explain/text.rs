//! An explanation for people: words and tables.
use std::{
    collections::BTreeMap,
    fmt::{self, Write},
};

use ygg_profiler::Stage;

use crate::{
    plan::{Acceptance, LeftOut, Plan, PricedShape},
    planner::report::{
        layout::{write_list, write_table, write_titled},
        verdict::Verdict,
        words::describe_refusal,
    },
};

use super::{
    BandReason, ChainAnalysis, DrafterReason, Explanation, Margin, ObjectiveContrast, PartGain, Stair,
    Staircase,
    details::{write_origin, write_shapes},
    tables,
};

/// The explanation of `plan` as text, with everything else that the plan holds for the same temperature.
///
/// # Panics
/// If the plan is not valid.
pub fn text(plan: &Plan, explanation: &Explanation) -> String {
    let mut out = String::new();
    write_text(plan, explanation, &mut out).expect("a string accepts every write");
    out
}

fn write_text(plan: &Plan, explanation: &Explanation, out: &mut String) -> fmt::Result {
    let Explanation {
        verdict,
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
    let band = plan.band_for(*temperature);
    write_verdict(out, verdict)?;
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
    write_shapes(out, plan, band)?;
    write_list(out, "refused: the traces do not reach", refused.iter().map(describe_refusal))?;
    let lacking = left_out.iter().map(|LeftOut { name, lacks }| format!("{name}: no {lacks}"));
    write_list(out, "drafters left out", lacking)?;
    write_list(out, "findings in the latency table", findings)?;
    write_origin(out, plan, band)
}

/// The verdict, and what would give more.
fn write_verdict(out: &mut String, Verdict { gain, advice }: &Verdict) -> fmt::Result {
    writeln!(out, "verdict      {gain}")?;
    let heads = std::iter::once("for more    ").chain(std::iter::repeat("            "));
    advice.iter().zip(heads).try_for_each(|(advice, head)| writeln!(out, "{head} {advice}"))
}

/// A table of the temperatures; a line where there is only one.
fn write_bands(out: &mut String, bands: &[BandReason]) -> fmt::Result {
    if bands.len() == 1 {
        return writeln!(out, "temperatures only greedy requests were recorded, so all requests go by them");
    }
    writeln!(
        out,
        "\nwhat requests of each temperature get (predicted); a request goes by the nearest to its own; the rest is said of one"
    )?;
    write_titled(out, tables::temperatures(bands))?;
    bands
        .iter()
        .skip(1)
        .try_for_each(|BandReason { temperature, reason, .. }| writeln!(out, "  at {temperature}: {reason}"))
}

fn write_drafters(out: &mut String, drafters: &[DrafterReason]) -> fmt::Result {
    writeln!(out, "\nwhy each drafter won or lost (predicted)")?;
    for DrafterReason { best, reason, .. } in drafters {
        writeln!(out, "  {}: {reason}", best.name)?;
    }
    writeln!(
        out,
        "\nbest shape of every drafter (predicted; what to expect on others than the recorded prompts; where the time of a step goes)"
    )?;
    write_titled(out, tables::drafters(drafters))
}

fn write_parts(out: &mut String, parts: &[PartGain]) -> fmt::Result {
    if parts.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "\nwhat each part adds (predicted; the best shape with it and all parts before it; those not listed change nothing)"
    )?;
    write_titled(out, tables::parts(parts))
}

fn write_objective(out: &mut String, objective: &ObjectiveContrast) -> fmt::Result {
    let ObjectiveContrast { overall, by_drafter } = objective;
    writeln!(out, "\nmost tokens per time (eq. 3) against most tokens per step (predicted)")?;
    writeln!(out, "  {}", overall.words())?;
    if by_drafter.is_empty() { Ok(()) } else { write_titled(out, tables::objectives(by_drafter)) }
}

fn write_acceptance(out: &mut String, drafters: &[DrafterReason]) -> fmt::Result {
    let shares = |shares: &[f64]| {
        let shares: Vec<String> = shares.iter().map(|share| format!("{share:.2}")).collect();
        shares.join(" ")
    };
    let recorded = drafters.iter().filter(|drafter| drafter.acceptance.steps > 0);
    let lines: Vec<String> = recorded
        .flat_map(
            |DrafterReason {
                 best: PricedShape { name, .. },
                 acceptance: Acceptance { steps, by_depth, by_rank },
                 ..
             }| {
                let depths = format!("{name}: to depth 1, 2, ... of {steps} steps: {}", shares(by_depth));
                let ranks = format!("{name}: the drafter's candidate 1, 2, ...: {}", shares(by_rank));
                [Some(depths), (!by_rank.is_empty()).then_some(ranks)]
            },
        )
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
    write_titled(out, tables::chains(chains))
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
