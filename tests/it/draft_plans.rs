//! Drafter models on their way from a profile through a plan to answers, and what is refused on that way.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use ygg_profiler::{Profile, Stage};
use yggc::{
    engine::{
        Activations, DraftModel, DrafterChoice, Engine, Error, ErrorKind, Hint, LoadOptions, Loaded, Options,
        Pinning, PlanSource, Sampling,
    },
    measure::ProfileOptions,
    model::synthetic::{HiddenStateSpec, SyntheticSpec},
    plan::{self, DrafterKind, Plan, Schedule},
    planner::{Fix, plan_from_profile},
};

use crate::tiny_profiles::{self, NOW, Recorder};

/// The verifier of [`tiny_profiles`].
fn verifier() -> SyntheticSpec {
    SyntheticSpec { layers: 6, context: 256, ..SyntheticSpec::default() }
}

/// A smaller model of the same vocabulary and a hidden-state drafter, written once.
pub(crate) fn draft_models() -> &'static [PathBuf; 2] {
    static WRITTEN: OnceLock<[PathBuf; 2]> = OnceLock::new();
    WRITTEN.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("draft_plans");
        std::fs::create_dir_all(&folder).expect("the target folder is writable");
        let [plain, hidden] = ["plain.gguf", "hidden"].map(|name| folder.join(name));
        // The verifier's first layers: layers further on add less.
        SyntheticSpec { layers: 3, ..verifier() }.write_gguf(&plain).expect("written");
        HiddenStateSpec::for_verifier(&verifier()).write_folder(&hidden).expect("written");
        [plain, hidden]
    })
}

fn profiled() -> &'static (Arc<Loaded>, Profile) {
    static PROFILED: OnceLock<(Arc<Loaded>, Profile)> = OnceLock::new();
    PROFILED.get_or_init(|| {
        tiny_profiles::profiled(None, &[1, 2, 4, 8, 16], |options| ProfileOptions {
            drafters: vec!["model".to_owned(), "lookup".to_owned()],
            draft_models: draft_models().to_vec(),
            head_sizes: vec![120],
            temperatures: vec![1.0],
            budget: std::time::Duration::from_secs(40),
            is_rehearsal: true,
            ..options
        })
    })
}

/// A choice of rows may verify none that were drafted, as this machine's latencies happen to be.
fn plan() -> Plan {
    let fix = Fix::parse("rows=all,predictor=off").expect("a good fix");
    plan_from_profile(&profiled().1, &fix, NOW).expect("a plan")
}

/// An engine over the loaded verifier whose plan's best drafter model is this one.
fn served(plan: &Plan, name: &str, options: impl FnOnce(Options) -> Options) -> Result<Engine, Error> {
    let mut plan = plan.clone();
    let is_other = |other: &str| other != name && other.starts_with("model");
    plan.bands[0].by_drafter.retain(|sub_plan| !is_other(sub_plan.name.as_str()));
    plan.bands[0].chosen_index = 0;
    let names: Vec<_> = plan.bands[0].by_drafter.iter().map(|sub_plan| sub_plan.name.clone()).collect();
    for band in &mut plan.bands {
        band.by_drafter.retain(|sub_plan| names.contains(&sub_plan.name));
        band.chosen_index = 0;
    }
    let options = options(Options {
        plan: Some(PlanSource { plan, name: "test".to_owned(), force: false }),
        drafter: DrafterChoice::Forced("model".to_owned()),
        context: Some(200),
        pinning: Pinning::Floating,
        ..Options::new("unused")
    });
    Engine::with_loaded(Arc::clone(&profiled().0), &options)
}

const NAMES: [&str; 4] = ["model", "model_v120", "model_hidden", "model_hidden_v120"];

#[test]
fn a_profile_measures_both_kinds_with_whole_and_trimmed_heads() {
    let (_, profile) = profiled();
    for name in NAMES {
        let drafter = profile.drafters.iter().find(|d| d.name.as_str() == name);
        let drafter = drafter.unwrap_or_else(|| panic!("{name} was not described"));
        let kind = DrafterKind::from_description(drafter).expect("a drafter of this build");
        assert_eq!(kind.head_tokens().map(<[u32]>::len), name.ends_with("_v120").then_some(120));
        let cells = profile.measurements.iter();
        let widths = cells.filter(|m| m.cell.stage == Stage::Draft(drafter.name.clone())).count();
        assert!(widths >= 5, "{name}: {widths} cells");
        let traces: Vec<_> = profile.traces.iter().filter(|trace| trace.drafter == drafter.name).collect();
        // What a trimmed head offers is known of the whole one's.
        let recorded = if kind.head_tokens().is_some() { &[][..] } else { &[0.0, 1.0] };
        assert_eq!(traces.iter().map(|t| t.temperature).collect::<Vec<_>>(), recorded, "{name}");
        assert!(traces.iter().all(|t| t.steps().next().is_some()), "{name}: recorded steps");
    }
}

#[test]
fn every_recorded_step_is_what_a_verifying_decoder_does() {
    let (loaded, profile) = profiled();
    let kinds: Vec<DrafterKind> = profile
        .drafters
        .iter()
        .map(|described| DrafterKind::from_description(described).expect("a drafter of this build"))
        .collect();
    let loaded = loaded.with_drafters(&kinds).expect("the drafter models are there");
    for name in ["model", "model_hidden"] {
        let trace =
            profile.traces.iter().find(|trace| trace.drafter.as_str() == name && trace.temperature == 0.0);
        let trace = trace.expect("recorded");
        let mut recorder = Recorder::new(&loaded, profile, trace);
        let mut steps = 0;
        let requests: Vec<_> =
            profile.token_traces.iter().filter(|request| request.temperature == 0.0).collect();
        for (prompt, request) in trace.prompts.iter().zip(requests) {
            let text = [&request.prompt[..], &request.output].concat();
            for recorded in prompt.steps.iter().take(6) {
                recorder.check(&text[..recorded.context as usize], Sampling::GREEDY, recorded);
                steps += 1;
            }
        }
        assert!(steps > 10, "{steps} steps of {name}");
    }
}

#[test]
fn a_planned_drafter_model_answers_as_plain_decoding_does() {
    let plan = plan();
    let again = plan::decode(&plan::encode(&plan).expect("a valid plan")).expect("a whole file");
    assert_eq!(again, plan, "a plan with drafter models survives its file");
    let mut plain = Engine::with_loaded(
        Arc::clone(&profiled().0),
        &Options { context: Some(200), pinning: Pinning::Floating, ..Options::new("unused") },
    )
    .expect("no plan is needed");
    for name in NAMES {
        let sub_plan = plan.bands[0].by_drafter.iter().find(|sub_plan| sub_plan.name.as_str() == name);
        let sub_plan = sub_plan.unwrap_or_else(|| panic!("{name} has no shape"));
        assert_eq!(sub_plan.schedule, Schedule::Plain, "{name}");
        let file = sub_plan.drafter.draft_model().expect("a drafter model");
        let is_hidden = name.starts_with("model_hidden");
        assert_eq!(Path::new(&file.path), draft_models()[usize::from(is_hidden)]);
        let mut engine = served(&plan, name, |options| options).expect("the model is where it was");
        let beside = engine.memory().session_bytes - plain.memory().session_bytes;
        assert!(beside > 0, "the drafter's session is counted");
        same_answers(&mut plain, &mut engine, (name, "model"));
    }
}

/// An engine answers as plain decoding does, and drafts by a drafter of this name and kind.
#[track_caller]
pub(crate) fn same_answers(plain: &mut Engine, drafting: &mut Engine, (name, kind): (&str, &str)) {
    for sampling in [Sampling::GREEDY, Sampling { temperature: 0.9, seed: 5, ..Sampling::GREEDY }] {
        let [expected, found] = [&mut *plain, &mut *drafting].map(|engine| {
            let generation = engine.generate_tokens(&[5, 6, 7, 5, 6], 60, sampling).expect("it fits");
            generation.collect_answer().expect("an answer")
        });
        assert_eq!(found.token_ids, expected.token_ids, "{name}, {sampling:?}");
        assert!(found.report.drafted > 0, "{name} drafted nothing");
        assert_eq!(found.report.drafter, kind);
    }
}

#[track_caller]
fn refused(result: Result<impl std::fmt::Debug, Error>, parts: &[&str]) -> Option<Hint> {
    let error = result.expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Input, "{error}");
    let said = error.to_string();
    assert!(parts.iter().all(|part| said.contains(part)), "{said:?} lacks one of {parts:?}");
    error.hint().cloned()
}

#[test]
fn a_drafter_model_is_found_where_it_is_said_to_be_and_no_other_is_taken() {
    let plan = plan();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = |path: &Path| {
        let path = path.to_owned();
        move |options| Options { draft_model: Some(path), ..options }
    };
    let copy = folder.path().join("copy.gguf");
    std::fs::copy(&draft_models()[0], &copy).expect("copied");
    served(&plan, "model", at(&copy)).expect("the same model elsewhere");
    let missing = folder.path().join("missing.gguf");
    let profile_model = Some(Hint::Profile { drafter: "model".to_owned() });
    assert_eq!(refused(served(&plan, "model", at(&missing)), &["missing.gguf"]), Some(Hint::DraftModel));
    let other = folder.path().join("other.gguf");
    SyntheticSpec { layers: 3, seed: 9, ..verifier() }.write_gguf(&other).expect("written");
    let found = DraftModel::open(&other).expect("a model").fingerprint().to_string();
    let expected = DraftModel::open(&copy).expect("a model").fingerprint().to_string();
    let another = "another than the one that was profiled";
    let hint = refused(served(&plan, "model", at(&other)), &[&found, &expected, another]);
    assert_eq!(hint, profile_model);
    assert_eq!(refused(served(&plan, "model_hidden", at(&copy)), &[another]), profile_model);

    let mut without = plan;
    without.bands[0].by_drafter.retain(|sub_plan| sub_plan.drafter.draft_model().is_none());
    let planned = |options: Options| Options { drafter: DrafterChoice::Planned, ..at(&copy)(options) };
    assert_eq!(refused(served(&without, "lookup", planned), &["copy.gguf"]), profile_model);
    let hint = refused(served(&without, "lookup", |options| options), &["`model`"]);
    assert_eq!(hint, profile_model);
}

fn loaded(spec: &SyntheticSpec, path: &Path) -> Loaded {
    spec.write_gguf(path).expect("written");
    let options = LoadOptions {
        tier: None,
        activations: Activations::Native,
        cache: yggc::engine::KvFormat::F16,
        threads: Some(1),
        widths: vec![4],
        resident: None,
    };
    Loaded::open(path, &options).expect("a generated model loads")
}

#[test]
fn a_drafter_of_another_vocabulary_is_refused_with_the_first_difference() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    // A synthetic vocabulary uses 961 places at most.
    let spec = |vocabulary| SyntheticSpec { vocabulary, context: 64, ..SyntheticSpec::default() };
    let verifier = loaded(&spec(961), &folder.path().join("verifier.gguf"));
    let drafter = |vocabulary| {
        let path = folder.path().join(format!("{vocabulary}.gguf"));
        spec(vocabulary).write_gguf(&path).expect("written");
        let kind = DraftModel::open(&path).and_then(|model| model.drafter()).expect("a model");
        verifier.with_drafters([&kind])
    };
    for same in [961, 962, 1_000] {
        drafter(same).unwrap_or_else(|error| panic!("{same} differ in unused places only: {error}"));
    }
    let last = String::from_utf8_lossy(verifier.tokenizer().token_bytes(900).expect("a token")).into_owned();
    refused(drafter(900), &["expected token 900 to be", &last, "found nothing", "another vocabulary"]);

    // A text apart in the middle.
    let bytes = std::fs::read(folder.path().join("962.gguf")).expect("written");
    let (old, new) = (b"\x02\0\0\0\0\0\0\0ab", b"\x02\0\0\0\0\0\0\0aQ");
    let places: Vec<usize> =
        bytes.windows(old.len()).enumerate().filter(|(_, w)| w == old).map(|(i, _)| i).collect();
    assert_eq!(places.len(), 1, "one token `ab`");
    let mut changed = bytes.clone();
    changed[places[0]..][..new.len()].copy_from_slice(new);
    // Merges name it too: `a b`.
    let merge = b"\x03\0\0\0\0\0\0\0a b";
    let place = bytes.windows(merge.len()).position(|w| w == merge).expect("a merge of it");
    changed[place..][..merge.len()].copy_from_slice(b"\x03\0\0\0\0\0\0\0a Q");
    let path = folder.path().join("changed.gguf");
    std::fs::write(&path, changed).expect("written");
    let kind = DraftModel::open(&path).and_then(|model| model.drafter()).expect("a model");
    let id = verifier.tokenizer().encode("ab", yggc::engine::Special::Literal)[0].to_string();
    refused(verifier.with_drafters([&kind]), &["expected token", &id, "\"ab\"", "changed.gguf"]);
}

#[test]
fn a_hidden_state_drafter_of_another_verifier_or_with_faults_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let spec = SyntheticSpec { vocabulary: 300, context: 64, ..SyntheticSpec::default() };
    let verifier = loaded(&spec, &folder.path().join("verifier.gguf"));
    let place = |name: &str| folder.path().join(name);
    let made = |name: &str, shape: SyntheticSpec, edit: &dyn Fn(String) -> String| {
        HiddenStateSpec::for_verifier(&shape).write_folder(&place(name)).expect("written");
        let config = place(name).join("config.json");
        let text = edit(std::fs::read_to_string(&config).expect("written"));
        std::fs::write(&config, text).expect("written");
        let kind = DraftModel::open(&place(name)).and_then(|model| model.drafter())?;
        verifier.with_drafters([&kind])
    };
    let same = |text: String| text;
    made("good", spec.clone(), &same).expect("its verifier");
    refused(made("wide", SyntheticSpec { width: 96, ..spec.clone() }, &same), &["rows of 96", "and 64"]);
    let more = SyntheticSpec { vocabulary: 301, ..spec.clone() };
    refused(made("more", more, &same), &["vocabulary of 301", "300 and 64"]);
    let deep = |text: String| text.replace("\"num_hidden_layers\": 1", "\"num_hidden_layers\": 2");
    refused(made("deep", spec.clone(), &deep), &["num_hidden_layers", "2", "1"]);
    let nameless = |text: String| text.replace("\"verifier\"", "\"target\"");
    refused(made("nameless", spec.clone(), &nameless), &["`verifier` is missing"]);
    let long = |text: String| text.replace("\"intermediate_size\": 128", "\"intermediate_size\": 129");
    refused(made("long", spec, &long), &["layers.0.mlp.gate_proj.weight", "[129, 64]", "[128, 64]"]);
    std::fs::remove_file(place("good").join("model.safetensors")).expect("removed");
    refused(DraftModel::open(&place("good")), &["model.safetensors"]);
    refused(DraftModel::open(&place("nowhere")), &["nowhere"]);
}
