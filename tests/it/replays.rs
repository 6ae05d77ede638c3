//! The planner's replays against the real thing: what a shape means to the search is what it means to a decoder.
//!
//! A tiny model is profiled as `yggc profile` does it. Then the recorded requests are decoded again, at shapes that
//! were never run, and compared step by step with what the replays say of these shapes.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
    time::Duration,
};

use ygg_kernels::Tier;
use ygg_profiler::{DrafterDescription, DrafterName, Profile, PromptTrace, StepTrace, TokenTrace, Trace};
use yggc::{
    engine::Loaded,
    measure::{CalibrationPrompt, ProfileOptions},
    plan::{self, Calibration, DepthChoice, DrafterKind, LookupSettings, RowChoice, RowRule, WidthCost},
    planner::{
        AcceptedLengths, Fix, SearchError, TreeReplay, judge_live, judge_trees, plan_from_profile,
        replay_free, replay_live,
    },
    runtime::{Pinning, Session, SessionOptions},
    sample::Sampling,
    speculate::{Decoder, Limits, Lookup, StepShape, Suffix},
};

use crate::{
    tiny_model::everything,
    tiny_profiles::{self, NOW},
};

const WIDTHS: [usize; 7] = [1, 2, 3, 4, 6, 8, 16];

/// A loaded model and its profile, made once.
pub(crate) fn profiled() -> &'static (Arc<Loaded>, Profile) {
    static PROFILED: OnceLock<(Arc<Loaded>, Profile)> = OnceLock::new();
    PROFILED.get_or_init(|| {
        // How long anything takes is not what is judged: a busy machine has time for every prompt, too.
        tiny_profiles::profiled(Some(Tier::Portable), &WIDTHS, |options| ProfileOptions {
            is_rehearsal: true,
            budget: Duration::from_secs(240),
            ..options
        })
    })
}

/// A drafter that did better than another is recorded in two parts, along answers one after the other: every place is
/// that of its own answer.
#[test]
fn recordings_go_on_along_the_answers_after_those_that_they_have() {
    let text = |number: usize| format!("{number} rivers and {} lakes", 7 * number);
    let prompt = |number| CalibrationPrompt { kind: "test".to_owned(), text: text(number) };
    let (_, profile) = tiny_profiles::profiled(None, &WIDTHS, |options| ProfileOptions {
        is_rehearsal: true,
        drafters: ["layer_skip", "substitute"].map(str::to_owned).to_vec(),
        prompts: (0..80).map(prompt).collect(),
        predictors: false,
        ..options
    });
    assert_eq!(profile.traces.len(), 2);
    let mut most = 0;
    for trace in &profile.traces {
        most = most.max(trace.prompts.len());
        for (request, prompt) in profile.token_traces.iter().zip(&trace.prompts) {
            let text = [&request.prompt[..], &request.output].concat();
            for step in &prompt.steps {
                let after = &text[step.context as usize..];
                assert!(after[0] == step.tokens[0] && after[1..].starts_with(&step.verified), "{step:?}");
            }
        }
    }
    assert!(most > 2, "{most} answers");
}

/// What a decoder did to answer recorded requests.
#[derive(Debug, Default)]
struct Decoded {
    accepted: AcceptedLengths,
    by_width: BTreeMap<u32, u64>,
    drafted: usize,
}

impl Decoded {
    /// Answers one more request, as far as it was recorded.
    fn request(&mut self, decoder: &mut Decoder, request: &TokenTrace) {
        let end = request.prompt.len() + request.output.len();
        decoder.start(&request.prompt, Sampling::GREEDY).expect("the prompt fits");
        while decoder.history().len() < end {
            let left = end - decoder.history().len();
            let (rows, accepted) = step(decoder);
            self.drafted += rows - 1;
            self.accepted.record(accepted.min(left), left);
            let width = decoder.session().set().width_for(rows).expect("the step ran");
            *self.by_width.entry(width as u32).or_default() += 1;
        }
    }
}

/// What was recorded of drafters that run a model: of layer skip, then of the substitute.
fn traces() -> impl Iterator<Item = &'static Trace> {
    let traces = &profiled().1.traces;
    assert_eq!(
        traces.iter().map(|trace| trace.drafter.as_str()).collect::<Vec<_>>(),
        ["layer_skip", "substitute4"]
    );
    traces.iter()
}

fn description_of(name: &DrafterName) -> &'static DrafterDescription {
    profiled().1.drafters.iter().find(|d| d.name == *name).expect("the profile describes it")
}

fn description(kind: &str) -> &'static DrafterDescription {
    let (_, profile) = profiled();
    profile.drafters.iter().find(|d| d.kind == kind).expect("the profile describes it")
}

/// A decoder of the profiled model that drafts as described, in this shape.
pub(crate) fn decoder(drafter: &DrafterDescription, shape: StepShape) -> Decoder {
    tiny_profiles::decoder(&profiled().0, drafter, shape, |_| ())
}

/// A step that may emit whatever its tree allows.
pub(crate) fn step(decoder: &mut Decoder) -> (usize, usize) {
    let room = decoder.session().context() + 1 - decoder.history().len();
    let report = decoder.step(Limits { tokens: room, ends: &[] }, None).expect("the step runs");
    (report.rows, report.accepted)
}

fn numbers(widths: &[usize]) -> Vec<u32> {
    widths.iter().map(|w| *w as u32).collect()
}

/// All of a proposal is verified at the smallest width up to `most` that holds it.
pub(crate) fn widest(most: u32) -> RowChoice {
    let widths = numbers(&WIDTHS).into_iter().filter(|width| *width <= most);
    let costs = widths.map(|width| WidthCost { width, step_us: f64::from(width) });
    RowChoice { rule: RowRule::Widest, widths: costs.collect(), rate: 1.0, calibration: None }
}

pub(crate) fn planned(shape: StepShape) -> plan::Shape {
    let StepShape { depth, draft_width, verify_width, .. } = shape;
    plan::Shape { depth: depth as u32, draft_width: draft_width as u32, verify_width: verify_width as u32 }
}

#[test]
fn a_replayed_lookup_is_the_decoders_step_by_step() {
    let (_, profile) = profiled();
    let mut drafted = 0;
    for drafter in profile.drafters.iter().filter(|d| d.kind == "lookup") {
        let kind = DrafterKind::from_description(drafter).expect("a drafter of this build");
        let DrafterKind::Lookup(LookupSettings { longest_match, shortest_match }) = kind else {
            unreachable!("a lookup")
        };
        for (depth, draft_width, verify_width) in
            [(1, 1, 2), (3, 1, 4), (7, 1, 8), (7, 1, 4), (3, 3, 8), (5, 3, 6), (5, 2, 3), (15, 3, 16)]
        {
            let shape = StepShape { depth, draft_width, verify_width, top_k: 0, draft_temperature: 1.0 };
            let mut decoder = decoder(drafter, shape);
            for request in &profile.token_traces {
                let mut decoded = Decoded::default();
                decoded.request(&mut decoder, request);
                drafted += decoded.drafted;
                // A replay gives its own limits with every proposal.
                let mut lookup =
                    Lookup::new(longest_match as usize, shortest_match as usize, &StepShape::PLAIN)
                        .expect("lengths in order");
                let requests = std::slice::from_ref(request);
                let replay =
                    replay_free(requests, &mut lookup, &planned(shape), &widest(verify_width as u32));
                assert_eq!(replay.accepted(), &decoded.accepted, "{drafter:?}, {shape:?}");
                assert_eq!(replay.steps(), &decoded.by_width, "{drafter:?}, {shape:?}");
            }
        }
    }
    assert!(drafted > 1_000, "only {drafted} tokens were drafted");
}

/// What it remembers of earlier requests included.
#[test]
fn a_replayed_suffix_is_the_decoders_request_by_request() {
    let (_, profile) = profiled();
    let drafter = description("suffix");
    let kind = DrafterKind::from_description(drafter).expect("a drafter of this build");
    let DrafterKind::Suffix(settings) = kind else { unreachable!("a suffix drafter") };
    let mut drafted = 0;
    for (depth, draft_width, verify_width) in [(1, 1, 2), (4, 1, 4), (7, 3, 8), (7, 2, 3), (11, 3, 16)] {
        let shape = StepShape { depth, draft_width, verify_width, top_k: 0, draft_temperature: 1.0 };
        let mut decoder = decoder(drafter, shape);
        let mut decoded = Decoded::default();
        for request in &profile.token_traces {
            decoded.request(&mut decoder, request);
        }
        drafted += decoded.drafted;
        let mut suffix = Suffix::new(settings, &StepShape::PLAIN);
        for _ in 0..2 {
            let choice = widest(verify_width as u32);
            let replay = replay_free(&profile.token_traces, &mut suffix, &planned(shape), &choice);
            assert_eq!(replay.accepted(), &decoded.accepted, "{shape:?}");
            assert_eq!(replay.steps(), &decoded.by_width, "{shape:?}");
        }
    }
    assert!(drafted > 100, "only {drafted} tokens were drafted");
}

/// The recorded steps of drafters that learn are those of a decoder of the recorded shape, request after request.
#[test]
fn a_replayed_recording_is_the_decoders_at_its_own_shape() {
    let (loaded, profile) = profiled();
    let ends = loaded.end_ids();
    let (mut names, mut pinned, mut accepted_sum) = (Vec::new(), 0, 0);
    for trace in &profile.live_traces {
        let drafter = profile.drafters.iter().find(|d| d.name == trace.drafter).expect("it is described");
        let (depth, draft_width) = (trace.depth as usize, trace.width as usize);
        let verify_width = trace.nodes as usize;
        let shape = StepShape { depth, draft_width, verify_width, top_k: 0, draft_temperature: 1.0 };
        let mut decoder = decoder(drafter, shape);
        let mut expected = AcceptedLengths::default();
        for (prompt, request) in trace.prompts.iter().zip(&profile.token_traces) {
            decoder.start(&request.prompt, Sampling::GREEDY).expect("the prompt fits");
            for recorded in &prompt.steps {
                assert_eq!(recorded.context as usize, decoder.history().len() - 1);
                let tokens = decoder.session().context() + 1 - decoder.history().len();
                let report = decoder.step(Limits { tokens, ends }, None).expect("the step runs");
                assert_eq!(decoder.emitted(), recorded.verified, "{drafter:?}, {shape:?}");
                expected.record(report.accepted, usize::MAX);
                accepted_sum += report.accepted;
                pinned += recorded.pinned.len();
            }
        }
        let replay = replay_live(trace, &widest(trace.nodes));
        assert_eq!(replay.accepted().by_depth(), expected.by_depth(), "{drafter:?}, {shape:?}");
        assert!(!judge_live(trace).is_empty(), "{drafter:?} drafted nothing in {shape:?}");
        names.push(trace.drafter.to_string());
    }
    names.dedup();
    assert_eq!(names, ["recycling", "ngram", "ngram_pool", "mixed"]);
    assert!(pinned > 100 && accepted_sum > 20, "{pinned} rows of pools, {accepted_sum} accepted");
    let plan = plan_from_profile(profile, &Fix::default(), NOW).expect("the profile makes a plan");
    for name in ["suffix", "recycling", "ngram", "mixed"] {
        let sub_plan = plan.bands[0].for_drafter(name).unwrap_or_else(|| panic!("no shape for {name}"));
        assert!(sub_plan.acceptance.steps > 0 && sub_plan.shape().verify_width >= 2, "{sub_plan:?}");
    }
    for priced in plan.bands[0].priced().filter(|priced| priced.name.as_str() == "ngram_pool") {
        let rows = priced.shape.verify_width as usize;
        let sub_plan = plan.bands[0]
            .by_drafter
            .iter()
            .find(|sub_plan| sub_plan.name == priced.name)
            .expect("it was priced");
        let least = 2 + sub_plan.drafter.facts().pinned_rows as usize;
        assert!(rows >= least, "{rows} rows hold no guess beside {least} - 2 pinned ones and the root");
    }
    let fix = |text| plan_from_profile(profile, &Fix::parse(text).expect("a good fix"), NOW);
    let fixed = fix("drafter=ngram_pool,Wv=8").expect("it was recorded");
    assert_eq!(fixed.bands[0].chosen().shape().verify_width, 8);
    let error = fix("drafter=recycling,Dd=2").unwrap_err().to_string();
    assert!(error.contains("drafter=recycling with Dd {6}"), "{error}");
}

/// Every third recorded step, unless all are tried.
fn some_steps(prompt: &PromptTrace) -> impl Iterator<Item = &StepTrace> {
    prompt.steps.iter().step_by(if everything() { 1 } else { 3 })
}

#[test]
fn a_replayed_tree_is_the_drafters_at_every_smaller_shape() {
    let (_, profile) = profiled();
    let (mut compared, mut accepted_sum) = (0, 0);
    let shapes = [(1, 1, 2), (2, 2, 4), (3, 1, 4), (3, 2, 6), (4, 4, 8), (6, 8, 16), (6, 4, 3), (6, 2, 8)];
    for (trace, (depth, draft_width, verify_width)) in traces().flat_map(|t| shapes.map(|shape| (t, shape))) {
        let (top_k, draft_temperature) = (trace.top_k as usize, trace.draft_temperature);
        let shape = StepShape { depth, draft_width, verify_width, top_k, draft_temperature };
        let choices = vec![vec![RowChoice::fixed(verify_width as u32, 1.0)]; trace.depth as usize];
        let mut decoder = decoder(description_of(&trace.drafter), shape);
        for (prompt, request) in trace.prompts.iter().zip(&profile.token_traces) {
            let text = [&request.prompt[..], &request.output].concat();
            for recorded in some_steps(prompt) {
                let steps = vec![recorded.clone()];
                let alone = Trace { prompts: vec![PromptTrace { steps, ..prompt.clone() }], ..trace.clone() };
                let replay = TreeReplay::new(&[&alone], draft_width as u32, &choices, None);
                let replayed = match replay.tally(depth as u32, verify_width as u32) {
                    Ok(tally) => tally.accepted().by_depth().len(),
                    // The smaller tree needs a node that the recorded one never forwarded.
                    Err(SearchError::IncompleteTrace { .. }) => continue,
                    Err(other) => panic!("{other}"),
                };
                let context = recorded.context as usize;
                let root = decoder.start(&text[..context], Sampling::GREEDY).expect("the prefix fits");
                assert_eq!(root, text[context], "the recorded text is plain decoding's");
                let (_, accepted) = step(&mut decoder);
                assert_eq!(
                    replayed,
                    accepted.min(recorded.verified.len()),
                    "{shape:?} after {context} tokens"
                );
                compared += 1;
                accepted_sum += accepted;
            }
        }
    }
    assert!(compared > 60 && accepted_sum > compared / 2, "{compared} steps, {accepted_sum} accepted");
}

/// Trees as wide as the recorded ones lack no node, so a replay is exact.
#[test]
fn a_replayed_shape_takes_the_steps_that_a_decoder_takes_along_an_answer() {
    let (loaded, profile) = profiled();
    let trace = traces().next().expect("layer skip was recorded");
    let (draft_width, top_k, draft_temperature) =
        (trace.width as usize, trace.top_k as usize, trace.draft_temperature);
    let (mut steps, mut apart) = (0, 0);
    for (depth, verify_width) in [(1, 2), (2, 4), (3, 3), (trace.depth as usize, 16)] {
        let shape = StepShape { depth, draft_width, verify_width, top_k, draft_temperature };
        let choices = vec![vec![RowChoice::fixed(verify_width as u32, 1.0)]; trace.depth as usize];
        let mut decoder = decoder(description("layer_skip"), shape);
        for (prompt, request) in trace.prompts.iter().zip(&profile.token_traces) {
            let (Some(first), Some(last)) = (prompt.steps.first(), prompt.steps.last()) else { continue };
            let text = [&request.prompt[..], &request.output].concat();
            let alone = Trace { prompts: vec![prompt.clone()], ..trace.clone() };
            let replay = TreeReplay::new(&[&alone], trace.width, &choices, None);
            let tally = replay.tally(depth as u32, verify_width as u32).expect("all nodes are recorded");
            let mut expected = AcceptedLengths::default();
            decoder.start(&text[..first.context as usize], Sampling::GREEDY).expect("the prefix fits");
            while decoder.history().len() <= last.context as usize + 1 {
                let room = decoder.session().context() + 1 - decoder.history().len();
                let limits = Limits { tokens: room, ends: loaded.end_ids() };
                let accepted = decoder.step(limits, None).expect("the step runs").accepted;
                expected.record(accepted, decoder.emitted().len());
            }
            assert_eq!(tally.accepted(), &expected, "{shape:?}");
            steps += expected.steps();
            apart += prompt.steps.len() as u64 - expected.steps();
        }
    }
    assert!(steps > 100 && apart > 20, "{steps} steps, {apart} places passed over");
}

#[test]
fn a_choice_of_rows_is_replayed_as_the_decoder_makes_it() {
    let (loaded, profile) = profiled();
    let costs = |most: u32, fixed_us: f64| -> Vec<WidthCost> {
        let widths = numbers(&WIDTHS).into_iter().filter(|width| *width <= most);
        widths.map(|width| WidthCost { width, step_us: fixed_us + f64::from(width) }).collect()
    };
    let (mut narrow, mut wide) = (0, 0);

    let trace = traces().next().expect("layer skip was recorded");
    // Rows that are dear compared with the rest of a step, and rows that cost nearly nothing.
    for (depth, draft_width, verify_width, fixed_us) in [(3, 2, 6, 6.0), (4, 4, 8, 20.0), (6, 2, 8, 500.0)] {
        let calibration = Calibration::fit(&judge_trees(&[trace], draft_width)).expect("nodes were recorded");
        let (top_k, draft_temperature) = (trace.top_k as usize, trace.draft_temperature);
        let shape = StepShape {
            depth,
            draft_width: draft_width as usize,
            verify_width: verify_width as usize,
            top_k,
            draft_temperature,
        };
        let choice = RowChoice {
            rule: RowRule::BestRate,
            widths: costs(verify_width, fixed_us),
            rate: 2.0 / (fixed_us + 4.0),
            calibration: Some(calibration.clone()),
        };
        let choices = vec![vec![choice.clone()]; trace.depth as usize];
        let mut decoder = tiny_profiles::decoder(loaded, description("layer_skip"), shape, |steps| {
            steps.sub_plan.ranges[0].row_choice = choice;
        });
        for (prompt, request) in trace.prompts.iter().zip(&profile.token_traces) {
            let text = [&request.prompt[..], &request.output].concat();
            for recorded in some_steps(prompt) {
                let steps = vec![recorded.clone()];
                let alone = Trace { prompts: vec![PromptTrace { steps, ..prompt.clone() }], ..trace.clone() };
                let replay = TreeReplay::new(&[&alone], draft_width, &choices, Some(&calibration));
                let Ok(tally) = replay.tally(depth as u32, verify_width) else { continue };
                decoder.start(&text[..recorded.context as usize], Sampling::GREEDY).expect("the prefix fits");
                let (rows, accepted) = step(&mut decoder);
                assert_eq!(tally.steps(), &BTreeMap::from([(rows as u32, 1)]), "{shape:?}");
                assert_eq!(
                    tally.accepted().by_depth().len(),
                    accepted.min(recorded.verified.len()),
                    "{shape:?}"
                );
                *(if rows < verify_width as usize { &mut narrow } else { &mut wide }) += 1;
            }
        }
    }
    assert!(narrow > 20 && wide > 20, "{narrow} narrow and {wide} wide steps");
}

#[test]
fn a_told_decoder_drafts_as_deep_as_a_fresh_session_says() {
    let (loaded, profile) = profiled();
    let trace = traces().next().expect("layer skip was recorded");
    let predictor = profile.predictors.iter().find(|predictor| predictor.drafter == trace.drafter);
    let predictor = predictor.expect("one for each drafter that runs a model");
    assert!(
        trace.steps().all(|step| step.predicted.len() == trace.depth as usize),
        "every step has predictions"
    );
    assert_eq!(predictor.report.steps as usize, trace.steps().count());
    let fix = Fix::parse("drafter=layer_skip,Dd=4,Wd=2,Wv=8,predictor=on").expect("a fix");
    let plan = plan_from_profile(profile, &fix, NOW).expect("a plan");
    let planned = plan.bands[0].chosen();
    let DepthChoice::Predicted(planned_depths) = &planned.first().depth_choice else {
        panic!("a fixed depth")
    };
    let network = plan.network_of(planned).expect("the plan has it");
    assert_eq!(network, &predictor.network);
    let shape = StepShape::of(planned);
    assert_eq!((shape.draft_width, shape.verify_width), (2, 8));
    // As planned, where growths cost nothing, so that the deepest pays, where none does, and between the two.
    let at_costs = |growth_us: f64| {
        let mut depths = planned_depths.clone();
        depths.reach.iter_mut().for_each(|reach| *reach = 1.0);
        for (cost, i) in depths.costs.iter_mut().zip(0u32..) {
            (cost.step_us, cost.saved_us) = (100.0 + growth_us * f64::from(i), 0.0);
        }
        depths
    };
    let choices = [planned_depths.clone(), at_costs(0.0), at_costs(20.0), at_costs(1000.0)];
    let options = SessionOptions {
        context: loaded.set().model_context(),
        tree_nodes: 1,
        threads: 1,
        pinning: Pinning::Floating,
    };
    let mut fresh = Session::open(Arc::clone(loaded.set()), &options).expect("a session opens");
    let mut chosen = BTreeMap::new();
    for depths in &choices {
        let mut decoder = tiny_profiles::decoder(loaded, description("layer_skip"), shape, |steps| {
            let first = &mut steps.sub_plan.ranges[0];
            // Any time that is more than what a step saves.
            first.row_choice.widths[0].step_us = 1e9;
            first.depth_choice = DepthChoice::Predicted(depths.clone());
            steps.network = Some(network.clone());
        });
        for request in &profile.token_traces {
            decoder.start(&request.prompt, Sampling::GREEDY).expect("the prompt fits");
            for _ in 0..6 {
                let (last, before) = decoder.history().split_last().expect("not empty");
                fresh.restart(before).expect("it fits");
                let hidden = fresh.hidden(0).expect("a prefill has run");
                let square: f32 = hidden.iter().map(|x| x * x).sum();
                let root_mean_square = (square / hidden.len() as f32).sqrt();
                let mut features: Vec<f32> = hidden.iter().map(|x| x / root_mean_square).collect();
                let mut embedding = vec![0.0; hidden.len()];
                fresh.embedding(*last, &mut embedding);
                features.extend(embedding);
                let room = decoder.session().context() + 1 - decoder.history().len();
                let most = shape.depth.min(room - 1) as u32;
                let expected = depths.choose(&network.probabilities(&features), most).depth;
                step(&mut decoder);
                assert_eq!(decoder.tree().len() as u32, expected * 2 + 1, "the tree of a step of this depth");
                *chosen.entry(expected).or_insert(0) += 1;
            }
        }
    }
    let least = planned_depths.costs[0].depth;
    assert!(least < 4 && chosen.contains_key(&least) && chosen.contains_key(&4), "{chosen:?}");
}
