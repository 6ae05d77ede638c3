//! Verifications in one launch: what the device accepts and moves is what the host does, bit for bit.
//!
//! The judges are the host's walk with `copy_slots` over the same rows, and decoders under the plain schedule and
//! without a drafter that take the same steps on the same device.

use std::{sync::Arc, time::Duration};

use ygg_profiler::{Cell, CellSamples, CellSelection, DrafterName, Stage};
use yggc::{
    backend::Tier,
    engine::{Activations, DrafterChoice, Engine, LoadOptions, Loaded},
    measure::{Learners, ProfileOptions, RemeasureOptions, remeasure},
    model::synthetic::SyntheticSpec,
    plan::Schedule,
    planner::{Fix, plan_from_profile},
    runtime::{Choice, ExecutableSet, Noise, Session, SkipSet},
    sample::{Adjustment, Sampler, Sampling},
    speculate::{
        BandSteps, Begin, Decoder, Drafter, Limits, Lookup, Recycling, SelfDrafter, SpeculateError,
        StepShape, Walk,
    },
    tree::{NodeId, Source, TokenTree, tail_slots},
};

use crate::{
    draft_plans::draft_models,
    lossless::{Policy, any_draw, any_policy, any_sampling, any_shape, any_tokens, scheduled},
    one_launch::is_drawn,
    tiny_model::{Class, Dice, best_tier, bits, everything, is_cuda, part, session, some_models},
    tiny_profiles::{NOW, profiled, served},
};

const CONTEXT: usize = 96;
const MOST_NODES: usize = 80;
const MOST_ROWS: usize = 64;

/// What a session says after its text and `root`, drawn by the host.
fn continuation(session: &mut Session, root: u32, len: usize, sampler: &mut Sampler) -> Vec<u32> {
    let mut said = vec![root];
    while said.len() <= len {
        let place = session.committed() as u64 + 1;
        let mut forward = session.forward(1).expect("width 1 is planned");
        forward.push_behind(*said.last().expect("the root"));
        let token = sampler.draw(forward.run(None).row(0), place);
        session.commit_behind(1);
        said.push(token);
    }
    said.remove(0);
    said
}

/// A tree of any form no deeper than `deepest`, in which a beginning of `truth` is planted among other tokens, and
/// those of its nodes that are verified: parents come with their children. Wide ones have more rows than a warp has
/// threads.
fn any_tree(
    root: u32,
    truth: &[u32],
    deepest: usize,
    (vocabulary, is_wide): (usize, bool),
    dice: &mut Dice,
) -> (TokenTree, Vec<NodeId>) {
    let most = *dice.pick(&[4, 12, 20]);
    let nodes = if is_wide { MOST_NODES } else { dice.within(1, most) };
    let mut tree = TokenTree::with_capacity(nodes);
    tree.reset(root);
    let (mut last, mut planted) = (NodeId::ROOT, 0);
    let likely = dice.within(5, 60);
    for node in 1..nodes {
        let is_planted = dice.chance(likely) && planted < truth.len().min(deepest);
        let (parent, token) = if is_planted {
            (last, truth[planted])
        } else {
            // Another's token at times: it must be found at its own place only.
            let token = if dice.chance(50) { *dice.pick(truth) } else { dice.below(vocabulary) as u32 };
            (NodeId::from_index(dice.below(tree.len())), token)
        };
        if (tree.depth(parent) as usize) < deepest {
            let _may_be_there = tree.insert(parent, token, 1.0 / (node + 1) as f32, 0, Source::NONE);
        }
        if is_planted {
            last = tree.child(parent, token).expect("just planted");
            planted += 1;
        }
    }
    let percent = if is_wide { 100 } else { *dice.pick(&[70, 95, 100]) };
    let mut rows: Vec<NodeId> = vec![NodeId::ROOT];
    for node in tree.nodes().skip(1) {
        let parent = tree.parent(node).expect("it has one");
        if rows.len() < MOST_ROWS && rows.contains(&parent) && dice.chance(percent) {
            rows.push(node);
        }
    }
    (tree, rows)
}

fn fill<'s>(session: &'s mut Session, tree: &TokenTree, rows: &[NodeId]) -> yggc::runtime::Forward<'s> {
    let mut forward = session.forward(rows.len()).expect("a planned width");
    for node in rows {
        let (token, depth) = (tree.token(*node), tree.depth(*node));
        forward.push(token, depth, node.get(), |tail| tail_slots(tree, *node, 0, tail));
    }
    forward
}

/// Logits of a row after all that is committed, whatever lies in scratch.
fn behind(session: &mut Session, token: u32, poison: u64) -> Vec<u32> {
    session.poison_scratch(poison);
    let mut forward = session.forward(1).expect("width 1 is planned");
    forward.push_behind(token);
    bits(forward.run(None).row(0))
}

#[test]
fn the_device_accepts_and_moves_what_the_host_does() {
    if !is_cuda() {
        return;
    }
    let (mut accepted, mut moved, mut cut, mut wide) = ([0; 2], 0, 0, 0);
    let cases = part(4);
    for case in 0..cases {
        let mut dice = Dice::new(9_000 + case);
        // Of odd shapes, and of nibbles: the walk knows no weights.
        let models: Vec<_> = some_models().take(2).collect();
        let model = models[case as usize % models.len()];
        let set = model.set(Class::native(best_tier()));
        let vocabulary = set.vocabulary();
        let [mut by_host, mut by_device, mut oracle] = [(); 3].map(|()| session(set, CONTEXT, MOST_NODES, 1));
        assert!(by_device.prepare_verifications(MOST_ROWS).expect("a planned width"), "a device that walks");
        let mut text = {
            let len = dice.within(1, 20);
            dice.tokens(len, vocabulary)
        };
        let mut walks = [(); 2].map(|()| Walk::with_capacity(MOST_NODES));
        let temperature = *dice.pick(&[0.6, 1.0, 1e-5]);
        let samplings = [Sampling::GREEDY, Sampling { temperature, seed: dice.bits(), ..Sampling::GREEDY }];
        for step in 0..4 {
            let what = format!("case {case}, {}, step {step}", model.name);
            let (root, committed) = (text[text.len() - 1], text.len() - 1);
            for session in [&mut by_host, &mut by_device, &mut oracle] {
                if committed > session.committed() {
                    session.prefill(&text[session.committed()..committed]).expect("it fits");
                }
                session.poison_scratch(case + step);
            }
            let room = CONTEXT - text.len();
            let sampling = samplings[step as usize % 2];
            let mut sampler = Sampler::new(sampling, vocabulary).expect("within its ranges");
            let truth = continuation(&mut oracle, root, 14.min(room), &mut sampler);
            oracle.truncate(committed);
            let (tree, rows) = any_tree(root, &truth, 14.min(room), (vocabulary, step == 2), &mut dice);
            let most = dice.within(1, 16);
            let ends = if dice.chance(30) { vec![*dice.pick(&truth)] } else { Vec::new() };
            let limits = Limits { tokens: most, ends: &ends };
            let [expected, found] = &mut walks;
            if sampling.is_greedy() {
                let best = fill(&mut by_host, &tree, &rows).choose(Choice::ARGMAX, None);
                expected.run(&tree, &rows, text.len(), limits, |row, _| best.row(row).best());
            } else {
                let logits = fill(&mut by_host, &tree, &rows).run(None);
                let drawn = |row: usize, place| sampler.draw(logits.row(row), place);
                expected.run(&tree, &rows, text.len(), limits, drawn);
            }
            let offsets: Vec<u32> = expected.path.iter().map(|node| node.get()).collect();
            by_host.commit(&offsets);
            let forward = fill(&mut by_device, &tree, &rows);
            let Sampling { seed, temperature, .. } = sampling;
            let noise = Noise { seed, temperature, first: 1 };
            if sampling.is_greedy() { forward } else { forward.under_noise(noise) }.verify();
            let walked = by_device.walked().accepted;
            let shown = walked.rows.len();
            found.follow(&rows, walked, limits);
            by_device.commit_walked(found.path.len());
            assert_eq!(found.path, expected.path, "{what}: {tree:?}, {rows:?}");
            assert_eq!(found.emitted, expected.emitted, "{what}");
            assert_eq!(found.accepted, expected.accepted, "{what}");
            assert_eq!(by_device.committed(), by_host.committed(), "{what}");
            text.extend_from_slice(&expected.emitted);
            let next = text[text.len() - 1];
            let logits = behind(&mut by_host, next, case + step + 100);
            assert_eq!(behind(&mut by_device, next, case + step + 200), logits, "{what}");
            accepted[usize::from(!sampling.is_greedy())] += expected.accepted;
            moved += offsets.iter().zip(0..).filter(|(offset, place)| *offset != place).count();
            cut += usize::from(shown > expected.path.len());
            wide += usize::from(rows.len() > 32);
            // The judges' judge: the text by itself.
            if step == 3 {
                oracle.restart(&text[..text.len() - 1]).expect("it fits");
                assert_eq!(behind(&mut oracle, next, 1), logits, "{what}");
            }
        }
    }
    assert!(
        accepted.iter().all(|accepted| *accepted as u64 > 3 * cases)
            && moved as u64 > 5 * cases
            && cut > 0
            && 4 * wide as u64 >= 3 * cases,
        "{accepted:?} accepted, {moved} moved, {cut} cut, {wide} wide: too few to show anything"
    );
}

fn drafter(name: &str, session: &Session, shape: &StepShape) -> Box<dyn Drafter> {
    match name {
        "lookup" => Box::new(Lookup::new(3, 1, shape).expect("lengths in order")),
        "recycling" => Box::new(Recycling::new(session.set().vocabulary(), shape)),
        _ => {
            let groups = session.set().groups();
            let skip = SkipSet::new(groups, &[groups - 1]).expect("a group of the model");
            Box::new(SelfDrafter::layer_skip(session, skip, shape).expect("a planned width"))
        }
    }
}

fn decoder(
    set: &Arc<ExecutableSet>,
    (name, schedule): (&str, Schedule),
    (shape, policy): (StepShape, &Option<Policy>),
    context: usize,
) -> Result<Decoder, SpeculateError> {
    let session = session(set, context, shape.tree_nodes(), 1);
    let drafter = drafter(name, &session, &shape);
    let steps = Policy::planned_over(policy, scheduled(drafter, &shape, schedule));
    Decoder::new(session, vec![steps])
}

#[test]
fn steps_that_the_device_verifies_are_the_hosts() {
    if !is_cuda() {
        return;
    }
    let (mut walked, mut drafted) = ([0; 2], 0);
    let cases = part(10);
    for case in 0..cases {
        let mut dice = Dice::new(9_100 + case);
        let models: Vec<_> = some_models().collect();
        let model = *dice.pick(&models);
        let set = model.set(Class::native(best_tier()));
        let shape = any_shape(&mut dice);
        let len = dice.within(1, 16);
        let context = if dice.chance(40) { len + dice.within(2, 14) } else { 64 };
        let prompt = dice.tokens(len, set.vocabulary());
        let (name, schedule) = *dice.pick(&[
            ("layer_skip", Schedule::DeviceWalk),
            ("layer_skip", Schedule::TwoLaunches),
            ("lookup", Schedule::DeviceWalk),
        ]);
        let policy = dice.chance(50).then(|| any_policy(&shape, &mut dice));
        let open = |schedule| {
            decoder(set, (name, schedule), (shape, &policy), context).expect("a device that walks")
        };
        let (mut by_host, mut by_device) = (open(Schedule::Plain), open(schedule));
        let mut plain = Decoder::new(session(set, context, 1, 1), vec![BandSteps::plain()]).expect("width 1");
        // Twice: a request knows nothing of the last one.
        for request in 0..2 {
            let sampling = if dice.chance(80) { any_draw(&mut dice) } else { any_sampling(&mut dice) };
            let adjustment = Adjustment { bias: vec![(3, 1.0)], ..Adjustment::NONE };
            let is_adjusted = dice.chance(20);
            let log_probs = dice.chance(15).then_some(2);
            let begin = Begin {
                adjustment: if is_adjusted { &adjustment } else { &Adjustment::NONE },
                log_probs,
                ..Begin::new(&prompt, sampling)
            };
            for decoder in [&mut by_host, &mut by_device, &mut plain] {
                decoder.begin(&begin).expect("the prompt fits");
            }
            let is_plain = sampling.is_greedy() || is_drawn(&sampling);
            let is_walked = is_plain && !is_adjusted && log_probs.is_none();
            assert_eq!(
                by_device.host_walk_reason().is_none(),
                is_walked,
                "{:?}",
                by_device.host_walk_reason()
            );
            assert_eq!(by_host.host_walk_reason(), None, "its schedule leaves nothing to the device");
            let what =
                format!("case {case}, {}, {name}, {schedule}, {shape:?}, request {request}", model.name);
            for step in 0..5 {
                let Some(tokens) = any_tokens(&by_host, &mut dice) else { break };
                let ends = if dice.chance(20) { vec![*dice.pick(by_host.history())] } else { Vec::new() };
                let limits = Limits { tokens, ends: &ends };
                by_device.poison_scratch(dice.bits());
                let report = by_host.step(limits, None).expect("the step runs");
                assert_eq!(
                    by_device.step(limits, None).expect("the step runs"),
                    report,
                    "{what}, step {step}"
                );
                assert_eq!(by_device.history(), by_host.history(), "{what}, step {step}");
                assert_eq!(by_device.emitted(), by_host.emitted(), "{what}, step {step}");
            }
            while plain.history().len() < by_device.history().len() {
                plain.step(Limits { tokens: 1, ends: &[] }, None).expect("the step runs");
            }
            assert_eq!(by_device.history(), plain.history(), "{what}");
            let [host, device] = [by_host.stats(), by_device.stats()];
            assert_eq!(device.walked_by_device, if is_walked { device.steps } else { 0 }, "{what}");
            assert_eq!((device.drafted, device.accepted), (host.drafted, host.accepted), "{what}");
            assert_eq!(device.counts_by_depth(), host.counts_by_depth(), "{what}");
            assert_eq!((device.guard, host.walked_by_device), (host.guard, 0), "{what}");
            walked[usize::from(is_drawn(&sampling))] += device.walked_by_device;
            drafted += device.drafted;
        }
    }
    assert!(
        walked.iter().all(|walked| *walked > cases) && drafted > 12 * cases,
        "{walked:?} steps, {drafted} nodes: too few to show anything"
    );
}

/// From the cells of a profile to the report of a request: measured on the device, planned, served.
#[test]
fn plans_for_the_device_answer_as_plain_decoding_does() {
    if !is_cuda() {
        return;
    }
    let (on_host, mut profile) = profiled(Some(Tier::Portable), &[2, 4], |options| ProfileOptions {
        drafters: vec!["layer_skip".to_owned(), "model".to_owned()],
        draft_models: draft_models().to_vec(),
        head_sizes: Vec::new(),
        budget: Duration::from_secs(40),
        is_rehearsal: true,
        temperatures: Vec::new(),
        learners: Learners::None,
        tokens: 24,
        ..options
    });
    drop(on_host);
    // The same model on the device, and what is recorded of it as if on the device.
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("tiny.gguf");
    let spec = SyntheticSpec { layers: 6, context: 256, ..SyntheticSpec::default() };
    spec.write_gguf(&path).expect("the model is written");
    let options = LoadOptions {
        tier: Some(Tier::Cuda),
        activations: Activations::Native,
        cache: yggc::engine::KvFormat::F16,
        threads: Some(1),
        widths: vec![2, 4, 64],
        resident: None,
    };
    let loaded = Arc::new(Loaded::open(&path, &options).expect("a device that loads"));
    profile.fingerprints = loaded.fingerprints().expect("it is a machine");
    let named = |name| DrafterName::new(name).expect("lower case");
    let names = ["layer_skip", "model_hidden"];
    let growths = names.map(|name| {
        let of = |stage: fn(DrafterName) -> Stage| stage(named(name));
        [(of(Stage::FirstGrowth), 2), (of(Stage::NextGrowth), 2), (of(Stage::VerifyGrown), 4)]
    });
    let verifications = [Stage::VerifyWalk, Stage::VerifyTail(named("model"))];
    let verifications = verifications.iter().flat_map(|stage| [1, 4].map(|width| (stage.clone(), width)));
    let cells: Vec<(Stage, u32)> = verifications.chain(growths.into_iter().flatten()).collect();
    for (stage, width) in cells.clone() {
        let cell = Cell { stage, width, context: 16 };
        profile.measurements.push(CellSamples { cell, samples_us: vec![1e-3] });
    }
    let select = |(stage, width)| CellSelection::Of { stage, width: Some(width), context: None };
    let again = RemeasureOptions {
        cells: cells.iter().cloned().map(select).collect(),
        budget: Duration::from_secs(120),
        pinning: yggc::runtime::Pinning::Floating,
        is_rehearsal: true,
    };
    let (profile, measured) =
        remeasure(&loaded, profile, &again, &mut |_| {}).expect("launches can be measured");
    assert_eq!(measured, cells.len());
    let is_whole = |stage: &Stage| matches!(stage, Stage::VerifyWalk | Stage::VerifyTail(_));
    let whole = profile.measurements.iter().filter(|m| is_whole(&m.cell.stage));
    assert!(whole.flat_map(|m| &m.samples_us).all(|us| *us > 1.0), "a forward takes time");
    let mut plain = served(&loaded, None, DrafterChoice::Plain).expect("it opens");
    let launched_twice = ["layer_skip", "model_hidden"].map(|name| (name, Schedule::TwoLaunches)).into_iter();
    let others = [
        ("layer_skip", Schedule::WholeStep),
        ("model_hidden", Schedule::WholeStep),
        ("model", Schedule::HeadAhead),
    ];
    for (name, schedule) in others.into_iter().chain(launched_twice.filter(|_| everything())) {
        let fix = format!("drafter={name},Dd=3,Wd=2,Wv=4,rows=all,predictor=off,schedule={schedule}");
        // Launches of the other one were measured at no other width, at which it could be planned.
        let is_others = |stage: &Stage| match stage {
            Stage::FirstGrowth(of) | Stage::NextGrowth(of) | Stage::VerifyGrown(of) => of.as_str() != name,
            _ => false,
        };
        let mut profile = profile.clone();
        profile.measurements.retain(|m| !is_others(&m.cell.stage));
        let plan = plan_from_profile(&profile, &Fix::parse(&fix).expect("a fix"), NOW).expect("measured");
        assert_eq!((plan.bands[0].chosen().name.as_str(), plan.bands[0].chosen().schedule), (name, schedule));
        let forced = DrafterChoice::Forced(name.to_owned());
        let mut drafting = served(&loaded, Some(plan), forced).expect("it opens");
        answers_as_plain_decoding_does(&mut drafting, &mut plain, schedule);
    }
}

fn answers_as_plain_decoding_does(drafting: &mut Engine, plain: &mut Engine, schedule: Schedule) {
    let prompt = [1, 2, 3, 1, 2];
    let drawn = Sampling { temperature: 0.8, seed: 3, ..Sampling::GREEDY };
    for sampling in [Sampling::GREEDY, drawn, Sampling { top_k: 20, ..drawn }] {
        let answer = |engine: &mut Engine| {
            let generation = engine.generate_tokens(&prompt, 20, sampling).expect("the prompt fits");
            generation.collect_answer().expect("it answers")
        };
        let (found, expected) = (answer(drafting), answer(plain));
        assert_eq!(found.token_ids, expected.token_ids, "{sampling:?}");
        let report = found.report;
        assert!(report.drafted > 5, "{report:?}");
        let is_left_to_device = schedule.walks_on_device();
        let is_walked = is_left_to_device && sampling.top_k == 0;
        assert_eq!(report.walked_by_device, if is_walked { report.steps } else { 0 });
        let reason = report.host_walk_reason.as_deref();
        assert_eq!(
            reason,
            (is_left_to_device && !is_walked).then_some("the request filters the tokens that it draws from")
        );
    }
}

/// Those of a path that the device walked are kept, whether all of it is or a part.
#[test]
fn hidden_rows_of_what_is_walked_are_kept() {
    if !is_cuda() {
        return;
    }
    let model = some_models().nth(1).expect("several models");
    let whole = model.set(Class::native(best_tier()));
    let set = Arc::new(whole.with_kept_hidden(model.model.weights.as_ref()).expect("it compiles"));
    let shape = StepShape { depth: 3, draft_width: 2, verify_width: 6, top_k: 0, draft_temperature: 1.0 };
    let open = |schedule| {
        let mut session = session(&set, 64, shape.tree_nodes(), 1);
        session.keep_hidden().expect("it was made for that");
        let drafter = drafter("lookup", &session, &shape);
        Decoder::new(session, vec![scheduled(drafter, &shape, schedule)]).expect("a device that walks")
    };
    let (mut by_host, mut by_device) = (open(Schedule::Plain), open(Schedule::DeviceWalk));
    for decoder in [&mut by_host, &mut by_device] {
        decoder.start(&[1, 2, 3, 1, 2], Sampling::GREEDY).expect("the prompt fits");
        assert_eq!(decoder.host_walk_reason(), None);
        for tokens in [8, 2, 8, 1, 8] {
            decoder.step(Limits { tokens, ends: &[] }, None).expect("the step runs");
        }
    }
    assert_eq!(by_device.stats().walked_by_device, 5);
    assert!(by_device.stats().accepted > 0, "{:?}", by_device.stats());
    let rows = |decoder: &Decoder| -> Vec<_> {
        let session = decoder.session();
        (0..session.committed()).map(|position| session.committed_hidden(position).map(bits)).collect()
    };
    assert!(rows(&by_device).iter().all(Option::is_some));
    assert_eq!(rows(&by_device), rows(&by_host));
}

#[test]
fn what_cannot_be_walked_on_the_device_is_refused() {
    let model = some_models().next().expect("a model");
    let set = model.set(Class::native(best_tier()));
    let shape = StepShape { depth: 3, draft_width: 2, verify_width: 6, top_k: 4, draft_temperature: 1.0 };
    let error = decoder(set, ("recycling", Schedule::DeviceWalk), (shape, &None), 64)
        .expect_err("it learns")
        .to_string();
    assert!(error.contains("schedule device_walk: expected a drafter that learns nothing"), "{error}");
    let error = decoder(set, ("lookup", Schedule::TwoLaunches), (shape, &None), 64)
        .expect_err("no model")
        .to_string();
    assert!(error.contains("schedule two_launches: expected a drafter that runs a model"), "{error}");
    if is_cuda() {
        return;
    }
    let error = decoder(set, ("lookup", Schedule::DeviceWalk), (shape, &None), 64)
        .expect_err("a processor")
        .to_string();
    assert!(error.contains("schedule device_walk: expected a device that walks through trees"), "{error}");
}
