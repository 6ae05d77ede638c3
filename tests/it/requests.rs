//! Requests through engines: on any terms the same with every drafter, turn after turn, cancelled or not, in several
//! engines at once.

use std::{sync::mpsc, thread};

use yggc::{
    backend::Tier,
    engine::{
        Adjustment, Answer, CancelHandle, ChooseRequest, Continuation, DrafterChoice, Engine, ErrorKind,
        Event, FinishReason, Options, PlanSource, Prompt, Request, Reuse, Sampling, Speculation,
    },
    model::synthetic::SyntheticSpec,
    plan,
};

use crate::{
    lossless::any_sampling,
    tiny_commands::{self, drafting_plan, model},
    tiny_model::Dice,
};

fn engine(drafter: &str) -> Engine {
    let name = drafting_plan().display().to_string();
    let plan = plan::read(drafting_plan()).expect("the plan of the tests");
    let drafter = match drafter {
        "plain" => DrafterChoice::Plain,
        name => DrafterChoice::Forced(name.to_owned()),
    };
    let options = Options {
        plan: Some(PlanSource { plan, name, force: false }),
        drafter,
        tier: Some(Tier::Portable),
        threads: Some(1),
        ..Options::new(model())
    };
    Engine::open(&options).expect("the plan was made here")
}

#[track_caller]
fn answer(engine: &mut Engine, request: &Request) -> Answer {
    engine.generate(request).expect("the prompt fits").collect_answer().expect("it ends")
}

/// What an answer says, and why it ended.
fn said(answer: &Answer) -> (&[u32], &str, FinishReason) {
    (&answer.token_ids, &answer.text, answer.finish_reason)
}

fn any_request(prompt: Vec<u32>, vocabulary: usize, dice: &mut Dice) -> Request {
    let bias = (0..dice.below(3)).map(|_| (dice.below(vocabulary) as u32, *dice.pick(&[-100.0, 2.0])));
    let adjustment = Adjustment {
        bias: bias.collect(),
        repetition: *dice.pick(&[1.0, 1.0, 1.2]),
        frequency: *dice.pick(&[0.0, 0.0, 0.6]),
        presence: *dice.pick(&[0.0, 0.0, -0.5]),
    };
    Request {
        max_tokens: dice.within(1, 60),
        sampling: any_sampling(dice),
        adjustment: if dice.chance(50) { adjustment } else { Adjustment::NONE },
        log_probs: *dice.pick(&[None, None, Some(2)]),
        ..Request::new(Prompt::Tokens(prompt))
    }
}

/// Pieces of a text, to stop at.
fn pieces(text: &str, dice: &mut Dice) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let piece = |dice: &mut Dice| {
        let start = dice.below(chars.len());
        chars[start..chars.len().min(start + dice.within(1, 5))].iter().collect()
    };
    if chars.is_empty() {
        vec!["a".to_owned()]
    } else {
        (0..dice.within(1, 2)).map(|_| piece(dice)).collect()
    }
}

#[test]
fn any_terms_and_stop_strings_give_plain_decodings_answers_turn_after_turn() {
    let (mut stopped, mut drafted, mut reused) = (0, 0, 0);
    for (number, drafter) in
        ["lookup", "layer_skip", "swift", "suffix", "recycling", "ngram", "mixed"].into_iter().enumerate()
    {
        let (mut plain, mut drafting) = (engine("plain"), engine(drafter));
        let vocabulary = plain.loaded().set().vocabulary();
        let mut dice = Dice::new(400 + number as u64);
        let mut prompt = dice.tokens(9, vocabulary);
        for turn in 0..12 {
            let request = any_request(prompt.clone(), vocabulary, &mut dice);
            // Plain decoding is asked anew every time: it knows no turn before.
            let whole = answer(&mut plain, &Request { reuse: Reuse::Nothing, ..request.clone() });
            let stop = if dice.chance(70) { pieces(&whole.text, &mut dice) } else { Vec::new() };
            let request = Request { stop, ..request };
            let expected = answer(&mut plain, &Request { reuse: Reuse::Nothing, ..request.clone() });
            let found = answer(&mut drafting, &request);
            let what = format!("{drafter}, turn {turn}: {request:?}");
            assert_eq!(said(&found), said(&expected), "{what}");
            assert_eq!(found.log_probs, expected.log_probs, "{what}");
            assert_eq!(
                found.log_probs.len(),
                if request.log_probs.is_some() { found.token_ids.len() } else { 0 }
            );
            assert_eq!(
                (found.report.tokens, expected.report.reused_tokens),
                (found.token_ids.len(), 0),
                "{what}"
            );
            for stop in &request.stop {
                assert!(!found.text.contains(stop.as_str()), "{what}");
            }
            if let FinishReason::StopString { index } = found.finish_reason {
                let ended = plain.loaded().tokenizer().decode(&found.token_ids);
                assert!(
                    ended.contains(&request.stop[index]) && whole.text.starts_with(&found.text),
                    "{what}"
                );
                stopped += 1;
            } else {
                assert_eq!(found.text, whole.text, "{what}");
            }
            drafted += found.report.drafted;
            reused += found.report.reused_tokens;
            // The next turn goes on from here, or from somewhere before.
            prompt = [&found.prompt_token_ids[..], &found.token_ids].concat();
            if dice.chance(30) {
                prompt.truncate(dice.within(1, prompt.len()));
            }
            prompt.extend(dice.tokens(dice.clone().within(0, 6), vocabulary));
            if prompt.len() > 200 {
                prompt = dice.tokens(7, vocabulary);
            }
        }
    }
    assert!(
        stopped > 20 && drafted > 500 && reused > 1_000,
        "{stopped} stopped, {drafted} drafted, {reused} reused"
    );
}

#[test]
fn log_probabilities_are_those_of_the_model_and_add_up() {
    let mut engine = engine("plain");
    let vocabulary = engine.loaded().set().vocabulary();
    let all =
        Request { max_tokens: 6, log_probs: Some(vocabulary), ..Request::new(Prompt::Tokens(vec![5, 6, 7])) };
    let found = answer(&mut engine, &all);
    assert_eq!(found.log_probs.len(), found.token_ids.len());
    for (token, noted) in found.token_ids.iter().zip(&found.log_probs) {
        // A greedy token is the best one.
        assert_eq!(noted.best[0], (*token, noted.log_prob));
        let sum: f64 = noted.best.iter().map(|(_, log_prob)| f64::from(*log_prob).exp()).sum();
        assert!(noted.best.len() == vocabulary && (sum - 1.0).abs() < 1e-4, "{sum}");
        assert!(noted.best.is_sorted_by(|a, b| a.1 >= b.1));
    }
    // What is reported is the model's, whatever is made of it.
    let banned = Adjustment { bias: vec![(found.token_ids[0], -100.0)], ..Adjustment::NONE };
    let other = answer(&mut engine, &Request { adjustment: banned, ..all.clone() });
    assert_eq!(other.log_probs[0].best, found.log_probs[0].best);
    assert_eq!(other.token_ids[0], found.log_probs[0].best[1].0, "the second best is said then");
}

#[test]
fn what_is_out_of_range_is_refused_and_the_engine_goes_on() {
    let mut engine = engine("lookup");
    let vocabulary = engine.loaded().set().vocabulary();
    let good = Request { max_tokens: 9, ..Request::new(Prompt::Tokens(vec![5, 6, 7])) };
    let before = answer(&mut engine, &good);
    let adjusted = |adjustment| Request { adjustment, ..good.clone() };
    for (bad, part) in [
        (Request { max_tokens: 0, ..good.clone() }, "at least 1"),
        (Request { stop: vec![String::new()], ..good.clone() }, "stop string"),
        (Request { log_probs: Some(usize::MAX), ..good.clone() }, "log-probabilities"),
        (Request { prompt: Prompt::Tokens(vec![]), ..good.clone() }, "empty"),
        (Request { prompt: Prompt::Tokens(vec![u32::MAX]), ..good.clone() }, "token"),
        (adjusted(Adjustment { bias: vec![(vocabulary as u32, 1.0)], ..Adjustment::NONE }), "logit_bias"),
        (adjusted(Adjustment { repetition: -1.0, ..Adjustment::NONE }), "repetition"),
        (adjusted(Adjustment { presence: f32::NAN, ..Adjustment::NONE }), "presence"),
    ] {
        let error = engine.generate(&bad).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Input);
        assert!(error.to_string().contains(part), "{error}");
    }
    let after = answer(&mut engine, &good);
    assert_eq!(said(&after), said(&before));
    assert_eq!(after.report.reused_tokens, 2, "refusals leave the cache as it was");
    engine.forget();
    assert_eq!(answer(&mut engine, &good).report.reused_tokens, 0);
}

#[test]
fn a_request_may_ask_for_plain_decoding() {
    let mut engine = engine("layer_skip");
    let request = Request { max_tokens: 40, ..Request::new(Prompt::Tokens(vec![5, 6, 7, 5, 6])) };
    let drafted = answer(&mut engine, &request);
    let plain = answer(&mut engine, &Request { speculation: Speculation::Off, ..request });
    assert_eq!(said(&plain), said(&drafted));
    assert!(drafted.report.drafted > 0 && plain.report.drafted == 0);
    assert_eq!(plain.report.spec_off_reason.as_deref(), Some("switched off by the request"));
}

#[test]
fn a_cancelled_request_ends_at_once_and_the_next_is_as_any() {
    for drafter in ["plain", "layer_skip", "mixed"] {
        let mut engine = engine(drafter);
        let request = Request { max_tokens: 120, ..Request::new(Prompt::Tokens((3..60).collect())) };
        let whole = answer(&mut engine, &request);
        for after in [0, 1, 2, 5, 9] {
            let cancel = CancelHandle::new();
            let request = Request { cancel: cancel.clone(), reuse: Reuse::Nothing, ..request.clone() };
            if after == 0 {
                cancel.cancel();
            }
            let mut tokens = Vec::new();
            let mut generation = engine.generate(&request).expect("it fits");
            let reason = loop {
                match generation.next().expect("it ends with an event").expect("it runs") {
                    Event::Token { id, .. } => tokens.push(id),
                    Event::Finished { reason, report, .. } => {
                        assert_eq!(report.tokens, tokens.len());
                        break reason;
                    }
                }
                if tokens.len() == after {
                    cancel.cancel();
                }
            };
            assert!(generation.next().is_none());
            drop(generation);
            assert_eq!((reason, tokens.len()), (FinishReason::Cancelled, after), "{drafter}");
            assert_eq!(tokens, whole.token_ids[..after], "{drafter}");
            let next = answer(
                &mut engine,
                &Request { cancel: CancelHandle::new(), reuse: Reuse::Prefix, ..request },
            );
            assert_eq!(said(&next), said(&whole), "{drafter} after {after}");
        }
    }
}

#[test]
fn another_thread_cancels_within_a_step() {
    let spec = SyntheticSpec { context: 20_000, ..tiny_commands::spec() };
    let model = tiny_commands::write("endless.gguf", &spec);
    let options = Options { context: Some(20_000), threads: Some(1), ..Options::new(&model) };
    let mut engine = Engine::open(&options).expect("it opens");
    let ends = engine.loaded().end_ids().iter().map(|end| (*end, -100.0));
    let cancel = CancelHandle::new();
    let request = Request {
        max_tokens: usize::MAX,
        adjustment: Adjustment { bias: ends.collect(), ..Adjustment::NONE },
        cancel: cancel.clone(),
        ..Request::new(Prompt::Tokens(vec![5]))
    };
    let (sender, tokens) = mpsc::channel();
    let decoding = thread::spawn(move || {
        for event in engine.generate(&request).expect("it fits") {
            match event.expect("it runs") {
                Event::Token { .. } => sender.send(cancel_seen(&request)).expect("the test listens"),
                Event::Finished { reason, report, .. } => return (reason, report.tokens),
            }
        }
        unreachable!("every generation finishes")
    });
    for _ in 0..20 {
        tokens.recv().expect("tokens come");
    }
    cancel.cancel();
    let (reason, emitted) = decoding.join().expect("no panic");
    assert_eq!(reason, FinishReason::Cancelled);
    assert!((20..20_000 - 1).contains(&emitted), "{emitted}");
    // The token that was on its way when it was cancelled, and no other.
    let late = tokens.try_iter().filter(|was_cancelled| *was_cancelled).count();
    assert!(late <= 1, "{late} tokens came after the cancellation");
}

fn cancel_seen(request: &Request) -> bool {
    request.cancel.is_cancelled()
}

#[test]
fn engines_of_one_process_do_not_disturb_each_other() {
    let request = |seed| Request {
        max_tokens: 60,
        sampling: Sampling { temperature: 0.8, seed, ..Sampling::GREEDY },
        ..Request::new(Prompt::Tokens(vec![5, 6, 7, 5, 6]))
    };
    let mut alone = engine("plain");
    let expected: Vec<Answer> = (0..4).map(|seed| answer(&mut alone, &request(seed))).collect();
    let names = ["plain", "lookup", "layer_skip", "mixed"];
    thread::scope(|scope| {
        let threads = names.map(|name| {
            // An engine may be opened here and used there.
            let mut engine = engine(name);
            let answers =
                move || (0..4).map(|seed| answer(&mut engine, &request(seed))).collect::<Vec<Answer>>();
            scope.spawn(answers)
        });
        for (name, thread) in names.iter().zip(threads) {
            let found = thread.join().expect("no panic");
            for (found, expected) in found.iter().zip(&expected) {
                assert_eq!(said(found), said(expected), "{name}");
            }
        }
    });
}

#[test]
fn a_limit_cuts_no_character() {
    let mut engine = engine("plain");
    // Tokens are drawn from all, so that many are parts of characters.
    let sampling = Sampling { temperature: 2.0, seed: 5, ..Sampling::GREEDY };
    let request =
        |max_tokens| Request { max_tokens, sampling, ..Request::new(Prompt::Raw("one".to_owned())) };
    let whole = answer(&mut engine, &request(80)).text;
    let mut cut = 0;
    for tokens in 1..60 {
        let found = answer(&mut engine, &request(tokens));
        assert!(whole.starts_with(&found.text), "{tokens}: {:?} of {whole:?}", found.text);
        cut += usize::from(found.text != engine.loaded().tokenizer().decode(&found.token_ids));
    }
    assert!(cut > 0, "no limit fell into a character: {whole:?}");
}

/// Questions leave scratch, cache and drafters as requests after them expect them.
#[test]
fn questions_between_requests_change_no_answer() {
    for (number, drafter) in
        ["lookup", "layer_skip", "swift", "suffix", "recycling", "ngram", "mixed"].into_iter().enumerate()
    {
        let (mut plain, mut drafting) = (engine("plain"), engine(drafter));
        let vocabulary = plain.loaded().set().vocabulary();
        let mut dice = Dice::new(600 + number as u64);
        let mut prompt = dice.tokens(9, vocabulary);
        for turn in 0..4 {
            let options: Vec<Vec<u32>> = (1..9).map(|len| dice.tokens(len, vocabulary)).collect();
            let options: Vec<Continuation> = options.into_iter().map(Continuation::Tokens).collect();
            let question = ChooseRequest::new(Prompt::Tokens(prompt.clone()), options);
            let anew = ChooseRequest { reuse: Reuse::Nothing, ..question.clone() };
            let expected = plain.choose(&anew).expect("it fits").expect("nobody cancels it");
            let found = drafting.choose(&question).expect("it fits").expect("nobody cancels it");
            assert_eq!(found.options, expected.options, "{drafter}, turn {turn}");
            assert_eq!(found.report.reused_tokens > 0, turn > 0, "{drafter}, turn {turn}");
            let request = Request { max_tokens: 12, ..Request::new(Prompt::Tokens(prompt.clone())) };
            let expected = answer(&mut plain, &Request { reuse: Reuse::Nothing, ..request.clone() });
            let found = answer(&mut drafting, &request);
            assert_eq!(said(&found), said(&expected), "{drafter}, turn {turn}");
            assert_eq!(found.report.reused_tokens, prompt.len() - 1, "{drafter}, turn {turn}");
            prompt = [&found.prompt_token_ids[..], &found.token_ids].concat();
        }
    }
}
