//! Statistics of `run`: the table of `--stats` and the object of `--json`.

use std::{collections::BTreeMap, fmt::Write};

use serde::Serialize;
use yggc::{
    engine::{Answer, FinishReason, Report, Served, StageReport},
    plan::DrafterId,
    policy::SkipCounts,
    runtime::Memory,
    speculate::ProposerCounts,
};

use crate::cli::output;

/// The object that `run --json` prints; its fields are a contract.
#[derive(Debug, Serialize)]
pub(crate) struct AnswerJson<'a> {
    prompt_token_ids: &'a [u32],
    token_ids: &'a [u32],
    text: &'a str,
    finish_reason: &'static str,
    stats: StatsJson<'a>,
}

#[derive(Debug, Serialize)]
struct StatsJson<'a> {
    tokens: usize,
    /// Tokens of the prompt that were kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    reused_tokens: Option<usize>,
    steps: u64,
    drafted: u64,
    accepted: u64,
    /// Tokens that a constraint left no choice about.
    #[serde(skip_serializing_if = "Option::is_none")]
    forced: Option<u64>,
    /// Nodes verified and accepted, by name of the proposer.
    proposers: BTreeMap<&'static str, ProposerJson>,
    acceptance_rate: Option<f64>,
    aal: Option<f64>,
    tpot_ms: Option<f64>,
    ttft_ms: f64,
    tokens_per_s: Option<f64>,
    macro_tokens_per_s: Option<f64>,
    drafter: &'a str,
    plan: Option<&'a str>,
    plan_temperature: Option<f32>,
    spec_off_reason: Option<&'a str>,
    acceptance_by_depth: &'a [f64],
    predicted_tpot_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    skip_search: Option<SkipCounts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    models_left_out: Option<u64>,
    walked_by_device: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    host_walk_reason: Option<&'a str>,
    stages: Vec<StageJson<'a>>,
}

#[derive(Debug, Serialize)]
struct ProposerJson {
    drafted: u64,
    accepted: u64,
}

#[derive(Debug, Serialize)]
struct StageJson<'a> {
    name: &'a str,
    predicted_ms: Option<f64>,
    measured_ms: Option<f64>,
}

impl<'a> AnswerJson<'a> {
    pub(crate) fn new(answer: &'a Answer) -> Self {
        let Answer { prompt_token_ids, token_ids, text, log_probs: _, finish_reason, report } = answer;
        Self {
            prompt_token_ids,
            token_ids,
            text,
            finish_reason: finish_reason.name(),
            stats: StatsJson::new(report),
        }
    }
}

impl<'a> StatsJson<'a> {
    fn new(report: &'a Report) -> Self {
        let Report {
            tokens,
            reused_tokens,
            kept_tokens: _,
            steps,
            drafted,
            accepted,
            forced,
            proposers,
            acceptance_rate,
            aal,
            tpot_ms,
            ttft_ms,
            tokens_per_s,
            macro_tokens_per_s,
            drafter,
            plan,
            plan_temperature,
            spec_off_reason,
            acceptance_by_depth,
            counts_by_depth: _,
            paused_steps: _,
            models_left_out,
            walked_by_device,
            host_walk_reason,
            predicted_tpot_ms,
            predicted_speedup: _,
            skip_search,
            stages,
        } = report;
        let stage = |StageReport { name, predicted_ms, measured_ms }: &'a StageReport| StageJson {
            name,
            predicted_ms: *predicted_ms,
            measured_ms: *measured_ms,
        };
        let proposer = |(proposer, counts): &(DrafterId, ProposerCounts)| {
            let ProposerCounts { drafted, accepted } = *counts;
            (proposer.name(), ProposerJson { drafted, accepted })
        };
        Self {
            tokens: *tokens,
            reused_tokens: Some(*reused_tokens).filter(|reused| *reused > 0),
            steps: *steps,
            drafted: *drafted,
            accepted: *accepted,
            forced: Some(*forced).filter(|forced| *forced > 0),
            proposers: proposers.iter().map(proposer).collect(),
            acceptance_rate: *acceptance_rate,
            aal: *aal,
            tpot_ms: *tpot_ms,
            ttft_ms: *ttft_ms,
            tokens_per_s: *tokens_per_s,
            macro_tokens_per_s: *macro_tokens_per_s,
            drafter,
            plan: plan.as_deref(),
            plan_temperature: *plan_temperature,
            spec_off_reason: spec_off_reason.as_deref(),
            acceptance_by_depth,
            predicted_tpot_ms: *predicted_tpot_ms,
            skip_search: *skip_search,
            models_left_out: Some(*models_left_out).filter(|steps| *steps > 0),
            walked_by_device: *walked_by_device,
            host_walk_reason: host_walk_reason.as_deref(),
            stages: stages.iter().map(stage).collect(),
        }
    }
}

/// An end in the words of `--stats`.
fn ending(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop => "by the model",
        FinishReason::StopString { index: _ } => "at a stop string",
        FinishReason::Length => "at the limit of -n or the context",
        FinishReason::Cancelled => "by Ctrl-C",
    }
}

/// Memory in one line.
pub(crate) fn memory(memory: Memory) -> String {
    let Memory { weight_bytes, streamed_bytes, pinned_bytes, session_bytes } = memory;
    let bytes = |bytes: usize| output::bytes(bytes as u64);
    let streamed = match streamed_bytes {
        0 => String::new(),
        streamed if pinned_bytes > 0 => {
            format!("; {} of weights are streamed for every forward from pinned memory", bytes(streamed))
        }
        streamed => format!("; {} of weights are streamed", bytes(streamed)),
    };
    format!("memory     {} of weights, {} of session{streamed}", bytes(weight_bytes), bytes(session_bytes))
}

/// Why an answer is incomplete, with the flag that lets it go on; `None` of a complete one. `max_tokens` is what `-n`
/// says.
pub(crate) fn cut(reason: FinishReason, report: &Report, max_tokens: Option<usize>) -> Option<String> {
    let tokens = report.tokens;
    match reason {
        FinishReason::Stop | FinishReason::StopString { index: _ } | FinishReason::Cancelled => None,
        FinishReason::Length if max_tokens == Some(tokens) => {
            Some(format!("cut off after {tokens} tokens, as -n says; a larger -n, or none, lets it go on"))
        }
        FinishReason::Length => Some(format!(
            "cut off after {tokens} tokens: the context is full; --context N makes room for more"
        )),
    }
}

/// The table of `--stats`.
pub(crate) fn table(reason: FinishReason, report: &Report) -> String {
    let mut out = String::new();
    write_table(reason, report, &mut out).expect("a string accepts every write");
    out
}

fn write_table(reason: FinishReason, report: &Report, out: &mut String) -> std::fmt::Result {
    let or_none = |number: Option<f64>, digits: usize| {
        number.map_or_else(|| "-".to_owned(), |number| format!("{number:.digits$}"))
    };
    let Report { tokens, steps, drafted, drafter, ttft_ms, .. } = report;
    writeln!(
        out,
        "speed      {} tokens/s, {} ms/token (TPOT), first token after {ttft_ms:.1} ms (TTFT)",
        or_none(report.tokens_per_s, 1),
        or_none(report.tpot_ms, 2)
    )?;
    writeln!(out, "tokens     {tokens} in {steps} steps, {} a step (AAL)", or_none(report.aal, 2))?;
    writeln!(out, "ended      {}", ending(reason))?;
    if report.reused_tokens > 0 {
        let Served { memory, disk } = report.kept_tokens;
        let before = report.reused_tokens.saturating_sub(memory + disk);
        let from = [(before, "of the request before"), (memory, "from memory"), (disk, "from disk")];
        let from = from.iter().filter(|(tokens, _)| *tokens > 0);
        let from: Vec<String> = from.map(|(tokens, place)| format!("{tokens} {place}")).collect();
        writeln!(out, "prompt     {} tokens kept: {}", report.reused_tokens, from.join(", "))?;
    }
    if report.forced > 0 {
        writeln!(out, "forced     {} tokens that the constraint left no choice about", report.forced)?;
    }
    match &report.spec_off_reason {
        Some(reason) => writeln!(out, "drafter    {drafter}, {drafted} nodes verified: {reason}")?,
        None => writeln!(out, "drafter    {drafter}, {drafted} nodes verified")?,
    }
    if report.models_left_out > 0 {
        writeln!(out, "copied     in {} steps, without the drafter's model", report.models_left_out)?;
    }
    match &report.host_walk_reason {
        Some(reason) => writeln!(out, "verified   and walked through by the host: {reason}")?,
        None if report.walked_by_device > 0 => {
            writeln!(
                out,
                "verified   and walked through by the device in {} steps",
                report.walked_by_device
            )?;
        }
        None => {}
    }
    if let [_, _, ..] = report.proposers[..] {
        let each = report.proposers.iter().map(|(proposer, counts)| {
            format!("{} {} of {}", proposer.name(), counts.accepted, counts.drafted)
        });
        writeln!(out, "proposed   {} accepted", each.collect::<Vec<_>>().join(", "))?;
    }
    if !report.acceptance_by_depth.is_empty() {
        let shares: Vec<String> =
            report.acceptance_by_depth.iter().map(|share| format!("{share:.2}")).collect();
        writeln!(out, "accepted   {} (share of steps that went so deep)", shares.join(" "))?;
    }
    if let Some(counts) = &report.skip_search {
        let SkipCounts {
            tries,
            changes,
            reopened,
            is_searching,
            matchness,
            skip_ratio,
            tried_us,
            stepped_us,
        } = *counts;
        let state = if is_searching { "searching" } else { "settled" };
        writeln!(
            out,
            "skip set   {state} after {tries} tries, {changes} changes, begun again {reopened} times; it skips {:.0} \
             % and said {:.0} % of the last tokens; tries were {:.2} % of the counted work",
            skip_ratio * 100.0,
            matchness * 100.0,
            if stepped_us > 0.0 { tried_us / stepped_us * 100.0 } else { 0.0 }
        )?;
    }
    if let Some(plan) = &report.plan {
        match report.plan_temperature {
            Some(temperature) => writeln!(out, "plan       {plan}, as it is for temperature {temperature}")?,
            None => writeln!(out, "plan       {plan}")?,
        }
        writeln!(
            out,
            "predicted  {} ms/token, {}x plain decoding",
            or_none(report.predicted_tpot_ms, 2),
            or_none(report.predicted_speedup, 2)
        )?;
    }
    let mut rows = vec![["stage", "predicted ms", "measured ms"].map(str::to_owned)];
    for StageReport { name, predicted_ms, measured_ms } in &report.stages {
        rows.push([name.clone(), or_none(*predicted_ms, 3), or_none(*measured_ms, 3)]);
    }
    out.push_str(&output::table(&rows));
    Ok(())
}
