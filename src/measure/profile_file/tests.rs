//! Tests of the profile file: it keeps every bit, stays small, and refuses what is not whole.
use proptest::prelude::*;
use ygg_profiler::{
    BuildFingerprint, Candidate, Cell, CellSamples, DepthNetwork, DepthPredictor, DepthReport,
    DrafterDescription, DrafterFile, DrafterName, Expansion, Fingerprints, LivePrompt, LiveStep, LiveTrace,
    MachineFingerprint, ModelFingerprint, PromptTrace, Random, Stage, StepTrace, TokenTrace, Trace,
    TunedShape, TuningMeasurement, TuningSamples, UnixTime,
};

use super::{
    columns::{LiveColumns, StepColumns},
    *,
};
use crate::{
    plan::PLAN_FORMAT,
    tree::{Frontier, NodeId, Source, TokenTree},
};

/// Vocabulary of the default model.
const VOCABULARY: u32 = 49_152;
/// Candidates of an expanded node.
const TOP_K: usize = 8;

/// Uniform in 0..1, 0 excluded.
fn share(dice: &mut Random) -> f32 {
    ((dice.bits() >> 40) + 1) as f32 / (1_u64 << 24) as f32
}

/// A token: low ids are as much more frequent than high ones as in texts.
fn random_token(dice: &mut Random) -> u32 {
    (VOCABULARY as f32).powf(share(dice)) as u32 - 1
}

fn request(dice: &mut Random) -> TokenTrace {
    TokenTrace {
        kind: "chat".to_owned(),
        temperature: 0.0,
        seed: 0,
        prompt: (0..80).map(|_| random_token(dice)).collect(),
        output: (0..80).map(|_| random_token(dice)).collect(),
    }
}

fn samples_us(dice: &mut Random, count: usize) -> Vec<f64> {
    (0..count).map(|_| 3000.0 + 1000.0 * f64::from(share(dice)) / 7.0).collect()
}

fn name(text: &str) -> DrafterName {
    DrafterName::new(text).unwrap()
}

/// What a head over the first `head` tokens says at a place: the same logits for every head.
fn candidates(place: u64, head: u32) -> Vec<(u32, f32)> {
    let mut dice = Random::new(place);
    let logit = |dice: &mut Random| 16.0 - 2.5 * (-share(dice).ln()).ln();
    let mut best: Vec<(u32, f32)> =
        (0..6 * TOP_K).map(|_| (random_token(&mut dice), logit(&mut dice))).collect();
    best.retain(|(token, _)| *token < head);
    best.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.total_cmp(&a.1)));
    best.dedup_by_key(|(token, _)| *token);
    best.sort_by(|a, b| b.1.total_cmp(&a.1));
    let largest = best[0].1;
    let log_sum = best.iter().map(|(_, logit)| (logit - largest).exp()).sum::<f32>().ln() + 0.5;
    best.truncate(TOP_K);
    best.into_iter().map(|(token, logit)| (token, logit - largest - log_sum)).collect()
}

/// A step after `context` tokens, whose text is told by `seed`.
fn step(seed: u64, context: u32, head: u32, (depth, width): (u32, u32)) -> StepTrace {
    let nodes = (depth * width + 1) as usize;
    let mut tree = TokenTree::with_capacity(nodes);
    let mut frontier = Frontier::with_capacity(nodes, TOP_K);
    let (mut expanded, mut grown) = (Vec::new(), vec![NodeId::ROOT]);
    let mut dice = Random::new(seed ^ u64::from(context));
    tree.reset(random_token(&mut dice));
    for _ in 0..depth {
        for node in &grown {
            let path = tree.ancestors(*node).fold(u64::from(tree.token(*node)), |path, n| {
                path.wrapping_mul(0x100_0000_01B3) ^ u64::from(tree.token(n))
            });
            let offered = candidates(seed ^ u64::from(context) ^ path, head);
            frontier.expand(&tree, *node, offered.iter().copied());
            let candidates = offered.into_iter().map(Candidate::from).collect();
            expanded.push(Expansion { node: node.get(), candidates });
        }
        frontier.grow(&mut tree, width as usize, Source::NONE, &mut grown);
    }
    StepTrace {
        context,
        parents: tree.nodes().map(|node| tree.parent(node).map_or(0, NodeId::get)).collect(),
        tokens: tree.nodes().map(|node| tree.token(node)).collect(),
        expanded,
        verified: vec![VOCABULARY],
        predicted: (1..=depth).map(|depth| 0.7 / depth as f32).collect(),
    }
}

/// How much a made-up profile holds.
struct Size {
    shape: (u32, u32),
    /// Prompts by temperature, and places of each.
    prompts: &'static [(f32, u64)],
    places: u32,
    heads: &'static [u32],
    inputs: usize,
    tuned: u32,
    live_steps: u32,
}

/// As much as a profile of two minutes holds of the default model.
const WHOLE: Size = Size {
    shape: (6, 8),
    prompts: &[(0.0, 15), (0.6, 4), (1.0, 4)],
    places: 16,
    heads: &[VOCABULARY, 8192, 16_384],
    inputs: 1152,
    tuned: 60,
    live_steps: 3500,
};

const SMALL: Size = Size {
    shape: (2, 2),
    prompts: &[(0.0, 2)],
    places: 2,
    heads: &[VOCABULARY, 8192],
    inputs: 1,
    tuned: 1,
    live_steps: 2,
};

fn live_step(dice: &mut Random, context: u32) -> LiveStep {
    let nodes = 1 + (dice.bits() % 8) as usize;
    LiveStep {
        context,
        parents: (0..nodes as u64).map(|node| dice.bits() as u32 % (node.max(1) as u32)).collect(),
        tokens: (0..nodes).map(|node| random_token(dice) / 8 * 8 + node as u32).collect(),
        values: (0..nodes).map(|node| 1.0 / (node as f32 + 1.0)).collect(),
        pinned: Vec::new(),
        verified: vec![VOCABULARY],
    }
}

/// A valid profile whose numbers are as hard to press as recorded ones.
fn profile(size: &Size) -> Profile {
    let mut dice = Random::new(7);
    let (depth, width) = size.shape;
    let names: Vec<DrafterName> = (0..size.heads.len()).map(|i| name(&format!("skip_{i}"))).collect();
    let trace = |(temperature, prompts): &(f32, u64), drafter: &DrafterName, head: u32| Trace {
        drafter: drafter.clone(),
        temperature: *temperature,
        draft_temperature: 1.0,
        depth,
        width,
        top_k: TOP_K as u32,
        prompts: (0..*prompts)
            .map(|prompt| PromptTrace {
                kind: "chat".to_owned(),
                steps: (0..size.places)
                    .map(|place| {
                        step(prompt << 40 | u64::from(temperature.to_bits()), 90 + place, head, size.shape)
                    })
                    .collect(),
            })
            .collect(),
    };
    let heads = || names.iter().zip(size.heads);
    let traces = size.prompts.iter().flat_map(|of| heads().map(move |(name, head)| trace(of, name, *head)));
    let describe = |name: &DrafterName, tokens: Vec<u32>| DrafterDescription {
        name: name.clone(),
        kind: "layer_skip".to_owned(),
        parameters: [("head_tokens".to_owned(), tokens)].into(),
        file: Some(DrafterFile { path: "a path".to_owned(), digest: "a digest".to_owned() }),
    };
    let traces: Vec<Trace> = traces.collect();
    let stages = [Stage::Verify].into_iter().chain(names.iter().cloned().map(Stage::Draft));
    let cells =
        stages.flat_map(|stage| (1..=12).map(move |width| Cell { stage: stage.clone(), width, context: 0 }));
    let mut network = DepthNetwork::blank(size.inputs, depth as usize);
    network.parameters.iter_mut().for_each(|number| *number = share(&mut dice) / 20.0 - 0.025);
    let tuned = |rows, dice: &mut Random| TuningMeasurement {
        shape: TunedShape { kernel: "linear".to_owned(), outputs: 576, columns: 576, rows },
        tunings: (0..5)
            .map(|i| TuningSamples { tuning: format!("ahead={i}"), samples_us: samples_us(dice, 20) })
            .collect(),
    };
    let live_trace = |dice: &mut Random| LiveTrace {
        drafter: names[0].clone(),
        temperature: 0.6,
        depth: 8,
        width: 1,
        nodes: 9,
        prompts: vec![LivePrompt {
            kind: "chat".to_owned(),
            steps: (0..size.live_steps).map(|context| live_step(dice, context)).collect(),
        }],
    };
    Profile {
        created_by: "test".to_owned(),
        measured_at: UnixTime::from_seconds(1_795_356_180),
        fingerprints: Fingerprints {
            machine: MachineFingerprint::from_cpuinfo("vendor_id : X\nflags : avx2\n", 2, "avx2").unwrap(),
            model: ModelFingerprint { name: "made up".to_owned(), digest: "ab".to_owned() },
            build: BuildFingerprint {
                plan_format: PLAN_FORMAT,
                kernels: "cd".to_owned(),
                draft_formats: "f16 in q8_0".to_owned(),
            },
        },
        calibration: "made up".to_owned(),
        noise_threshold: 0.1,
        memory: None,
        drafters: heads()
            .map(|(name, head)| describe(name, (0..head / 4).map(|i| 3 * i + i % 2).collect()))
            .collect(),
        tunings: (1..=size.tuned).map(|rows| tuned(rows, &mut dice)).collect(),
        measurements: cells.map(|cell| CellSamples { cell, samples_us: samples_us(&mut dice, 7) }).collect(),
        visits: vec![CellSamples {
            cell: Cell { stage: Stage::Verify, width: 1, context: 128 },
            samples_us: samples_us(&mut dice, 3),
        }],
        traces,
        token_traces: (0..size.prompts[0].1).map(|_| request(&mut dice)).collect(),
        live_traces: vec![live_trace(&mut dice)],
        predictors: vec![DepthPredictor {
            drafter: names[0].clone(),
            network,
            report: DepthReport {
                seed: 1,
                steps: 1,
                epochs: vec![2],
                log_loss: 0.5,
                base_log_loss: 0.6,
                calibration_error: 0.0,
                base_calibration_error: 0.1,
            },
        }],
    }
}

#[test]
fn a_whole_profile_survives_its_file_of_less_than_two_megabytes() {
    let profile = profile(&WHOLE);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.profile");
    write(&profile, &path).unwrap();
    assert!(read(&path).unwrap() == profile, "a number came back as another");
    let candidates: usize =
        profile.traces.iter().flat_map(Trace::steps).map(|step| 8 * step.expanded.len()).sum();
    let bytes = std::fs::metadata(&path).unwrap().len();
    assert!(candidates > 350_000 && bytes < 1_800_000, "{bytes} bytes of {candidates} candidates");
}

#[test]
fn a_file_that_is_damaged_anywhere_is_refused() {
    let whole = encode(&profile(&SMALL)).unwrap();
    let refused = |bytes: &[u8], what: &str| {
        let said = decode(bytes).expect_err(what).to_string();
        for part in ["not a usable profile: expected ", ", found ", "measure again with `yggc profile`"] {
            assert!(said.contains(part), "{what}: {said}");
        }
    };
    for place in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[place] ^= 0x10;
        refused(&damaged, &format!("byte {place}"));
        refused(&whole[..place], &format!("cut at {place}"));
    }
    refused(&[&whole[..], &[0]].concat(), "a byte more");
    for foreign in [&b"Once upon a time"[..], b"YGGPLAN\0 and more", b"[1]", b"\0\x01", b""] {
        refused(foreign, "another kind of file");
    }
    assert_eq!(decode(&whole).unwrap(), profile(&SMALL));
}

#[test]
fn profiles_of_other_versions_are_refused_with_what_to_do() {
    let mut newer = encode(&profile(&SMALL)).unwrap();
    newer[8..12].copy_from_slice(&(PROFILE_FORMAT + 1).to_le_bytes());
    let json = serde_json::to_vec(&profile(&SMALL)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("old.profile");
    for (bytes, found) in
        [(&newer, format!("found format {}", PROFILE_FORMAT + 1)), (&json, "found JSON".to_owned())]
    {
        std::fs::write(&path, bytes).unwrap();
        let said = read(&path).unwrap_err().to_string();
        for part in
            ["old.profile", &format!("format {PROFILE_FORMAT}"), &found, "measure again with `yggc profile`"]
        {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
}

/// With a valid checksum, as whoever wants to do harm would make it.
#[test]
fn contents_that_contradict_themselves_are_refused() {
    let profile = profile(&SMALL);
    let content = |outline: Profile, traces: &[Trace], live_traces: &[LiveTrace]| Content {
        outline,
        steps: StepColumns::of(traces),
        live_steps: LiveColumns::of(live_traces),
    };
    let (traces, live) = (&profile.traces[..], &profile.live_traces[..]);
    let without = Profile { live_traces: Vec::new(), ..outline(&profile) };
    let noisy = Profile { noise_threshold: 0.0, ..outline(&profile) };
    for (content, expected) in [
        (content(outline(&profile), &traces[1..], live), "more numbers of the recorded steps"),
        (content(outline(&profile), traces, &[]), "more numbers of the recorded steps"),
        (content(without, traces, live), "the end of the recorded steps"),
        (content(noisy, traces, live), "noise threshold"),
    ] {
        let said = decode(&SEAL.encode_deflated(&content).unwrap()).unwrap_err().to_string();
        assert!(said.contains(expected), "{expected}: {said}");
    }
    assert!(encode(&Profile { noise_threshold: 0.0, ..profile }).is_err(), "none of these is written");
}

fn numbers() -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(any::<u32>(), 0..4)
}

/// Any but NaN, which is not equal to itself.
fn floats() -> impl Strategy<Value = Vec<f32>> {
    use prop::num::f32::{INFINITE, NEGATIVE, NORMAL, POSITIVE, SUBNORMAL, ZERO};
    prop::collection::vec(POSITIVE | NEGATIVE | NORMAL | SUBNORMAL | ZERO | INFINITE, 0..4)
}

fn any_step() -> impl Strategy<Value = StepTrace> {
    let expansion = (any::<u32>(), numbers(), floats()).prop_map(|(node, tokens, log_probs)| {
        let candidates = tokens.into_iter().zip(log_probs).map(Candidate::from);
        Expansion { node, candidates: candidates.collect() }
    });
    let expanded = prop::collection::vec(expansion, 0..3);
    (0..9_u32, numbers(), numbers(), expanded, numbers(), floats()).prop_map(
        |(context, parents, tokens, expanded, verified, predicted)| StepTrace {
            context,
            parents,
            tokens,
            expanded,
            verified,
            predicted,
        },
    )
}

fn any_live_step() -> impl Strategy<Value = LiveStep> {
    (0..9_u32, numbers(), numbers(), floats(), numbers(), numbers()).prop_map(
        |(context, parents, tokens, values, pinned, verified)| LiveStep {
            context,
            parents,
            tokens,
            values,
            pinned,
            verified,
        },
    )
}

/// Steps by trace and prompt.
fn by_prompt<S: std::fmt::Debug>(step: impl Strategy<Value = S>) -> impl Strategy<Value = Vec<Vec<Vec<S>>>> {
    let prompt = prop::collection::vec(step, 0..4);
    prop::collection::vec(prop::collection::vec(prompt, 0..3), 0..4)
}

/// What the columns hold after a way through their bytes.
fn stored<C: Serialize + serde::de::DeserializeOwned>(columns: &C) -> C {
    SEAL.decode_deflated(&SEAL.encode_deflated(columns).unwrap()).unwrap()
}

proptest! {
    /// Whatever the numbers are, valid or not; sign and infinity included.
    #[test]
    fn columns_give_every_step_back(
        steps in by_prompt(any_step()),
        live_steps in by_prompt(any_live_step()),
        temperatures in prop::collection::vec(0..2_u8, 4),
    ) {
        let traces = steps.into_iter().zip(temperatures).map(|(prompts, temperature)| Trace {
            drafter: name("any"),
            temperature: f32::from(temperature),
            draft_temperature: 1.0,
            depth: 1,
            width: 1,
            top_k: 1,
            prompts: prompts.into_iter().map(|steps| PromptTrace { kind: "k".to_owned(), steps }).collect(),
        });
        let live_traces = live_steps.into_iter().map(|prompts| LiveTrace {
            drafter: name("any"),
            temperature: 0.0,
            depth: 1,
            width: 1,
            nodes: 1,
            prompts: prompts.into_iter().map(|steps| LivePrompt { kind: "k".to_owned(), steps }).collect(),
        });
        let all = Profile { traces: traces.collect(), live_traces: live_traces.collect(), ..profile(&SMALL) };
        let Profile { mut traces, mut live_traces, .. } = outline(&all);
        stored(&StepColumns::of(&all.traces)).fill(&mut traces).unwrap();
        stored(&LiveColumns::of(&all.live_traces)).fill(&mut live_traces).unwrap();
        prop_assert_eq!(format!("{:?}", (traces, live_traces)), format!("{:?}", (all.traces, all.live_traces)));
    }
}
