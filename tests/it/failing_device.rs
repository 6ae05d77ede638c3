//! A GPU that fails while it decodes: an error of the request, whoever asked, and no end of the process.

use std::sync::Arc;

use ygg_kernels::{Activations, KvFormat, Tier};
use yggc::{
    model::{Model, synthetic::SyntheticSpec},
    plan::Schedule,
    runtime::{ExecutableSet, RuntimeError, SetOptions, SkipSet},
    sample::Sampling,
    speculate::{Decoder, Limits, SelfDrafter, SpeculateError, StepShape},
};

use crate::{
    bad_input::refused,
    emulated_cuda::{exact_model, on_cuda, passes},
    lossless::scheduled,
    program::success,
    tiny_commands,
    tiny_model::{is_cuda, session},
};

/// Lets the launch of a graph fail that has this number, from 1 on.
pub(crate) const AT: &str = "YGG_EMULATION_FAILS_AT";
/// Lets what waits for it fail.
const BEHIND: &str = "YGG_EMULATION_FAILS_BEHIND";

const ASKED: [&str; 6] = ["-p", "one and one and one", "--raw", "--no-spec", "-n", "24"];

#[test]
fn a_run_ends_with_4_and_what_it_said_stands() {
    let model = exact_model();
    for (variable, launch) in [(AT, "1"), (BEHIND, "1"), (AT, "7"), (BEHIND, "9")] {
        let mut command = on_cuda("run", model, &[(variable, launch)]);
        let words =
            ["the device failed while it decoded", "error 719", "--device cpu", "open the model again"];
        refused(command.args(ASKED).arg("--json"), 4, &words);
    }
    let whole = tiny_commands::on_machine("run", model).args(ASKED).output().expect("yggc starts");
    let whole = success(&whole);
    let cut = on_cuda("run", model, &[(AT, "9")]).args(ASKED).output().expect("yggc starts");
    assert_eq!(cut.status.code(), Some(4), "{}", String::from_utf8_lossy(&cut.stderr));
    let said = String::from_utf8_lossy(&cut.stdout);
    assert!(!said.trim().is_empty() && said.len() < whole.len(), "{said:?} of {whole:?}");
    assert!(whole.starts_with(said.trim_end()), "{said:?} of {whole:?}");
}

/// Steps until the device fails, and asks again after that.
fn decodes_until_it_fails(schedule: Schedule) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("model.gguf");
    SyntheticSpec::default().write_gguf(&path).expect("the model is written");
    let model = Model::open(&path).expect("a generated model opens");
    let options = SetOptions {
        tier: Tier::Cuda,
        kv_format: KvFormat::F16,
        activations: Activations::Native,
        widths: vec![1, 4],
        model_context: 64,
        threads: 1,
        resident: None,
    };
    let set = ExecutableSet::build(&model.graph, model.weights.as_ref(), &options).expect("it loads");
    let set = Arc::new(set);
    let shape = StepShape { depth: 2, draft_width: 2, verify_width: 4, top_k: 2, draft_temperature: 1.0 };
    let session = session(&set, 64, shape.scratch_rows(schedule), 1);
    let skip = SkipSet::new(set.groups(), &[0]).expect("a group of the model");
    let drafter = SelfDrafter::layer_skip(&session, skip, &shape).expect("a planned width");
    let steps = scheduled(Box::new(drafter), &shape, schedule);
    let mut decoder = Decoder::new(session, vec![steps]).expect("a device that grows trees");
    let is_failure =
        |error: &SpeculateError| matches!(error, SpeculateError::Runtime(RuntimeError::DeviceFailed { .. }));
    let mut ended = decoder.start(&[1, 2, 3], Sampling::GREEDY).map(|_| ());
    for _ in 0..12 {
        let before = decoder.history().len();
        if ended.is_ok() {
            ended = decoder.step(Limits { tokens: 3, ends: &[] }, None).map(|_| ());
            let is_unchanged = decoder.history().len() == before;
            assert!(ended.is_ok() || is_unchanged, "nothing is said that was not computed");
        }
    }
    assert!(is_failure(&ended.expect_err("the device fails")));
    assert!(decoder.session().check_device().is_err());
    assert!(is_failure(&decoder.start(&[3, 2, 1], Sampling::GREEDY).expect_err("it has failed")));
}

const PLAIN: &str = "failing_device::a_failure_ends_plain_steps";
const AHEAD: &str = "failing_device::a_failure_ends_steps_with_heads_ahead";
const ONE_LAUNCH: &str = "failing_device::a_failure_ends_steps_in_one_launch";
const TWO_LAUNCHES: &str = "failing_device::a_failure_ends_steps_in_two_launches";
const WHOLE_STEP: &str = "failing_device::a_failure_ends_steps_without_the_host";

fn fails_everywhere(schedule: Schedule, test: &str) {
    if is_cuda() {
        return decodes_until_it_fails(schedule);
    }
    // The prompt, and forwards of a drafter, of the verifier, of the next step.
    for launch in ["1", "2", "3", "4", "5", "6"] {
        for variable in [AT, BEHIND] {
            passes(&[test], &[(variable, launch)]);
        }
    }
}

#[test]
fn a_failure_ends_plain_steps() {
    fails_everywhere(Schedule::Plain, PLAIN);
}

#[test]
fn a_failure_ends_steps_with_heads_ahead() {
    fails_everywhere(Schedule::HeadAhead, AHEAD);
}

#[test]
fn a_failure_ends_steps_in_one_launch() {
    fails_everywhere(Schedule::OneLaunch, ONE_LAUNCH);
}

#[test]
fn a_failure_ends_steps_in_two_launches() {
    fails_everywhere(Schedule::TwoLaunches, TWO_LAUNCHES);
}

#[test]
fn a_failure_ends_steps_without_the_host() {
    fails_everywhere(Schedule::WholeStep, WHOLE_STEP);
}
