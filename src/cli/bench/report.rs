//! The report of a bench: measured runs and derived numbers, kept apart.

use std::{collections::BTreeMap, fmt::Write};

use serde::Serialize;
use ygg_profiler::statistics;
use yggc::{
    engine::{Loaded, Report, Sampling},
    policy::SkipCounts,
};

use crate::cli::{args::BenchArgs, error::Failure, output, settings};

use super::{Question, REPETITIONS, provenance::Provenance};

/// The place of an answer in a bench.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Turn {
    /// Place in [`Bench::arms`].
    pub(super) arm: usize,
    pub(super) repetition: usize,
    #[serde(skip)]
    pub(super) prompt: usize,
    /// Number of arms that answered this prompt earlier in this repetition.
    pub(super) place: usize,
}

/// One answer of one arm: measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Run {
    #[serde(flatten)]
    turn: Turn,
    tokens: usize,
    steps: u64,
    drafted: u64,
    accepted: u64,
    /// For depths 1, 2, ...: steps that verified a node of that depth, and steps that accepted one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    counts_by_depth: Vec<(u64, u64)>,
    /// Mean time of drafting, per step: T_draft.
    draft_ms: Option<f64>,
    aal: Option<f64>,
    tpot_ms: Option<f64>,
    macro_tokens_per_s: Option<f64>,
    ttft_ms: f64,
    /// Wall time from the prompt's ids to the complete text.
    total_ms: f64,
    /// For a drafter that tunes its skip set: time of its tries, and the state of its search.
    #[serde(skip_serializing_if = "Option::is_none")]
    skip_search: Option<SkipRun>,
    /// Why the drafter did not draft at every step, if it did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    fell_back: Option<String>,
}

/// The search for a skip set: measured time within one answer, and counts over all answers of the arm.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct SkipRun {
    tune_ms: f64,
    /// E(Spd) of SWIFT: the speed-up expected from the answer's tokens per step, its acceptance rate and the share
    /// skipped.
    expected_speedup: Option<f64>,
    #[serde(flatten)]
    counts: SkipCounts,
}

impl SkipRun {
    fn of(report: &Report) -> Option<Self> {
        let tune = report.stages.iter().find(|stage| stage.name == "tune");
        let per_step = tune.and_then(|stage| stage.measured_ms).unwrap_or(0.0);
        report.skip_search.map(|counts| Self {
            tune_ms: per_step * report.steps as f64,
            expected_speedup: report
                .aal
                .zip(report.acceptance_rate)
                .map(|(aal, alpha)| speedup_of_skipping(aal, alpha, counts.skip_ratio)),
            counts,
        })
    }
}

/// `E = M alpha / ((M - 1) c + alpha)` with M tokens per step, the acceptance rate alpha, and a draft that costs
/// `c = 1 - skip_ratio` of a plain step (SWIFT, eq. 6, <https://arxiv.org/abs/2410.06916>). Without accepted tokens it
/// is 0.
fn speedup_of_skipping(aal: f64, alpha: f64, skip_ratio: f64) -> f64 {
    if alpha > 0.0 { aal * alpha / ((aal - 1.0) * (1.0 - skip_ratio) + alpha) } else { 0.0 }
}

impl Run {
    pub(super) fn new(turn: Turn, report: &Report, total_ms: f64) -> Self {
        let Report { tokens, steps, drafted, accepted, aal, tpot_ms, macro_tokens_per_s, ttft_ms, .. } =
            *report;
        let skip_search = SkipRun::of(report);
        let draft = report.stages.iter().find(|stage| stage.name == "draft");
        let fell_back = report.spec_off_reason.clone().filter(|_| report.drafter != "none");
        Self {
            turn,
            tokens,
            steps,
            drafted,
            accepted,
            counts_by_depth: report.counts_by_depth.clone(),
            draft_ms: draft.and_then(|stage| stage.measured_ms),
            aal,
            tpot_ms,
            macro_tokens_per_s,
            ttft_ms,
            total_ms,
            skip_search,
            fell_back,
        }
    }

    /// Tokens emitted by steps: all of an answer but the first.
    fn step_tokens(&self) -> f64 {
        self.aal.unwrap_or(0.0) * self.steps as f64
    }

    fn step_ms(&self) -> Option<f64> {
        Some(self.tpot_ms? * self.aal?)
    }
}

/// Median, least and greatest of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct Spread {
    median: f64,
    min: f64,
    max: f64,
}

impl Spread {
    fn of(samples: &[f64]) -> Option<Self> {
        let sorted = statistics::sorted(samples);
        Some(Self { median: statistics::median(samples)?, min: *sorted.first()?, max: *sorted.last()? })
    }
}

/// Derived from the runs of one arm, or of one arm and category. Numbers are absent if no step was measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Summary {
    runs: usize,
    /// Median of the runs' time per output token.
    tpot_ms: Option<f64>,
    tpot_ms_min: Option<f64>,
    tpot_ms_max: Option<f64>,
    /// Micro throughput: tokens of all steps divided by their time.
    tokens_per_s: Option<f64>,
    /// Macro throughput (SPECTRA): the mean of the steps' tokens per second.
    macro_tokens_per_s: Option<f64>,
    /// Compression ratio, tau (SPECTRA): plain decoding's steps divided by this arm's, for the same answers.
    compression_ratio: Option<f64>,
    /// Acceptance rate, alpha: accepted nodes divided by verified nodes.
    acceptance_rate: Option<f64>,
    /// Tokens of all steps divided by the number of steps.
    aal: Option<f64>,
    step_ms: Option<Spread>,
    ttft_ms: Option<Spread>,
    /// Plain decoding's whole time divided by this arm's, for pairs of the same prompt and repetition.
    speedup: Option<Spread>,
    /// The same for the time per output token.
    tpot_speedup: Option<Spread>,
}

#[derive(Debug, Serialize)]
struct ArmJson {
    name: String,
    drafter: String,
    plan: Option<String>,
    spec_off_reason: Option<String>,
    predicted_tpot_ms: Option<f64>,
    predicted_speedup: Option<f64>,
    #[serde(flatten)]
    summary: Summary,
    categories: BTreeMap<String, Summary>,
}

#[derive(Debug, Serialize)]
struct PromptJson {
    category: String,
    prompt_tokens: usize,
    runs: Vec<Run>,
}

/// The object that `bench --json` prints.
#[derive(Debug, Serialize)]
pub(super) struct Bench {
    #[serde(flatten)]
    provenance: Provenance,
    repetitions: usize,
    max_tokens: usize,
    sampling: Sampling,
    arms: Vec<ArmJson>,
    prompts: Vec<PromptJson>,
}

/// Description of an arm.
#[derive(Debug)]
pub(super) struct Entrant {
    pub(super) name: String,
    pub(super) report: Report,
}

impl Bench {
    pub(super) fn new(
        loaded: &Loaded,
        args: &BenchArgs,
        entrants: Vec<Entrant>,
        questions: &[Question],
        runs: Vec<Run>,
    ) -> Result<Self, Failure> {
        let arms = entrants
            .into_iter()
            .enumerate()
            .map(|(arm, Entrant { name, report })| ArmJson {
                name,
                drafter: report.drafter,
                plan: report.plan,
                spec_off_reason: report.spec_off_reason,
                predicted_tpot_ms: report.predicted_tpot_ms,
                predicted_speedup: report.predicted_speedup,
                summary: summary(&runs, arm, |_| true),
                categories: categories(&runs, arm, questions),
            })
            .collect();
        let prompts = questions
            .iter()
            .enumerate()
            .map(|(prompt, question)| PromptJson {
                category: question.category.clone(),
                prompt_tokens: question.ids.len(),
                runs: runs.iter().filter(|run| run.turn.prompt == prompt).cloned().collect(),
            })
            .collect();
        Ok(Self {
            provenance: Provenance::new(loaded)?,
            repetitions: args.repetitions.unwrap_or(REPETITIONS),
            max_tokens: args.max_tokens,
            sampling: settings::sampling(&args.sampling),
            arms,
            prompts,
        })
    }

    /// The arms as tables.
    pub(super) fn text(&self) -> String {
        let head = ["arm", "tokens/s", "ms/token", "min", "max", "AAL", "step ms", "speed-up", "predicted"];
        let mut rows = vec![head.map(str::to_owned)];
        for arm in &self.arms {
            let Summary { tpot_ms, tpot_ms_min, tpot_ms_max, tokens_per_s, aal, step_ms, speedup, .. } =
                &arm.summary;
            rows.push([
                arm.name.clone(),
                number(*tokens_per_s, 1),
                number(*tpot_ms, 2),
                number(*tpot_ms_min, 2),
                number(*tpot_ms_max, 2),
                number(*aal, 2),
                number(step_ms.map(|spread| spread.median), 2),
                number(speedup.map(|spread| spread.median), 3),
                number(arm.predicted_speedup, 3),
            ]);
        }
        let mut out = output::table(&rows);
        let mut rows = vec![["category", "arm", "ms/token", "AAL", "speed-up"].map(str::to_owned)];
        for arm in self.arms.iter().skip(1) {
            for (category, Summary { tpot_ms, aal, speedup, .. }) in &arm.categories {
                rows.push([
                    category.clone(),
                    arm.name.clone(),
                    number(*tpot_ms, 2),
                    number(*aal, 2),
                    number(speedup.map(|spread| spread.median), 3),
                ]);
            }
        }
        if rows.len() > 1 {
            out.push('\n');
            out.push_str(&output::table(&rows));
        }
        writeln!(
            out,
            "\n{} prompts, {} repetitions, at most {} tokens; {}; all arms gave the same tokens",
            self.prompts.len(),
            self.repetitions,
            self.max_tokens,
            self.provenance.machine.facts
        )
        .expect("a string accepts every write");
        for (place, arm) in self.arms.iter().enumerate() {
            if let (Some(reason), true) = (&arm.spec_off_reason, arm.drafter == "none" && arm.name != "ar") {
                writeln!(out, "{} decoded plainly: {reason}", arm.name)
                    .expect("a string accepts every write");
            }
            let runs = self.prompts.iter().flat_map(|prompt| &prompt.runs);
            out.push_str(&fallbacks(&arm.name, runs.filter(|run| run.turn.arm == place)));
        }
        out
    }
}

/// Number of an arm's answers that fell back to plain decoding, with one reason; empty if none did.
fn fallbacks<'r>(arm: &str, runs: impl Iterator<Item = &'r Run>) -> String {
    let (mut all, mut fell, mut first) = (0, 0, None);
    for run in runs {
        all += 1;
        if let Some(reason) = &run.fell_back {
            fell += 1;
            first.get_or_insert((run.turn.prompt + 1, reason));
        }
    }
    first.map_or(String::new(), |(prompt, reason)| {
        format!(
            "{arm} fell back to plain decoding in {fell} of {all} answers, as to prompt {prompt}: {reason}\n"
        )
    })
}

fn number(number: Option<f64>, digits: usize) -> String {
    number.map_or_else(|| "-".to_owned(), |number| format!("{number:.digits$}"))
}

fn categories(runs: &[Run], arm: usize, questions: &[Question]) -> BTreeMap<String, Summary> {
    let names: std::collections::BTreeSet<&str> = questions.iter().map(|q| q.category.as_str()).collect();
    names
        .into_iter()
        .map(|name| (name.to_owned(), summary(runs, arm, |prompt| questions[prompt].category == name)))
        .collect()
}

/// The numbers of one arm over the selected prompts. Arm 0 is plain decoding.
fn summary(runs: &[Run], arm: usize, wanted: impl Fn(usize) -> bool) -> Summary {
    let mine: Vec<&Run> = runs.iter().filter(|run| run.turn.arm == arm && wanted(run.turn.prompt)).collect();
    let samples =
        |of: &dyn Fn(&Run) -> Option<f64>| -> Vec<f64> { mine.iter().filter_map(|run| of(run)).collect() };
    let against_plain = |of: &dyn Fn(&Run) -> Option<f64>| {
        let ratios: Vec<f64> =
            mine.iter().filter_map(|run| Some(of(pair_of(run, runs)?)? / of(run)?)).collect();
        Spread::of(&ratios)
    };
    let tpot = Spread::of(&samples(&|run| run.tpot_ms));
    let step_tokens: f64 = mine.iter().map(|run| run.step_tokens()).sum();
    let steps: u64 = mine.iter().map(|run| run.steps).sum();
    let plain_steps: u64 = mine.iter().filter_map(|run| pair_of(run, runs)).map(|plain| plain.steps).sum();
    let rates: f64 = mine.iter().filter_map(|run| Some(run.macro_tokens_per_s? * run.steps as f64)).sum();
    let drafted: u64 = mine.iter().map(|run| run.drafted).sum();
    let accepted: u64 = mine.iter().map(|run| run.accepted).sum();
    let step_s: f64 = mine.iter().filter_map(|run| Some(run.tpot_ms? * run.step_tokens() / 1e3)).sum();
    Summary {
        runs: mine.len(),
        tpot_ms: tpot.map(|spread| spread.median),
        tpot_ms_min: tpot.map(|spread| spread.min),
        tpot_ms_max: tpot.map(|spread| spread.max),
        tokens_per_s: (step_s > 0.0).then(|| step_tokens / step_s),
        macro_tokens_per_s: (steps > 0).then(|| rates / steps as f64),
        compression_ratio: (steps > 0).then(|| plain_steps as f64 / steps as f64),
        acceptance_rate: (drafted > 0).then(|| accepted as f64 / drafted as f64),
        aal: (steps > 0).then(|| step_tokens / steps as f64),
        step_ms: Spread::of(&samples(&Run::step_ms)),
        ttft_ms: Spread::of(&samples(&|run| Some(run.ttft_ms))),
        speedup: against_plain(&|run| Some(run.total_ms)),
        tpot_speedup: against_plain(&|run| run.tpot_ms),
    }
}

/// Plain decoding's answer to the same prompt in the same repetition.
fn pair_of<'r>(run: &Run, runs: &'r [Run]) -> Option<&'r Run> {
    let Turn { prompt, repetition, .. } = run.turn;
    runs.iter().find(|other| {
        let turn = other.turn;
        (turn.arm, turn.prompt, turn.repetition) == (0, prompt, repetition)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(arm: usize, repetition: usize, prompt: usize, steps: u64, tpot_ms: f64, total_ms: f64) -> Run {
        let aal = Some(10.0 / steps as f64);
        Run {
            turn: Turn { arm, repetition, prompt, place: 0 },
            tokens: 11,
            steps,
            drafted: 40,
            accepted: 10 - steps,
            counts_by_depth: Vec::new(),
            draft_ms: None,
            aal,
            tpot_ms: Some(tpot_ms),
            macro_tokens_per_s: Some(1e3 / tpot_ms),
            ttft_ms: 5.0,
            total_ms,
            skip_search: None,
            fell_back: None,
        }
    }

    #[test]
    fn answers_that_fell_back_are_counted_and_one_explained() {
        let reason = |text: &str| Some(text.to_owned());
        let runs = [
            run(1, 0, 0, 10, 4.0, 40.0),
            Run { fell_back: reason("drafts did not pay"), ..run(1, 0, 1, 10, 4.0, 40.0) },
            Run { fell_back: reason("something else"), ..run(1, 1, 1, 10, 4.0, 40.0) },
        ];
        assert_eq!(
            fallbacks("plan", runs.iter()),
            "plan fell back to plain decoding in 2 of 3 answers, as to prompt 2: drafts did not pay\n"
        );
        assert_eq!(fallbacks("plan", runs[..1].iter()), "");
    }

    #[test]
    fn arms_are_compared_with_plain_decoding_pair_by_pair() {
        let runs = [
            run(0, 0, 0, 10, 4.0, 40.0),
            run(1, 0, 0, 5, 2.0, 20.0),
            run(0, 1, 0, 10, 6.0, 60.0),
            run(1, 1, 0, 5, 2.0, 20.0),
            run(0, 0, 1, 10, 4.0, 40.0),
            run(1, 0, 1, 5, 8.0, 80.0),
        ];
        let all = summary(&runs, 1, |_| true);
        assert_eq!(all.speedup, Some(Spread { median: 2.0, min: 0.5, max: 3.0 }));
        assert_eq!((all.runs, all.tpot_ms, all.tpot_ms_max), (3, Some(2.0), Some(8.0)));
        assert_eq!(all.aal, Some(2.0));
        assert_eq!(all.tokens_per_s, Some(30.0 / 0.12));
        assert_eq!(all.step_ms.unwrap().median, 4.0);
        assert_eq!((all.compression_ratio, all.acceptance_rate), (Some(2.0), Some(0.125)));
        assert_eq!(all.macro_tokens_per_s, Some((500.0 + 500.0 + 125.0) / 3.0));
        let second = summary(&runs, 1, |prompt| prompt == 1);
        assert_eq!(second.speedup, Some(Spread { median: 0.5, min: 0.5, max: 0.5 }));
        let plain = summary(&runs, 0, |_| true);
        assert_eq!(plain.speedup, Some(Spread { median: 1.0, min: 1.0, max: 1.0 }));
    }

    #[test]
    fn answers_of_one_token_have_no_time_per_token() {
        let lone = Run { steps: 0, aal: None, tpot_ms: None, ..run(0, 0, 0, 1, 1.0, 5.0) };
        let summary = summary(&[lone], 0, |_| true);
        assert_eq!((summary.tpot_ms, summary.aal, summary.tokens_per_s), (None, None, None));
        assert_eq!(summary.ttft_ms.map(|spread| spread.median), Some(5.0));
    }
}
