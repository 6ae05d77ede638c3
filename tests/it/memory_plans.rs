//! Plans within a budget of memory: what is derived of how weights are divided is what a runtime finds, and the plan
//! alone says how to run.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;
use ygg_kernels::{Activations, KvFormat, Tier, WeightFormat};
use ygg_profiler::{Profile, Stage};
use yggc::{
    engine::{Engine, Options, PlanSource},
    measure::profile_file,
    model::synthetic::SyntheticSpec,
    plan::{self, Plan},
    runtime::{ExecutableSet, Pinning, SessionOptions, SetOptions, VariantChange},
};

use crate::{
    bad_input::refused,
    program::{success, yggc},
    streaming::{opened, written},
    tiny_commands as tiny,
    tiny_model::{best_tier, loading},
};

/// Layers whose matrices are several pages, in a format of which substitutes of all bits are smaller.
pub(crate) fn spec() -> SyntheticSpec {
    SyntheticSpec {
        layers: 6,
        width: 256,
        heads: 4,
        kv_heads: 2,
        head_dim: 64,
        feed_forward: 512,
        vocabulary: 300,
        context: 256,
        format: WeightFormat::Q8_0,
        ..SyntheticSpec::default()
    }
}

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("memory_plans").join(name);
    fs::create_dir_all(&folder).expect("the target folder is writable");
    folder
}

fn options(resident: usize) -> SetOptions {
    SetOptions {
        tier: Tier::Portable,
        kv_format: KvFormat::F16,
        activations: Activations::Int8,
        widths: vec![2],
        model_context: 256,
        threads: 1,
        resident: Some(resident),
    }
}

#[test]
fn every_division_is_what_its_budget_gives() {
    let model = opened(&written(&folder("divisions"), "model.gguf", &spec()));
    let weights = model.weights.as_ref();
    let build =
        |resident| ExecutableSet::load(&model.graph, &loading(&model), &options(resident)).expect("enough");
    let splits = build(usize::MAX).weight_splits().expect("it compiles").expect("there is a budget");
    let session = SessionOptions { context: 64, tree_nodes: 4, threads: 1, pinning: Pinning::Floating };
    let bytes = |set: &ExecutableSet| set.memory(&session).weight_bytes;
    let mut streamed = BTreeSet::new();
    for split in &splits.all {
        let set = build(split.budget);
        assert_eq!(set.placed(), Some(split.placed), "within {}", split.budget);
        assert!(split.placed.resident + split.placed.staging <= split.budget);
        streamed.insert(split.placed.streamed);
        let groups = set.graph().streamed_groups();
        assert_eq!(groups.is_empty(), split.placed.streamed == 0);
        assert!(split.whole <= split.placed.resident - splits.fixed);
        // All groups after the first that is streamed are, too, and the matrices of all before it are whole.
        assert!(groups.windows(2).all(|pair| pair[0] + 1 == pair[1]));
        assert_eq!(split.whole == 0, groups.first() == Some(&0));
        let bits: Vec<u32> = split.substitutes.iter().map(|(bits, _)| *bits).collect();
        assert_eq!(bits, if split.placed.streamed == 0 { vec![] } else { vec![2, 3, 4] });
        for (bits, own) in &split.substitutes {
            let change = VariantChange { head_tokens: None, substitute_bits: Some(*bits) };
            let with = set.with_variants(weights, &[change]).expect("fewer bits");
            assert_eq!(bytes(&with) - bytes(&set), *own, "{bits} bits within {}", split.budget);
        }
    }
    assert!(streamed.len() == splits.all.len() && streamed.len() > 12, "{} divisions", streamed.len());
    // Within a byte less it is another.
    for pair in splits.all.windows(2) {
        assert_eq!(build(pair[1].budget - 1).placed(), Some(pair[0].placed));
    }
}

fn command(name: &str, model: &Path, cache: &Path) -> std::process::Command {
    let mut command = yggc();
    command.arg(name).arg("-m").arg(model).args(["--threads", "1"]).arg("--cache-dir").arg(cache);
    command
}

#[test]
fn a_budget_is_planned_and_the_plan_alone_says_how_to_run() {
    let folder = folder("walk");
    let model = written(&folder, "model.gguf", &spec());
    let cache = folder.join("cache");
    let profile = folder.join("small.profile");
    let mut profiled = command("profile", &model, &cache);
    profiled.args([
        "--resident",
        "2500K",
        "--drafter",
        "substitute",
        "--drafter",
        "lookup",
        "--contexts",
        "16",
    ]);
    profiled.args(["--budget", "20", "--prompts"]).arg(tiny::prompts()).arg("-o").arg(&profile);
    success(&profiled.output().expect("yggc starts"));
    let found: Profile = profile_file::read(&profile).expect("it was written");
    let names: Vec<&str> = found.drafters.iter().map(|drafter| drafter.name.as_str()).collect();
    assert!(
        ["substitute4", "substitute3", "substitute2"].iter().all(|name| names.contains(name)),
        "{names:?}"
    );
    let table = found.table().expect("it is valid");
    assert!([Stage::Read, Stage::Resident, Stage::Ends].iter().all(|stage| table.has_stage(stage)));
    let memory = found.memory.clone().expect("weights are streamed");
    assert!(memory.whole_bytes > 0 && memory.measured_split().streamed_bytes > 0);

    // A budget for about half of the model and a substitute of the rest.
    let half = &memory.splits[memory.splits.len() / 2];
    let session = memory.session_bytes(64);
    let budget =
        half.resident_bytes + half.staging_bytes + half.substitute_bytes(4).expect("smaller") + session;
    let file = folder.join("small.plan");
    let planned = |budget: u64, context: &str, fix: &[&str]| {
        let mut planned = yggc();
        planned.arg("plan").arg("--profile").arg(&profile).arg("-o").arg(&file).args(fix);
        planned.args(["--memory", &budget.to_string(), "--context", context]);
        planned
    };
    // How wide trees are recorded depends on measured times, that they are four deep does not.
    let drafts = ["--fix", "drafter=substitute,Dd=3"];
    success(&planned(budget, "64", &drafts).output().expect("yggc starts"));
    let plan: Plan = plan::read(&file).expect("it was written");
    let division = plan.header.memory.clone().expect("it divides memory");
    assert!(division.used_bytes() <= budget && division.streamed_bytes > 0);
    assert_eq!((division.budget_bytes, division.context), (Some(budget), 64));
    assert!(plan.bands[0].chosen().drafter.facts().substitute_bits.is_some());

    // What an engine takes is what the plan says.
    let source = PlanSource { plan: plan.clone(), name: "small".to_owned(), force: false };
    let tier = Some(best_tier());
    let options = Options { plan: Some(source), threads: Some(1), tier, ..Options::new(&model) };
    let memory = Engine::with_model(opened(&model), &options).expect("the plan fits").memory();
    assert_eq!(memory.streamed_bytes as u64, division.streamed_bytes);
    let weights = division.resident_bytes + division.staging_bytes + division.substitute_bytes;
    assert_eq!(memory.weight_bytes as u64, weights);
    assert!(weights + memory.session_bytes as u64 <= budget, "{memory:?} within {budget}");

    let answer = |arguments: &[&str]| {
        let mut asked = command("run", &model, &cache);
        asked.args(["--raw", "-p", "one two", "-n", "12", "--json"]).args(arguments);
        asked
    };
    let json = |mut command: std::process::Command| -> Value {
        serde_json::from_str(&success(&command.output().expect("yggc starts"))).expect("JSON")
    };
    let path = file.to_str().expect("UTF-8");
    let expected = json(answer(&["--no-spec"]))["token_ids"].clone();
    let streamed = json(answer(&["--plan", path, "--drafter", "substitute"]));
    assert_eq!(streamed["token_ids"], expected);
    assert!(streamed["stats"]["drafted"].as_u64() > Some(0), "{streamed}");
    // What a plan is for is what runs: other weights in memory are refused, and a longer context than there is memory
    // for.
    refused(
        &mut answer(&["--plan", path, "--resident", "1T"]),
        3,
        &["weights in memory: expected", "yggc plan"],
    );
    refused(&mut answer(&["--plan", path, "--context", "65"]), 3, &["at most 64 tokens", "--context"]);
    let mut bench = command("bench", &model, &cache);
    bench.arg("--plan").arg(&file).arg("--prompts").arg(tiny::prompts()).args(["-n", "4", "--json"]);
    let bench = json(bench);
    assert_eq!(bench["weights"]["streamed_bytes"].as_u64(), Some(division.streamed_bytes), "{bench}");

    let mut shown = yggc();
    let shown = success(&shown.args(["plan", "show"]).arg(&file).output().expect("yggc starts"));
    assert!(shown.contains("\nmemory ") && shown.contains("with a context of 64 tokens"), "{shown}");
    let page = folder.join("why.html");
    let mut explained = yggc();
    explained.args(["plan", "explain"]).arg(&file).arg("--html").arg(&page);
    success(&explained.output().expect("yggc starts"));
    let page = fs::read_to_string(page).expect("it was written");
    assert!(["What is in memory", "Best division", "meanwhile read"].iter().all(|part| page.contains(part)));
    refused(&mut planned(100, "64", &[]), 3, &["100 bytes of memory are too few", "expected at least"]);
    refused(&mut planned(1 << 40, "64", &[]), 3, &["hold the whole model", "all weights in memory"]);
    let mut other = yggc();
    other.arg("plan").arg("--profile").arg(tiny::profile()).arg("-o").arg(&file).args(["--memory", "5M"]);
    refused(&mut other, 3, &["cannot be divided anew", "profile with some of the weights streamed"]);
}
