//! Layers in a model's own files that predict a further token, against what PyTorch computes in float32 with the layer
//! of transformers' own class, and on their way from a profile through a plan to answers.
//!
//! `tests/data/mtp` holds the layers and the reference outputs; its README says more.

use std::{
    fs,
    path::Path,
    sync::{Arc, OnceLock},
    time::Duration,
};

use serde_json::{Value, json};
use ygg_kernels::{KvFormat, WeightFormat};
use yggc::{
    engine::{Activations, DraftModel, DrafterChoice, LoadOptions, Loaded},
    measure::{CalibrationPrompt, ProfileOptions},
    model::{Model, ModelError},
    plan::Plan,
    planner::{Fix, plan_from_profile},
};

use crate::{
    draft_plans::same_answers,
    eagle3::{Expected, same_bits, same_candidates, same_chain},
    published_heads::{Heads, sets},
    tiny_model::{TinyModel, is_cuda},
    tiny_profiles::{NOW, profile_of, served},
};

const KIND: Heads = Heads("mtp");
const FAMILIES: [&str; 2] = ["qwen35", "qwen35moe"];

/// The folder of a model with its further layer in a shard of its own, and a tokenizer of characters.
fn write_folder(family: &str, folder: &Path, edit: impl FnOnce(&mut Value)) {
    let [of_model, of_layer] = ["../families", "."].map(|at| KIND.data(at).join(family));
    let shards = [("model-1.safetensors", &of_model), ("model-2.safetensors", &of_layer)];
    let mut map = serde_json::Map::new();
    for (shard, source) in shards {
        let bytes = fs::read(source.join("model.safetensors")).expect("it is there");
        let tensors = safetensors::SafeTensors::deserialize(&bytes).expect("safetensors");
        map.extend(tensors.names().into_iter().map(|name| (name.to_owned(), json!(shard))));
        fs::write(folder.join(shard), &bytes).expect("the folder can be written");
    }
    let config = fs::read(of_layer.join("config.json")).expect("the configuration is there");
    let mut config: Value = serde_json::from_slice(&config).expect("JSON");
    edit(&mut config);
    let characters = (b'!'..=b'~').map(|byte| char::from(byte).to_string());
    let others =
        ["\u{120}", "\u{10a}"].map(str::to_owned).into_iter().chain((0..).map(|n| format!("other{n}")));
    let size = config["vocab_size"].as_u64().expect("a number");
    let vocabulary: serde_json::Map<_, _> =
        characters.chain(others).zip(0..size).map(|(token, id)| (token, json!(id))).collect();
    let level =
        json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": level, "post_processor": null, "decoder": level,
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                  "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
                  "vocab": vocabulary, "merges": []},
    });
    for (name, value) in [
        ("config.json", config),
        ("tokenizer.json", tokenizer),
        ("model.safetensors.index.json", json!({"weight_map": map})),
    ] {
        fs::write(folder.join(name), value.to_string()).expect("the folder can be written");
    }
}

fn folder(family: &str, edit: impl FnOnce(&mut Value)) -> Result<Model, ModelError> {
    let place = tempfile::tempdir().expect("a temporary folder");
    write_folder(family, place.path(), edit);
    Model::open(place.path())
}

/// Each family's model with its layer, as folder and as GGUF.
fn models() -> &'static [(&'static str, TinyModel)] {
    static MODELS: OnceLock<Vec<(&str, TinyModel)>> = OnceLock::new();
    MODELS.get_or_init(|| {
        let both = |family: &'static str| {
            let in_folder = folder(family, |_| ()).expect("a whole folder");
            let in_file = Model::open(&KIND.data(family).join("model.gguf")).expect("a whole file");
            [
                (family, TinyModel::of(format!("{family} as folder"), in_folder, WeightFormat::BF16)),
                (family, TinyModel::of(format!("{family} as GGUF"), in_file, WeightFormat::F16)),
            ]
        };
        FAMILIES.into_iter().flat_map(both).collect()
    })
}

#[test]
fn a_further_layer_computes_what_the_reference_does() {
    // A GPU refuses the models.
    let tried = if is_cuda() { &[][..] } else { models() };
    let mut compared = 0;
    for (family, model) in tried {
        let expected: Expected = KIND.expected(family);
        let layer = model.model.further.as_ref().expect("a further layer");
        assert_eq!(layer.config().layers, 1);
        let sets = sets(model, layer);
        same_candidates(&model.name, &expected, &sets);
        compared += same_chain(&model.name, &expected, &sets);
        same_bits(&model.name, &expected, &sets);
    }
    assert!(is_cuda() || compared > 12, "{compared} nodes are too few to show anything");
}

#[test]
fn a_file_without_the_layer_has_none_and_what_is_wrong_in_one_is_named() {
    assert!(folder("qwen35", |config| config["mtp_num_hidden_layers"] = json!(2)).unwrap().further.is_none());
    let model = Model::open(&KIND.data("../families/qwen35").join("model.gguf")).expect("a model");
    assert!(model.further.is_none() && DraftModel::further(&model).is_none());

    let place = tempfile::tempdir().expect("a temporary folder");
    write_folder("qwen35", place.path(), |_| ());
    let shard = place.path().join("model-2.safetensors");
    let bytes = fs::read(&shard).expect("it is there");
    let tensors = safetensors::SafeTensors::deserialize(&bytes).expect("safetensors");
    let over = |model: &Model| {
        let layer = model.further.as_ref().expect("a further layer");
        layer.over(&model.graph, Arc::clone(&model.weights)).map(drop)
    };
    let whole = Model::open(place.path()).expect("a whole folder");
    over(&whole).expect("it fits");
    let other = Model::open(&KIND.data("../families/qwen35_tied").join("model.gguf")).expect("a model");
    let other = over_of(&whole, &other);
    assert!(other.contains("the verifier"), "{other}");
    for rename in ["mtp.fc.weight", "mtp.norm.weight"] {
        let others = tensors.tensors().into_iter().map(|(name, view)| match name == rename {
            true => ("mtp.other.weight".to_owned(), view),
            false => (name, view),
        });
        let renamed = safetensors::serialize(others.collect::<Vec<_>>(), None).expect("safetensors");
        fs::write(&shard, renamed).expect("the folder can be written");
        let index = place.path().join("model.safetensors.index.json");
        let map = fs::read_to_string(&index).expect("it is there");
        fs::write(&index, map.replace(rename, "mtp.other.weight")).expect("the folder can be written");
        let said =
            over(&Model::open(place.path()).expect("the model is whole")).expect_err("not whole").to_string();
        assert!(said.contains(rename), "{said}");
        fs::write(&index, map).expect("the folder can be written");
    }
    let extra = tensors.tensors().into_iter().chain([(
        "mtp.embed_tokens.weight".to_owned(),
        tensors.tensor("mtp.norm.weight").expect("it is there"),
    )]);
    fs::write(&shard, safetensors::serialize(extra.collect::<Vec<_>>(), None).expect("safetensors"))
        .expect("written");
    let said = over(&Model::open(place.path()).expect("the model is whole"))
        .expect_err("more than is read")
        .to_string();
    assert!(said.contains("mtp.embed_tokens.weight"), "{said}");
}

/// What is said of the layer of one model over another.
fn over_of(own: &Model, other: &Model) -> String {
    let layer = own.further.as_ref().expect("a further layer");
    layer.over(&other.graph, Arc::clone(&other.weights)).map(drop).expect_err("another model").to_string()
}

/// Measured, planned and chosen by its name without being given a file; found again where the model is moved to.
#[test]
fn a_plan_finds_the_layer_in_the_model_wherever_that_is() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let [first, second] = ["first", "second"].map(|name| place.path().join(name));
    fs::create_dir(&first).expect("a folder");
    write_folder("qwen35", &first, |_| ());
    let load = |path: &Path| {
        let options = LoadOptions {
            tier: None,
            activations: Activations::Native,
            cache: KvFormat::F16,
            threads: Some(1),
            widths: vec![1, 2, 4, 8, 16],
            resident: None,
        };
        Arc::new(Loaded::open(path, &options).expect("it loads"))
    };
    let prompt = |text: &str| CalibrationPrompt { kind: "test".to_owned(), text: text.to_owned() };
    let loaded = load(&first);
    let profile = profile_of(&loaded, |options| ProfileOptions {
        prompts: ["abc abc abc", "one two three", "to be or not to be"].map(prompt).to_vec(),
        drafters: vec!["model".to_owned(), "lookup".to_owned()],
        head_sizes: vec![60],
        budget: Duration::from_secs(20),
        is_rehearsal: true,
        ..options
    });
    let fix = Fix::parse("rows=all,predictor=off").expect("a good fix");
    let plan: Plan = plan_from_profile(&profile, &fix, NOW).expect("a plan");
    let names: Vec<&str> = plan.bands[0].by_drafter.iter().map(|sub_plan| sub_plan.name.as_str()).collect();
    assert!(names.contains(&"model_mtp"), "{names:?}");
    drop(loaded);
    fs::rename(&first, &second).expect("it moves");
    let loaded = load(&second);
    let forced = DrafterChoice::Forced("model_mtp".to_owned());
    let mut drafting = served(&loaded, Some(plan), forced).expect("it is where the model is");
    let mut plain = served(&loaded, None, DrafterChoice::Plain).expect("no plan is needed");
    same_answers(&mut plain, &mut drafting, ("model_mtp", "model"));
}
