//! Where a plan fits: each fact that a measured figure follows from, changed alone, is refused with what was expected
//! and what was found.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use ygg_profiler::{DrafterName, Fingerprints, Profile};
use yggc::{
    backend::Tier,
    engine::{
        Activations, DraftModel, Engine, Error, ErrorKind, KvFormat, LoadOptions, Loaded, Options, Pinning,
        PlanSource, fingerprints,
    },
    measure::{RemeasureOptions, profile_file, remeasure},
    model::{Model, draft_formats, synthetic::SyntheticSpec},
    plan::{PLAN_FORMAT, Plan},
    planner::{Fix, plan_from_profile},
};

use crate::{committed_plans::machine_profile, tiny_profiles::NOW};

/// A tiny model, and a profile that is said to be measured with it on this machine: of a drafter without a model, so
/// that it is planned at once.
struct Measured {
    folder: tempfile::TempDir,
    profile: Profile,
}

impl Measured {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut profile = profile_file::read(&machine_profile()).expect("a kept profile");
        profile.drafters.retain(|drafter| drafter.kind == "lookup");
        let is_kept = |name: &DrafterName| profile.drafters.iter().any(|drafter| drafter.name == *name);
        profile.measurements.retain(|measured| measured.cell.stage.drafter().is_none_or(is_kept));
        profile.token_traces.truncate(4);
        profile.traces.clear();
        profile.live_traces.clear();
        profile.predictors.clear();
        profile.tunings.clear();
        let mut measured = Self { folder, profile };
        let model = Model::open(&measured.model(1)).expect("a generated model opens");
        let here = fingerprints(&model, Tier::Portable, Activations::Int8, KvFormat::F16, 1, None);
        measured.profile.fingerprints = here.expect("the machine is known");
        measured
    }

    /// The model of a seed; the profile is of the first.
    fn model(&self, seed: u64) -> PathBuf {
        let path = self.folder.path().join(format!("{seed}.gguf"));
        SyntheticSpec { seed, context: 256, ..SyntheticSpec::default() }.write_gguf(&path).expect("written");
        path
    }

    fn plan(&self) -> Plan {
        plan_from_profile(&self.profile, &Fix::default(), NOW).expect("a plan")
    }

    /// The model, as it was measured.
    fn loaded(&self) -> Loaded {
        let options = LoadOptions {
            tier: Some(Tier::Portable),
            activations: Activations::Int8,
            cache: KvFormat::F16,
            threads: Some(1),
            widths: vec![2],
            resident: None,
        };
        Loaded::open(&self.model(1), &options).expect("a generated model loads")
    }

    /// An engine by the plan, on the machine as the profile knows it but for what `change` makes of it.
    fn engine(&self, plan: Plan, change: impl FnOnce(Options) -> Options) -> Result<Engine, Error> {
        Engine::open(&change(Options {
            plan: Some(PlanSource { plan, name: "test".to_owned(), force: false }),
            tier: Some(Tier::Portable),
            activations: Some(Activations::Int8),
            threads: Some(1),
            context: Some(128),
            pinning: Pinning::Floating,
            ..Options::new(self.model(1))
        }))
    }
}

/// The error says this of one fact, and nothing of another.
#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, Error>, fact: &str, expected: &str, found: &str) {
    let error = result.expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Input, "{error}");
    let said = error.to_string();
    assert!(said.contains(&format!("{fact}: expected `{expected}`, found `{found}`")), "{said}");
    assert_eq!(said.matches(": expected `").count(), 1, "{said}");
}

#[test]
fn whatever_is_otherwise_here_is_named() {
    let measured = Measured::new();
    let plan = measured.plan();
    measured.engine(plan.clone(), |options| options).expect("it was measured here");
    type Change = fn(Options) -> Options;
    let changes: [(&str, &str, &str, Change); 4] = [
        ("threads", "1", "2", |options| Options { threads: Some(2), ..options }),
        ("kernel tier", "portable", "reference", |options| Options {
            tier: Some(Tier::Reference),
            ..options
        }),
        ("kernel tier", "portable", "portable, native activations", |options| Options {
            activations: Some(Activations::Native),
            ..options
        }),
        ("kernel tier", "portable", "portable, q8 cache", |options| Options {
            cache: KvFormat::Q8,
            ..options
        }),
    ];
    for (fact, expected, found, change) in changes {
        refused(measured.engine(plan.clone(), change), fact, expected, found);
    }
    let other = measured.model(2);
    let described = |path: &Path| {
        let model = Model::open(path).expect("a generated model opens");
        format!("{} {}", model.config.name, model.fingerprint())
    };
    let (expected, found) = (described(&measured.model(1)), described(&other));
    let other = measured.engine(plan, |options| Options { model: other, ..options });
    refused(other, "model", &expected, &found);
}

/// A fact, what was recorded of it, what is here, and the change of a record that makes it so.
type Recorded = (&'static str, &'static str, String, fn(&mut Fingerprints));

fn recorded(here: &Fingerprints) -> Vec<Recorded> {
    vec![
        ("processor name", "another", here.machine.name.clone(), |f| f.machine.name = "another".to_owned()),
        ("processor features", "", here.machine.flags.join(" "), |f| f.machine.flags.clear()),
        ("gpu", "another", "none".to_owned(), |f| f.machine.gpu = Some("another".to_owned())),
        ("driver", "580", "none".to_owned(), |f| f.machine.driver = Some("580".to_owned())),
        ("plan format", "7", PLAN_FORMAT.to_string(), |f| f.build.plan_format = 7),
        ("kernel set", "another", Tier::Portable.kernel_set().to_owned(), |f| {
            f.build.kernels = "another".to_owned();
        }),
        ("formats of drafter models", "as stored", draft_formats(), |f| {
            f.build.draft_formats = "as stored".to_owned();
        }),
    ]
}

#[test]
fn whatever_was_otherwise_where_a_plan_was_made_is_named() {
    let measured = Measured::new();
    for (fact, expected, found, change) in recorded(&measured.profile.fingerprints) {
        let mut plan = measured.plan();
        change(&mut plan.header.fingerprints);
        refused(measured.engine(plan, |options| options), fact, expected, &found);
    }
}

#[test]
fn a_profile_from_elsewhere_is_not_measured_on() {
    let measured = Measured::new();
    let loaded = measured.loaded();
    assert_eq!(loaded.fingerprints().expect("known"), measured.profile.fingerprints);
    let options = RemeasureOptions {
        cells: vec!["verify@2".parse().expect("a selection")],
        budget: Duration::from_secs(5),
        pinning: Pinning::Floating,
        is_rehearsal: false,
    };
    for (fact, expected, found, change) in recorded(&measured.profile.fingerprints) {
        let mut profile = measured.profile.clone();
        change(&mut profile.fingerprints);
        refused(remeasure(&loaded, profile, &options, &mut |_| {}), fact, expected, &found);
    }
}

#[test]
fn a_drafter_model_whose_file_has_changed_is_named() {
    let measured = Measured::new();
    let loaded = measured.loaded();
    let path = measured.folder.path().join("drafter.gguf");
    let write = |seed| {
        SyntheticSpec { seed, layers: 1, ..SyntheticSpec::default() }.write_gguf(&path).expect("written");
        DraftModel::open(&path).expect("a model")
    };
    let profiled = write(3);
    let kind = profiled.drafter().expect("its path is UTF-8");
    loaded.with_drafters([&kind]).expect("it is as it was");
    let expected = profiled.fingerprint();
    let found = write(4).fingerprint();
    let error = loaded.with_drafters([&kind]).expect_err("another file");
    assert_eq!(error.kind(), ErrorKind::Input, "{error}");
    let said = error.to_string();
    assert!(
        said.contains("drafter.gguf") && said.contains(&format!("expected {expected}, found {found}")),
        "{said}"
    );
}
