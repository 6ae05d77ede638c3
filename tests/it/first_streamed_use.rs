//! The first use of a model whose weights are streamed: it says how long it takes, measures the substitute, and divides
//! a budget of memory.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use serde_json::Value;
use ygg_profiler::{Profile, Stage};
use yggc::{
    measure::profile_file,
    model::synthetic::{SyntheticExperts, SyntheticSpec},
    plan::{self, Plan},
};

use crate::{
    memory_plans::spec,
    program::{failure, success, yggc},
    streaming::written,
};

fn kept(name: &str, spec: &SyntheticSpec) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("first_streamed_use");
    fs::create_dir_all(&folder).expect("the target folder is writable");
    written(&folder, name, spec)
}

/// A model that few of the calibration prompts fit.
fn model() -> PathBuf {
    static MODEL: std::sync::OnceLock<PathBuf> = std::sync::OnceLock::new();
    MODEL.get_or_init(|| kept("model.gguf", &SyntheticSpec { context: 112, ..spec() })).clone()
}

fn command(name: &str, model: &Path, cache: &Path) -> Command {
    let mut command = yggc();
    command.arg(name).arg("-m").arg(model).args(["--threads", "1"]).arg("--cache-dir").arg(cache);
    command
}

fn asked_of(model: &Path, cache: &Path, arguments: &[&str]) -> Command {
    let mut command = command("run", model, cache);
    command.args(["--raw", "-p", "one two", "-n", "12", "--json"]).args(arguments);
    command
}

fn asked(cache: &Path, arguments: &[&str]) -> Command {
    asked_of(&model(), cache, arguments)
}

/// What was answered, and what was said.
fn answer(cache: &Path, arguments: &[&str]) -> (Value, String) {
    answer_of(asked(cache, arguments))
}

fn answer_of(mut command: Command) -> (Value, String) {
    let output: Output = command.output().expect("yggc starts");
    let answer = serde_json::from_str(&success(&output)).expect("one JSON value");
    (answer, String::from_utf8_lossy(&output.stderr).into_owned())
}

/// The profile and the plan of a cache that has one of each.
fn made(cache: &Path) -> (Profile, Plan) {
    let files = || {
        fs::read_dir(cache.join("plans"))
            .expect("the folder exists")
            .map(|entry| entry.expect("listed").path())
    };
    let file = |ending: &str| {
        let mut found = files().filter(|path| path.extension().is_some_and(|found| found == ending));
        let file = found.next().unwrap_or_else(|| panic!("no {ending}"));
        assert_eq!(found.next(), None);
        file
    };
    (profile_file::read(&file("profile")).expect("a profile"), plan::read(&file("plan")).expect("a plan"))
}

#[test]
fn the_substitute_is_measured_and_recorded_while_prompts_are_answered() {
    let cache = tempfile::tempdir().expect("a temporary folder");
    let (first, said) = answer(cache.path(), &["--resident", "2500K"]);
    let told = said.lines().next().unwrap_or_default();
    assert!(told.contains("measuring for 180 s at most, since forwards read weights from disk"), "{said}");
    let (profile, plan) = made(cache.path());
    let streamed = profile.memory.as_ref().expect("weights are streamed").measured_split().streamed_bytes;
    assert!(streamed > 0);
    // Of substitutes the closest alone, with what prices its trees.
    let names: Vec<&str> = profile.drafters.iter().map(|drafter| drafter.name.as_str()).collect();
    assert_eq!(names.iter().filter(|name| name.starts_with("substitute")).count(), 1, "{names:?}");
    let table = profile.table().expect("it is valid");
    let substitute = profile.drafters.iter().find(|drafter| drafter.kind == "substitute").expect("measured");
    for (stage, width) in [(Stage::Draft(substitute.name.clone()), 4), (Stage::Verify, 8), (Stage::Read, 1)] {
        assert!(table.widths(&stage).contains(&width), "{stage} at {width}");
    }
    assert!(
        plan.bands[0].left_out.is_empty() && plan.bands[0].for_drafter("substitute").is_some(),
        "{:?}",
        plan.bands[0].left_out
    );
    assert!(profile.live_traces.is_empty() && profile.predictors.is_empty());

    // Its steps are those of the answers.
    let [trace] = &profile.traces[..] else { panic!("{} traces", profile.traces.len()) };
    assert_eq!(
        (trace.drafter.clone(), trace.prompts.len()),
        (substitute.name.clone(), profile.token_traces.len())
    );
    let mut steps = 0;
    for (recorded, request) in trace.prompts.iter().zip(&profile.token_traces) {
        let text = [&request.prompt[..], &request.output].concat();
        for step in &recorded.steps {
            let root = step.context as usize;
            assert!(root >= request.prompt.len() && step.tokens[0] == text[root]);
            let known = &text[root + 1..];
            let both = step.verified.len().min(known.len());
            assert_eq!(step.verified[..both], known[..both]);
            assert!(both > 0 && step.verified.len() <= trace.depth as usize + 1);
            steps += 1;
        }
    }
    assert!(steps > trace.prompts.len(), "{steps} steps of {} prompts", trace.prompts.len());

    let (second, said) = answer(cache.path(), &["--resident", "2500K"]);
    assert_eq!((second["token_ids"].clone(), said.as_str()), (first["token_ids"].clone(), ""));
    let forced = answer(cache.path(), &["--resident", "2500K", "--drafter", "substitute"]).0;
    let plain = answer(cache.path(), &["--resident", "2500K", "--no-spec"]).0;
    assert_eq!([&forced["token_ids"], &plain["token_ids"]], [&first["token_ids"]; 2]);
}

#[test]
fn a_budget_for_everything_is_divided_on_first_use_and_served() {
    let cache = tempfile::tempdir().expect("a temporary folder");
    let within = ["--memory", "4400K", "--context", "64"];
    let (first, said) = answer(cache.path(), &within);
    assert!(said.contains("measuring for 180 s at most, since forwards read weights from disk"), "{said}");
    let (profile, plan) = made(cache.path());
    let memory = plan.header.memory.as_ref().expect("it divides memory");
    assert_eq!((memory.budget_bytes, memory.context), (Some(4400 << 10), 64));
    assert!(memory.streamed_bytes > 0 && memory.used_bytes() <= 4400 << 10, "{memory:?}");
    // Which division is the best is a matter of times; one with a substitute was recorded, and priced.
    assert!(profile.traces.iter().any(|trace| trace.steps().next().is_some()));
    assert!(memory.divisions.iter().any(|division| division.substitute_bits.is_some()), "{memory:?}");
    let (second, said) = answer(cache.path(), &within);
    assert_eq!((second["token_ids"].clone(), said.as_str()), (first["token_ids"].clone(), ""));
    assert_eq!(second["stats"]["plan"], first["stats"]["plan"]);
    let plain = answer(cache.path(), &["--memory", "4400K", "--context", "64", "--no-spec"]).0;
    assert_eq!(plain["token_ids"], first["token_ids"]);

    // A service finds the same plan.
    let mut service = command("serve", &model(), cache.path());
    service.args(["--port", "0"]).args(within).env_remove("YGGC_API_KEY");
    let mut service = service.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("yggc starts");
    let mut url = String::new();
    BufReader::new(service.stdout.take().expect("piped")).read_line(&mut url).expect("a line");
    let body = serde_json::json!({"prompt": "one two", "max_tokens": 12, "temperature": 0}).to_string();
    let url = format!("{}/v1/completions", url.trim());
    let mut answered = ureq::post(url).content_type("application/json").send(&body).expect("answered");
    let answered = answered.body_mut().read_to_string().expect("text");
    service.kill().expect("SIGKILL is sent");
    let output = service.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!said.contains("first use") && !said.contains("decoding plainly"), "{said}");
    let answered: Value = serde_json::from_str(&answered).expect("JSON");
    assert_eq!(answered["choices"][0]["text"], first["text"], "{answered}");
}

/// What experts are read depends on the text: no other division is derived, and the plan is for the one measured.
#[test]
fn experts_within_a_budget_are_measured_and_planned() {
    let cache = tempfile::tempdir().expect("a temporary folder");
    let experts = Some(SyntheticExperts { count: 6, used: 2, are_copies: false });
    let model = kept("experts.gguf", &SyntheticSpec { context: 112, experts, ..spec() });
    let answer = |arguments: &[&str]| answer_of(asked_of(&model, cache.path(), arguments));
    let within = ["--memory", "8M", "--context", "64"];
    let (first, said) = answer(&within);
    assert!(said.contains("measuring for 180 s at most, since forwards read weights from disk"), "{said}");
    let (profile, plan) = made(cache.path());
    assert!(profile.memory.is_none() && plan.header.memory.is_none());
    let resident = plan.resident().expect("experts are streamed");
    assert!(resident < 8 << 20, "{resident}");
    let (second, said) = answer(&within);
    assert_eq!((second["token_ids"].clone(), said.as_str()), (first["token_ids"].clone(), ""));
    let plain = answer(&["--memory", "8M", "--context", "64", "--no-spec"]).0;
    assert_eq!(plain["token_ids"], first["token_ids"]);
    assert_eq!(answer(&["--no-spec"]).0["token_ids"], first["token_ids"]);

    let files = fs::read_dir(cache.path().join("plans")).expect("the folder exists");
    let files = files.map(|entry| entry.expect("listed").path());
    let profile = files.into_iter().find(|path| path.extension().is_some_and(|found| found == "profile"));
    let mut command = yggc();
    command
        .args(["plan", "--memory", "8M", "-o", "never.plan", "--profile"])
        .arg(profile.expect("it is kept"));
    let said = failure(&command.current_dir(cache.path()).output().expect("yggc starts"), 3);
    assert!(said.contains("experts"), "{said}");
}

#[test]
fn a_budget_that_holds_the_model_streams_nothing() {
    let cache = tempfile::tempdir().expect("a temporary folder");
    let output =
        asked(cache.path(), &["--memory", "1G", "--no-spec", "--stats"]).output().expect("yggc starts");
    success(&output);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("of weights") && !said.contains("streamed"), "{said}");
    let output =
        asked(cache.path(), &["--memory", "4M", "--no-spec", "--stats"]).output().expect("yggc starts");
    success(&output);
    assert!(String::from_utf8_lossy(&output.stderr).contains("of weights are streamed"));
}

#[test]
fn what_a_budget_contradicts_is_refused_by_name() {
    let cache = tempfile::tempdir().expect("a temporary folder");
    let cases: [(&[&str], i32, &[&str]); 3] = [
        (
            &["--memory", "4400K", "--resident", "2500K"],
            2,
            &["--memory <SIZE>", "cannot be used with", "--resident <SIZE>"],
        ),
        (
            &["--memory", "4400K", "--plan", "some.plan"],
            2,
            &["--memory <SIZE>", "cannot be used with", "--plan"],
        ),
        (&["--memory", "100K"], 3, &["102400 bytes of memory are too few", "expected at least"]),
    ];
    for (arguments, code, said) in cases {
        let mut service = command("serve", &model(), cache.path());
        service.args(["--port", "0"]).args(arguments);
        for mut command in [asked(cache.path(), arguments), service] {
            let found = failure(&command.output().expect("yggc starts"), code);
            for part in said {
                assert!(found.contains(part), "`{part}` is not in: {found}");
            }
        }
    }
}
