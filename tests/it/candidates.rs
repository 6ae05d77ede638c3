//! Choosing tokens where logits are made gives what choosing among stored logits gives: the same tokens, the same bits.
//!
//! The judge runs the forward that shows logits and reads rows of them with the scalar reference; for a trimmed head,
//! it reads those of the tokens that the head keeps. Heads have equal rows, so that logits are equal, and rows that are
//! not numbers.

use std::{borrow::Cow, sync::Arc};

use ygg_kernels::{
    KvFormat, Rows, RowsMut, Tier, WeightFormat,
    candidates::{Candidates, Choice, RowNoise, candidate_columns},
    noise::NoiseKey,
    reference,
};
use yggc::{
    ir::{Op, WeightId, WeightSource},
    model::Model,
    runtime::{ExecutableSet, Noise, Session, SetOptions, SkipSet},
    sample::{Sampling, argmax},
    speculate::{BandSteps, Decoder, Limits},
};

use crate::tiny_model::{
    Class, Dice, MODEL_CONTEXT, TinyModel, WIDTHS, bits, everything, is_slow, models, session, some_models,
    thread_counts,
};

/// Tokens whose logits are no numbers; nothing is fed that a tied table would spoil.
const NO_NUMBERS: [usize; 3] = [0, 255, 289];
/// Pairs of tokens with one row of the head.
const EQUAL: [(usize, usize); 4] = [(7, 3), (100, 255 - 4), (256, 257), (288, 5)];
/// Tokens that are fed: none of the planted ones is among them.
const FED: std::ops::Range<usize> = 10..90;

/// The weights of a model with another head.
struct Planted<'a> {
    model: &'a Model,
    head: WeightId,
    bytes: Vec<u8>,
}

impl WeightSource for Planted<'_> {
    fn bytes(&self, weight: WeightId) -> Cow<'_, [u8]> {
        if weight == self.head { Cow::Borrowed(&self.bytes) } else { self.model.weights.bytes(weight) }
    }
}

impl<'a> Planted<'a> {
    fn new(model: &'a Model) -> Self {
        let graph = &model.graph;
        let logits = graph.shown().expect("a model's graph shows logits");
        let Op::Linear { weights, .. } = &graph.node(logits).op else { panic!("logits are a product") };
        let (head, spec) = (weights[0], graph.weight(weights[0]));
        let mut bytes = model.weights.bytes(head).to_vec();
        let row = bytes.len() / spec.rows;
        for (from, to) in EQUAL {
            bytes.copy_within(from * row..(from + 1) * row, to * row);
        }
        for token in NO_NUMBERS {
            let bytes = &mut bytes[token * row..];
            match spec.format {
                WeightFormat::F32 => bytes[..4].copy_from_slice(&f32::NAN.to_le_bytes()),
                WeightFormat::BF16 => bytes[..2].copy_from_slice(&[0xc0, 0x7f]),
                // The scale of a block is after its codes.
                WeightFormat::Q6_K => bytes[208..210].copy_from_slice(&[0x00, 0x7e]),
                _ => bytes[..2].copy_from_slice(&[0x00, 0x7e]),
            }
        }
        Self { model, head, bytes }
    }

    fn set(&self, class: Class) -> Arc<ExecutableSet> {
        let options = SetOptions {
            tier: class.tier,
            kv_format: KvFormat::F16,
            activations: class.activations,
            widths: WIDTHS.to_vec(),
            model_context: MODEL_CONTEXT,
            threads: 1,
            resident: None,
        };
        let set = ExecutableSet::build(&self.model.graph, self, &options);
        Arc::new(set.expect("a generated model compiles and loads"))
    }
}

fn fed(dice: &mut Dice) -> u32 {
    dice.within(FED.start, FED.end - 1) as u32
}

/// What the reference says of a row of logits: tokens and bits of values.
fn judged(logits: &[f32], choice: Choice) -> Vec<(u32, u32)> {
    let columns = candidate_columns(choice.k);
    let mut row = vec![0.0; columns];
    reference::candidates(Rows::new(logits, logits.len()), choice, None, RowsMut::new(&mut row, columns));
    said(Candidates::new(&row))
}

fn said(candidates: Candidates<'_>) -> Vec<(u32, u32)> {
    candidates.iter().map(|(token, value)| (token, value.to_bits())).collect()
}

/// A forward of a root and its children.
fn filled<'s>(session: &'s mut Session, tokens: &[u32]) -> yggc::runtime::Forward<'s> {
    let mut forward = session.forward(tokens.len()).expect("a planned width holds them");
    for (row, token) in (0_u32..).zip(tokens) {
        forward.push(*token, u32::from(row > 0), row, |tail| {
            let len = 1 + usize::from(row > 0);
            tail[0] = 0;
            tail[len - 1] = row;
            len
        });
    }
    forward
}

/// Sessions of every number of threads.
fn sessions(set: &Arc<ExecutableSet>) -> Vec<Session> {
    thread_counts().iter().map(|threads| session(set, MODEL_CONTEXT, 64, *threads)).collect()
}

fn check(model: &TinyModel, class: Class, dice: &mut Dice) {
    let set = Planted::new(&model.model).set(class);
    let skip = SkipSet::new(set.groups(), &[0]).expect("a group of the model");
    let mut sessions = sessions(&set);
    let prompt: Vec<u32> = (0..20).map(|_| fed(dice)).collect();
    for session in &mut sessions {
        session.restart(&prompt).expect("the prompt fits");
    }
    let mut widths = vec![1, 2, 7, 16, 33, 64];
    widths.push(dice.within(1, 64));
    if is_slow(class.tier) && !everything() {
        // Every choice is met still, of one row to 33.
        widths.truncate(5);
    }
    for (i, width) in widths.into_iter().enumerate() {
        let tokens: Vec<u32> = (0..width).map(|_| fed(dice)).collect();
        let skip = dice.chance(50).then_some(&skip);
        let logits = filled(&mut sessions[0], &tokens).run(skip);
        let rows: Vec<Vec<f32>> = (0..width).map(|row| logits.row(row).to_vec()).collect();
        let hidden = |session: &Session| -> Vec<Vec<u32>> {
            (0..width).map(|row| bits(session.hidden(row).expect("a forward has run"))).collect()
        };
        let hidden_of_logits = hidden(&sessions[0]);
        assert!(rows.iter().all(|row| NO_NUMBERS.iter().all(|token| row[*token].is_nan())));
        assert!(rows.iter().all(|row| EQUAL.iter().all(|(a, b)| row[*a] == row[*b])));
        // Each choice meets three widths or two.
        const CHOICES: [(usize, Option<f32>); 5] =
            [(1, None), (2, Some(1.0)), (8, Some(0.7)), (64, None), (64, Some(1.3))];
        for (k, temperature) in [CHOICES[i % 5], CHOICES[(i + 2) % 5]] {
            let choice = Choice { k, temperature };
            let expected: Vec<_> = rows.iter().map(|row| judged(row, choice)).collect();
            for session in &mut sessions {
                let choices = filled(session, &tokens).choose(choice, skip);
                for (row, expected) in expected.iter().enumerate() {
                    let found = said(choices.row(row));
                    assert_eq!(
                        found, *expected,
                        "{} on {class}, row {row} of {width}, {choice:?}",
                        model.name
                    );
                }
                if choice == Choice::ARGMAX {
                    let best: Vec<u32> = (0..width).map(|row| choices.row(row).best()).collect();
                    assert_eq!(best, rows.iter().map(|row| argmax(row)).collect::<Vec<_>>());
                }
                assert_eq!(hidden(session), hidden_of_logits, "{} on {class}: hidden rows", model.name);
            }
        }
    }
}

#[test]
fn candidates_are_those_of_stored_logits() {
    let mut dice = Dice::new(1);
    for model in some_models() {
        for class in model.classes() {
            // The scalar judge is slow, and its head is stored in either case.
            if class.tier != Tier::Reference || model.format == WeightFormat::Q4_1 {
                check(model, class, &mut dice);
            }
        }
    }
}

/// Heads of one token, of those that are planted, of more than half of a range, and of nearly all.
fn any_heads(vocabulary: usize, dice: &mut Dice) -> Vec<Vec<u32>> {
    let mut planted: Vec<u32> =
        EQUAL.iter().flat_map(|(a, b)| [*a, *b]).chain(NO_NUMBERS).map(|t| t as u32).collect();
    planted.sort_unstable();
    let mut heads = vec![vec![dice.below(vocabulary) as u32], NO_NUMBERS.map(|t| t as u32).to_vec(), planted];
    for percent in [10, 50, 95] {
        heads.push((0..vocabulary as u32).filter(|_| dice.chance(percent)).collect());
    }
    heads.retain(|head| !head.is_empty());
    heads
}

fn check_trimmed(model: &TinyModel, class: Class, dice: &mut Dice) {
    let planted = Planted::new(&model.model);
    let whole = planted.set(class);
    let heads = any_heads(whole.vocabulary(), dice);
    let (first, later) = heads.split_at(2);
    // Made in two rounds, and one of them twice.
    let set = whole.with_heads(&planted, first, |stored| stored).expect("tokens in order");
    let set =
        set.with_heads(&planted, &[later, &first[..1]].concat(), |stored| stored).expect("tokens in order");
    let set = Arc::new(set);
    let skip = SkipSet::new(set.groups(), &[0]).expect("a group of the model");
    let mut judge = session(&whole, MODEL_CONTEXT, 64, 1);
    let mut sessions = sessions(&set);
    let prompt: Vec<u32> = (0..20).map(|_| fed(dice)).collect();
    for session in sessions.iter_mut().chain([&mut judge]) {
        session.restart(&prompt).expect("the prompt fits");
    }
    let is_short = class.tier == Tier::Reference || is_slow(class.tier) && !everything();
    let widths = if is_short { &[1, 5][..] } else { &[1, 7, 64] };
    for &width in widths {
        let tokens: Vec<u32> = (0..width).map(|_| fed(dice)).collect();
        let skip = dice.chance(50).then_some(&skip);
        let logits = filled(&mut judge, &tokens).run(skip);
        for (number, kept) in heads.iter().enumerate() {
            let head = set.head(kept).expect("it was made");
            let choice = *dice.pick(&[
                Choice { k: 1, temperature: None },
                Choice { k: 8, temperature: Some(0.7) },
                Choice { k: 64, temperature: Some(1.0) },
            ]);
            let expected: Vec<Vec<_>> = (0..width)
                .map(|row| {
                    let row: Vec<f32> = kept.iter().map(|token| logits.row(row)[*token as usize]).collect();
                    judged(&row, choice).into_iter().map(|(i, value)| (kept[i as usize], value)).collect()
                })
                .collect();
            for session in &mut sessions {
                let choices = filled(session, &tokens).choose_of(Some(head), choice, skip);
                for (row, expected) in expected.iter().enumerate() {
                    let found = said(choices.row(row));
                    assert_eq!(
                        found,
                        *expected,
                        "{} on {class}, head {number} of {} tokens, row {row} of {width}, {choice:?}",
                        model.name,
                        kept.len()
                    );
                }
            }
        }
    }
    // The whole head is as it was.
    let token = [fed(dice)];
    let expected: Vec<_> = said(filled(&mut judge, &token).choose(Choice::ARGMAX, None).row(0));
    for session in &mut sessions {
        assert_eq!(said(filled(session, &token).choose(Choice::ARGMAX, None).row(0)), expected);
    }
}

#[test]
fn candidates_of_a_trimmed_head_are_those_of_the_tokens_it_keeps() {
    let mut dice = Dice::new(2);
    for model in some_models() {
        for class in model.classes() {
            check_trimmed(model, class, &mut dice);
        }
    }
}

/// What the reference says of a row of logits, of the tokens of a trimmed head if there are some, under noise.
fn judged_under_noise(
    logits: &[f32],
    k: usize,
    (key, temperature): (NoiseKey, f32),
    tokens: Option<&[u32]>,
) -> Vec<(u32, u32)> {
    let kept: Vec<f32> = match tokens {
        Some(tokens) => tokens.iter().map(|token| logits[*token as usize]).collect(),
        None => logits.to_vec(),
    };
    let columns = candidate_columns(k);
    let mut row = vec![0.0; columns];
    let noise = RowNoise { keys: &[key], temperature, tokens };
    let choice = Choice { k, temperature: None };
    let out = RowsMut::new(&mut row, columns);
    reference::candidates(Rows::new(&kept, kept.len()), choice, Some(noise), out);
    let name = |place: u32| tokens.map_or(place, |tokens| tokens[place as usize]);
    said(Candidates::new(&row)).into_iter().map(|(place, value)| (name(place), value)).collect()
}

fn check_under_noise(model: &TinyModel, class: Class, dice: &mut Dice) {
    let planted = Planted::new(&model.model);
    let whole = planted.set(class);
    let heads = any_heads(whole.vocabulary(), dice);
    let kept = &heads[heads.len() - 1];
    let set = Arc::new(
        whole.with_heads(&planted, std::slice::from_ref(kept), |stored| stored).expect("tokens in order"),
    );
    let trimmed = set.head(kept).expect("it was made");
    let prompt: Vec<u32> = (0..20).map(|_| fed(dice)).collect();
    let mut judge = session(&whole, MODEL_CONTEXT, 64, 1);
    let mut sessions = sessions(&set);
    for session in sessions.iter_mut().chain([&mut judge]) {
        session.restart(&prompt).expect("the prompt fits");
        assert!(session.ranks_by_noise(), "every backend does");
    }
    for width in [1, 5, 19] {
        let tokens: Vec<u32> = (0..width).map(|_| fed(dice)).collect();
        let logits = filled(&mut judge, &tokens).run(None);
        let noise = Noise {
            seed: dice.bits(),
            temperature: *dice.pick(&[0.6, 1.0, 3.0, 1e-3]),
            first: dice.within(1, 2),
        };
        let k = *dice.pick(&[1, 32, 64]);
        for session in &mut sessions {
            for (head, tokens_of_head) in [(None, None), (Some(trimmed), Some(&kept[..]))] {
                let choice = Choice { k, temperature: None };
                let choices = filled(session, &tokens).under_noise(noise).choose_of(head, choice, None);
                for row in 0..width {
                    let place = prompt.len() + usize::from(row > 0) + noise.first;
                    let key = NoiseKey::at(noise.seed, place as u64);
                    let expected =
                        judged_under_noise(logits.row(row), k, (key, noise.temperature), tokens_of_head);
                    let what = format!("{} on {class}, row {row} of {width}, {noise:?}", model.name);
                    assert_eq!(said(choices.row(row)), expected, "{what}");
                }
                // The next forward knows nothing of it.
                let best = filled(session, &tokens).choose(Choice::ARGMAX, None).row(0).best();
                assert_eq!(best, argmax(logits.row(0)), "{} on {class}", model.name);
            }
        }
    }
}

#[test]
fn candidates_under_noise_are_those_of_noisy_logits() {
    let mut dice = Dice::new(3);
    for model in some_models() {
        for class in model.classes() {
            check_under_noise(model, class, &mut dice);
        }
    }
}

#[test]
fn greedy_decoding_is_the_argmax_of_logits_token_for_token() {
    for model in models() {
        for class in model.classes() {
            let set = model.set(class);
            let prompt = Dice::new(5).tokens(9, set.vocabulary());
            let tokens = if class.tier == Tier::Reference { 4 } else { 40 };
            let mut judge = session(set, MODEL_CONTEXT, 1, 1);
            let mut expected = vec![argmax(judge.restart(&prompt).expect("the prompt fits"))];
            while expected.len() < tokens {
                let last = [expected[expected.len() - 1]];
                expected.push(argmax(filled(&mut judge, &last).run(None).row(0)));
                judge.commit(&[0]);
            }
            for threads in thread_counts() {
                let session = session(set, MODEL_CONTEXT, 1, *threads);
                let mut decoder =
                    Decoder::new(session, vec![BandSteps::plain()]).expect("one row is planned");
                decoder.start(&prompt, Sampling::GREEDY).expect("the prompt fits");
                while decoder.history().len() < prompt.len() + tokens {
                    decoder.step(Limits { tokens: 1, ends: &[] }, None).expect("the step runs");
                }
                assert_eq!(decoder.history()[prompt.len()..], expected, "{} on {class}", model.name);
            }
        }
    }
}
