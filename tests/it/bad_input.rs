//! Bad input to the whole program: the exit code of the contract, a message that helps, never a panic.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use yggc::model::synthetic::SyntheticSpec;

use crate::{
    program::{failure, yggc},
    tiny_commands::{self as tiny, model, on_tiny, plan},
};

fn run(model: &Path) -> Output {
    let mut command = yggc();
    command.arg("run").arg("-m").arg(model).args(["-p", "x", "-n", "1", "--no-spec", "--threads", "1"]);
    command.output().expect("yggc starts")
}

#[track_caller]
pub(crate) fn refused(command: &mut Command, code: i32, expected: &[&str]) {
    let said = failure(&command.output().expect("yggc starts"), code);
    assert_eq!(said.trim_end().lines().count(), 1, "not one paragraph: {said}");
    for part in expected {
        assert!(said.contains(part), "`{part}` is not in: {said}");
    }
}

#[test]
fn files_that_are_no_models_end_with_3() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = |name: &str| folder.path().join(name);
    fs::write(at("empty.gguf"), "").expect("writable");
    fs::write(at("text.gguf"), "Once upon a time\n").expect("writable");
    fs::create_dir(at("folder")).expect("writable");
    for (name, expected) in [
        ("missing.gguf", "No such file"),
        ("empty.gguf", "an empty file"),
        ("text.gguf", "found text"),
        ("folder", "config.json"),
    ] {
        let said = failure(&run(&at(name)), 3);
        assert!(said.contains(expected) && said.contains(name), "{name}: {said}");
    }
}

#[test]
fn a_model_cut_anywhere_ends_with_3() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("cut.gguf");
    let whole = fs::read(model()).expect("the model is there");
    let mut state = 1u64;
    for i in 0..100 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // Half of the cuts in the header, which is a small part of the file.
        let range = if i % 2 == 0 { whole.len() } else { whole.len() / 32 };
        let cut = usize::try_from(state >> 33).expect("31 bits") % range;
        fs::write(&file, &whole[..cut]).expect("writable");
        let said = failure(&run(&file), 3);
        assert!(said.contains("expected") && said.contains("cut.gguf"), "cut at {cut}: {said}");
    }
}

#[test]
fn a_tensor_of_another_type_ends_with_3_and_names_the_types_there_are() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("type.gguf");
    let mut bytes = fs::read(model()).expect("the model is there");
    let name = b"blk.0.ffn_up.weight";
    let at = bytes.windows(name.len()).position(|window| window == name).expect("the tensor is listed");
    // After the name: number of dimensions (2), two dimensions, the type.
    let place = at + name.len() + 4 + 2 * 8;
    for (number, expected) in [(35u32, "TQ2_0"), (4, "type 4"), (200, "type 200")] {
        bytes[place..place + 4].copy_from_slice(&number.to_le_bytes());
        fs::write(&file, &bytes).expect("writable");
        let said = failure(&run(&file), 3);
        for part in [expected, "blk.0.ffn_up.weight", "Q4_0", "Q6_K (14)"] {
            assert!(said.contains(part), "`{part}` is not in: {said}");
        }
    }
}

#[test]
fn prompts_that_cannot_be_answered_end_with_3() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (bytes, empty) = (folder.path().join("bytes.txt"), folder.path().join("empty.txt"));
    fs::write(&bytes, b"good, then \xff\xfe").expect("writable");
    fs::write(&empty, "").expect("writable");
    let prompt_file = |file: &Path| {
        let mut command = on_tiny("run");
        command.args(["--no-spec", "--prompt-file"]).arg(file);
        command
    };
    refused(&mut prompt_file(&bytes), 3, &["UTF-8", "0xff at offset 11", "bytes.txt"]);
    refused(&mut prompt_file(&empty), 3, &["the prompt is empty"]);
    refused(&mut prompt_file(&folder.path().join("none.txt")), 3, &["No such file", "none.txt"]);
    refused(on_tiny("run").args(["--no-spec", "-p", ""]), 3, &["the prompt is empty"]);
    let long = "many words ".repeat(200);
    refused(on_tiny("run").args(["--no-spec", "-p", &long]), 3, &["the context holds 256", "--context"]);
    refused(on_tiny("run").args(["--no-spec", "-p", "hello", "--context", "8"]), 3, &["holds 8"]);
}

#[test]
fn a_context_that_cannot_be_had_ends_with_3() {
    refused(on_tiny("run").args(["--no-spec", "-p", "x", "--context", "100000"]), 3, &["2 to 256"]);
    refused(on_tiny("run").args(["--no-spec", "-p", "x", "--context", "1"]), 3, &["2 to 256"]);
    let vast = SyntheticSpec { layers: 8, kv_heads: 4, context: 1 << 28, ..tiny::spec() };
    let mut command = tiny::on_machine("run", &tiny::write("vast.gguf", &vast));
    refused(
        command.args(["--no-spec", "-p", "x", "--context", "268435456"]),
        3,
        &["268435456 tokens", "MiB", "a shorter context", "--context"],
    );
}

#[test]
fn values_out_of_range_end_with_2() {
    for (arguments, expected) in [
        (&["-n", "0"][..], "at least 1"),
        (&["--temperature", "-1"], "0 or more"),
        (&["--isa", "sse9"], "portable"),
        (&["--drafter", "oracle"], "layer_skip"),
        (&["--threads", "0"], "from 1 to 1024"),
    ] {
        let output = on_run_without_machine().args(arguments).output().expect("yggc starts");
        let said = failure(&output, 2);
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
    let mut command = yggc();
    command.arg("inspect").arg("-m").arg(model()).args(["--stage", "config", "--dot"]);
    refused(&mut command, 2, &["--dot", "--stage graph"]);
}

#[test]
fn a_store_that_is_not_there_ends_with_3() {
    refused(
        on_run_without_machine().args(["--store", "no-such-store"]),
        3,
        &["no-such-store", "corpus build"],
    );
}

fn on_run_without_machine() -> Command {
    let mut command = yggc();
    command.arg("run").arg("-m").arg(model()).args(["-p", "x", "--no-spec"]);
    command
}

#[test]
fn devices_that_are_not_there_end_with_4() {
    let is_here = yggc::backend::gpu(yggc::backend::Tier::Cuda).is_ok();
    let on_cuda = || {
        let mut on_cuda = on_run_without_machine();
        // The instruction set that the tests run with is no choice for a GPU.
        on_cuda.env_remove("YGG_ISA").args(["--device", "cuda"]);
        on_cuda
    };
    if !is_here {
        refused(&mut on_cuda(), 4, &["`cuda`", "--device cpu"]);
    }
    refused(on_cuda().args(["--isa", "avx2"]), 2, &["--isa", "YGG_ISA", "--device cpu"]);
    refused(on_cuda().args(["--activations", "int8"]), 2, &["int8", "--device cpu"]);
    for tier in yggc::engine::Tier::ALL {
        if !tier.is_available() && tier != yggc::engine::Tier::Cuda {
            refused(on_run_without_machine().args(["--isa", tier.name()]), 4, &[tier.name(), "portable"]);
        }
    }
}

#[test]
fn texts_and_ids_that_cannot_be_scored_end_with_3() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("ids.json");
    let long: Vec<u32> = vec![5; 300];
    for (content, expected) in [
        ("[1, 2.5]", "JSON array of whole numbers"),
        ("[1, -2]", "JSON array of whole numbers"),
        ("{\"ids\": [1]}", "JSON array of whole numbers"),
        ("[1, 2", "JSON array of whole numbers"),
        ("[4294967296]", "JSON array of whole numbers"),
        ("[1]", "at least 2"),
        ("[]", "at least 2"),
        ("[1, 384]", "expected one below 384"),
        (&serde_json::to_string(&long).expect("numbers"), "256"),
    ] {
        fs::write(&file, content).expect("writable");
        refused(on_tiny("score").arg("--token-ids").arg(&file), 3, &[expected]);
    }
    fs::write(&file, b"\xff").expect("writable");
    refused(on_tiny("score").arg("--text-file").arg(&file), 3, &["UTF-8"]);
    fs::write(&file, "").expect("writable");
    refused(on_tiny("score").arg("--text-file").arg(&file), 3, &["at least 2"]);
}

#[test]
fn prompt_sets_that_cannot_be_benched_end_with_3() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("prompts.jsonl");
    let bench = |content: &str, arguments: &[&str]| {
        fs::write(&file, content).expect("writable");
        let mut command = on_tiny("bench");
        command.arg("--plan").arg(plan()).arg("--prompts").arg(&file).args(arguments);
        command
    };
    refused(&mut bench("", &[]), 3, &["at least one prompt"]);
    refused(&mut bench("{\"text\": \"a\"}\n{\"txt\": \"b\"}\n", &[]), 3, &["line 2"]);
    let long = format!("{{\"text\": \"{}\"}}\n", "word ".repeat(200));
    refused(&mut bench(&long, &[]), 3, &["the context holds 256"]);
    refused(&mut bench("{\"text\": \"a\"}\n", &["--context", "1000"]), 3, &["2 to 256"]);
}
