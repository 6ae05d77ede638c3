//! Row invariance of whole forwards: the bits of a row's logits and of its hidden row depend on its logical sequence
//! and nothing else.
//!
//! The judge decodes every sequence one token at a time on one thread. Equality is of bits; there is no tolerance.

use std::sync::Arc;

use ygg_kernels::{Activations, KvFormat, Tier};
use yggc::runtime::{ExecutableSet, Session};

use crate::tiny_model::{
    Class, Dice, MODEL_CONTEXT, TinyModel, best_tier, bits, cases, everything, is_slow, models, session,
    some_models,
};

/// Most rows of a forward.
const MOST_ROWS: usize = 64;
/// Scratch slots that rows are spread over.
const SCRATCH: usize = 80;

/// The bits of a hidden row of the last forward.
fn hidden(session: &Session, output: usize) -> Vec<u32> {
    bits(session.hidden(output).expect("a forward has run"))
}

/// One forward of one row, committed; gives the bits of its logits and its hidden row.
fn step(session: &mut Session, token: u32) -> Vec<u32> {
    let mut forward = session.forward(1).expect("one row is always planned");
    forward.push(token, 0, 0, |tail| {
        tail[0] = 0;
        1
    });
    let logits = bits(forward.run(None).row(0));
    let shown = [logits, hidden(session, 0)].concat();
    session.commit(&[0]);
    shown
}

/// Decodes plainly: one row per forward, one thread.
struct Judge {
    session: Session,
    tokens: Vec<u32>,
}

impl Judge {
    fn new(set: &Arc<ExecutableSet>) -> Self {
        Self::within(set, MODEL_CONTEXT)
    }

    /// Of a model with another longest context.
    fn within(set: &Arc<ExecutableSet>, context: usize) -> Self {
        Self { session: session(set, context, 1, 1), tokens: Vec::new() }
    }

    /// Bits of the logits after `sequence`, then of the hidden row they are made of.
    fn shown(&mut self, sequence: &[u32]) -> Vec<u32> {
        let common = self.tokens.iter().zip(sequence).take_while(|(a, b)| a == b).count();
        let kept = self.session.resume_point(common.min(sequence.len() - 1));
        self.session.truncate(kept);
        self.tokens.truncate(kept);
        let mut last = Vec::new();
        for token in &sequence[kept..] {
            last = step(&mut self.session, *token);
            self.tokens.push(*token);
        }
        last
    }
}

/// Rows to forward together: trees with any number of roots, each row in a slot of its own.
#[derive(Debug)]
struct Rows {
    tokens: Vec<u32>,
    parents: Vec<Option<usize>>,
    /// Scratch offset of each row.
    offsets: Vec<u32>,
    /// Row numbers in the order in which they are pushed.
    order: Vec<usize>,
}

impl Rows {
    /// `count` rows that form no path longer than `deepest`.
    fn random(count: usize, deepest: usize, vocabulary: usize, dice: &mut Dice) -> Self {
        let mut parents: Vec<Option<usize>> = vec![None];
        let mut depths = vec![1];
        let chains = dice.chance(25);
        for row in 1..count {
            let parent = if chains { row - 1 } else { dice.below(row) };
            let is_root = dice.chance(5) || depths[parent] == deepest;
            parents.push((!is_root).then_some(parent));
            depths.push(if is_root { 1 } else { depths[parent] + 1 });
        }
        let mut offsets: Vec<u32> = (0..SCRATCH as u32).collect();
        let mut order: Vec<usize> = (0..count).collect();
        if dice.chance(75) {
            dice.shuffle(&mut offsets);
            dice.shuffle(&mut order);
        }
        offsets.truncate(count);
        Self { tokens: dice.tokens(count, vocabulary), parents, offsets, order }
    }

    fn path(&self, row: usize) -> Vec<usize> {
        let mut path: Vec<usize> = std::iter::successors(Some(row), |row| self.parents[*row]).collect();
        path.reverse();
        path
    }

    /// Forwards them at the width that is planned for `width` rows and gives the bits of each one's logits.
    fn run(&self, session: &mut Session, width: usize) -> Vec<Vec<u32>> {
        let mut forward = session.forward(width).expect("the width is planned");
        for row in &self.order {
            let path = self.path(*row);
            let depth = path.len() as u32 - 1;
            forward.push(self.tokens[*row], depth, self.offsets[*row], |tail| {
                for (slot, ancestor) in tail.iter_mut().zip(&path) {
                    *slot = self.offsets[*ancestor];
                }
                path.len()
            });
        }
        let logits = forward.run(None);
        let mut by_row = vec![Vec::new(); self.order.len()];
        for (pushed, row) in self.order.iter().enumerate() {
            by_row[*row] = bits(logits.row(pushed));
        }
        for (pushed, row) in self.order.iter().enumerate() {
            by_row[*row].extend(hidden(session, pushed));
        }
        by_row
    }

    fn check(&self, prefix: &[u32], found: &[Vec<u32>], judge: &mut Judge, what: &str) {
        for (row, found) in found.iter().enumerate() {
            let path = self.path(row);
            let sequence: Vec<u32> =
                prefix.iter().copied().chain(path.iter().map(|row| self.tokens[*row])).collect();
            assert!(*found == judge.shown(&sequence), "{what}: row {row} of {self:?} differs");
        }
    }
}

/// Commits `prefix` in pieces of any size by any means, comparing whatever logits that shows.
fn load(session: &mut Session, prefix: &[u32], judge: &mut Judge, dice: &mut Dice, what: &str) {
    session.truncate(0);
    let mut done = 0;
    while done < prefix.len() {
        session.poison_scratch(dice.bits());
        let len = dice.within(1, 70.min(prefix.len() - done));
        let piece = &prefix[done..done + len];
        match dice.below(3) {
            0 => {
                let logits = bits(session.prefill(piece).expect("it fits"));
                let found = [logits, hidden(session, 0)].concat();
                assert!(found == judge.shown(&prefix[..done + len]), "{what}: prefill {done}+{len}");
                done += len;
            }
            1 => {
                let visit = |i: usize, logits: &[f32]| {
                    let expected = judge.shown(&prefix[..done + i + 1]);
                    assert!(bits(logits) == expected[..logits.len()], "{what}: score {done}+{len} at {i}");
                };
                session.score(piece, visit).expect("it fits");
                done += len;
            }
            _ => {
                let found = step(session, piece[0]);
                done += 1;
                assert!(found == judge.shown(&prefix[..done]), "{what}: step at {done}");
            }
        }
    }
    assert_eq!(session.committed(), prefix.len());
}

/// Prefixes around the blocks that attention and prefill work in, and up to the end of the context.
fn prefix_len(context: usize, rows: usize, dice: &mut Dice) -> usize {
    let most = context - rows.min(40);
    let near = |edge: usize, dice: &mut Dice| (edge + dice.below(3)).saturating_sub(1).min(most);
    match dice.below(4) {
        0 => near(*dice.pick(&[1, 16, 32, 64, 128]), dice),
        1 => most,
        _ => dice.below(100.min(most)),
    }
}

/// Tries `cases` random sets of rows of a model.
pub(crate) fn any_rows(model: &TinyModel, class: Class, cases: u64) {
    let set = model.set(class);
    let (vocabulary, context) = (set.vocabulary(), model.model.config.context);
    let mut judge = Judge::within(set, context);
    let mut sessions: Vec<Session> = (1..=3).map(|threads| session(set, context, SCRATCH, threads)).collect();
    for case in 0..cases {
        let what = format!("{} on {class}, case {case}", model.name);
        let mut dice = Dice::new(case);
        let count = if dice.chance(30) { dice.within(1, MOST_ROWS) } else { dice.within(1, 12) };
        let len = prefix_len(context, count, &mut dice);
        let prefix = dice.tokens(len, vocabulary);
        let rows = Rows::random(count, context - len, vocabulary, &mut dice);
        let session = dice.below(sessions.len());
        let session = &mut sessions[session];
        load(session, &prefix, &mut judge, &mut dice, &what);
        session.poison_scratch(dice.bits());
        let width = dice.within(count, MOST_ROWS);
        let found = rows.run(session, width);
        rows.check(&prefix, &found, &mut judge, &what);
        session.poison_scratch(dice.bits());
        assert!(rows.run(session, count) == found, "{what}: once more at another width");
    }
}

#[test]
fn rows_do_not_depend_on_company_width_slots_scratch_or_threads() {
    every_class(4);
}

#[test]
#[ignore = "takes long: .ci/full runs it"]
fn rows_of_many_trees_do_not_depend_on_company_width_slots_scratch_or_threads() {
    every_class(40);
}

fn every_class(usual: u64) {
    for model in some_models() {
        for class in model.classes() {
            any_rows(model, class, if class.tier == Tier::Reference { 2 } else { cases(class, usual) });
        }
    }
}

#[test]
fn every_width_and_every_number_of_used_rows_gives_the_same_bits() {
    for (model, kv_format, activations) in [
        (&models()[0], KvFormat::F32, Activations::Native),
        (&models()[5], KvFormat::F16, Activations::Native),
        (&models()[5], KvFormat::F16, Activations::Int8),
        (&models()[5], KvFormat::Q8, Activations::Native),
    ] {
        let class = Class { tier: best_tier(), activations };
        if class.tier == Tier::Cuda && (activations == Activations::Int8 || kv_format == KvFormat::Q8) {
            continue;
        }
        let set = model.build(class, kv_format, (1..=MOST_ROWS).collect());
        assert_eq!(set.widths().len(), MOST_ROWS);
        let mut judge = Judge::new(&set);
        let mut sessions: Vec<Session> =
            (1..=2).map(|threads| session(&set, MODEL_CONTEXT, SCRATCH, threads)).collect();
        let prefix = Dice::new(0).tokens(21, set.vocabulary());
        for session in &mut sessions {
            session.prefill(&prefix).expect("it fits");
        }
        for width in 1..=MOST_ROWS {
            let mut dice = Dice::new(width as u64);
            for used in [width, dice.within(1, width)] {
                let what = format!("{} on {class}, {used} of {width} rows", model.name);
                let rows = Rows::random(used, 30, set.vocabulary(), &mut dice);
                let session = &mut sessions[width % 2];
                session.poison_scratch(dice.bits());
                let found = rows.run(session, width);
                rows.check(&prefix, &found, &mut judge, &what);
            }
        }
    }
}

#[test]
fn a_prompt_in_one_prefill_in_steps_or_scored_gives_the_same_bits() {
    for model in some_models() {
        for class in model.classes() {
            let set = model.set(class);
            let mut judge = Judge::new(set);
            let mut session = session(set, MODEL_CONTEXT, 1, 2);
            let text = Dice::new(5).tokens(MODEL_CONTEXT, set.vocabulary());
            let lens: &[usize] = match class.tier {
                // The scalar judge has no blocks; it only shows that chunks are cut right.
                Tier::Reference => &[1, 17, 65],
                tier if is_slow(tier) && !everything() => &[1, 16, 17, 65, 129],
                _ => &[1, 2, 15, 16, 17, 63, 64, 65, 129, 256],
            };
            for &len in lens {
                let what = format!("{} on {class}, {len} tokens", model.name);
                session.truncate(0);
                session.poison_scratch(len as u64);
                let expected = judge.shown(&text[..len]);
                let logits = bits(session.prefill(&text[..len]).expect("it fits"));
                assert!([logits, hidden(&session, 0)].concat() == expected, "{what}: prefill");
                session.truncate(0);
                session.poison_scratch(len as u64);
                let mut last = Vec::new();
                session.score(&text[..len], |_, logits| last = bits(logits)).expect("it fits");
                assert!(last == expected[..last.len()], "{what}: score");
            }
        }
    }
}

#[test]
fn embeddings_are_the_same_bits_in_every_class() {
    for model in models() {
        let rows = |class| -> Vec<Vec<u32>> {
            let set = model.set(class);
            let session = session(set, MODEL_CONTEXT, 1, 1);
            let tokens = [0, 1, 77, set.vocabulary() as u32 - 1];
            let mut row = vec![0.0; set.model_width()];
            tokens
                .map(|token| {
                    session.embedding(token, &mut row);
                    bits(&row)
                })
                .to_vec()
        };
        let expected = rows(Class::native(Tier::Reference));
        assert!(expected[0] != expected[1], "{}: rows of the table", model.name);
        for class in model.classes() {
            assert!(rows(class) == expected, "{} on {class}", model.name);
        }
    }
}
