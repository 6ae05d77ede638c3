//! Answers with speculation compared with plain decoding, token by token: of the plan, and of each of its drafters.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    engine::{
        Adjustment, Answer, DrafterChoice, Engine, Error, ErrorKind, Options, PlanSource, Prompt, Request,
        Reuse, Sampling,
    },
    measure::interleaved,
};

use super::{VerifyOptions, extent::Clock, halt::Halt, subject::Subject, walk::Tell};

/// Longest sequence of the engines, in tokens.
const ANSWER_CONTEXT: usize = 1024;

/// Greedy requests.
pub(super) fn greedy_answers_are_plain_ones(
    subject: &Subject<'_>,
    options: &VerifyOptions,
    clock: Clock,
    tell: Tell<'_>,
) -> Result<String, Halt> {
    let (prompts, tokens) = (options.extent.of(6, 40), options.extent.of(32, 96));
    compare_all(subject, options, prompts, tokens, &[Terms::GREEDY], clock, tell)
}

/// Requests that are drawn with a seed, filtered, penalised and biased.
pub(super) fn sampled_answers_are_plain_ones(
    subject: &Subject<'_>,
    options: &VerifyOptions,
    clock: Clock,
    tell: Tell<'_>,
) -> Result<String, Halt> {
    let (prompts, tokens) = (options.extent.of(2, 12), options.extent.of(24, 64));
    compare_all(subject, options, prompts, tokens, &Terms::sampled(), clock, tell)
}

/// How a request's tokens are chosen.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    name: &'static str,
    sampling: Sampling,
    adjustment: Adjustment,
    log_probs: Option<usize>,
}

impl Terms {
    const GREEDY: Self =
        Self { name: "greedy", sampling: Sampling::GREEDY, adjustment: Adjustment::NONE, log_probs: None };

    pub(super) fn sampled() -> [Self; 5] {
        let at = |temperature| Sampling { temperature, seed: 11, ..Sampling::GREEDY };
        let adjustment = Adjustment { bias: vec![(5, 3.0)], repetition: 1.2, frequency: 0.2, presence: 0.4 };
        [
            Self { name: "temperature 0.6", sampling: at(0.6), ..Self::GREEDY },
            Self {
                name: "temperature 1, top-p",
                sampling: Sampling { top_p: 0.95, ..at(1.0) },
                ..Self::GREEDY
            },
            Self {
                name: "temperature 1.4, top-k, min-p, log-probabilities",
                sampling: Sampling { top_k: 40, min_p: 0.02, ..at(1.4) },
                log_probs: Some(3),
                ..Self::GREEDY
            },
            Self {
                name: "temperature 0.8, penalties, bias",
                sampling: at(0.8),
                adjustment: adjustment.clone(),
                ..Self::GREEDY
            },
            Self { name: "greedy, penalties, bias", adjustment, log_probs: Some(1), ..Self::GREEDY },
        ]
    }
}

/// One request to compare answers of.
#[derive(Clone, Debug)]
pub(super) struct Question {
    name: String,
    request: Request,
}

/// The requests: each prompt with all settings.
pub(super) fn questions(
    subject: &Subject<'_>,
    options: &VerifyOptions,
    prompts: usize,
    tokens: usize,
    terms: &[Terms],
) -> Result<Vec<Question>, Error> {
    let room = context(subject).saturating_sub(tokens);
    let mut chosen = Vec::new();
    for prompt in interleaved(&options.prompts) {
        if chosen.len() == prompts {
            break;
        }
        let ids = prompt.token_ids(&subject.loaded)?;
        if (1..=room).contains(&ids.len()) {
            chosen.push((prompt.kind.as_str(), ids));
        }
    }
    let question = |number: usize, kind: &str, ids: &[u32], terms: &Terms| Question {
        name: format!("prompt {number} ({kind}), {}", terms.name),
        request: Request {
            max_tokens: tokens,
            sampling: Sampling { seed: terms.sampling.seed + number as u64, ..terms.sampling },
            adjustment: terms.adjustment.clone(),
            log_probs: terms.log_probs,
            ..Request::new(Prompt::Tokens(ids.to_vec()))
        },
    };
    let of_prompt = |(number, (kind, ids)): (usize, &(&str, Vec<u32>))| -> Vec<Question> {
        terms.iter().map(|terms| question(number, kind, ids, terms)).collect()
    };
    Ok(chosen.iter().enumerate().flat_map(of_prompt).collect())
}

fn context(subject: &Subject<'_>) -> usize {
    subject.loaded.set().model_context().min(ANSWER_CONTEXT)
}

/// The drafters to check, by name: the chosen one with and without its guard, and every drafter that the plan measured.
fn entrants(source: &PlanSource) -> Vec<(String, DrafterChoice)> {
    let forced = source.plan.bands[0].drafting().map(|sub_plan| {
        let name = sub_plan.name.as_str().to_owned();
        (name.clone(), DrafterChoice::Forced(name))
    });
    let planned = [("plan", DrafterChoice::Planned), ("plan without guard", DrafterChoice::Unguarded)];
    planned.into_iter().map(|(name, choice)| (name.to_owned(), choice)).chain(forced).collect()
}

fn compare_all(
    subject: &Subject<'_>,
    options: &VerifyOptions,
    prompts: usize,
    tokens: usize,
    terms: &[Terms],
    clock: Clock,
    tell: Tell<'_>,
) -> Result<String, Halt> {
    let Some(source) = &options.engine.plan else {
        let why = options.engine.plan_absent_reason.as_deref().unwrap_or("no plan");
        return Err(Halt::NotChecked(format!("without a plan nothing is drafted: {why}")));
    };
    let questions = questions(subject, options, prompts, tokens, terms)?;
    if questions.is_empty() {
        return Err(Halt::NotChecked("no prompt fits the context".to_owned()));
    }
    let opened = |plan: Option<PlanSource>, drafter| {
        let engine = Options { plan, drafter, context: Some(context(subject)), ..options.engine.clone() };
        Engine::with_loaded(Arc::clone(&subject.loaded), &engine)
    };
    let mut judge = Judge { plain: opened(None, DrafterChoice::Plain)?, answers: BTreeMap::new() };
    let entrants = entrants(source);
    let total = entrants.len() * questions.len();
    let (mut tally, mut left_out, mut names) = (Tally::default(), Vec::new(), Vec::new());
    for (place, (name, choice)) in entrants.iter().enumerate() {
        // A plan that does not fit is reported by another property; output has to be exact with any plan.
        let mut engine = match opened(Some(PlanSource { force: true, ..source.clone() }), choice.clone()) {
            Ok(engine) => engine,
            Err(error) if error.kind() == ErrorKind::Input => {
                left_out.push(format!("{name} could not be opened: {error}"));
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        names.push(name.as_str());
        for number in 0..questions.len() {
            if number > 0 && clock.is_up_for(place + 1, entrants.len()) {
                break;
            }
            let question = (place + number) % questions.len();
            compare(&mut judge, &mut engine, name, question, &questions[question], &mut tally)?;
            tell(place * questions.len() + number + 1, total);
        }
    }
    if names.is_empty() {
        return Err(Halt::NotChecked(left_out.join("; ")));
    }
    let Tally { answers, tokens, drafted, accepted } = tally;
    let mut said = format!(
        "{answers} answers of {tokens} tokens by {}, {drafted} drafted tokens verified and {accepted} accepted: every \
         token is plain decoding's",
        names.join(", ")
    );
    for reason in left_out {
        said = format!("{said}; {reason}");
    }
    Ok(said)
}

/// Plain decoding; answers each request once.
pub(super) struct Judge {
    pub(super) plain: Engine,
    pub(super) answers: BTreeMap<usize, Answer>,
}

/// What was compared.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    answers: usize,
    tokens: usize,
    drafted: u64,
    accepted: u64,
}

/// Compares an engine's answer to request `number` with plain decoding's. The judge prefills every prompt whole; the
/// engine reuses the cache of its last request.
pub(super) fn compare(
    judge: &mut Judge,
    engine: &mut Engine,
    name: &str,
    number: usize,
    question: &Question,
    tally: &mut Tally,
) -> Result<(), Halt> {
    if !judge.answers.contains_key(&number) {
        let request = Request { reuse: Reuse::Nothing, ..question.request.clone() };
        judge.answers.insert(number, judge.plain.generate(&request)?.collect_answer()?);
    }
    let expected = &judge.answers[&number];
    let found = engine.generate(&question.request)?.collect_answer()?;
    tally.answers += 1;
    tally.tokens += found.token_ids.len();
    tally.drafted += found.report.drafted;
    tally.accepted += found.report.accepted;
    if expected.token_ids != found.token_ids {
        let place = expected.token_ids.iter().zip(&found.token_ids).take_while(|(a, b)| a == b).count();
        return Err(Halt::Broken(format!(
            "{name}, {}: expected token {} at place {place} of the answer, as plain decoding has it, found {}",
            question.name,
            said(expected.token_ids.get(place)),
            said(found.token_ids.get(place))
        )));
    }
    if expected.log_probs != found.log_probs || expected.text != found.text {
        return Err(Halt::Broken(format!(
            "{name}, {}: expected the text and log-probabilities of plain decoding, found others with the same tokens",
            question.name
        )));
    }
    Ok(())
}

fn said(token: Option<&u32>) -> String {
    token.map_or_else(|| "none, for it ends there,".to_owned(), ToString::to_string)
}
