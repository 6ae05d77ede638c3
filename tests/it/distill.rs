//! `yggc distill` as a whole program: what it says is missing, what it tells the training program, and the program
//! itself where PyTorch is installed.

use std::{
    collections::HashSet,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;
use yggc::{
    engine::{Activations, LoadOptions, Loaded},
    model::synthetic::SyntheticSpec,
    text::{Special, Tokenizer, TokenizerConfig},
};

use crate::{
    program::{default_model, failure, success, yggc},
    tiny_commands::{json, model, on_tiny, spec, write},
};

/// A folder with a `python3` that is this shell script.
fn python(folder: &Path, script: &str) -> PathBuf {
    let programs = folder.join("programs");
    fs::create_dir_all(&programs).expect("the folder is writable");
    let file = programs.join("python3");
    fs::write(&file, format!("#!/bin/sh\n{script}\n")).expect("the folder is writable");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("it is ours");
    programs
}

/// `yggc distill` of the tiny model into `output`, with nothing but `programs` to find programs in.
fn distill(output: &Path, programs: &Path) -> Command {
    let mut command = yggc();
    command.args(["distill", "-m"]).arg(model()).arg("-o").arg(output).env("PATH", programs);
    command
}

/// A python3 that has all packages, and whose training notes its arguments, one a line, and does `then`.
fn trainer(folder: &Path, then: &str) -> PathBuf {
    let noted = folder.join("arguments");
    let script = format!(
        "if [ \"$1\" = -c ]; then echo 3.12; exit 0; fi\nfor word in \"$@\"; do echo \"$word\"; done > {}\n{then}",
        noted.display()
    );
    python(folder, &script)
}

#[test]
fn a_missing_python_is_named_with_what_to_do() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = folder.path().join("drafter");
    let said = failure(&distill(&output, folder.path()).output().expect("yggc starts"), 1);
    let requirements = output.join("work/program/requirements.txt");
    assert!(said.contains("`python3` was not found") && said.contains("3.11 or newer"), "{said}");
    assert!(said.contains(&format!("python3 -m pip install -r {}", requirements.display())), "{said}");
    assert!(fs::read_to_string(&requirements).expect("the file it names is there").contains("torch=="));
}

#[test]
fn missing_packages_and_old_pythons_are_named_with_what_to_do() {
    for (script, expected) in [
        ("echo 3.12 torch gguf", "`python3` has no torch, gguf, which training a drafter needs"),
        ("echo 3.9 torch", "`python3` is 3.9, and training a drafter needs 3.11 or newer"),
        ("echo 2", "it said \"2"),
        ("echo no such option >&2; exit 2", "it said \"no such option"),
    ] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let programs = python(folder.path(), script);
        let output = distill(&folder.path().join("drafter"), &programs).output().expect("yggc starts");
        let said = failure(&output, 1);
        assert!(said.contains(expected), "{script}: {said}");
        assert!(said.contains("pip install -r") || said.contains("python3 --version"), "{said}");
    }
}

#[test]
fn the_program_is_told_what_was_asked_for_and_its_progress_passes_through() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let programs = trainer(folder.path(), "echo 'corpus 10 of 20 tokens' >&2");
    let drafter = folder.path().join("drafter");
    let mut command = distill(&drafter, &programs);
    command.args(["--tokens", "20", "--kind", "plain", "--seed", "7", "--threads", "1"]);
    let output = command.output().expect("yggc starts");
    assert_eq!(success(&output).trim_end(), drafter.display().to_string());
    assert!(String::from_utf8_lossy(&output.stderr).contains("corpus 10 of 20 tokens"));

    let noted = fs::read_to_string(folder.path().join("arguments")).expect("it was run");
    let words: Vec<&str> = noted.lines().collect();
    assert_eq!(words[..6], ["-B", "-m", "distill", "--threads", "1", "make"]);
    let after = |flag: &str| after(&words, flag);
    for (flag, value) in [("--tokens", "20"), ("--seen", "60"), ("--kind", "plain"), ("--seed", "7")] {
        assert_eq!(after(flag), value);
    }
    for flag in ["--model", "--tokenizer", "--output", "--exclude"] {
        assert!(
            Path::new(after(flag)).is_absolute() && Path::new(after(flag)).exists(),
            "{flag} {}",
            after(flag)
        );
    }
    let tokenizer = fs::read(Path::new(after("--tokenizer")).join("tokenizer.json")).expect("it was written");
    let tokenizer = Tokenizer::from_json(&tokenizer, &TokenizerConfig::default()).expect("it is one");
    let own = load(model()).expect("the tiny model loads");
    assert_eq!(own.tokenizer().first_difference(&tokenizer), None);
    let program = drafter.join("work/program/distill");
    assert!(program.join("__main__.py").exists() && program.join("train.py").exists());
}

/// The word after `flag`.
fn after<'a>(words: &[&'a str], flag: &str) -> &'a str {
    let at = words.iter().position(|word| *word == flag).unwrap_or_else(|| panic!("{flag} in {words:?}"));
    words[at + 1]
}

#[test]
fn a_corpus_can_be_written_in_parts_and_trained_on_apart() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let programs = trainer(folder.path(), "");
    let noted = || fs::read_to_string(folder.path().join("arguments")).expect("it was run");
    let [first, second, drafter] = ["1", "2", "drafter"].map(|name| folder.path().join(name));
    for (output, seed) in [(&first, "1"), (&second, "2")] {
        let mut command = distill(output, &programs);
        command.args(["--corpus-only", "--tokens", "20", "--seed", seed, "--kind", "eagle3"]);
        success(&command.output().expect("yggc starts"));
        let words = noted();
        let words: Vec<&str> = words.lines().collect();
        assert_eq!(words[..4], ["-B", "-m", "distill", "generate"]);
        let corpus = fs::canonicalize(output).expect("it was made").join("work/corpus");
        let corpus_path = corpus.to_string_lossy();
        for (flag, value) in
            [("--tokens", "20"), ("--seed", seed), ("--corpus", &corpus_path), ("--kind", "eagle3")]
        {
            assert_eq!(after(&words, flag), value);
        }
        assert!(!words.contains(&"--seen"), "{words:?}");
        // The training program is none here.
        fs::create_dir(&corpus).expect("the folder is writable");
        fs::write(corpus.join("corpus.json"), "{}").expect("the folder is writable");
    }

    let mut command = distill(&drafter, &programs);
    success(&command.arg("--corpus").args([&second, &first]).output().expect("yggc starts"));
    let words = noted();
    let words: Vec<&str> = words.lines().collect();
    assert_eq!(words[3], "make");
    assert!(!words.contains(&"--tokens") && !words.contains(&"--seen"), "{words:?}");
    let parts: Vec<&str> =
        words.iter().zip(&words[1..]).filter(|(flag, _)| **flag == "--part").map(|(_, part)| *part).collect();
    assert_eq!(parts.len(), 2, "{words:?}");
    let corpus_of = |drafter: &Path| drafter.join("work").join("corpus");
    assert_eq!(parts.iter().map(Path::new).collect::<Vec<_>>(), [corpus_of(&second), corpus_of(&first)]);

    let mut command = distill(&folder.path().join("other"), &programs);
    let said = failure(&command.arg("--corpus").arg(folder.path()).output().expect("yggc starts"), 3);
    assert!(said.contains("holds no corpus") && said.contains("--corpus-only"), "{said}");
    assert!(!folder.path().join("other").exists());
}

#[test]
fn a_run_that_ended_is_gone_on_with_only_when_asked() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let programs = trainer(folder.path(), "");
    let drafter = folder.path().join("drafter");
    let run = |flags: &[&str]| distill(&drafter, &programs).args(flags).output().expect("yggc starts");
    let said = failure(&run(&["--resume"]), 3);
    assert!(said.contains("holds none") && said.contains("leave --resume out"), "{said}");
    success(&run(&[]));
    let said = failure(&run(&[]), 3);
    assert!(said.contains("holds what an earlier run left") && said.contains("--resume"), "{said}");
    success(&run(&["--resume"]));
}

#[test]
fn what_the_program_refuses_is_refused_and_what_it_dies_of_is_told() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let drafter = |name: &str| folder.path().join(name);
    let refusing =
        trainer(folder.path(), "echo step 1 >&2; echo 'error: `x` is no model; give one' >&2; exit 3");
    let output = distill(&drafter("a"), &refusing).output().expect("yggc starts");
    let said = failure(&output, 3);
    assert!(said.contains("step 1") && said.ends_with("error: `x` is no model; give one\n"), "{said}");
    let dying = trainer(folder.path(), "echo MemoryError >&2; exit 1");
    let said = failure(&distill(&drafter("b"), &dying).output().expect("yggc starts"), 1);
    assert!(said.contains("MemoryError") && said.contains("--resume"), "{said}");
}

#[test]
fn bad_arguments_are_refused_before_anything_is_written() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let drafter = folder.path().join("drafter");
    for (flags, code, expected) in [
        (&["--tokens", "0"][..], 2, "at least 1"),
        (&["--kind", "tree"], 2, "hidden"),
        (&["--prompts", "none.jsonl"], 3, "none.jsonl"),
        (&["--exclude", "none.jsonl"], 3, "none.jsonl"),
    ] {
        let said =
            failure(&distill(&drafter, folder.path()).args(flags).output().expect("yggc starts"), code);
        assert!(said.contains(expected), "{flags:?}: {said}");
        assert!(!drafter.exists());
    }
}

fn load(model: &Path) -> Result<Loaded, yggc::engine::Error> {
    let options = LoadOptions {
        tier: None,
        activations: Activations::Native,
        cache: yggc::engine::KvFormat::F16,
        threads: Some(1),
        widths: vec![1],
        resident: None,
    };
    Loaded::open(model, &options)
}

/// Tokens in a row that training data must not share with prompts that judge.
const GRAM: usize = 13;

#[test]
fn no_prompt_that_judges_is_among_those_that_train() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
    let loaded = load(default_model()).expect("the default model loads");
    let encode = |text: &str| loaded.tokenizer().encode(text, Special::Literal);

    let mut judging: HashSet<Vec<u32>> = HashSet::new();
    for name in ["spec_bench_dev", "human_eval_dev"] {
        let lines = fs::read_to_string(repository.join(format!("benches/prompts/{name}.jsonl")))
            .expect("it is there");
        for line in lines.lines() {
            let prompt: Value = serde_json::from_str(line).expect("JSON lines");
            let turns = prompt["turns"].as_array().cloned().unwrap_or_else(|| vec![prompt["prompt"].clone()]);
            for turn in &turns {
                judging.extend(encode(turn.as_str().expect("a text")).windows(GRAM).map(<[u32]>::to_vec));
            }
        }
    }
    assert!(judging.len() > 10_000, "{}", judging.len());

    // The templates need Python alone.
    let made = "import json, random; from distill import seeds; draw = random.Random(1)\n\
                answers = [(seeds.Prompt('qa', ('What is it?',)), 'It is a river in the north.')]\n\
                texts = [seeds.by_template(draw).turns[0] for _ in range(6000)]\n\
                texts += [seeds.about_answers(draw, answers).turns[-1] for _ in range(500)]\n\
                print(json.dumps(texts + seeds.all_templates()))";
    let output = Command::new("python3").args(["-c", made]).current_dir(repository.join("profiler")).output();
    let mut training: Vec<String> =
        serde_json::from_str(&success(&output.expect("python3 starts"))).expect("a list");
    assert!(training.len() > 6500);
    for line in yggc::measure::SHIPPED_PROMPTS.lines() {
        let prompt: Value = serde_json::from_str(line).expect("JSON lines");
        training.push(prompt["text"].as_str().expect("a text").to_owned());
    }
    let shared = |text: &str| encode(text).windows(GRAM).any(|gram| judging.contains(gram));
    for text in &training {
        assert!(!shared(text), "{text}");
    }
    assert!(shared(
        "Consider a satellite that is in a circular orbit around the Earth. The speed of the satellite decreases."
    ));
}

/// Whether the `python3` of the shell can run the training program; what it lacks is said.
fn can_train() -> bool {
    let names: Vec<&str> = ygg_profiler::distill_packages().collect();
    let imports = format!("import {}", names.join(", "));
    let output = Command::new("python3").args(["-c", &imports]).output().expect("python3 starts");
    let lacks = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        #[expect(clippy::print_stdout, reason = "who reads the tests' output should know what did not run")]
        {
            println!("not run, the training program needs more than this python3 has: {}", lacks.trim());
        }
    }
    output.status.success()
}

#[test]
fn a_tiny_model_is_distilled_from_end_to_end() {
    if !can_train() {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    // With as many layers as an EAGLE-3 head reads rows after.
    let verifier = write("distilled.gguf", &SyntheticSpec { layers: 7, ..spec() });
    for (kind, architecture) in [
        ("hidden", "HiddenStateDrafter"),
        ("eagle3", "LlamaForCausalLMEagle3"),
        ("plain", "LlamaForCausalLM"),
    ] {
        let drafter = folder.path().join(kind);
        let mut command = yggc();
        command.args(["distill", "-m"]).arg(&verifier).arg("-o").arg(&drafter);
        command.args(["--tokens", "6000", "--seen", "3000", "--kind", kind]);
        success(&command.output().expect("yggc starts"));
        let config: Value =
            serde_json::from_str(&fs::read_to_string(drafter.join("config.json")).expect("a config"))
                .expect("JSON");
        assert_eq!(config["architectures"][0], architecture);
        let card = fs::read_to_string(drafter.join("README.md")).expect("a card");
        assert!(
            card.contains("tokens seen") && card.contains(&format!("--kind {kind} --tokens 6000")),
            "{card}"
        );
        assert!(drafter.join("model.safetensors").exists() && drafter.join("history.jsonl").exists());
    }
    // The plain kind is a model like any other, as a folder and as a GGUF; both are the same.
    let scores = ["", "drafter.gguf"].map(|file| {
        let mut command = yggc();
        command.args(["score", "--json", "--threads", "1", "--isa", "portable", "-m"]);
        command.arg(folder.path().join("plain").join(file)).arg("--token-ids").arg(ids(folder.path()));
        json(&mut command)["mean_nll"].as_f64().expect("a number")
    });
    assert!((scores[0] - scores[1]).abs() < 0.01 * scores[0], "{scores:?}");
}

/// A file of token ids.
fn ids(folder: &Path) -> PathBuf {
    let file = folder.join("ids.json");
    let list: Vec<u32> = (0..60).map(|place| 3 + place * 37 % 250).collect();
    fs::write(&file, serde_json::to_string(&list).expect("numbers")).expect("the folder is writable");
    file
}

#[test]
fn the_training_program_s_forward_is_the_run_time_s() {
    if !can_train() {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let ids = ids(folder.path());
    let ours = json(on_tiny("score").arg("--json").arg("--token-ids").arg(&ids));
    let mut theirs = Command::new("python3");
    theirs.args(["-m", "distill", "score", "-m"]).arg(model()).arg("--token-ids").arg(&ids);
    theirs.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("profiler"));
    let theirs = json(&mut theirs);
    let [ours_nll, theirs_nll] = [&ours, &theirs].map(|found| found["mean_nll"].as_f64().expect("a number"));
    assert!((ours_nll - theirs_nll).abs() < 0.01 * ours_nll, "{ours_nll} {theirs_nll}");
    let tokens = ours["tokens"].as_array().expect("a list");
    let agreeing = tokens
        .iter()
        .zip(theirs["argmax"].as_array().expect("a list"))
        .filter(|(a, b)| a["argmax"] == **b)
        .count();
    assert!(agreeing * 20 >= tokens.len() * 19, "{agreeing} of {}", tokens.len());
}

#[test]
fn the_pieces_of_the_training_program_pass_their_tests() {
    if !can_train() {
        return;
    }
    let mut command = Command::new("python3");
    command.args(["-m", "unittest", "distill.tests"]);
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("profiler"));
    let output = command.output().expect("python3 starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("OK"), "{said}");
}
