//! Every family of models: tiny ones, in both containers, against what Hugging Face transformers computes in float32.
//!
//! `tests/data/families` holds the models and the reference outputs; its README says what each model has.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use serde::Deserialize;
use serde_json::{Value, json};
use ygg_kernels::{KvFormat, Tier, WeightFormat};
use yggc::{
    ir::graph_text,
    model::{
        Container, Model, ModelError, TensorInfo,
        gguf::{self, DATA_ALIGNMENT, GgufFile, TensorRecord, encode_header, parse},
        in_eight_bits,
    },
};

use crate::{
    row_invariance::any_rows,
    shared_keys, states,
    tiny_model::{Class, TinyModel, best_tier, bits, cases, everything, is_cuda, session},
};

/// Folders of the families there are, those that a GPU computes.
const DENSE: [&str; 11] =
    ["qwen2", "qwen3", "llama", "mistral", "smollm3", "granite", "olmo2", "phi3", "gemma2", "gemma3", "lfm2"];
/// Those with experts, those whose rows have a state, and those with heads of two sizes, which a GPU refuses.
const OF_PROCESSORS: [&str; 15] = [
    "mixtral",
    "qwen3moe",
    "olmoe",
    "granitemoe",
    "lfm2moe",
    "qwen2moe",
    "granitemoeshared",
    "ernie4_5_moe",
    "gpt_oss",
    "gpt_oss_numbers",
    "qwen35",
    "qwen35_tied",
    "qwen35moe",
    "gemma4",
    "gemma4_one_matrix",
];
/// What a device says of those that it refuses.
pub(crate) const REFUSED: [&str; 3] =
    [states::OF_GPUS, shared_keys::OF_GPUS, "experts::a_gpu_refuses_experts_by_name"];
/// Those whose experts are in MXFP4, and in which container.
const IN_MXFP4: [(&str, Container); 2] =
    [("gpt_oss", Container::Folder), ("gpt_oss_numbers", Container::Gguf)];
/// Distance of the two highest logits from which on the most probable token must be the reference's.
const CLEAR: f32 = 0.05;
/// The same where linears round activations to 8 bits of mantissa: logits are off by more.
const CLEAR_OF_BF16: f32 = 0.1;
/// Relative difference of the mean negative log-likelihood.
const NLL: f64 = 0.005;
/// The same of weights or activations in eight bits, which move single tokens.
const NLL_OF_EIGHT_BITS: f64 = 0.01;

#[derive(Debug, Deserialize)]
struct Expected {
    texts: Vec<Text>,
}

#[derive(Debug, Deserialize)]
struct Text {
    token_ids: Vec<u32>,
    argmax: Vec<u32>,
    margin: Vec<f32>,
    mean_nll: f64,
}

fn data(family: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/families").join(family)
}

/// The folder of a family with a changed configuration. Fixtures have no tokenizer, which a folder must have: it gets
/// an empty one.
fn open_folder(family: &str, edit: impl FnOnce(&mut Value)) -> Result<Model, ModelError> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let name = "model.safetensors";
    fs::copy(data(family).join(name), folder.path().join(name)).expect("the model is there");
    let config = fs::read(data(family).join("config.json")).expect("the configuration is there");
    let mut config = serde_json::from_slice(&config).expect("JSON");
    edit(&mut config);
    fs::write(folder.path().join("config.json"), config.to_string()).expect("the folder can be written");
    fs::write(folder.path().join("tokenizer.json"), "{}").expect("the folder can be written");
    Model::open(folder.path())
}

/// The model of a family in a container.
fn open(family: &str, container: Container) -> Model {
    let opened = match container {
        Container::Gguf => Model::open(&data(family).join("model.gguf")),
        Container::Folder => open_folder(family, |_| ()),
    };
    opened.unwrap_or_else(|error| panic!("{family} as {container:?}: {error}"))
}

/// A family whose model knows texts of `context` tokens.
pub(crate) fn of_context(family: &str, context: usize) -> TinyModel {
    let longer = |config: &mut Value| config["max_position_embeddings"] = json!(context);
    let model = open_folder(family, longer).unwrap_or_else(|error| panic!("{family}: {error}"));
    TinyModel::of(format!("{family} of {context} tokens"), model, WeightFormat::BF16)
}

/// All of them, each opened once.
pub(crate) fn models() -> &'static [TinyModel] {
    static MODELS: OnceLock<Vec<TinyModel>> = OnceLock::new();
    MODELS.get_or_init(|| {
        let containers = [(Container::Gguf, WeightFormat::F16), (Container::Folder, WeightFormat::BF16)];
        let of_processors = OF_PROCESSORS.iter().filter(|_| !is_cuda());
        let named = DENSE
            .iter()
            .chain(of_processors)
            .flat_map(|family| containers.map(|container| (family, container)));
        named
            .map(|(family, (container, format))| {
                TinyModel::of(format!("{family} as {container:?}"), open(family, container), format)
            })
            .collect()
    })
}

/// Those that tests of forwards try: of an emulated device, which is slow, one container of a family, unless everything
/// is tried.
pub(crate) fn some_models() -> impl Iterator<Item = &'static TinyModel> {
    let is_all = !is_cuda() || everything();
    models().iter().enumerate().filter(move |(i, _)| is_all || matches!(i % 4, 0 | 3)).map(|(_, model)| model)
}

fn texts(model: &TinyModel) -> Vec<Text> {
    let family = model.name.split(' ').next().expect("a name");
    let path = data(family).join("expected.json");
    let expected: Expected =
        serde_json::from_slice(&fs::read(path).expect("the reference is there")).expect("a reference");
    expected.texts
}

/// `-ln` of the probability of a token.
fn nll(logits: &[f32], token: u32) -> f64 {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|x| f64::from(x - largest).exp()).sum();
    sum.ln() - f64::from(logits[token as usize] - largest)
}

fn argmax(logits: &[f32]) -> u32 {
    (0..logits.len()).rev().max_by(|a, b| logits[*a].total_cmp(&logits[*b])).expect("logits") as u32
}

fn compare(model: &TinyModel, class: Class, kv_format: KvFormat) -> Vec<String> {
    let set = model.build(class, kv_format, vec![1, 16]);
    let mut wrong = Vec::new();
    let (clear, limit) = match (class.tier, model.format) {
        (_, WeightFormat::Q8_0 | WeightFormat::MXFP4) => (f32::INFINITY, NLL_OF_EIGHT_BITS),
        (Tier::Cuda | Tier::Avx512Bf16 | Tier::Amx, WeightFormat::BF16) => (CLEAR_OF_BF16, NLL),
        _ => (CLEAR, NLL),
    };
    for text in texts(model) {
        // As long as the text: models with factors for short and for long texts choose by it.
        let mut session = session(&set, text.token_ids.len(), 1, 1);
        let (mut sum, mut differ) = (0.0, Vec::new());
        let visit = |i: usize, logits: &[f32]| {
            if let Some(next) = text.token_ids.get(i + 1) {
                sum += nll(logits, *next);
            }
            if text.margin[i] > clear && argmax(logits) != text.argmax[i] {
                differ.push((i, text.margin[i]));
            }
        };
        session.score(&text.token_ids, visit).expect("it fits");
        let found = sum / (text.token_ids.len() - 1) as f64;
        let relative = (found / text.mean_nll - 1.0).abs();
        if relative > limit || !differ.is_empty() {
            let what = format!("{} on {class} with {kv_format} cache", model.name);
            wrong.push(format!(
                "{what}: nll {found:.5}, not {:.5}; other tokens at {differ:?}",
                text.mean_nll
            ));
        }
    }
    wrong
}

#[test]
fn every_family_is_what_transformers_computes() {
    let mut wrong = Vec::new();
    for model in some_models() {
        for class in model.classes() {
            for kv_format in [KvFormat::F32, KvFormat::F16] {
                wrong.extend(compare(model, class, kv_format));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn every_family_keeps_its_likelihood_in_eight_bits() {
    let mut wrong = Vec::new();
    for family in DENSE.into_iter().chain(OF_PROCESSORS) {
        let mut model = open(family, Container::Folder);
        (model.graph, model.weights) = in_eight_bits(&model.graph, Arc::clone(&model.weights), 0, 1);
        let model = TinyModel::of(format!("{family} in eight bits"), model, WeightFormat::Q8_0);
        wrong.extend(model.classes().into_iter().flat_map(|class| compare(&model, class, KvFormat::F16)));
    }
    for (family, container) in IN_MXFP4 {
        let name = format!("{family} in mxfp4");
        let model = TinyModel::of(name, open(family, container), WeightFormat::MXFP4);
        wrong.extend(model.classes().into_iter().flat_map(|class| compare(&model, class, KvFormat::F16)));
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn rows_of_every_family_do_not_depend_on_each_other() {
    for model in some_models() {
        for class in model.classes() {
            any_rows(model, class, if class.tier == Tier::Reference { 1 } else { cases(class, 2) });
        }
    }
}

type Edit = Box<dyn FnOnce(&mut Value)>;

/// A family, what is changed in its configuration, and what an error says of it.
type Refused = (&'static str, Edit, &'static [&'static str]);

fn set(key: &'static str, value: Value) -> Edit {
    Box::new(move |config| config[key] = value)
}

/// What a graph does not compute is named, the first of it, with what would run.
#[test]
fn what_a_family_does_not_compute_is_refused_by_name() {
    let as_llama = |config: &mut Value| {
        config["model_type"] = json!("llama");
        config["architectures"] = json!(["LlamaForCausalLM"]);
        config["rope_scaling"] = Value::Null;
    };
    let cases: Vec<Refused> = vec![
        ("llama", set("model_type", json!("mamba")), &["`model_type`", "`mamba`", "`qwen2`, `qwen3`"]),
        ("qwen2", Box::new(as_llama), &["self_attn.k_proj.bias`", "a bias", "llama models"]),
        ("qwen3", Box::new(as_llama), &["self_attn.k_norm.weight`", "a norm", "llama models"]),
        ("gemma2", Box::new(as_llama), &["`hidden_act`", "gelu", "`silu`"]),
        ("qwen2", set("attention_bias", json!(true)), &["`attention_bias`", "`true`"]),
        (
            "mistral",
            set("layer_types", json!(["chunked_attention", "full_attention", "full_attention"])),
            &["`layer_types`", "chunked"],
        ),
        ("mistral", set("layer_types", json!(["full_attention"])), &["`layer_types`", "one for each of 3"]),
        ("mistral", set("sliding_window", json!(0)), &["`sliding_window`", "above 0"]),
        ("smollm3", set("no_rope_layers", json!([1])), &["`no_rope_layers`", "one for each of 4"]),
        ("granite", set("logits_scaling", json!(0.0)), &["`logits_scaling`", "not 0"]),
        ("gemma2", set("attn_logit_softcapping", json!(-1.0)), &["`attn_logit_softcapping`", "above 0"]),
        ("gemma3", set("sliding_window_pattern", json!(0)), &["`sliding_window_pattern`", "above 0"]),
        ("gemma3", set("rope_local_base_freq", json!(0.5)), &["`rope_local_base_freq`", "above 1"]),
        ("phi3", set("partial_rotary_factor", json!(0.5)), &["`rope_scaling`", "4 divisors"]),
        (
            "qwen35",
            set("attn_output_gate", json!(false)),
            &["`attn_output_gate`", "`false`", "gates of attention"],
        ),
        ("qwen35", set("attention_bias", json!(true)), &["`attention_bias`", "`true`"]),
        ("qwen35", set("linear_num_value_heads", json!(5)), &["gated delta rule", "as many heads of values"]),
        (
            "qwen35",
            set("linear_key_head_dim", json!(1024)),
            &["gated delta rule", "1 to 512 elements", "1024"],
        ),
        ("qwen35", set("linear_key_head_dim", Value::Null), &["`linear_key_head_dim`", "elements of a key"]),
        (
            "qwen35",
            set("linear_conv_kernel_dim", json!(3)),
            &["conv1d.weight`", "[128, 1, 3]", "[128, 1, 4]"],
        ),
        ("qwen35", set("layer_types", json!(["full_attention"])), &["`layer_types`", "one for each of 4"]),
        (
            "qwen35",
            set("layer_types", json!(["conv", "full_attention", "conv", "conv"])),
            &["`layer_types`", "`conv`", "`linear_attention`"],
        ),
        ("lfm2", set("conv_bias", json!(true)), &["`conv_bias`", "`true`"]),
        ("lfm2", set("conv_L_cache", json!(4)), &["conv.conv.weight`", "[64, 1, 4]", "[64, 1, 3]"]),
        ("lfm2", set("conv_L_cache", Value::Null), &["`conv_L_cache`", "taps"]),
        (
            "lfm2",
            set("layer_types", json!(["conv", "full_attention"])),
            &["`layer_types`", "one for each of 3"],
        ),
        ("lfm2", set("layer_types", json!(["conv", "moe", "conv"])), &["`layer_types`", "`moe`"]),
        ("lfm2", set("block_multiple_of", json!(0)), &["`block_multiple_of`", "1 to 65536"]),
        ("lfm2", set("block_ffn_dim_multiplier", json!(-1.0)), &["`block_ffn_dim_multiplier`", "above 0"]),
        ("lfm2", set("rope_parameters", Value::Null), &["`rope_theta`"]),
        ("lfm2", set("theta", json!(5000.0)), &["`theta`", "5000", "as `rope_theta`"]),
        (
            "qwen2moe",
            set("shared_expert_intermediate_size", json!(0)),
            &["`shared_expert_intermediate_size`"],
        ),
        ("qwen2moe", set("qkv_bias", json!(false)), &["`qkv_bias`", "`false`"]),
        ("ernie4_5_moe", set("use_bias", json!(true)), &["`use_bias`", "`true`"]),
        ("granitemoeshared", set("shared_intermediate_size", json!(24)), &["[48, 48]", "[80, 48]"]),
        ("gpt_oss", set("swiglu_limit", json!(5.0)), &["`swiglu_limit`", "`5`", "`7`"]),
        ("gpt_oss", set("swiglu_alpha", json!(1.0)), &["`swiglu_alpha`", "`1`", "`1.702`"]),
        ("gpt_oss", set("attention_bias", json!(false)), &["`attention_bias`", "`false`"]),
        ("gpt_oss", set("rope_theta", Value::Null), &["`rope_theta`", "base of the rotation"]),
        ("gpt_oss", set("rope_scaling", Value::Null), &["`rope_scaling.rope_type`", "scaling rule"]),
        ("gpt_oss", set("quantization_config", json!({"quant_method": "fp8"})), &["`fp8`", "`mxfp4`"]),
        (
            "gpt_oss",
            set("intermediate_size", json!(64)),
            &["experts.gate_up_proj`", "[5, 128, 64]", "[5, 64, 64]"],
        ),
    ];
    refuses(cases);
}

#[test]
fn what_gemma4_does_not_compute_is_refused_by_name() {
    let cases: Vec<Refused> = vec![
        ("gemma4", set("enable_moe_block", json!(true)), &["`enable_moe_block`", "`true`", "no mixture"]),
        ("gemma4", set("use_bidirectional_attention", json!("all")), &["`use_bidirectional", "`all`"]),
        ("gemma4", set("global_head_dim", Value::Null), &["`global_head_dim`", "without a window"]),
        ("gemma4", set("head_dim", json!(13)), &["`head_dim`", "an even head size", "13"]),
        ("gemma4", set("head_dim", json!(16)), &["self_attn.q_proj.weight`", "[64, 40]", "[48, 40]"]),
        ("gemma4", set("num_kv_shared_layers", json!(7)), &["`num_kv_shared_layers`", "fewer than the 7"]),
        ("gemma4", set("num_kv_shared_layers", json!(6)), &["layer 1", "of its kind among the first 1"]),
        (
            "gemma4",
            set("use_double_wide_mlp", json!(false)),
            &["layers.4.mlp.gate_proj", "[56, 40]", "[112, 40]"],
        ),
        ("gemma4", set("hidden_size_per_layer_input", json!(0)), &["post_per_layer_input_norm", "a norm"]),
        (
            "gemma4",
            set("vocab_size_per_layer_input", json!(96)),
            &["`vocab_size_per_layer_input`", "97 or more"],
        ),
        (
            "gemma4",
            Box::new(|config| {
                let rule = json!({"rope_type": "default", "rope_theta": 1e6});
                config["rope_parameters"]["full_attention"] = rule;
            }),
            &["full_attention.rope_type`", "`default`", "`proportional`"],
        ),
        (
            "gemma4",
            Box::new(|config| {
                config["rope_parameters"]["full_attention"]["partial_rotary_factor"] = json!(1.5)
            }),
            &["`rope_scaling`", "a share of 1.5"],
        ),
        (
            "gemma4",
            Box::new(|config| config["layer_types"] = json!(vec!["sliding_attention"; 7])),
            &["`layer_types`", "a last layer with a window"],
        ),
        (
            "gemma4_one_matrix",
            set("attention_k_eq_v", json!(false)),
            &["self_attn.k_proj.weight`", "[120, 48]"],
        ),
    ];
    refuses(cases);
}

/// The GGUF file of a family with a changed header.
fn open_file(family: &str, edit: impl FnOnce(&mut GgufFile)) -> Result<Model, ModelError> {
    let whole = fs::read(data(family).join("model.gguf")).expect("the model is there");
    let mut file = parse(&whole).expect("the model is whole");
    let first = file.tensors.values().map(|tensor| tensor.bytes.start).min().expect("it has tensors");
    edit(&mut file);
    let record = |(name, tensor): (&String, &TensorInfo)| TensorRecord {
        name: name.clone(),
        shape: tensor.shape.clone(),
        format: tensor.format,
        offset: (tensor.bytes.start - first) as u64,
    };
    let records: Vec<TensorRecord> = file.tensors.iter().map(record).collect();
    let mut bytes = encode_header(3, &file.metadata, &records);
    bytes.resize(bytes.len().next_multiple_of(DATA_ALIGNMENT as usize), 0);
    bytes.extend_from_slice(&whole[first..]);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("model.gguf");
    fs::write(&path, bytes).expect("the folder can be written");
    Model::open(&path)
}

#[test]
fn files_of_gemma4_that_say_something_else_are_refused_by_key() {
    let flags = |flags: &[bool]| gguf::Value::Array(gguf::Array::Bool(flags.to_vec()));
    let counts = |counts: &[i32]| gguf::Value::Array(gguf::Array::I32(counts.to_vec()));
    let (one, both) = ("gemma4_one_matrix", [true, true, true, false]);
    let cases: Vec<(&str, &str, gguf::Value, &[&str])> = vec![
        ("gemma4", "expert_count", gguf::Value::U32(8), &["expert_count`", "`8`", "no mixture of experts"]),
        (one, "attention.sliding_window_pattern", flags(&both[1..]), &["pattern`", "one for each of 4"]),
        (one, "attention.sliding_window_pattern", flags(&[true; 4]), &["one or more without a window"]),
        (
            one,
            "attention.head_count_kv",
            counts(&[3, 3, 2, 2]),
            &["head_count_kv`", "3 in one layer, 2 in another"],
        ),
        (one, "attention.head_count_kv", counts(&[3, 3, 3]), &["head_count_kv`", "one for each of 4"]),
        (one, "attention.head_count_kv", counts(&[4, 4, 4, 2]), &["head_count_kv`", "a divisor of the 6"]),
        (one, "attention.key_length_swa", gguf::Value::U32(17), &["key_length_swa`", "even"]),
        (one, "attention.key_length_swa", gguf::Value::U32(1 << 20), &["key_length_swa`", "2 to 512"]),
        (one, "attention.key_length", gguf::Value::U32(1024), &["key_length`", "2 to 512", "1024"]),
        (one, "attention.value_length_swa", gguf::Value::U32(8), &["value_length_swa`", "16"]),
        (one, "rope.dimension_count_swa", gguf::Value::U32(8), &["dimension_count_swa`", "16"]),
        (one, "attention.value_length", gguf::Value::U32(8), &["value_length`", "40"]),
        (
            "gemma4",
            "attention.shared_kv_layers",
            gguf::Value::U32(9),
            &["shared_kv_layers`", "fewer than the 7"],
        ),
        ("gemma4", "feed_forward_length", counts(&[56; 3]), &["feed_forward_length`", "one for each of 7"]),
        (
            "gemma4",
            "feed_forward_length",
            counts(&[56; 7]),
            &["blk.4.ffn_gate.weight`", "[56, 40]", "[112, 40]"],
        ),
    ];
    for (family, key, value, parts) in cases {
        let edit = |file: &mut GgufFile| drop(file.metadata.insert(format!("gemma4.{key}"), value));
        let error = open_file(family, edit).expect_err(key).to_string();
        assert!(parts.iter().all(|part| error.contains(part)), "{key}: {error}, without {parts:?}");
    }
    for (tensor, part) in [("rope_freqs.weight", "[20]"), ("blk.0.attn_k.weight", "[48, 48]")] {
        let edit = |file: &mut GgufFile| drop(file.tensors.remove(tensor));
        let error = open_file(one, edit).expect_err(tensor).to_string();
        assert!(error.contains(tensor) && error.contains(part), "{error}");
    }
    // Factors that a file leaves out are one.
    let edit = |file: &mut GgufFile| drop(file.tensors.remove("blk.0.layer_output_scale.weight"));
    open_file(one, edit).expect("it opens without");
}

fn refuses(cases: Vec<Refused>) {
    for (family, edit, parts) in cases {
        let error = open_folder(family, edit).expect_err(family).to_string();
        assert!(parts.iter().all(|part| error.contains(part)), "{family}: {error}, without {parts:?}");
    }
}

/// Which layers of LFM 2 attend is said in two ways, and so is the hidden size of its MLPs.
#[test]
fn published_configurations_of_lfm2_mean_the_same() {
    let expected = graph_text(&open("lfm2", Container::Folder).graph);
    let opened = open_folder("lfm2", |config| {
        let config = config.as_object_mut().expect("an object");
        for key in ["layer_types", "intermediate_size", "tie_word_embeddings", "rope_parameters"] {
            config.remove(key).expect("it is there");
        }
        for (key, value) in [
            ("full_attn_idxs", json!([1])),
            ("tie_embedding", json!(true)),
            ("rope_theta", json!(1e6)),
            ("theta", json!(1e6)),
        ] {
            config.insert(key.to_owned(), value);
        }
    });
    let opened = opened.expect("it opens");
    assert_eq!(opened.config.feed_forward, 64);
    assert_eq!(
        graph_text(&opened.graph).lines().skip(1).collect::<Vec<_>>(),
        expected.lines().skip(1).collect::<Vec<_>>()
    );
}

/// A model that sees says of its language model in an object of its own, and has more tensors; layers that predict
/// further tokens are left alone.
#[test]
fn the_language_model_of_one_that_sees_is_the_same() {
    let others = ["mtp.norm.weight", "model.visual.blocks.0.norm1.bias"];
    language_model_is_the_same("qwen35", "qwen3_5", "Qwen3_5ForConditionalGeneration", &others);
    let others = ["model.vision_tower.norm.weight", "model.embed_audio.norm.bias"];
    language_model_is_the_same("gemma4", "gemma4", "Gemma4ForConditionalGeneration", &others);
}

fn language_model_is_the_same(family: &str, model_type: &str, class: &str, others: &[&str]) {
    let place = tempfile::tempdir().expect("a temporary folder");
    let folder = data(family);
    let stored = fs::read(folder.join("model.safetensors")).expect("the model is there");
    let tensors = safetensors::SafeTensors::deserialize(&stored).expect("safetensors");
    let further = vec![0; 2 * 48];
    let view = |data| safetensors::tensor::TensorView::new(safetensors::Dtype::BF16, vec![48], data);
    let others = others.iter().map(|name| ((*name).to_owned(), view(&further).expect("a vector")));
    let renamed = tensors
        .tensors()
        .into_iter()
        .map(|(name, tensor)| (name.replacen("model.", "model.language_model.", 1), tensor));
    let all: Vec<_> = renamed.chain(others).collect();
    let bytes = safetensors::serialize(all, None).expect("safetensors");
    fs::write(place.path().join("model.safetensors"), bytes).expect("the folder can be written");
    let config = fs::read(folder.join("config.json")).expect("the configuration is there");
    let mut own: Value = serde_json::from_slice(&config).expect("JSON");
    own.as_object_mut().expect("an object").remove("architectures");
    let config = json!({
        "model_type": model_type,
        "architectures": [class],
        "text_config": own,
        "vision_config": {"model_type": model_type, "hidden_size": 16},
    });
    fs::write(place.path().join("config.json"), config.to_string()).expect("the folder can be written");
    fs::write(place.path().join("tokenizer.json"), "{}").expect("the folder can be written");
    let opened = Model::open(place.path()).unwrap_or_else(|error| panic!("{error}"));
    let without_names = |model: &Model| {
        let text = graph_text(&model.graph).replace("language_model.", "");
        text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(without_names(&opened), without_names(&open(family, Container::Folder)));
}

/// What transformers writes of Gemma 4 says of layers one by one what published files say of all without a window.
#[test]
fn configurations_of_gemma4_mean_the_same_layer_by_layer() {
    let of_layers = |config: &mut Value| {
        let keys = ["global_head_dim", "num_global_key_value_heads"];
        let fields = config.as_object_mut().expect("an object");
        let [head_dim, kv_heads] = keys.map(|key| fields.remove(key).expect("it is there"));
        config["per_layer_config"] = json!({"3": {"head_dim": head_dim, "num_key_value_heads": kv_heads}});
    };
    let family = "gemma4_one_matrix";
    let opened = open_folder(family, of_layers).unwrap_or_else(|error| panic!("{error}"));
    let text =
        |model: &Model| graph_text(&model.graph).lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(text(&opened), text(&open(family, Container::Folder)));
}

/// Folders that transformers writes have a tensor for each matrix of an expert, published ones two for all of a layer.
#[test]
fn experts_of_qwen35_are_the_same_in_tensors_of_their_own() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let folder = data("qwen35moe");
    let stored = fs::read(folder.join("model.safetensors")).expect("the model is there");
    let tensors = safetensors::SafeTensors::deserialize(&stored).expect("safetensors");
    let mut all = Vec::new();
    for (name, tensor) in tensors.tensors() {
        let Some((layer, part)) = name.split_once("mlp.experts.") else {
            all.push((name, tensor));
            continue;
        };
        let &[count, rows, columns] = tensor.shape() else { panic!("{name}: {:?}", tensor.shape()) };
        let parts: &[&str] = if part == "down_proj" { &["down_proj"] } else { &["gate_proj", "up_proj"] };
        let rows = rows / parts.len();
        for (number, bytes) in tensor.data().chunks(2 * rows * columns).enumerate() {
            let (expert, part) = (number / parts.len(), parts[number % parts.len()]);
            assert!(expert < count);
            let view = safetensors::tensor::TensorView::new(tensor.dtype(), vec![rows, columns], bytes);
            let name = format!("{layer}mlp.experts.{expert}.{part}.weight");
            all.push((name, view.expect("a matrix")));
        }
    }
    let bytes = safetensors::serialize(all, None).expect("safetensors");
    fs::write(place.path().join("model.safetensors"), bytes).expect("the folder can be written");
    for name in ["config.json", "tokenizer.json"] {
        let bytes = fs::read(folder.join(name)).unwrap_or(b"{}".to_vec());
        fs::write(place.path().join(name), bytes).expect("the folder can be written");
    }
    let opened = Model::open(place.path()).unwrap_or_else(|error| panic!("{error}"));
    let together = open("qwen35moe", Container::Folder);
    assert!(opened.unused_tensors.is_empty() && together.unused_tensors.is_empty());
    let logits = |model: Model| {
        let model = TinyModel::of(String::new(), model, WeightFormat::BF16);
        let set = model.set(Class::native(best_tier()));
        bits(session(set, 96, 1, 1).prefill(&[3, 90, 4, 7, 33]).expect("it fits"))
    };
    assert_eq!(logits(opened), logits(together));
}

#[test]
fn every_tensor_of_every_family_is_read() {
    for model in models() {
        assert_eq!(model.model.unused_tensors, Vec::<String>::new(), "{}", model.name);
    }
}
