//! Tuning a skip set while decoding: what tries see and touch, what they measure, and that they find something.

use std::sync::Arc;

use yggc::{
    backend::Tier,
    engine::Activations,
    plan::GroupSet,
    policy::{
        SkipCosts, SkipCounts, SkipObjective, SkipSearch, SkipSearchSettings, SkipState, SkipTimes, TriedSet,
    },
    runtime::{Choice, ExecutableSet, Session, SkipSet},
    sample::Sampling,
    speculate::{
        BandSteps, Candidate, Decoder, DraftGrowth, DrafterState, Limits, SpeculateError, StepShape, Swift,
        TraceObserver,
    },
    tree::NodeId,
};

use crate::tiny_model::{Class, Dice, best_tier, bits, models, session, some_models};

const SHAPE: StepShape =
    StepShape { depth: 3, draft_width: 2, verify_width: 4, top_k: 4, draft_temperature: 1.0 };
const CONTEXT: usize = 128;

/// Times by which a try costs as much as some steps.
pub(crate) fn any_skip_costs() -> SkipCosts {
    let times =
        SkipTimes { verify: vec![(1, 10.0), (8, 25.0), (64, 90.0)], draft: vec![(1, 6.0), (8, 15.0)] };
    SkipCosts::new(times, 0.5)
}

/// A search that tries sets at nearly every step and never has enough.
pub(crate) fn any_skip_search(window: usize, dice: &mut Dice) -> SkipSearchSettings {
    SkipSearchSettings {
        objective: *dice.pick(&[SkipObjective::Matchness, SkipObjective::Speed]),
        window,
        share: *dice.pick(&[0.5, 20.0]),
        interval: dice.within(1, 5) as u32,
        enough: 2.0,
        seed: dice.bits(),
        ..SkipSearchSettings::default()
    }
}

fn decoder(
    set: &Arc<ExecutableSet>,
    start: &[u32],
    settings: SkipSearchSettings,
    growth: DraftGrowth,
) -> Decoder {
    let bank = SHAPE.tree_nodes();
    let session = session(set, CONTEXT, bank + settings.window, 1);
    let search = SkipSearch::new(set.groups(), start, SHAPE.depth as u32, any_skip_costs(), settings);
    let drafter = Swift::new(&session, search, &SHAPE, growth, bank).expect("room for tries");
    Decoder::new(session, vec![BandSteps::unplanned(Some(Box::new(drafter)), &SHAPE)])
        .expect("a planned width")
}

/// What the search keeps.
fn kept(decoder: &mut Decoder) -> SkipState {
    match decoder.drafter_states().pop() {
        Some(DrafterState::Swift(state)) => *state,
        other => panic!("expected a search, found {other:?}"),
    }
}

/// What the search did until the last draft.
fn counts(decoder: &Decoder) -> SkipCounts {
    decoder.stats().skip_search.expect("it searches")
}

/// The token that a forward without `set` says after `history`, by a sequence of its own.
fn said(slow: &mut Session, history: &[u32], set: &GroupSet) -> u32 {
    let (last, before) = history.split_last().expect("not empty");
    slow.restart(before).expect("a short text");
    let groups = slow.set().groups();
    let skip = SkipSet::new(groups, &set.iter().collect::<Vec<_>>()).expect("groups of the model");
    let mut forward = slow.forward(1).expect("width 1 is planned");
    forward.push(*last, 0, 0, |tail| {
        tail[0] = 0;
        1
    });
    forward.choose(Choice::ARGMAX, Some(&skip)).row(0).best()
}

/// The share of the last `window` tokens that the forward says, one by one.
fn reproduced(slow: &mut Session, history: &[u32], window: usize, set: &GroupSet) -> f64 {
    let first = history.len() - window;
    let same = (first..history.len()).filter(|place| said(slow, &history[..*place], set) == history[*place]);
    same.count() as f64 / window as f64
}

#[test]
fn a_row_put_again_is_the_forward_at_its_place_and_touches_nothing_committed() {
    let mut dice = Dice::new(31);
    for model in some_models() {
        let fast = model.classes().into_iter().filter(|class| class.tier != Tier::Reference);
        for class in fast {
            let set = model.set(class);
            let groups = set.groups();
            let text = dice.tokens(40, set.vocabulary());
            let next = dice.tokens(1, set.vocabulary())[0];
            let skipped: Vec<u32> = (0..groups).filter(|_| dice.chance(50)).collect();
            let (skip, as_set) =
                (SkipSet::new(groups, &skipped).expect("groups"), GroupSet::of(skipped.iter().copied()));
            let [mut tried, mut plain] = [48, 1].map(|rows| session(set, CONTEXT, rows, 1));
            for session in [&mut tried, &mut plain] {
                session.restart(&text).expect("a short text");
            }
            tried.poison_scratch(7);
            let mut forward = tried.forward(16).expect("a planned width");
            for row in 0..16 {
                forward.push_again(text[20 + row], 20 + row, 30 + row as u32);
            }
            let choices = forward.choose(Choice::ARGMAX, Some(&skip));
            let found: Vec<u32> = (0..16).map(|row| choices.row(row).best()).collect();
            let mut slow = session(set, CONTEXT, 1, 1);
            let expected: Vec<u32> =
                (0..16).map(|row| said(&mut slow, &text[..=20 + row], &as_set)).collect();
            assert_eq!(found, expected, "{} on {class}", model.name);

            assert_eq!(tried.committed(), text.len());
            let [after, untouched] = [&mut tried, &mut plain].map(|session| {
                let mut forward = session.forward(1).expect("width 1 is planned");
                forward.push(next, 0, 0, |tail| {
                    tail[0] = 0;
                    1
                });
                bits(forward.run(None).row(0))
            });
            assert_eq!(after, untouched, "{} on {class}: a try changed what is committed", model.name);
        }
    }
}

fn fast() -> Class {
    Class { tier: best_tier(), activations: Activations::Native }
}

#[test]
fn matchness_is_what_one_by_one_recomputation_says() {
    let mut tries = 0;
    for (case, growth) in (0..6).zip([DraftGrowth::Equal, DraftGrowth::Confident].into_iter().cycle()) {
        let mut dice = Dice::new(case);
        let set = models()[dice.within(2, 5)].set(fast());
        // Wider than the widest planned forward too, which takes several.
        let window = *dice.pick(&[3, 8, 20]);
        let settings = any_skip_search(window, &mut dice);
        let mut decoder = decoder(set, &[2, 3], settings, growth);
        let mut slow = session(set, CONTEXT, 1, 1);
        let prompt = dice.tokens(6, set.vocabulary());
        decoder.start(&prompt, Sampling::GREEDY).expect("the prompt fits");
        let mut seen = 0;
        while decoder.history().len() < 70 {
            let history = decoder.history().to_vec();
            decoder.session_mut().poison_scratch(history.len() as u64);
            decoder.step(Limits { tokens: 20, ends: &[] }, None).expect("the step runs");
            let state = kept(&mut decoder);
            let points = state.points();
            for TriedSet { set, matchness } in &points[seen..] {
                assert_eq!(*matchness, reproduced(&mut slow, &history, window, set), "case {case}: {set:?}");
                assert!(
                    history.len() >= prompt.len() + window,
                    "only what the verifier emitted is to be reproduced"
                );
                tries += 1;
            }
            seen = points.len();
        }
    }
    assert!(tries > 40, "{tries} tries");
}

#[test]
fn the_same_seed_and_history_decide_the_same() {
    let set = models()[2].set(fast());
    let run = |seed: u64, growth: DraftGrowth| {
        let settings = SkipSearchSettings { seed, ..any_skip_search(6, &mut Dice::new(3)) };
        let mut decoder = decoder(set, &[2, 3, 6], settings, growth);
        let mut log = Vec::new();
        for request in 0..3 {
            let prompt = Dice::new(request).tokens(5, set.vocabulary());
            decoder
                .start(&prompt, Sampling { temperature: 0.9, ..Sampling::GREEDY })
                .expect("the prompt fits");
            for _ in 0..20 {
                decoder.step(Limits { tokens: 20, ends: &[] }, None).expect("the step runs");
                let drafted = decoder.stats().drafted;
                log.push((counts(&decoder), *kept(&mut decoder).best(), drafted));
            }
        }
        let last = log.last().expect("not empty").0;
        assert!(last.tries > 20, "{last:?}: it goes on over requests");
        (log, decoder.history().to_vec())
    };
    for growth in [DraftGrowth::Equal, DraftGrowth::Confident] {
        let first = run(1, growth);
        assert_eq!(first, run(1, growth));
        let other = run(2, growth);
        assert_ne!(first.0, other.0, "another seed tries other sets");
        // Steps are of other lengths, so one is ahead of the other.
        let both = first.1.len().min(other.1.len());
        assert!(both > 25, "20 steps emit as many tokens or more");
        assert_eq!(first.1[..both], other.1[..both], "and emits the same tokens");
    }
}

#[test]
fn a_stream_is_reproduced_better_by_what_was_found() {
    let set = models()[2].set(fast());
    let mut slow = session(set, CONTEXT, 1, 1);
    let answers: Vec<Vec<u32>> = (0..8)
        .map(|seed| {
            let mut plain =
                Decoder::new(session(set, CONTEXT, 1, 1), vec![BandSteps::plain()]).expect("plain decoding");
            let prompt = Dice::new(seed).tokens(8, set.vocabulary());
            plain.start(&prompt, Sampling::GREEDY).expect("the prompt fits");
            for _ in 0..39 {
                plain.step(Limits { tokens: 1, ends: &[] }, None).expect("the step runs");
            }
            plain.history().to_vec()
        })
        .collect();
    let mut true_matchness = |set: &GroupSet| {
        answers.iter().map(|answer| reproduced(&mut slow, answer, 40, set)).sum::<f64>()
            / answers.len() as f64
    };
    // Every set of the size that is searched, of 6 inner groups.
    let sets = (0..6).flat_map(|a| (a + 1..6).map(move |b| GroupSet::of([2 + a, 2 + b])));
    let mut ranked: Vec<(f64, GroupSet)> = sets.map(|set| (true_matchness(&set), set)).collect();
    ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (worst, best) = (ranked[0], ranked[ranked.len() - 1]);
    assert!(best.0 > worst.0 + 0.05, "{ranked:?}: nothing to find");

    let start: Vec<u32> = worst.1.iter().collect();
    let settings = SkipSearchSettings {
        window: 24,
        share: 5.0,
        interval: 5,
        enough: 2.0,
        ..SkipSearchSettings::default()
    };
    let mut decoder = decoder(set, &start, settings, DraftGrowth::Equal);
    for answer in &answers {
        decoder.start(&answer[..8], Sampling::GREEDY).expect("the prompt fits");
        while decoder.history().len() < answer.len() {
            let tokens = answer.len() - decoder.history().len();
            decoder.step(Limits { tokens, ends: &[] }, None).expect("the step runs");
        }
        assert_eq!(decoder.history(), answer);
    }
    let counts = counts(&decoder);
    let found = true_matchness(kept(&mut decoder).best());
    assert!(counts.changes > 0 && counts.tries > 15, "{counts:?}");
    assert!(found > worst.0, "{found} after {counts:?}, from {ranked:?}");
}

/// Keeps what was offered of every node.
#[derive(Debug, Default)]
struct Offered(Vec<(NodeId, Vec<Candidate>)>);

impl TraceObserver for Offered {
    fn expanded(&mut self, node: NodeId, candidates: &[Candidate]) {
        self.0.push((node, candidates.to_vec()));
    }
}

#[test]
fn confident_drafts_end_where_they_are_unsure_and_have_siblings_there() {
    let set = models()[2].set(fast());
    let (mut chained, mut ended_unsure, mut cut_by_room) = (0, 0, 0);
    for (case, draft_temperature) in [0.02, 0.05, 0.1, 0.2, 1.0].into_iter().enumerate() {
        let shape = StepShape { depth: 5, draft_width: 3, verify_width: 8, top_k: 3, draft_temperature };
        let settings = SkipSearchSettings { share: 0.0, ..SkipSearchSettings::default() };
        let session = session(set, CONTEXT, shape.tree_nodes() + settings.window, 1);
        let search = SkipSearch::new(set.groups(), &[2, 5], 5, any_skip_costs(), settings);
        let drafter = Swift::new(&session, search, &shape, DraftGrowth::Confident, shape.tree_nodes());
        let mut decoder = Decoder::new(
            session,
            vec![BandSteps::unplanned(Some(Box::new(drafter.expect("room for tries"))), &shape)],
        )
        .expect("planned");
        decoder
            .start(&Dice::new(case as u64).tokens(7, set.vocabulary()), Sampling::GREEDY)
            .expect("it fits");
        for _ in 0..12 {
            let mut offered = Offered::default();
            decoder.step(Limits { tokens: 20, ends: &[] }, Some(&mut offered)).expect("the step runs");
            let tree = decoder.tree();
            tree.check().expect("a lawful tree");
            let (mut len, mut tip) = (1, Some(NodeId::ROOT));
            for (drafted, (node, candidates)) in offered.0.iter().enumerate() {
                assert_eq!(Some(*node), tip, "only the last of the chain is forwarded");
                let best = candidates[0].log_prob.exp();
                let wanted = match best {
                    p if p <= 0.5 => 10,
                    p if p <= 0.8 => 5,
                    p if p <= 0.95 => 3,
                    _ => 1,
                };
                // Every later forward still needs its node.
                let room = shape.tree_nodes() - len - (shape.depth - drafted - 1);
                cut_by_room += usize::from(wanted > room);
                let expected: Vec<u32> =
                    candidates.iter().take(wanted.min(room.max(1))).map(|c| c.token).collect();
                let children: Vec<u32> = tree.children(*node).map(|child| tree.token(child)).collect();
                assert_eq!(children, expected, "case {case}, {best}");
                len += children.len();
                tip = tree
                    .child(*node, candidates[0].token)
                    .filter(|_| best >= 0.8 && drafted + 1 < shape.depth);
                ended_unsure += usize::from(best < 0.8);
                chained += usize::from(best >= 0.8);
            }
            assert_eq!((tip, tree.len()), (None, len), "it ends where it should and has nothing else");
        }
        assert_eq!(counts(&decoder).tries, 0, "no share, no tries");
    }
    assert!(chained > 20 && ended_unsure > 10 && cut_by_room > 0, "{chained}, {ended_unsure}, {cut_by_room}");
}

#[test]
fn too_little_scratch_is_refused() {
    let set = models()[2].set(fast());
    let bank = SHAPE.tree_nodes();
    let small = session(set, CONTEXT, bank + 31, 1);
    let settings = SkipSearchSettings::default();
    let search = SkipSearch::new(set.groups(), &[2, 3], 3, any_skip_costs(), settings);
    let refused = Swift::new(&small, search, &SHAPE, DraftGrowth::Equal, bank).map(drop).unwrap_err();
    assert!(
        matches!(refused, SpeculateError::Shape { what: "rows of tree and tries", found: 39, .. }),
        "{refused}"
    );
}
