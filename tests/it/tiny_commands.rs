//! The program over a synthetic model small enough for whole commands, with a plan made from a profile of it.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use serde_json::Value;
use yggc::model::synthetic::SyntheticSpec;

use crate::program::{success, yggc};

/// Four layers, so that layer skip has one to leave out.
pub(crate) fn spec() -> SyntheticSpec {
    SyntheticSpec { layers: 4, context: 256, ..SyntheticSpec::default() }
}

/// Where this test program keeps what its tests share.
fn folder() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

/// The model's file, written once.
pub(crate) fn model() -> &'static Path {
    static MODEL: OnceLock<PathBuf> = OnceLock::new();
    MODEL.get_or_init(|| write("tiny.gguf", &spec()))
}

/// A model of the same shape with other weights.
pub(crate) fn other_model() -> &'static Path {
    static MODEL: OnceLock<PathBuf> = OnceLock::new();
    MODEL.get_or_init(|| write("other.gguf", &SyntheticSpec { seed: 2, ..spec() }))
}

/// Writes a model where tests share files; every name belongs to one test or function.
pub(crate) fn write(name: &str, spec: &SyntheticSpec) -> PathBuf {
    let path = folder().join(name);
    spec.write_gguf(&path).expect("the target folder is writable");
    path
}

/// `yggc COMMAND -m MODEL` with one thread and portable kernels: the same on every machine.
pub(crate) fn on_machine(command: &str, model: &Path) -> Command {
    let mut yggc = yggc();
    yggc.arg(command).arg("-m").arg(model);
    if command != "inspect" {
        yggc.args(["--threads", "1", "--isa", "portable"]);
    }
    yggc
}

/// A model whose context holds few of the calibration prompts, so that measuring is quick.
pub(crate) fn quick_model() -> &'static Path {
    static MODEL: OnceLock<PathBuf> = OnceLock::new();
    MODEL.get_or_init(|| write("quick.gguf", &SyntheticSpec { layers: 3, context: 96, ..spec() }))
}

/// The command with [`quick_model`], on the tier that is tested where one is enough: what measures is as quick as it
/// can be.
pub(crate) fn on_quick(command: &str) -> Command {
    let mut yggc = yggc();
    yggc.arg(command).arg("-m").arg(quick_model()).args(["--threads", "1"]);
    yggc
}

/// [`on_machine`] with the tiny model.
pub(crate) fn on_tiny(command: &str) -> Command {
    on_machine(command, model())
}

/// A few prompts of two kinds.
pub(crate) fn prompts() -> &'static Path {
    static PROMPTS: OnceLock<PathBuf> = OnceLock::new();
    PROMPTS.get_or_init(|| {
        let path = folder().join("prompts.jsonl");
        let lines = "{\"category\": \"sums\", \"turns\": [\"one and one and one\", \"more\"]}\n\
                     {\"kind\": \"words\", \"text\": \"say the words\"}\n";
        std::fs::write(&path, lines).expect("the target folder is writable");
        path
    })
}

/// What `yggc profile` measured of the model.
pub(crate) fn profile() -> &'static Path {
    static PROFILE: OnceLock<PathBuf> = OnceLock::new();
    PROFILE.get_or_init(|| {
        let path = folder().join("tiny.profile");
        let mut command = on_tiny("profile");
        // A sample of everything: on a busy machine there may be no time for more, and how long anything takes decides
        // no test.
        command.args(["--rehearsal", "--budget", "60", "--prompts"]).arg(prompts()).arg("-o").arg(&path);
        let said = success(&command.output().expect("yggc starts"));
        assert!(said.contains("requests recorded"), "{said}");
        path
    })
}

/// The plan of the profile.
pub(crate) fn plan() -> &'static Path {
    static PLAN: OnceLock<PathBuf> = OnceLock::new();
    PLAN.get_or_init(|| planned("tiny.plan", &[]))
}

/// A plan of the profile by which every step verifies what it may, so that it drafts whatever times were measured.
pub(crate) fn drafting_plan() -> &'static Path {
    static PLAN: OnceLock<PathBuf> = OnceLock::new();
    PLAN.get_or_init(|| planned("drafting.plan", &["--fix", "rows=all,predictor=off"]))
}

fn planned(name: &str, arguments: &[&str]) -> PathBuf {
    let path = folder().join(name);
    let mut command = yggc();
    command.args(["plan", "--profile"]).arg(profile()).arg("-o").arg(&path).args(arguments);
    success(&command.output().expect("yggc starts"));
    path
}

/// The one JSON value that a command printed.
#[track_caller]
pub(crate) fn json(command: &mut Command) -> Value {
    let out = success(&command.output().expect("yggc starts"));
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("not one JSON value: {error}: {out}"))
}

/// The names in an object, ascending.
#[track_caller]
pub(crate) fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<&str> = value.as_object().expect("an object").keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}
