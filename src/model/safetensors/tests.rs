//! Safetensors files and folders: one hostile case per rule.

use std::{fs, path::Path};

use serde_json::{Value, json};

use super::{folder::weight_map, parse};
use crate::model::{Model, ModelError, synthetic::SyntheticSpec};

fn file(header: &str, data: usize) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.resize(bytes.len() + data, 0);
    bytes
}

#[track_caller]
fn says(error: &ModelError, parts: &[&str]) {
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
}

#[track_caller]
fn refused(bytes: &[u8], parts: &[&str]) {
    says(&parse(bytes).expect_err("a hostile file"), parts);
}

fn tensor(dtype: &str, shape: &[u64], start: u64, end: u64) -> String {
    json!({ "dtype": dtype, "shape": shape, "data_offsets": [start, end] }).to_string()
}

#[test]
fn places_are_absolute_and_cover_the_data() {
    let header = format!(
        r#"{{"__metadata__":{{"format":"pt"}},"a":{},"b":{},"c":{}}}"#,
        tensor("F32", &[2, 3], 0, 24),
        tensor("BF16", &[4], 24, 32),
        tensor("F16", &[1, 1], 32, 34)
    );
    let bytes = file(&header, 34);
    let found = parse(&bytes).unwrap();
    let places: Vec<_> = found.tensors.values().map(|t| t.bytes.clone()).collect();
    let start = found.header_bytes;
    assert_eq!(start, 8 + header.len());
    assert_eq!(places, [start..start + 24, start + 24..start + 32, start + 32..start + 34]);
    for end in 0..bytes.len() {
        parse(&bytes[..end]).expect_err("a truncated file");
    }
}

#[test]
fn hostile_files_are_named() {
    refused(&[], &["safetensors header", "ends early"]);
    refused(&(1u64 << 60).to_le_bytes(), &["safetensors header", "at most 100000000", "1152921504606846976"]);
    refused(&1000u64.to_le_bytes(), &["safetensors header", "1000 more bytes", "ends early"]);
    refused(&file("{", 0), &["safetensors header", "breaks off"]);
    refused(&file("[]", 0), &["safetensors header", "an object"]);
    refused(&file("{\"\u{fffd}", 0), &["safetensors header"]);
    refused(&[&4u64.to_le_bytes()[..], b"{\"\xff\""].concat(), &["safetensors header"]);
    let one = |t: String| file(&format!(r#"{{"a":{t}}}"#), 16);
    refused(&one(tensor("I32", &[4], 0, 16)), &["tensor `a`", "dtype I32", "F32, F16, BF16"]);
    refused(&one(tensor("Q4_K", &[4], 0, 16)), &["safetensors header", "Q4_K"]);
    refused(&one(tensor("F32", &[5], 0, 16)), &["safetensors header", "shape"]);
    refused(&one(tensor("F32", &[0, 4], 0, 0)), &["safetensors data", "0 bytes"]);
    refused(&one(tensor("F32", &[1 << 62, 1 << 62], 0, 16)), &["safetensors header", "overflow"]);
    refused(&one(tensor("F32", &[4], 16, 32)), &["`a`", "offset"]);
    refused(&one(tensor("F32", &[8], 0, 32)), &["safetensors data", "32 more bytes", "found 16"]);
    refused(&one(tensor("F32", &[2], 0, 8)), &["safetensors data", "8 bytes", "found 16"]);
    refused(&file(&format!(r#"{{"a":{}}}"#, tensor("F32", &[0, 4], 0, 0)), 0), &["tensor `a`", "above 0"]);
    let two = |a: String, b: String| file(&format!(r#"{{"a":{a},"b":{b}}}"#), 32);
    refused(&two(tensor("F32", &[4], 0, 16), tensor("F32", &[4], 8, 24)), &["`b`", "offset"]);
    refused(&two(tensor("F32", &[4], 0, 16), tensor("F32", &[4], 0, 16)), &["offset"]);
    let twice = format!(r#"{{"a":{0},"a":{0}}}"#, tensor("F32", &[4], 0, 16));
    refused(&file(&twice, 16), &["`a` appears twice"]);
}

/// Sizes that add up to nearly 2^64: with the header's length on top the sum wraps around to a small number.
#[test]
fn sizes_that_wrap_around_are_refused() {
    let (step, last) = (1u64 << 60, 15 << 60);
    let mut entries: Vec<_> = (0..15)
        .map(|i| format!(r#""t{i:02}":{}"#, tensor("F32", &[1 << 58], i * step, (i + 1) * step)))
        .collect();
    entries.push(format!(r#""t15":{}"#, tensor("F32", &[(1 << 58) - 2], last, last + (step - 8))));
    let needed = format!("{} more bytes", u64::MAX - 7);
    refused(&file(&format!("{{{}}}", entries.join(",")), 64), &["safetensors data", &needed, "found 64"]);
}

#[test]
fn index_paths_stay_inside_the_folder() {
    let index = |file: &str| json!({ "weight_map": { "t": file } }).to_string();
    assert_eq!(weight_map(index("part/a.safetensors").as_bytes()).unwrap()["t"], "part/a.safetensors");
    for bad in ["../a.safetensors", "/etc/passwd", "a/../../b", "./a", ""] {
        says(&weight_map(index(bad).as_bytes()).unwrap_err(), &["tensor `t`", "inside the folder", bad]);
    }
    says(&weight_map(b"{}").unwrap_err(), &["weight_map"]);
    says(&weight_map(br#"{"weight_map":{}}"#).unwrap_err(), &["weight_map", "at least one"]);
    says(&weight_map(br#"{"weight_map":{"t":"a","t":"b"}}"#).unwrap_err(), &["`t` appears twice"]);
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new(shards: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        SyntheticSpec::default().write_sharded_folder(folder.path(), shards).unwrap();
        Self(folder)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn edit(&self, name: &str, change: impl FnOnce(&mut Value)) {
        let path = self.path().join(name);
        let mut json = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        change(&mut json);
        fs::write(path, json.to_string()).unwrap();
    }

    #[track_caller]
    fn refused(&self, parts: &[&str]) {
        says(&Model::open(self.path()).expect_err("a broken folder"), parts);
    }
}

#[test]
fn shards_are_one_model() {
    let whole = tempfile::tempdir().unwrap();
    SyntheticSpec::default().write_folder(whole.path()).unwrap();
    let whole = Model::open(whole.path()).unwrap();
    let folder = Folder::new(3);
    let sharded = Model::open(folder.path()).unwrap();
    assert_eq!(sharded.graph.weights(), whole.graph.weights());
    for i in 0..whole.graph.weights().len() {
        let id = crate::ir::WeightId(u32::try_from(i).unwrap());
        assert_eq!(sharded.weights.bytes(id), whole.weights.bytes(id));
    }
}

#[test]
fn broken_folders_are_named() {
    for missing in ["config.json", "tokenizer.json", "model.safetensors.index.json"] {
        let folder = Folder::new(2);
        fs::remove_file(folder.path().join(missing)).unwrap();
        folder.refused(&["is not a model", missing]);
    }
    let folder = Folder::new(2);
    fs::remove_file(folder.path().join("model-00002-of-00002.safetensors")).unwrap();
    folder.refused(&["model-00002-of-00002.safetensors", "cannot open"]);

    let folder = Folder::new(2);
    folder.edit("model.safetensors.index.json", |json| {
        json["weight_map"]["model.norm.weight"] = "model-00001-of-00002.safetensors".into();
    });
    folder.refused(&["index.json", "tensor `model.norm.weight`", "it in model-00001", "found model-00002"]);

    let folder = Folder::new(1);
    fs::copy(folder.path().join("model-00001-of-00001.safetensors"), folder.path().join("copy.safetensors"))
        .unwrap();
    folder.edit("model.safetensors.index.json", |json| {
        json["weight_map"]["model.norm.weight"] = "copy.safetensors".into();
    });
    folder.refused(&["one tensor", "one in copy.safetensors and one in model-00001"]);

    let folder = Folder::new(1);
    fs::write(folder.path().join("config.json"), "not json").unwrap();
    folder.refused(&["config.json", "JSON"]);
    fs::write(folder.path().join("config.json"), "[1]").unwrap();
    folder.refused(&["config.json", "a JSON object", "a list of 1"]);
}

#[test]
fn bad_configurations_are_named_by_key() {
    let cases: Vec<(&str, Value, &[&str])> = vec![
        ("model_type", json!("gpt2"), &["`model_type`", "`gpt2`", "`llama`", "`qwen3`"]),
        ("model_type", Value::Null, &["`model_type` is missing"]),
        ("architectures", json!(["MistralForCausalLM"]), &["architectures", "Mistral", "LlamaForCausalLM"]),
        ("attention_bias", json!(true), &["`attention_bias`", "`true` is not supported"]),
        ("mlp_bias", json!(true), &["`mlp_bias`", "`true` is not supported"]),
        ("hidden_act", json!("gelu"), &["`hidden_act`", "`gelu`", "`silu`"]),
        ("quantization_config", json!({ "quant_method": "gptq" }), &["quantization_config", "gptq", "GGUF"]),
        ("hidden_size", json!(-64), &["`hidden_size`", "integer", "-64"]),
        ("hidden_size", json!("64"), &["`hidden_size`", "integer", "\"64\""]),
        ("num_attention_heads", json!(0), &["`num_attention_heads`", "1 to", "0"]),
        ("num_key_value_heads", json!(3), &["`num_key_value_heads`", "divisor of the 4", "3"]),
        ("head_dim", json!(15), &["`head_dim`", "even", "15"]),
        ("head_dim", json!(8), &["q_proj.weight", "shape [32, 64]", "[64, 64]"]),
        ("vocab_size", json!(100), &["embed_tokens.weight", "shape [100, 64]", "[384, 64]"]),
        ("num_hidden_layers", json!(3), &["`model.layers.2.input_layernorm.weight` is missing", "[64]"]),
        ("tie_word_embeddings", json!(false), &["`lm_head.weight` is missing", "[384, 64]"]),
        ("rms_norm_eps", json!(2.0), &["`rms_norm_eps`", "below 1"]),
        ("rope_theta", json!(0), &["`rope_theta`", "above 1"]),
        (
            "rope_scaling",
            json!({ "rope_type": "dynamic" }),
            &["`rope_scaling.rope_type`", "`dynamic`", "`llama3`"],
        ),
        ("rope_scaling", json!({ "rope_type": "yarn" }), &["`rope_scaling.factor` is missing"]),
        (
            "rope_scaling",
            json!({ "rope_type": "longrope" }),
            &["`rope_scaling.short_factor`", "list of numbers"],
        ),
        ("partial_rotary_factor", json!(0.5), &["`partial_rotary_factor`", "`0.5` is not supported"]),
        ("partial_rotary_factor", json!(0.0), &["`partial_rotary_factor`", "share above 0"]),
        ("rope_scaling", json!({ "type": "linear" }), &["`rope_scaling.factor` is missing"]),
        ("rope_scaling", json!({ "factor": 2 }), &["`rope_scaling.rope_type` is missing"]),
        ("rope_scaling", json!([1]), &["`rope_scaling`", "an object"]),
    ];
    for (key, value, parts) in cases {
        let folder = Folder::new(1);
        folder.edit("config.json", |json| json[key] = value.clone());
        folder.refused(parts);
    }
    let folder = Folder::new(1);
    folder.edit("generation_config.json", |json| json["eos_token_id"] = json!([2, 384]));
    folder.refused(&["generation_config.json", "`eos_token_id`", "below 384"]);
}

#[test]
fn side_files_are_read_where_they_are() {
    let folder = Folder::new(1);
    folder.edit("generation_config.json", |json| json["eos_token_id"] = json!([2, 0]));
    folder.edit("tokenizer_config.json", |json| {
        json["chat_template"] =
            json!([{ "name": "tools", "template": "T" }, { "name": "default", "template": "D" }]);
    });
    folder.edit("config.json", |json| {
        json["rope_parameters"] = json!({ "rope_type": "linear", "factor": 2.0, "rope_theta": 5000.0 });
        json.as_object_mut().unwrap().remove("rope_theta");
    });
    let model = Model::open(folder.path()).unwrap();
    assert_eq!(model.stop_tokens, [2, 0]);
    assert_eq!(model.chat_template.as_deref(), Some("D"));
    assert_eq!(model.config.rope.base, 5000.0);

    fs::write(folder.path().join("chat_template.jinja"), "J").unwrap();
    fs::remove_file(folder.path().join("generation_config.json")).unwrap();
    let model = Model::open(folder.path()).unwrap();
    assert_eq!((model.stop_tokens, model.chat_template.as_deref()), (vec![2], Some("J")));
}
