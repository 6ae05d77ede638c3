//! `profile`, `plan` and `plan show` as whole programs over a tiny model.

use std::{fs, path::Path};

use ygg_profiler::{Profile, UnixTime};
use yggc::{
    measure::profile_file,
    plan::{self, DepthChoice, Header, Plan, Prediction, RowRule},
};

use crate::{
    program::{failure, success, yggc},
    tiny_commands::{json, keys, model, on_machine, on_tiny, other_model, plan, profile, prompts},
};

fn search(arguments: &[&str], output: &Path) -> std::process::Output {
    let mut command = yggc();
    command.args(["plan", "--profile"]).arg(profile()).args(arguments).arg("-o").arg(output);
    command.output().expect("yggc starts")
}

#[test]
fn a_profile_becomes_a_plan_that_can_be_shown() {
    let before = plan();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("new.plan");
    let said = success(&search(&["-m", model().to_str().expect("UTF-8")], &file));
    for part in ["chosen ", "expected ", "lost ", "rests on ", "measured ", "for "] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let [made, before] = [&file, before].map(|file| plan::read(file).expect("a plan"));
    let header = Header { made_at: before.header.made_at, ..made.header.clone() };
    let at_once = Plan { header, ..made.clone() };
    assert!(
        plan::encode(&at_once).expect("valid") == fs::read(plan()).expect("written"),
        "not deterministic"
    );
    let now = UnixTime::now();
    assert!(
        before.header.measured_at <= before.header.made_at
            && before.header.made_at <= made.header.made_at
            && made.header.made_at <= now
    );
    assert_eq!(made.header.measured_at, profile_file::read(profile()).expect("a profile").measured_at);
    let shown = success(&yggc().args(["plan", "show"]).arg(&file).output().expect("yggc starts"));
    let is_dated = |line: &&str| !line.starts_with("measured ");
    assert!(shown.lines().filter(is_dated).eq(said.lines().filter(is_dated)), "{shown}");
    // A page, however many lines the sub-plan takes that times chose for each of the three temperatures.
    assert!(shown.contains(" ago, ") && shown.lines().count() <= 30, "{shown}");
    assert!(shown.lines().all(|line| line.chars().count() <= 100), "{shown}");
    let explained = success(&yggc().args(["plan", "explain"]).arg(&file).output().expect("yggc starts"));
    for part in ["stages of the chosen step", "best of ", "made for and by", "widths       verify 1 "] {
        assert!(explained.contains(part), "{part}: {explained}");
    }
    let shown = json(yggc().args(["plan", "show"]).arg(&file).arg("--json"));
    assert_eq!(keys(&shown), ["chosen", "findings", "plan"]);
    assert_eq!(shown["plan"]["header"]["measured_at"].as_u64(), Some(made.header.measured_at.seconds()));
    assert_eq!(shown["plan"]["header"]["made_at"].as_u64(), Some(made.header.made_at.seconds()));
    let names: Vec<&str> = shown["plan"]["bands"][0]["by_drafter"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|sub_plan| sub_plan["name"].as_str().expect("a name"))
        .collect();
    let in_order_of_the_registry = [
        "none",
        "lookup",
        "lookup_short",
        "layer_skip",
        "suffix",
        "recycling",
        "ngram",
        "ngram_pool",
        "swift",
        "mixed",
        "mixed_layer_skip",
        "mixed_substitute4",
        "substitute4",
    ];
    assert_eq!(names, in_order_of_the_registry);
    // Which of them are fastest here, times decide.
    assert!(names[1..].iter().any(|name| said.contains(name)), "{said}");
}

#[test]
fn parts_of_a_plan_can_be_fixed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("fixed.plan");
    success(&search(&["--fix", "drafter=layer_skip,Dd=2,Wd=4,Wv=8"], &file));
    let shown = json(yggc().args(["plan", "show"]).arg(&file).arg("--json"));
    let chosen = &shown["chosen"];
    let first = &chosen["ranges"][0];
    let widest = first["row_choice"]["widths"].as_array().and_then(|widths| widths.last()).expect("a width");
    assert_eq!(
        [&first["depth"], &chosen["draft_width"], &widest["width"]].map(serde_json::Value::as_u64),
        [Some(2), Some(4), Some(8)]
    );
    let answer = json(on_tiny("run").args(["-p", "hello", "-n", "8", "--json", "--plan"]).arg(&file));
    assert_eq!(answer["stats"]["drafter"], "layer_skip");
    let said = failure(&search(&["--fix", "drafter=layer_skip,Wd=5"], &folder.path().join("not.plan")), 3);
    assert!(said.contains("drafter=layer_skip,Wd=5") && said.contains("measured"), "{said}");
    assert!(!folder.path().join("not.plan").exists());
}

#[test]
fn a_profile_of_chosen_drafters_leaves_the_others_out() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (profile, plan) = (folder.path().join("lookup.profile"), folder.path().join("lookup.plan"));
    let mut command = on_tiny("profile");
    command.args(["--drafter", "lookup", "--budget", "20", "--prompts"]).arg(prompts());
    let said = success(&command.arg("-o").arg(&profile).output().expect("yggc starts"));
    assert!(said.contains("2 requests recorded at temperature 0 alone"), "{said}");
    let mut command = yggc();
    command.args(["plan", "--profile"]).arg(&profile).arg("-o").arg(&plan);
    success(&command.output().expect("yggc starts"));

    for (drafter, profiling) in [
        ("layer_skip", "`yggc profile --drafter layer_skip -o FILE`"),
        ("retrieval", "`yggc profile --drafter retrieval --store FILE.store -o FILE`"),
        ("prior", "`yggc profile --drafter prior --store FILE.store -o FILE`"),
    ] {
        let mut command = on_tiny("run");
        command.args(["-p", "hello", "--drafter", drafter, "--plan"]).arg(&plan);
        let said = failure(&command.output().expect("yggc starts"), 3);
        assert!(said.contains(drafter) && said.contains(profiling), "{said}");
    }
}

#[test]
fn latencies_of_a_profile_are_measured_again_and_all_else_is_kept() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("again.profile");
    let again = |arguments: &[&str]| {
        let mut command = on_tiny("profile");
        command.args(["--budget", "20", "--again"]).arg(profile()).args(arguments).arg("-o").arg(&file);
        command.output().expect("yggc starts")
    };
    let said = success(&again(&["--cells", "verify@4", "--cells", "draft:layer_skip@2x128"]));
    assert!(said.contains("3 cells measured again"), "{said}");
    let [old, new] = [profile(), &file].map(|file| profile_file::read(file).expect("a profile"));
    let mut measured = Vec::new();
    for (old, new) in old.measurements.iter().zip(&new.measurements) {
        assert_eq!(old.cell, new.cell);
        if old.samples_us != new.samples_us {
            measured.push(old.cell.to_string());
        }
    }
    let expected = [
        "verify at width 4, context 128",
        "verify at width 4, context 189",
        "draft:layer_skip at width 2, context 128",
    ];
    assert_eq!(measured, expected);
    let restored = Profile { measurements: old.measurements.clone(), ..new };
    assert_eq!(restored, old);

    let said = failure(&again(&["--cells", "verify@5"]), 3);
    assert!(said.contains("`verify@5` selects no cell") && said.contains("widths [1, 2, 3, 4"), "{said}");
    let said = failure(&again(&["--cells", "verify@x"]), 2);
    assert!(said.contains("expected all, noisy"), "{said}");
    let said = failure(&again(&["--prompts", "x.jsonl"]), 2);
    assert!(said.contains("cannot be used with"), "{said}");
    let mut command = on_machine("profile", other_model());
    command.arg("--again").arg(profile()).args(["--cells", "all", "-o"]).arg(&file);
    let said = failure(&command.output().expect("yggc starts"), 3);
    assert!(said.contains("model: expected") && said.contains("yggc profile"), "{said}");
}

#[test]
fn a_profile_without_noise_has_nothing_to_measure_again() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (quiet, file) = (folder.path().join("quiet.profile"), folder.path().join("again.profile"));
    let mut profile = profile_file::read(profile()).expect("the profile is there");
    for measured in &mut profile.measurements {
        let first = measured.samples_us[0];
        measured.samples_us.fill(first);
    }
    profile_file::write(&profile, &quiet).expect("a valid profile");
    let mut command = on_tiny("profile");
    command.arg("--again").arg(&quiet).args(["--cells", "noisy", "-o"]).arg(&file);
    let said = success(&command.output().expect("yggc starts"));
    assert!(said.contains("0 cells measured again"), "{said}");
    assert_eq!(profile_file::read(&file).expect("a profile"), profile);
}

#[test]
fn a_profile_is_shown_in_short_and_as_a_whole() {
    let show = |arguments: &[&str]| {
        let mut command = yggc();
        command.args(["profile", "show"]).arg(profile()).args(arguments);
        success(&command.output().expect("yggc starts"))
    };
    let kept = profile_file::read(profile()).expect("the profile is there");
    let said = show(&[]);
    let cells = format!("measured     {} cells", kept.measurements.len());
    let requests = format!("recorded     {} requests", kept.token_traces.len());
    let swing = kept.swing(u32::MAX);
    assert!(swing.visits > 0 && kept.visits.iter().any(|visited| visited.cell.width == 1), "{swing:?}");
    let visited = format!("visited      {} times", swing.visits);
    for part in ["machine ", "portable", "calibration ", &cells, &visited, &requests] {
        assert!(said.contains(part), "{part}: {said}");
    }
    for drafter in &kept.drafters {
        assert!(said.lines().any(|line| line.starts_with(drafter.name.as_str())), "{}: {said}", drafter.name);
    }
    let trace = &kept.traces[0];
    let (shape, steps) =
        (format!("Dd {}, Wd {}", trace.depth, trace.width), trace.steps().count().to_string());
    let row = said.lines().find(|line| line.starts_with(trace.drafter.as_str()) && line.contains(&shape));
    assert!(row.is_some_and(|row| row.ends_with(&steps)), "{shape}, {steps} steps: {said}");
    let noisy = said.lines().filter(|line| line.contains(" is noisy: ")).count();
    assert!(said.contains(&format!("{noisy} of them noisy")), "{said}");

    let whole = show(&["--json"]);
    assert!(serde_json::from_str::<Profile>(&whole).expect("one JSON object") == kept, "{whole}");
}

#[test]
fn profiles_that_do_not_fit_are_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = folder.path().join("x.plan");
    let said = failure(&search(&["-m", other_model().to_str().expect("UTF-8")], &output), 3);
    assert!(said.contains("another model") && said.contains("yggc profile"), "{said}");
    let bad = folder.path().join("bad.profile");
    let whole = fs::read(profile()).expect("the profile is there");
    for (content, expected) in [
        (&b""[..], "found an empty file"),
        (b"{\"created_by\":\"yggc 0.1.0\"}", "found JSON"),
        (b"\0\x01", "found `\\x00\\x01`"),
        (&fs::read(plan()).expect("the plan is there"), "found `YGGPLAN"),
        (&whole[..whole.len() / 2], "bytes, found"),
    ] {
        fs::write(&bad, content).expect("writable");
        let mut planned = yggc();
        planned.args(["plan", "--profile"]).arg(&bad).arg("-o").arg(&output);
        let mut shown = yggc();
        shown.args(["profile", "show"]).arg(&bad);
        for mut command in [planned, shown] {
            let said = failure(&command.output().expect("yggc starts"), 3);
            for part in ["bad.profile", expected, "measure again with `yggc profile`"] {
                assert!(said.contains(part), "{part}: {said}");
            }
        }
    }
    let mut command = yggc();
    command.args(["plan", "--profile"]).arg(folder.path().join("none")).arg("-o").arg(&output);
    let said = failure(&command.output().expect("yggc starts"), 3);
    assert!(said.contains("No such file"), "{said}");
    let nowhere = folder.path().join("missing/x.plan");
    let said = failure(&search(&[], &nowhere), 3);
    assert!(said.contains("-o FILE"), "{said}");
    assert!(!output.exists());
}

#[test]
fn a_plan_for_something_else_is_refused_unless_forced() {
    let run = |arguments: &[&str]| {
        let mut command = yggc();
        command.arg("run").arg("-m").arg(other_model()).args(["-p", "hello", "-n", "16", "--json"]);
        command.args(["--isa", "portable", "--plan"]).arg(plan()).args(arguments);
        command
    };
    let said = failure(&run(&["--threads", "1"]).output().expect("yggc starts"), 3);
    assert!(said.contains("the plan does not fit: model:") && said.contains("--force"), "{said}");
    let said = failure(&run(&["--threads", "2"]).output().expect("yggc starts"), 3);
    assert!(said.contains("threads: expected `1`, found `2`"), "{said}");
    let mut native = on_tiny("run");
    native.args(["-p", "hello", "-n", "8", "--activations", "native", "--plan"]).arg(plan());
    let said = failure(&native.output().expect("yggc starts"), 3);
    let expected = "kernel tier: expected `portable`, found `portable, native activations`";
    assert!(said.contains(expected), "{said}");
    let mut cache = on_tiny("run");
    cache.args(["-p", "hello", "-n", "8", "--cache", "q8", "--plan"]).arg(plan());
    let said = failure(&cache.output().expect("yggc starts"), 3);
    assert!(said.contains("kernel tier: expected `portable`, found `portable, q8 cache`"), "{said}");
    let forced = json(&mut run(&["--threads", "2", "--force", "--drafter", "layer_skip"]));
    let mut plain = yggc();
    plain.arg("run").arg("-m").arg(other_model()).args(["-p", "hello", "-n", "16", "--json", "--no-spec"]);
    assert_eq!(forced["token_ids"], json(plain.args(["--isa", "portable"]))["token_ids"]);
}

#[test]
fn a_request_that_does_not_accept_falls_back_and_says_why() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("hopeless.plan");
    let mut hopeless = plan::read(plan()).expect("the plan is there");
    let band = &mut hopeless.bands[0];
    let drafted = band.by_drafter.iter().position(|p| p.name.as_str() == "layer_skip").expect("measured");
    let ranges = &mut band.by_drafter[drafted].ranges;
    ranges.truncate(1);
    let first = &mut ranges[0];
    // Plain decoding is said to be so fast that no acceptance pays.
    first.predicted = Prediction::new(1.0, first.predicted.stages.clone(), first.predicted.step_us / 100.0);
    // And every step that drafts verifies what it drafted, whatever was measured here.
    first.row_choice.rule = RowRule::Widest;
    first.depth_choice = DepthChoice::Fixed;
    band.chosen_index = u32::try_from(drafted).expect("few drafters");
    plan::write(&hopeless, &file).expect("a valid plan");

    let run = |arguments: &[&str]| {
        let mut command = on_tiny("run");
        command.args(["-p", "hello", "-n", "60", "--json", "--plan"]).arg(&file);
        json(command.args(arguments))
    };
    let (guarded, forced, plain) = (run(&[]), run(&["--drafter", "layer_skip"]), run(&["--drafter", "none"]));
    assert_eq!(guarded["token_ids"], plain["token_ids"]);
    assert_eq!(forced["token_ids"], plain["token_ids"]);
    let reason = guarded["stats"]["spec_off_reason"].as_str().expect("a reason");
    assert!(reason.contains("tokens a step") && reason.contains("steps decoded plainly"), "{reason}");
    assert_eq!(guarded["stats"]["drafter"], "layer_skip");
    assert!(forced["stats"]["spec_off_reason"].is_null(), "the guard is off where a drafter is forced");
    assert!(forced["stats"]["drafted"].as_u64() > guarded["stats"]["drafted"].as_u64());
    let mut command = on_tiny("run");
    command.args(["-p", "hello", "-n", "60", "--stats", "--plan"]).arg(&file);
    let output = command.output().expect("yggc starts");
    assert!(String::from_utf8_lossy(&output.stderr).contains("steps decoded plainly"));
}

#[test]
fn damaged_plans_are_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("damaged.plan");
    let whole = fs::read(plan()).expect("the plan is there");
    let damaged = |bytes: &[u8]| {
        fs::write(&file, bytes).expect("writable");
        let mut command = on_tiny("run");
        let said = failure(&command.args(["-p", "x", "--plan"]).arg(&file).output().expect("yggc starts"), 3);
        assert!(said.contains(file.to_str().expect("UTF-8")), "{said}");
        said
    };
    for place in [0, 9, 15, 30, 60, whole.len() / 2, whole.len() - 1] {
        let mut flipped = whole.clone();
        flipped[place] ^= 0x10;
        let said = damaged(&flipped);
        assert!(said.contains("expected"), "byte {place}: {said}");
    }
    assert!(damaged(&[]).contains("an empty file"));
    assert!(damaged(&whole[..whole.len() - 1]).contains("bytes, found"));
    assert!(damaged(b"a text").contains("not a usable plan"));
    let said = failure(&yggc().args(["plan", "show"]).arg(&file).output().expect("yggc starts"), 3);
    assert!(said.contains("not a usable plan"), "{said}");
}
