//! Tests of the rules that a profile and its traces obey.
use super::*;
use crate::{
    Stage,
    depth::{DepthNetwork, DepthReport},
    fingerprint::{BuildFingerprint, ModelFingerprint},
    machine::MachineFingerprint,
    subject::Cell,
    trace::{Candidate, Expansion, PromptTrace, StepTrace},
    tuning::{TunedShape, TuningSamples},
    unix_time::UnixTime,
    weight_memory::{Split, SubstituteBytes, WeightMemory},
};

/// What the error must mention, and the change that causes it.
type Break<T> = (&'static str, fn(&mut T));

fn name() -> DrafterName {
    DrafterName::new("layer_skip").unwrap()
}

fn candidates(list: &[(u32, f32)]) -> Vec<Candidate> {
    list.iter().map(|pair| Candidate::from(*pair)).collect()
}

/// Root 5 with children 6 and 7, child 8 below 6; the verifier walks 6, 8 and emits 9.
fn step() -> StepTrace {
    StepTrace {
        context: 10,
        parents: vec![0, 0, 0, 1],
        tokens: vec![5, 6, 7, 8],
        expanded: vec![
            Expansion { node: 0, candidates: candidates(&[(6, -0.5), (7, -1.0)]) },
            Expansion { node: 1, candidates: candidates(&[(8, -0.25), (9, -2.0)]) },
        ],
        verified: vec![6, 8, 9],
        predicted: Vec::new(),
    }
}

fn tuned(tunings: &[(&str, &[f64])]) -> TuningMeasurement {
    let shape = TunedShape { kernel: "linear.q4_1.avx2".into(), outputs: 32, columns: 64, rows: 3 };
    let samples =
        |(name, us): &(&str, &[f64])| TuningSamples { tuning: (*name).to_owned(), samples_us: us.to_vec() };
    TuningMeasurement { shape, tunings: tunings.iter().map(samples).collect() }
}

#[test]
fn tunings_that_cannot_be_compared_are_refused() {
    for (tunings, what) in [
        (vec![], "rounds of tunings"),
        (vec![tuned(&[("a", &[])])], "rounds of tunings"),
        (vec![tuned(&[("a", &[1.0]), ("b", &[1.0, 2.0])])], "rounds of tunings"),
        (vec![tuned(&[("a", &[1.0]), ("a", &[1.0])])], "tunings"),
        (vec![tuned(&[("a", &[0.0])])], "time of a tuning"),
        (vec![tuned(&[("a", &[f64::NAN])])], "time of a tuning"),
        (vec![tuned(&[("a", &[1.0])]), tuned(&[("b", &[1.0])])], "tuned shapes"),
    ] {
        let tunings = if tunings.is_empty() { vec![tuned(&[])] } else { tunings };
        let error = Profile { tunings, ..profile() }.validate().unwrap_err().to_string();
        assert!(error.contains(&format!("inconsistent profile: {what}: ")), "{error}");
    }
}

pub(super) fn profile() -> Profile {
    let machine =
        MachineFingerprint::from_cpuinfo("vendor_id : GenuineIntel\nflags : avx2\n", 2, "avx2").unwrap();
    let cell = |stage| CellSamples { cell: Cell { stage, width: 1, context: 0 }, samples_us: vec![3.5, 4.0] };
    Profile {
        created_by: "yggc 0.1.0".into(),
        measured_at: UnixTime::from_seconds(1_795_356_180),
        fingerprints: Fingerprints {
            machine,
            model: ModelFingerprint { name: "tiny".into(), digest: "ab".into() },
            build: BuildFingerprint {
                plan_format: 1,
                kernels: "cd".into(),
                draft_formats: "f16 in q8_0".into(),
            },
        },
        calibration: "mixed".into(),
        noise_threshold: 0.1,
        memory: None,
        drafters: vec![DrafterDescription {
            name: name(),
            kind: "layer_skip".into(),
            parameters: BTreeMap::from([("skipped".to_owned(), vec![2, 3])]),
            file: None,
        }],
        tunings: vec![tuned(&[("default", &[2.0, 2.5]), ("other", &[1.0, 1.5])])],
        measurements: vec![cell(Stage::Verify), cell(Stage::Draft(name()))],
        visits: vec![cell(Stage::Verify)],
        traces: vec![Trace {
            drafter: name(),
            temperature: 0.0,
            draft_temperature: 1.0,
            depth: 2,
            width: 2,
            top_k: 2,
            prompts: vec![PromptTrace { kind: "chat".into(), steps: vec![step()] }],
        }],
        live_traces: Vec::new(),
        token_traces: vec![TokenTrace {
            kind: "chat".into(),
            temperature: 0.0,
            seed: 0,
            prompt: vec![1],
            output: vec![2, 3],
        }],
        predictors: vec![DepthPredictor {
            drafter: name(),
            network: DepthNetwork::blank(3, 2),
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
fn a_recorded_drafter_without_a_measured_stage_has_no_latencies() {
    let mut profile = profile();
    assert!(profile.without_latencies().is_empty());
    profile.measurements.retain(|measured| measured.cell.stage == Stage::Verify);
    assert_eq!(profile.without_latencies(), [&name()]);
}

#[test]
fn broken_profiles_are_refused() {
    let breaks: [Break<Profile>; 18] = [
        ("noise threshold", |p| p.noise_threshold = 0.0),
        ("empty", |p| p.measurements.clear()),
        ("found 0", |p| p.measurements[0].samples_us[0] = 0.0),
        ("distinct names", |p| p.drafters.push(p.drafters[0].clone())),
        ("measured stage", |p| {
            p.drafters.clear();
            p.traces.clear();
        }),
        ("measured width", |p| p.measurements[0].cell.width = 0),
        ("found 0", |p| p.visits[0].samples_us[0] = 0.0),
        ("visits", |p| p.visits[0].cell.stage = Stage::Draft(name())),
        ("visits", |p| {
            p.visits.push(p.visits[0].clone());
            p.visits[1].cell.width = 4;
            p.visits[1].samples_us.push(1.0);
        }),
        ("visits", |p| {
            p.visits.push(p.visits[0].clone());
            p.visits[1].cell.width = 4;
            p.visits[1].cell.context += 1;
        }),
        ("trace", |p| p.traces[0].drafter = DrafterName::new("other").unwrap()),
        ("token trace", |p| p.token_traces[0].prompt.clear()),
        ("token trace", |p| p.token_traces[0].temperature = -0.5),
        ("token trace", |p| p.token_traces[0].temperature = f32::NAN),
        ("predictors", |p| p.predictors.push(p.predictors[0].clone())),
        ("predictors", |p| p.predictors[0].drafter = DrafterName::new("other").unwrap()),
        ("weights", |p| p.predictors[0].network.parameters.clear()),
        ("report of a predictor", |p| p.predictors[0].report.log_loss = f64::NAN),
    ];
    for (part, change) in breaks {
        let mut broken = profile();
        change(&mut broken);
        let error = broken.validate().unwrap_err().to_string();
        assert!(error.contains(part), "{part}: {error}");
    }
}

/// Two matrices of 40 bytes in addition to 20 that always stay, one of them streamed when it was measured.
fn memory() -> WeightMemory {
    let split = |resident: u64, staging: u64| Split {
        budget_bytes: resident + staging,
        resident_bytes: resident,
        streamed_bytes: 100 - resident,
        staging_bytes: staging,
        substitutes: vec![SubstituteBytes { bits: 2, bytes: 10 }, SubstituteBytes { bits: 4, bytes: 20 }],
    };
    WeightMemory {
        fixed_bytes: 20,
        splits: vec![split(20, 30), split(60, 20), split(100, 0)],
        measured: 1,
        whole_bytes: 40,
        slot_bytes: 3,
        session_bytes: 7,
        model_context: 64,
    }
}

#[test]
fn memory_of_weights_is_what_its_splits_say_and_contradictions_are_refused() {
    let whole = memory();
    assert!(Profile { memory: Some(whole.clone()), ..profile() }.validate().is_ok());
    assert_eq!((whole.measured_split().streamed_bytes, whole.session_bytes(10)), (40, 37));
    let split = whole.measured_split();
    assert_eq!((split.substitute_bytes(4), split.substitute_bytes(3)), (Some(20), None));
    let breaks: [Break<WeightMemory>; 11] = [
        ("more and more in memory", |m| m.splits.swap(0, 1)),
        ("a split that was measured", |m| m.measured = 3),
        ("of the same weights", |m| m.splits[2].streamed_bytes = 1),
        ("of the same weights", |m| m.splits[0].budget_bytes = 49),
        ("of the same weights", |m| m.splits[0].staging_bytes = u64::MAX / 2),
        ("of the same weights", |m| m.fixed_bytes = 21),
        ("of the same weights", |m| m.splits[1].substitutes[1].bytes = u64::MAX / 2),
        ("whole groups", |m| m.whole_bytes = 41),
        ("sizes of a session", |m| m.session_bytes = u64::MAX),
        ("sizes of a session", |m| m.slot_bytes = u64::from(u32::MAX)),
        ("context", |m| m.model_context = 0),
    ];
    for (part, change) in breaks {
        let mut broken = memory();
        change(&mut broken);
        let error = Profile { memory: Some(broken), ..profile() }.validate().unwrap_err().to_string();
        assert!(error.contains("memory of weights") && error.contains(part), "{part}: {error}");
    }
}

#[test]
fn broken_steps_are_refused() {
    let breaks: [Break<StepTrace>; 17] = [
        ("nodes", |s| {
            s.parents.clear();
            s.tokens.clear();
        }),
        ("nodes", |s| s.parents.extend([0, 0])),
        ("tokens", |s| s.tokens.truncate(3)),
        ("parent of the root", |s| s.parents[0] = 1),
        ("parent of a node", |s| s.parents[3] = 3),
        ("expanded node", |s| s.expanded[1].node = 4),
        ("expanded node", |s| s.expanded[1].node = 0),
        ("the root among them", |s| {
            s.expanded.remove(0);
        }),
        ("token of a node", |s| s.tokens[3] = 42),
        ("distinct tokens", |s| s.tokens[2] = 6),
        ("log-probability", |s| s.expanded[0].candidates[1].log_prob = 0.0),
        ("log-probability", |s| s.expanded[0].candidates[0].log_prob = f32::NAN),
        ("at least the bonus token", |s| s.verified.clear()),
        ("accepted token", |s| s.verified[0] = 9),
        ("predicted depths", |s| s.predicted = vec![0.5; 3]),
        ("predicted probabilities", |s| s.predicted = vec![0.5, 0.6]),
        ("predicted probabilities", |s| s.predicted = vec![1.5]),
    ];
    for (part, change) in breaks {
        let mut broken = profile();
        change(&mut broken.traces[0].prompts[0].steps[0]);
        let error = broken.validate().unwrap_err().to_string();
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[test]
fn broken_trace_headers_are_refused() {
    let breaks: [fn(&mut Trace); 6] = [
        |t| t.temperature = -1.0,
        |t| t.draft_temperature = 0.0,
        |t| t.depth = 0,
        |t| t.width = 0,
        |t| t.top_k = 1,
        |t| t.temperature = f32::INFINITY,
    ];
    for change in breaks {
        let mut broken = profile();
        change(&mut broken.traces[0]);
        assert!(broken.validate().is_err());
    }
}
