//! `yggc bench`: arms (plain decoding, plans, drafters) answer the same prompts in turn; every answer is compared.
//!
//! The model is loaded once and shared by the arms' engines, each with a session of its own. Runs are interleaved: in
//! each repetition every prompt is answered by every arm, in a rotating order, so that a slow drift of the machine
//! affects all arms alike. Engines are reopened for every repetition, so that no drafter remembers earlier answers. An
//! arm whose token ids differ from plain decoding's is a bug of this program.
//!
//! `unguarded` is a plan that never falls back to plain decoding, so that its shape can be compared with the
//! prediction. Sampled answers are compared with plain decoding's for the same seed.
//!
//! `eager` is plain decoding op by op, as a framework without static programs runs it.
//!
//! With `--kernels` it measures kernels instead of answers; with `--plan` as well, the gain of the plan's tunings.

mod kernels;
mod provenance;
mod report;
mod tuned;

use std::{path::Path, sync::Arc, time::Instant};

use yggc::{
    engine::{Answer, DrafterChoice, Engine, Loaded, Options, PlanSource, Sampling},
    measure::{self, CalibrationPrompt},
    plan::DrafterId,
};

use crate::cli::{
    args::{Arm as ArmName, BenchArgs, PrefixArgs},
    cache::CachePlace,
    error::Failure,
    fetch, loading, output,
    planning::{self, Prepared},
    prefixes, progress,
    settings::{self, Machine},
};
use report::{Bench, Entrant, Run, Turn};

/// Default number of repetitions.
const REPETITIONS: usize = 5;
/// Tokens of an arm's warm-up run.
const WARM_UP_TOKENS: usize = 8;

/// One arm.
#[derive(Debug)]
struct Arm {
    name: String,
    engine: Engine,
}

/// One prompt as token ids.
#[derive(Debug)]
struct Question {
    category: String,
    ids: Vec<u32>,
}

/// Runs `yggc bench`.
pub(crate) fn command(args: &BenchArgs, cache: &CachePlace) -> Result<(), Failure> {
    match &args.prompts {
        Some(prompts) => answers(args, prompts, cache),
        None => match &args.plans[..] {
            [] => kernels::command(args, cache),
            [plan] => tuned::command(args, plan, cache),
            [_, _, ..] => {
                let message =
                    "--kernels compares the tunings of one plan with the default: expected one --plan, found";
                Err(Failure::Usage(format!("{message} {}", args.plans.len())))
            }
        },
    }
}

/// Compares answers to the prompts of a file.
fn answers(args: &BenchArgs, prompts: &Path, cache: &CachePlace) -> Result<(), Failure> {
    let machine = Machine::new(&args.device)?;
    let prompts = measure::read_prompts(prompts)?;
    let given =
        args.plans.iter().map(|file| planning::given(file, args.force)).collect::<Result<Vec<_>, _>>()?;
    let machine = machine.within(&given);
    let path = fetch::resolve(args.model.model.as_deref(), cache)?;
    let model = loading::open(&path, cache)?;
    // Reads the free memory, so it must come before the weights are loaded.
    let options = machine.options(&path, args.context.context);
    let draft_model = fetch::resolve_drafter(args.draft_model.as_deref(), cache)?;
    let kept = PrefixArgs { prefix_memory: Some(args.prefix_memory.unwrap_or(0)), prefix_disk: Some(0) };
    let prefixes = prefixes::store(&kept, machine, cache)?;
    let options = Options { store: settings::store(&args.store)?, draft_model, prefixes, ..options };
    let mut options = settings::with_skip(&args.skip, options);
    let needs_plan = args.arms.iter().any(|arm| !matches!(arm, ArmName::Ar | ArmName::Eager));
    let (prepared, plans, absent) = match given {
        given if !given.is_empty() || !needs_plan => (Prepared::Open(Box::new(model)), given, None),
        _ => match planning::first_use(model, options.draft_model.as_deref(), machine, cache)? {
            (prepared, Ok(plan)) => {
                planning::leave_out_unmeasured(&mut options.draft_model, &plan.plan);
                (prepared, vec![plan], None)
            }
            (prepared, Err(reason)) => (prepared, Vec::new(), Some(reason)),
        },
    };
    options.plan_absent_reason = absent;
    let is_swift =
        |arm: &ArmName| matches!(arm, ArmName::Drafter(drafter) if drafter.kind() == DrafterId::Swift);
    let tries = args.arms.iter().any(is_swift).then_some(options.skip_search.window);
    let planned = plans.iter().flat_map(|p| p.plan.planned.widths());
    let loaded = prepared.loaded(machine, cache, planned.chain(tries).collect())?;
    let question = |prompt: &CalibrationPrompt| {
        Ok(Question { category: prompt.kind.clone(), ids: prompt.token_ids(&loaded)? })
    };
    let questions = prompts.iter().map(question).collect::<Result<Vec<_>, Failure>>()?;
    let open = || arms(&args.arms, &plans, &loaded, options.clone());
    let (entrants, runs) = compare(open, &questions, args)?;
    let bench = Bench::new(&loaded, args, entrants, &questions, runs)?;
    if args.json { output::json(&bench) } else { output::text(bench.text()) }
}

/// The arms with their engines, plain decoding first.
fn arms(
    names: &[ArmName],
    plans: &[PlanSource],
    loaded: &Arc<Loaded>,
    mut options: Options,
) -> Result<Vec<Arm>, Failure> {
    let mut arms: Vec<Arm> = Vec::new();
    let mut add = |name: String, loaded: &Arc<Loaded>, drafter: DrafterChoice, plan: Option<&PlanSource>| {
        if arms.iter().any(|arm| arm.name == name) {
            return Ok(());
        }
        (options.drafter, options.plan) = (drafter, plan.cloned());
        let engine = Engine::with_loaded(Arc::clone(loaded), &options)?;
        options.memory_limit =
            options.memory_limit.map(|limit| limit.saturating_sub(engine.session_host_bytes()));
        arms.push(Arm { name, engine });
        Ok::<(), Failure>(())
    };
    let first = plans.first();
    add(ArmName::Ar.to_string(), loaded, DrafterChoice::Plain, first)?;
    for name in names {
        let of_plans = |drafter: DrafterChoice| match plans {
            [] | [_] => vec![(name.to_string(), drafter, first)],
            [_, _, ..] => plans
                .iter()
                .map(|plan| (format!("{name}:{}", plan.name), drafter.clone(), Some(plan)))
                .collect(),
        };
        let entries = match name {
            ArmName::Ar => Vec::new(),
            ArmName::Eager => {
                // The eager arm uses no plan.
                let eager = Arc::new(loaded.eager()?);
                add(name.to_string(), &eager, DrafterChoice::Plain, None)?;
                Vec::new()
            }
            ArmName::Plan => of_plans(DrafterChoice::Planned),
            ArmName::Unguarded => of_plans(DrafterChoice::Unguarded),
            ArmName::Drafter(drafter) => {
                vec![(name.to_string(), DrafterChoice::named(drafter.name()), first)]
            }
        };
        for (name, drafter, plan) in entries {
            add(name, loaded, drafter, plan)?;
        }
    }
    Ok(arms)
}

/// Runs all repetitions, reopening the engines for each: some drafters remember earlier answers.
fn compare(
    open: impl Fn() -> Result<Vec<Arm>, Failure>,
    questions: &[Question],
    args: &BenchArgs,
) -> Result<(Vec<Entrant>, Vec<Run>), Failure> {
    let sampling = settings::sampling(&args.sampling);
    let warm_up = |arm: &mut Arm| {
        let answer = answer(arm, &questions[0], args.max_tokens.min(WARM_UP_TOKENS), sampling)?;
        Ok(Entrant { name: arm.name.clone(), report: answer.report })
    };
    let mut arms = open()?;
    // A prompt that does not fit is refused before the runs, not after hours of them.
    for question in questions {
        arms[0].engine.check_prompt(&question.ids)?;
    }
    let entrants: Vec<Entrant> = arms.iter_mut().map(warm_up).collect::<Result<_, Failure>>()?;
    let repetitions = args.repetitions.unwrap_or(REPETITIONS);
    let bar = progress::parts();
    bar.set_length((repetitions * questions.len() * arms.len()) as u64);
    bar.set_message("answering");
    let mut runs = Vec::new();
    let mut expected: Vec<Option<Vec<u32>>> = vec![None; questions.len()];
    for repetition in 0..repetitions {
        if repetition > 0 {
            // Closed before others are opened: memory may not suffice for both.
            drop(arms);
            arms = open()?;
            for arm in &mut arms {
                warm_up(arm)?;
            }
        }
        for (prompt, question) in questions.iter().enumerate() {
            for place in 0..arms.len() {
                let arm = (place + repetition + prompt) % arms.len();
                let start = now();
                let answer = answer(&mut arms[arm], question, args.max_tokens, sampling)?;
                let total_ms = start.elapsed().as_secs_f64() * 1e3;
                let turn = Turn { arm, repetition, prompt, place };
                runs.push(Run::new(turn, &answer.report, total_ms));
                let ids = answer.token_ids;
                let expected = expected[prompt].get_or_insert_with(|| ids.clone());
                if *expected != ids {
                    return Err(mismatch(&arms[arm].name, prompt, expected, &ids));
                }
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    Ok((entrants, runs))
}

#[expect(clippy::disallowed_methods, reason = "an end-to-end time is what is measured")]
fn now() -> Instant {
    Instant::now()
}

fn answer(
    arm: &mut Arm,
    question: &Question,
    max_tokens: usize,
    sampling: Sampling,
) -> Result<Answer, Failure> {
    // Every arm runs the whole prompt every time, or takes it from where prefixes are kept: none profits from the one
    // before it.
    arm.engine.forget();
    Ok(arm.engine.generate_tokens(&question.ids, max_tokens, sampling)?.collect_answer()?)
}

fn mismatch(arm: &str, prompt: usize, expected: &[u32], found: &[u32]) -> Failure {
    let place = expected.iter().zip(found).take_while(|(a, b)| a == b).count();
    Failure::Internal(format!(
        "arm {arm} answered prompt {prompt} otherwise than the first arm that did: expected token {:?} at place \
         {place}, found {:?}",
        expected.get(place),
        found.get(place)
    ))
}
