//! What a finished request reports: measured and predicted.

use crate::{
    plan::{ContextRange, DrafterId, Stage, StepStage, SubPlan},
    policy::{GuardTerms, SkipCounts},
    prefix::Served,
    speculate::{Decoder, GuardCounts, ProposerCounts, Speculation},
};

/// Why a request that asked for plain decoding, or an engine opened for it, drafted nothing.
pub(super) const SWITCHED_OFF: &str = "switched off by the request";

/// Why a request drafts no more whose grammar takes more than usual to follow.
const SLOW_GRAMMAR: &str = "the grammar is slow to follow";

/// Predicted by the plan, measured by this request. Plain data.
#[derive(Clone, Debug, PartialEq)]
pub struct StageReport {
    /// Stage name.
    pub name: String,
    /// Per step, from the plan; `None` if the plan does not know the stage.
    pub predicted_ms: Option<f64>,
    /// Per step, mean of this request; `None` if it had no step.
    pub measured_ms: Option<f64>,
}

/// The numbers of one request. Plain data, made when it is asked for.
#[derive(Clone, Debug)]
pub struct Report {
    /// Tokens emitted.
    pub tokens: usize,
    /// Tokens of the prompt that were not run: their keys and values were kept, of the request before or of an earlier
    /// one.
    pub reused_tokens: usize,
    /// Those of them that came from a store of [`prefixes`](super::Options::prefixes).
    pub kept_tokens: Served,
    /// Draft-verify-commit rounds.
    pub steps: u64,
    /// Drafted nodes verified.
    pub drafted: u64,
    /// Drafted nodes accepted.
    pub accepted: u64,
    /// Tokens that the request's constraint left no choice about, emitted without being drafted or drawn.
    pub forced: u64,
    /// Who proposed nodes that were verified, and what became of them.
    pub proposers: Vec<(DrafterId, ProposerCounts)>,
    /// Acceptance rate, alpha: accepted nodes of the verified ones; `None` without any.
    pub acceptance_rate: Option<f64>,
    /// Tokens per step; `None` without a step.
    pub aal: Option<f64>,
    /// Time per output token over all steps.
    pub tpot_ms: Option<f64>,
    /// Time to the first token: the prefill.
    pub ttft_ms: f64,
    /// Output tokens per second of stepping: micro throughput (SPECTRA).
    pub tokens_per_s: Option<f64>,
    /// Macro throughput (SPECTRA): the mean of the steps' tokens per second.
    pub macro_tokens_per_s: Option<f64>,
    /// Name of the drafter, `none` for plain decoding.
    pub drafter: String,
    /// Where the plan came from.
    pub plan: Option<String>,
    /// Temperature of the recorded requests that the request's part of the plan was made for: the nearest to its own.
    pub plan_temperature: Option<f32>,
    /// Why nothing was drafted, or not at every step, if so.
    pub spec_off_reason: Option<String>,
    /// For depths 1, 2, ...: of the steps that verified a node so deep, the share that accepted one.
    pub acceptance_by_depth: Vec<f64>,
    /// For the same depths: steps that verified a node so deep, and those of them that accepted one.
    pub counts_by_depth: Vec<(u64, u64)>,
    /// Steps that a guard decoded plainly, after drafts that did not pay.
    pub paused_steps: u64,
    /// Steps of a mixture that did without its model, since a copy was nearly certain.
    pub models_left_out: u64,
    /// Steps that a device verified, walked and committed by itself.
    pub walked_by_device: u64,
    /// Why the host did, where the plan leaves that to the device.
    pub host_walk_reason: Option<String>,
    /// TPOT that the plan predicts.
    pub predicted_tpot_ms: Option<f64>,
    /// Speed-up over plain decoding that the plan predicts.
    pub predicted_speedup: Option<f64>,
    /// What the search for a skip set did, in all its requests, if the drafter searches.
    pub skip_search: Option<SkipCounts>,
    /// Stages of a step.
    pub stages: Vec<StageReport>,
}

/// What the engine knows of a band, apart from what its decoder steps by.
#[derive(Clone, Debug, Default)]
pub(super) struct Background {
    /// Where the plan came from, if there is one.
    pub(super) plan: Option<String>,
    /// Why nothing is drafted, of plain decoding.
    pub(super) off_reason: Option<String>,
    /// Whether steps go as the plan predicts.
    pub(super) is_predicted: bool,
}

impl Report {
    pub(super) fn new(tokens: usize, decoder: &Decoder, background: &Background) -> Self {
        let Background { plan, off_reason, is_predicted } = background;
        let (stats, sub_plan, range) = (decoder.stats(), decoder.sub_plan(), decoder.range());
        let switched_off = match decoder.speculation() {
            Speculation::AsOpened => None,
            Speculation::Off => Some(SWITCHED_OFF.to_owned()),
        };
        let off_here = || {
            let ContextRange { from, drafts, .. } = range;
            (!drafts).then(|| format!("the plan expects no gain of drafting after {from} tokens"))
        };
        let prediction =
            Some(&range.predicted).filter(|_| *is_predicted && (range.drafts || sub_plan.is_plain()));
        let steps = stats.steps as f64;
        let tpot_ms =
            (stats.step_tokens > 0).then(|| stats.step_time().as_secs_f64() * 1e3 / stats.step_tokens as f64);
        // A plan may price a stage in parts: the first forward of a drafter, and its others.
        let predicted = |stage: StepStage| {
            let parts =
                prediction?.stages.iter().filter(|time| waited_for_in(&time.stage, sub_plan) == stage);
            parts.map(|time| time.us / 1e3).reduce(|sum, ms| sum + ms)
        };
        let stages = StepStage::ALL
            .into_iter()
            .map(|stage| StageReport {
                name: stage.name().to_owned(),
                predicted_ms: predicted(stage),
                measured_ms: (stats.steps > 0).then(|| stats.stage_time(stage).as_secs_f64() * 1e3 / steps),
            })
            .collect();
        Self {
            tokens,
            reused_tokens: usize::try_from(stats.reused).expect("part of a prompt"),
            kept_tokens: stats.served,
            steps: stats.steps,
            drafted: stats.drafted,
            accepted: stats.accepted,
            forced: stats.forced,
            proposers: stats.by_proposer().filter(|(_, counts)| counts.drafted > 0).collect(),
            acceptance_rate: stats.acceptance_rate(),
            aal: stats.aal(),
            tpot_ms,
            ttft_ms: stats.prefill.as_secs_f64() * 1e3,
            tokens_per_s: tpot_ms.filter(|t| *t > 0.0).map(|t| 1e3 / t),
            macro_tokens_per_s: stats.macro_tokens_per_s(),
            drafter: sub_plan.drafter.name().to_owned(),
            plan: plan.clone(),
            plan_temperature: plan.is_some().then(|| decoder.temperature()),
            spec_off_reason: switched_off
                .or_else(|| off_reason.clone())
                .or_else(off_here)
                .or_else(|| decoder.has_slow_grammar().then(|| SLOW_GRAMMAR.to_owned()))
                .or_else(|| {
                    decoder.guard_terms().and_then(|terms| fell_back(stats.steps, &stats.guard, &terms))
                }),
            acceptance_by_depth: stats.acceptance_by_depth(),
            counts_by_depth: stats.counts_by_depth(),
            paused_steps: stats.guard.paused_steps,
            models_left_out: stats.models_left_out,
            walked_by_device: stats.walked_by_device,
            host_walk_reason: decoder.host_walk_reason().map(str::to_owned),
            predicted_tpot_ms: prediction.map(|predicted| predicted.tpot_us / 1e3),
            predicted_speedup: prediction.map(|_| range.unseen.speedup),
            skip_search: stats.skip_search,
            stages,
        }
    }
}

/// The stage of a step in which a request of a sub-plan waits for a planned stage.
fn waited_for_in(stage: &Stage, sub_plan: &SubPlan) -> StepStage {
    // Forwards and growths are waited for with the verification after them.
    let is_growth = matches!(stage, Stage::FirstGrowth(_) | Stage::NextGrowth(_));
    if is_growth && sub_plan.schedule.prunes_on_device() { StepStage::Verify } else { stage.of_step() }
}

/// Why a request stopped drafting for a while, if it did.
fn fell_back(steps: u64, counts: &GuardCounts, terms: &GuardTerms) -> Option<String> {
    let GuardCounts { pauses, paused_steps, speculative_steps, speculative_tokens, priced_us } = *counts;
    let speculative = speculative_steps as f64;
    (pauses > 0).then(|| {
        format!(
            "{paused_steps} of {steps} steps decoded plainly, after drafts that did not pay; steps that drafted gave {:.2} tokens a step, {:.2} would pay, {:.2} were predicted",
            speculative_tokens as f64 / speculative,
            priced_us / speculative / terms.plain_step_us,
            terms.aal
        )
    })
}
