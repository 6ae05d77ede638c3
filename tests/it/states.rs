//! Sessions of models whose rows have a state: texts that are cut, what is kept of them, layers that are left out, what
//! is refused.

use std::sync::{Arc, OnceLock};

use ygg_kernels::{KvFormat, Tier};
use yggc::{
    ir::Choice,
    runtime::{BLOCK_TOKENS, ExecutableSet, Session, SkipSet},
};

use crate::{
    families,
    tiny_model::{Class, Dice, MODEL_CONTEXT, TinyModel, best_tier, bits, cases, is_cuda, session},
};

/// Tests of the emulated device.
pub(crate) const OF_DEVICES: [&str; 3] = [
    "states::a_text_that_is_cut_goes_on_to_the_bit",
    "states::a_state_goes_on_in_another_session_to_the_bit",
    "states::what_a_session_cannot_return_to_is_not_promised",
];

/// Models with gated delta rules and with selective scans in most layers.
pub(crate) fn models() -> &'static [TinyModel] {
    static MODELS: OnceLock<[TinyModel; 4]> = OnceLock::new();
    let names = ["qwen35", "qwen35_tied", "granitehybrid", "granitehybrid_moe"];
    MODELS.get_or_init(|| names.map(|name| families::of_context(name, MODEL_CONTEXT)))
}

/// One with grouped heads, and so with gated delta rules in three of four layers.
fn following() -> &'static TinyModel {
    &models()[0]
}

/// The logits after a text, in a session of its own.
fn alone(set: &Arc<ExecutableSet>, text: &[u32]) -> Vec<u32> {
    bits(session(set, MODEL_CONTEXT, 1, 1).prefill(text).expect("it fits"))
}

/// Runs a tree of three rows after the committed text, a chain or two branches, and commits a path of it.
fn step(session: &mut Session, text: &mut Vec<u32>, dice: &mut Dice, skip: Option<&SkipSet>) {
    let tokens = dice.tokens(3, session.set().vocabulary());
    let is_chain = dice.chance(50);
    let mut forward = session.forward(3).expect("it is planned");
    forward.push(tokens[0], 0, 0, |tail| {
        tail[0] = 0;
        1
    });
    for (row, token) in (1..3).zip(&tokens[1..]) {
        let above: &[u32] = if is_chain && row == 2 { &[0, 1, 2] } else { &[0, row] };
        forward.push(*token, above.len() as u32 - 1, row, |tail| {
            tail[..above.len()].copy_from_slice(above);
            above.len()
        });
    }
    match skip {
        // What is drafted is never committed.
        Some(skip) => {
            forward.choose(Choice::ARGMAX, Some(skip));
        }
        None => {
            forward.run(None);
            let paths: [&[u32]; 4] =
                if is_chain { [&[], &[0], &[0, 1], &[0, 1, 2]] } else { [&[], &[0], &[0, 1], &[0, 2]] };
            let path = *dice.pick(&paths);
            session.commit(path);
            text.extend(path.iter().map(|offset| tokens[*offset as usize]));
        }
    }
}

fn cut_and_go_on(class: Class, format: KvFormat, case: u64) {
    let mut dice = Dice::new(case);
    let model = dice.pick(models());
    let set = model.build(class, format, vec![1, 3, 16]);
    let what = format!("{} on {class}, {format} cache, case {case}", model.name);
    let mut session = session(&set, MODEL_CONTEXT, 8, dice.within(1, 2));
    let len = dice.within(1, 150);
    let mut text = dice.tokens(len, set.vocabulary());
    let split = dice.within(1, len);
    session.prefill(&text[..split]).expect("it fits");
    if split < len {
        session.score(&text[split..], |_, _| ()).expect("it fits");
    }
    let mut skip = SkipSet::none(set.groups());
    let chosen: Vec<bool> = (0..set.groups()).map(|_| dice.chance(40)).collect();
    skip.assign(|group| chosen[group as usize]);
    for _ in 0..dice.within(0, 30) {
        let skip = Some(&skip).filter(|_| dice.chance(30));
        step(&mut session, &mut text, &mut dice, skip);
        session.poison_scratch(dice.bits());
    }
    assert_eq!(session.committed(), text.len(), "{what}");
    let most = session.most_cut().expect("rows have a state");
    let wanted = text.len().saturating_sub(dice.within(0, 2 * most));
    let kept = session.resume_point(wanted);
    assert!(kept == wanted || (kept == 0 && text.len() - wanted > most), "{what}: {kept} for {wanted}");
    session.truncate(kept);
    text.truncate(kept);
    session.poison_scratch(dice.bits());
    for _ in 0..dice.within(0, 4) {
        step(&mut session, &mut text, &mut dice, None);
    }
    let more = dice.within(1, 70);
    let next = dice.tokens(more, set.vocabulary());
    let found = bits(session.prefill(&next).expect("it fits"));
    text.extend(next);
    assert!(found == alone(&set, &text), "{what}: {} tokens, cut to {kept}", text.len());
}

#[test]
fn a_text_that_is_cut_goes_on_to_the_bit() {
    for class in following().classes() {
        let count = if class.tier == Tier::Reference { 1 } else { cases(class, 12) };
        (0..count).for_each(|case| cut_and_go_on(class, KvFormat::F16, case));
    }
    if !is_cuda() {
        cut_and_go_on(Class::native(best_tier()), KvFormat::Q8, 100);
    }
}

/// The state at the end of a block goes on in another session, which may have a past of its own, as the tokens would.
fn state_goes_on(class: Class, case: u64) {
    let mut dice = Dice::new(case);
    let model = dice.pick(models());
    let set = &model.build(class, KvFormat::F16, vec![1, 3, 16]);
    let what = format!("{} on {class}, case {case}", model.name);
    let len = dice.within(BLOCK_TOKENS + 1, MODEL_CONTEXT - 8);
    let mut text = dice.tokens(len, set.vocabulary());
    let mut first = session(set, MODEL_CONTEXT, 4, 1);
    let split = dice.within(1, len - 1);
    first.prefill(&text[..split]).expect("it fits");
    first.score(&text[split..], |_, _| ()).expect("it fits");
    let blocks = first.whole_blocks();
    assert!(blocks == 0 || (len - 1) / BLOCK_TOKENS - blocks < 2, "{what}: {blocks} blocks of {len} tokens");
    if blocks == 0 {
        return;
    }
    let mut second = session(set, MODEL_CONTEXT, 4, dice.within(1, 2));
    let past = dice.within(1, 200);
    second.prefill(&dice.tokens(past, set.vocabulary())).expect("it fits");
    second.truncate(0);
    let mut bytes = vec![0xa5; first.block_bytes()];
    for block in 0..blocks {
        first.save_block(block, &mut bytes).expect("the device works");
        second.load_block(&bytes).expect("the device works");
    }
    let mut state = vec![0xa5; first.state_bytes()];
    first.save_state(&mut state).expect("the device works");
    second.load_state(&state).expect("the device works");
    let kept = blocks * BLOCK_TOKENS;
    assert_eq!((second.committed(), second.state_end()), (kept, Some(kept)), "{what}");
    assert_eq!([kept, kept - 1].map(|len| second.resume_point(len)), [kept, 0], "{what}");
    second.poison_scratch(dice.bits());
    text.truncate(kept);
    if MODEL_CONTEXT - kept > 20 {
        for _ in 0..dice.within(0, 4) {
            step(&mut second, &mut text, &mut dice, None);
        }
        second.truncate(kept);
        text.truncate(kept);
    }
    let more = dice.within(1, 8);
    let next = dice.tokens(more, set.vocabulary());
    let found = bits(second.prefill(&next).expect("it fits"));
    text.extend(next);
    assert!(found == alone(set, &text), "{what}: {} tokens, {kept} of them loaded", text.len());
}

#[test]
fn a_state_goes_on_in_another_session_to_the_bit() {
    for class in following().classes() {
        let count = if class.tier == Tier::Reference { 1 } else { cases(class, 12) };
        (0..count).for_each(|case| state_goes_on(class, case));
    }
}

/// What is read again when a prompt shares little, and what is kept of it.
#[test]
fn what_a_session_cannot_return_to_is_not_promised() {
    let set = following().set(Class::native(best_tier()));
    let mut session = session(set, MODEL_CONTEXT, 1, 1);
    let text = Dice::new(3).tokens(220, set.vocabulary());
    session.prefill(&text).expect("it fits");
    assert_eq!(session.most_cut(), Some(64));
    assert_eq!([220, 156, 100, 1].map(|len| session.resume_point(len)), [220, 156, 0, 0]);
    // The last forward has brought the states to what was committed before it.
    assert_eq!((session.whole_blocks(), session.state_end()), (3, Some(192)));
    session.truncate(0);
    assert_eq!(bits(session.prefill(&text).expect("it fits")), alone(set, &text));
}
