//! Requests on any terms: biases, penalties and log-probabilities, one after another on a decoder that keeps what they
//! share, are answered as a decoder answers them that has neither drafter nor past.

use yggc::{
    sample::Adjustment,
    speculate::{Begin, Reuse, Speculation},
};

use super::*;
use crate::tiny_model::cases;

/// What a request asks for in addition to a prompt and how tokens are drawn.
#[derive(Debug)]
struct Terms {
    adjustment: Adjustment,
    log_probs: Option<usize>,
    tokens: usize,
}

/// What was answered: every token with the bits of its log-probability and of its rivals'.
type Answer = Vec<(u32, Option<(u32, Vec<(u32, u32)>)>)>;

fn any_adjustment(vocabulary: usize, dice: &mut Dice) -> Adjustment {
    if dice.chance(20) {
        return Adjustment::NONE;
    }
    let bias = |dice: &mut Dice| {
        let added = *dice.pick(&[-100.0, -2.0, 1.5, 4.0]);
        (dice.below(vocabulary) as u32, added)
    };
    Adjustment {
        bias: (0..dice.below(4)).map(|_| bias(dice)).collect(),
        repetition: *dice.pick(&[1.0, 1.0, 0.8, 1.1, 1.6]),
        frequency: *dice.pick(&[0.0, 0.0, -0.4, 0.3, 1.5]),
        presence: *dice.pick(&[0.0, 0.0, -0.5, 0.7, 2.0]),
    }
}

impl Terms {
    fn any(tokens: usize, vocabulary: usize, dice: &mut Dice) -> Self {
        let adjustment = any_adjustment(vocabulary, dice);
        Self { adjustment, log_probs: *dice.pick(&[None, Some(0), Some(3), Some(vocabulary)]), tokens }
    }

    fn answer(
        &self,
        decoder: &mut Decoder,
        prompt: &[u32],
        (sampling, reuse, speculation): (Sampling, Reuse, Speculation),
        poison: Option<u64>,
    ) -> Answer {
        let Self { adjustment, log_probs, tokens } = self;
        let begin =
            Begin { adjustment, log_probs: *log_probs, reuse, speculation, ..Begin::new(prompt, sampling) };
        let first = decoder.begin(&begin).expect("the prompt fits").expect("nobody cancels it");
        let mut answer = vec![(first, noted(decoder, 0))];
        loop {
            let room = decoder.session().context() + 1 - decoder.history().len();
            let wanted = (tokens - answer.len()).min(room);
            if wanted == 0 {
                return answer;
            }
            if let Some(seed) = poison {
                decoder.poison_scratch(seed + answer.len() as u64);
            }
            decoder.step(Limits { tokens: wanted, ends: &[] }, None).expect("the step runs");
            answer.extend(decoder.emitted().iter().enumerate().map(|(i, token)| (*token, noted(decoder, i))));
        }
    }
}

/// The log-probabilities of a token of the last step, to the bit.
fn noted(decoder: &Decoder, place: usize) -> Option<(u32, Vec<(u32, u32)>)> {
    let (own, best) = decoder.log_probs().of(place)?;
    Some((own.to_bits(), best.iter().map(|c| (c.token, c.log_prob.to_bits())).collect()))
}

/// A prompt that begins as the text before does, and goes on as it likes.
fn next_prompt(before: &[u32], context: usize, vocabulary: usize, dice: &mut Dice) -> Vec<u32> {
    let shared = if dice.chance(80) { dice.within(0, before.len()) } else { before.len() };
    let fresh = dice.within(0, 9);
    let mut prompt = before[..shared].to_vec();
    prompt.extend(dice.tokens(fresh, vocabulary));
    prompt.truncate(context - 1);
    if prompt.is_empty() {
        prompt.push(dice.below(vocabulary) as u32);
    }
    prompt
}

/// Cases that were tried, nodes accepted and tokens of prompts kept in all.
fn run(kind: Kind, wanted: u64) -> (u64, u64, u64) {
    let (mut accepted, mut reused) = (0, 0);
    let tried = cases(Class::native(crate::tiny_model::best_tier()), wanted);
    for case in 0..tried {
        let mut dice = Dice::new(7_000 + case);
        let model = dice.pick(models());
        let class = model.any_class(&mut dice);
        let mut set = Arc::clone(model.set(class));
        let vocabulary = set.vocabulary();
        let what = format!("{kind:?} case {case}, {} on {class}", model.name);
        let case = Case::any(kind, what, vocabulary, &mut dice);
        set = case.varied(&set, model);
        let fresh = |prompt: &[u32], terms: &Terms, sampling| {
            let plain = Decoder::new(session(&set, case.context, 1, 1), vec![BandSteps::plain()]);
            let mut plain = plain.expect("plain decoding");
            terms.answer(&mut plain, prompt, (sampling, Reuse::Nothing, Speculation::AsOpened), None)
        };
        let mut terms = Terms::any(case.tokens, vocabulary, &mut dice);
        let mut prompt = case.prompt.clone();
        let mut expected = fresh(&prompt, &terms, case.sampling);
        let mut truth = prompt.clone();
        truth.extend(expected.iter().map(|(token, _)| token));
        let mut decoder = case.decoder(&set, &truth, &mut dice);
        let mut sampling = case.sampling;
        for turn in 0..4 {
            let speculation = if turn == 2 { Speculation::Off } else { Speculation::AsOpened };
            let cached = decoder.history()[..decoder.session().committed()].to_vec();
            let poison = Some(dice.bits() >> 1);
            let found = terms.answer(&mut decoder, &prompt, (sampling, Reuse::Prefix, speculation), poison);
            assert_eq!(found, expected, "{}, turn {turn} of {prompt:?}, {terms:?}: {case:?}", case.what);
            let shared = cached.iter().zip(&prompt).take_while(|(a, b)| a == b).count();
            let kept = shared.min(prompt.len() - 1) as u64;
            assert_eq!(decoder.stats().reused, kept, "{}, turn {turn}", case.what);
            assert!(speculation == Speculation::AsOpened || decoder.stats().drafted == 0);
            accepted += decoder.stats().accepted;
            reused += kept;
            if kind == Kind::Adversary {
                // It knows one text.
                break;
            }
            if dice.chance(30) {
                decoder.cut(dice.within(prompt.len(), decoder.history().len()));
            }
            prompt = next_prompt(decoder.history(), case.context, vocabulary, &mut dice);
            terms = Terms::any(case.tokens, vocabulary, &mut dice);
            sampling = any_sampling(&mut dice);
            expected = fresh(&prompt, &terms, sampling);
        }
    }
    (tried, accepted, reused)
}

#[track_caller]
fn check(kind: Kind, cases: u64) {
    let (cases, accepted, reused) = run(kind, cases);
    assert!(is_cuda() || accepted > 30, "{accepted} nodes accepted: too few to show anything");
    let many = kind == Kind::Adversary || reused > 10 * cases;
    assert!(is_cuda() || many, "{reused} tokens kept: too few to show anything");
}

#[test]
fn layer_skip_serves_any_terms() {
    check(Kind::LayerSkip, 60);
}

#[test]
fn trimmed_heads_templates_and_changing_skip_sets_serve_any_terms() {
    check(Kind::TrimmedHead, 40);
    check(Kind::Substitute, 40);
    check(Kind::Template, 40);
    check(Kind::Swift, 40);
}

#[test]
fn drafters_without_a_model_serve_any_terms() {
    for free in Free::ALL {
        check(Kind::Free(free), 40);
    }
    check(Kind::Mixed, 40);
}

#[test]
fn an_adversary_serves_any_terms() {
    check(Kind::Adversary, 80);
}

#[test]
fn what_measuring_leaves_in_the_cache_serves_no_request() {
    let set = models()[0].set(Class::native(crate::tiny_model::best_tier()));
    let open = || Decoder::new(session(set, 64, 1, 1), vec![BandSteps::plain()]).expect("plain decoding");
    let prompt = Dice::new(5).tokens(20, set.vocabulary());
    let terms = Terms { adjustment: Adjustment::NONE, log_probs: Some(set.vocabulary()), tokens: 9 };
    let kept = (Sampling::GREEDY, Reuse::Prefix, Speculation::AsOpened);
    let expected = terms.answer(&mut open(), &prompt, kept, None);
    let mut decoder = open();
    decoder.assume_history(&prompt);
    assert_eq!(terms.answer(&mut decoder, &prompt, kept, None), expected);
    assert_eq!(decoder.stats().reused, 0);
    decoder.session_mut().assume_committed(60);
    assert_eq!(terms.answer(&mut decoder, &prompt, kept, None), expected);
    assert_eq!(decoder.stats().reused, 0);
    assert_eq!(terms.answer(&mut decoder, &prompt, kept, None), expected);
    assert_eq!(decoder.stats().reused, 19, "all but the last, which gives logits");
    decoder.forget();
    assert_eq!(terms.answer(&mut decoder, &prompt, kept, None), expected);
    assert_eq!(decoder.stats().reused, 0);
}

#[test]
fn a_prompt_that_is_cancelled_leaves_what_it_ran() {
    use std::cell::Cell;
    let set = models()[0].set(Class::native(crate::tiny_model::best_tier()));
    let mut decoder =
        Decoder::new(session(set, 256, 1, 1), vec![BandSteps::plain()]).expect("plain decoding");
    let prompt = Dice::new(6).tokens(200, set.vocabulary());
    let asked = Cell::new(0);
    let after_two = || asked.replace(asked.get() + 1) == 2;
    let begin =
        Begin { is_cancelled: &after_two, reuse: Reuse::Prefix, ..Begin::new(&prompt, Sampling::GREEDY) };
    assert_eq!(decoder.begin(&begin).expect("it fits"), None);
    assert_eq!((asked.get(), decoder.session().committed()), (3, 2 * set.prefill_width()));
    let uncancelled = Begin { is_cancelled: &|| false, ..begin };
    let first = decoder.begin(&uncancelled).expect("it fits");
    assert_eq!(decoder.stats().reused as usize, 2 * set.prefill_width());
    assert_eq!(first, Some(decoder.start(&prompt, Sampling::GREEDY).expect("it fits")));
}
