//! `inspect` as a whole program over a tiny model: every stage, and the drawings.

use std::{path::Path, process::Command};

use ygg_kernels::WeightFormat;
use yggc::{
    compile::stage_names,
    model::{RopeConfig, RopeScaling, synthetic::SyntheticSpec},
};

use crate::{
    program::success,
    tiny_commands::{model, on_machine, on_tiny},
};

fn inspect(arguments: &[&str]) -> String {
    success(&on_tiny("inspect").args(arguments).output().expect("yggc starts"))
}

#[test]
fn the_summary_walks_from_the_file_to_the_memory() {
    let said = inspect(&[]);
    let places: Vec<usize> = [
        model().to_str().expect("UTF-8"),
        "family         llama",
        "layers         4",
        "context        256",
        "chat template",
        "tensors",
        "unused         none",
        "graph",
        "fuse_qkv",
        "program",
        "memory",
    ]
    .iter()
    .map(|part| said.find(part).unwrap_or_else(|| panic!("`{part}` is not in: {said}")))
    .collect();
    assert!(places.is_sorted(), "{said}");
}

#[test]
fn every_stage_can_be_seen_alone() {
    assert!(inspect(&["--stage", "config"]).contains("vocabulary     384"));
    let tensors = inspect(&["--stage", "tensors"]);
    assert!(tensors.contains("blk.3.ffn_down.weight") && tensors.contains("[64, 128]"), "{tensors}");
    assert!(inspect(&["--stage", "graph"]).contains("u32[W]"));
    let passes = inspect(&["--stage", "passes", "--width", "3"]);
    for name in stage_names() {
        assert!(passes.contains(&format!("== {name}\n")), "{name} is not in: {passes}");
        assert!(passes.contains(&inspect(&["--stage", name, "--width", "3"])), "{name} differs alone");
    }
    assert!(inspect(&["--stage", "program", "--width", "7"]).contains("width 7 outputs 7"));
    assert!(inspect(&["--stage", "memory"]).contains("at a context of 256 tokens"));
}

#[test]
fn a_mixed_file_is_shown_tensor_by_tensor() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("mixed.gguf");
    let spec = SyntheticSpec {
        width: 256,
        head_dim: 64,
        feed_forward: 256,
        format: WeightFormat::Q4_K,
        ..SyntheticSpec::default()
    };
    spec.write_gguf(&path).expect("the model is written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_yggc"));
    command.env_clear().arg("inspect").arg("-m").arg(&path).args(["--stage", "tensors"]);
    let said = success(&command.output().expect("yggc starts"));
    let six = "4+2 bits, integer scale per 16, unit per 256";
    let four = "4 bits, integer scale and minimum per 32, units per 256";
    for (tensor, format, layout, read) in [
        ("blk.0.attn_v", "q6_k", six, "product"),
        (
            "blk.1.attn_v",
            "q4_k",
            four,
            "stacked: blk.1.attn_q.weight, blk.1.attn_k.weight, blk.1.attn_v.weight",
        ),
        ("blk.0.attn_q", "q4_k", four, "stacked: blk.0.attn_q.weight, blk.0.attn_k.weight"),
        ("blk.0.ffn_up", "q4_k", four, "tiles in turn: blk.0.ffn_gate.weight, blk.0.ffn_up.weight"),
        ("blk.0.ffn_norm", "f32", "f32 values", "gain of a norm"),
        ("token_embd", "q6_k", six, "rows of tokens; product"),
    ] {
        let line = said.lines().find(|line| line.starts_with(tensor)).unwrap_or_default();
        let parts: Vec<&str> = line.split("  ").map(str::trim).filter(|part| !part.is_empty()).collect();
        assert!(parts.contains(&format) && parts.contains(&layout), "{tensor}, {format}, {layout}: {said}");
        assert!(parts.last().is_some_and(|last| last.contains(read)), "{tensor}, {read}: {said}");
    }
}

#[test]
fn rope_factors_are_read_before_forwards() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("factors.gguf");
    let rope = RopeConfig { base: 10_000.0, scaling: RopeScaling::PerPair(vec![2.0; 8].into()) };
    SyntheticSpec { rope, format: WeightFormat::Q5_0, ..SyntheticSpec::default() }
        .write_gguf(&path)
        .expect("the model is written");
    let said =
        success(&on_machine("inspect", &path).args(["--stage", "tensors"]).output().expect("yggc starts"));
    let line = |tensor: &str| said.lines().find(|line| line.starts_with(tensor)).unwrap_or_default();
    assert!(line("rope_freqs").ends_with("part of the configuration"), "{said}");
    assert!(line("blk.0.attn_q").contains("4+1 bits, scale per 32"), "{said}");
}

#[test]
fn graphs_are_drawn_on_demand() {
    let drawn = inspect(&["--dot"]);
    assert!(drawn.starts_with("digraph model {") && drawn.trim_end().ends_with('}'), "{drawn}");
    assert_eq!(inspect(&["--stage", "graph", "--dot"]), drawn);
    assert!(inspect(&["--stage", "program", "--dot"]).starts_with("digraph program {"));
    assert_ne!(inspect(&["--stage", "fuse_qkv", "--dot"]), drawn);
}

#[test]
fn inspecting_needs_no_cache() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_yggc"));
    command.env_clear().arg("inspect").arg("-m").arg(model());
    success(&command.output().expect("yggc starts"));
}

/// Layer 1 of the tiny LFM 2 attends; its neighbours have a convolution in place of attention.
#[test]
fn groups_are_called_what_they_are() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/families/lfm2/model.gguf");
    for stage in ["graph", "program"] {
        let output = on_machine("inspect", &file).args(["--stage", stage]).output();
        let said = success(&output.expect("yggc starts"));
        for group in ["0.short_conv", "0.mlp", "1.attention", "2.short_conv"] {
            assert!(said.contains(&format!("; {group}\n")), "{group} in {stage}: {said}");
        }
        assert!(!said.contains("0.attention") && !said.contains("1.short_conv"), "{stage}: {said}");
    }
}
