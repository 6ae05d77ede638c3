//! Every family of models: tiny ones, in both containers, against what Hugging Face transformers computes in float32.
//!
//! `tests/data/families` holds the models and the reference outputs; its README says what each model has.

mod refused;

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
    model::{Container, LowBit, Model, ModelError, in_fewer_bits},
};

use self::refused::{Edit, set};
use crate::{
    row_invariance::any_rows,
    tiny_model::{Class, TinyModel, best_tier, bits, cases, everything, is_cuda, session},
};

/// Folders of the families there are, those that a GPU computes.
const DENSE: [&str; 12] = [
    "qwen2",
    "qwen3",
    "llama",
    "mistral",
    "smollm3",
    "granite",
    "olmo2",
    "phi3",
    "gemma2",
    "gemma3",
    "lfm2",
    "granitehybrid_attention",
];
/// Those with experts, and those whose rows have a state.
const EXPERTS_AND_STATES: [&str; 15] = [
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
    "granitehybrid",
    "granitehybrid_moe",
];
/// Those with heads of two sizes.
const TWO_SIZES: [&str; 3] = ["gemma4", "gemma4_one_matrix", "gemma4_moe"];
/// What a device says of more experts than it takes.
pub(crate) const REFUSED: &str = "experts::a_gpu_says_how_many_experts_it_takes";
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
        let named = DENSE
            .iter()
            .chain(&EXPERTS_AND_STATES)
            .chain(&TWO_SIZES)
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
    for family in DENSE.into_iter().chain(EXPERTS_AND_STATES).chain(TWO_SIZES) {
        let mut model = open(family, Container::Folder);
        (model.graph, model.weights) =
            in_fewer_bits(&model.graph, Arc::clone(&model.weights), 0, LowBit::Model, 1);
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

/// Layers have other names in what transformers 5 writes, and bounds of steps are said there.
#[test]
fn configurations_of_granite_hybrids_mean_the_same() {
    let text = |edit: Edit| graph_text(&open_folder("granitehybrid", edit).expect("it opens").graph);
    let lines = |text: String| text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
    let expected = lines(text(Box::new(|_| ())));
    let as_written_later = |config: &mut Value| {
        let scan = "linear_attention";
        config["layer_types"] = json!([scan, scan, "full_attention", scan]);
        config["time_step_limit"] = json!([0.0, {"__float__": "Infinity"}]);
        config["position_embedding_type"] = Value::Null;
        config["mamba_d_head"] = json!("auto");
    };
    assert_eq!(lines(text(Box::new(as_written_later))), expected);
    let bounded = text(set("time_step_limit", json!([0.001, 0.5])));
    assert_eq!(bounded.matches("steps=0.001..0.5").count(), 3, "{bounded}");
    let turned = text(set("position_embedding_type", json!("rope")));
    assert_eq!(turned.matches(" = rope(").count(), 2, "{turned}");
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
