//! Where things lie in an inflated model, and what is refused. `tests/it/inflate.rs` compares what it answers.

use std::fs;

use ygg_kernels::WeightFormat;

use super::{InflatedShape, sizes::Sizes, tensors::zeros};
use crate::model::{Model, ModelConfig, ModelError, synthetic::SyntheticSpec};

fn shape(text: &str) -> InflatedShape {
    text.parse().unwrap()
}

/// What `spec` inflated to a shape is refused for.
fn refusal(spec: &SyntheticSpec, shape: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let (small, large) = (folder.path().join("small.gguf"), folder.path().join("large.gguf"));
    spec.write_gguf(&small).unwrap();
    let error = Model::open(&small).unwrap().write_inflated(&shape.parse().unwrap(), &large).unwrap_err();
    assert!(!large.exists() && fs::read_dir(folder.path()).unwrap().count() == 1, "{error}");
    error.to_string()
}

#[test]
fn zeros_of_every_format_are_zero() {
    for format in WeightFormat::ALL {
        let bytes = zeros(format, 512);
        let mut values = vec![1.0; 512];
        format.dequantise_row(&bytes, &mut values);
        assert!(values.iter().all(|value| *value == 0.0), "{format}: {values:?}");
    }
}

#[test]
fn shapes_have_names_or_sizes() {
    for name in InflatedShape::NAMES {
        assert_eq!(shape(name).name, name);
    }
    let sizes = shape("mlp=3,width=2,layers=1");
    assert_eq!((sizes.layers, sizes.width, sizes.mlp), (1, 2, 3));
    for (text, part) in [
        ("70b", "1b, 3b, 7b, or sizes such as layers=32"),
        ("", "1b, 3b, 7b"),
        ("layers=1,width=2", "mlp: expected a size"),
        ("layers=1,width=0,mlp=3", "width: expected an integer above 0, found `width=0`"),
        ("layers=-1,width=2,mlp=3", "layers: expected an integer above 0"),
        ("layers=1,depth=2,mlp=3", "found `depth`"),
        ("layers=1,layers=2,width=2,mlp=3", "layers: expected one size"),
    ] {
        let error = text.parse::<InflatedShape>().unwrap_err();
        assert!(error.contains(part), "{text}: {error}");
    }
}

/// Every query head of the model is read once, with its own keys and values; whatever else is there copies heads.
#[test]
fn heads_keep_their_keys() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("small.gguf");
    SyntheticSpec { heads: 6, kv_heads: 2, width: 96, ..SyntheticSpec::default() }.write_gguf(&path).unwrap();
    let config = Model::open(&path).unwrap().config;
    for (heads, kv_heads) in [(6, 2), (6, 6), (12, 4), (12, 6), (16, 4), (10, 2), (32, 8), (9, 9)] {
        let text = format!("layers=2,width=96,mlp=128,heads={heads},kv_heads={kv_heads}");
        let sizes = Sizes::new(&config, &shape(&text)).unwrap();
        let mut read: Vec<usize> = Vec::new();
        for (place, query) in sizes.queries.iter().enumerate().filter(|(_, query)| query.is_read) {
            read.push(query.head);
            assert_eq!(sizes.keys[place / (heads / kv_heads)], query.head / 3, "{text}: {place}");
        }
        read.sort_unstable();
        assert_eq!(read, [0, 1, 2, 3, 4, 5], "{text}");
        assert_eq!((sizes.queries.len(), sizes.keys.len()), (heads, kv_heads));
    }
    // The sizes of SmolLM2 135M.
    let [layers, hidden_size, feed_forward, heads, kv_heads, head_dim] = [30, 576, 1536, 9, 3, 64];
    let default = ModelConfig { layers, hidden_size, feed_forward, heads, kv_heads, head_dim, ..config };
    for (name, expected, heads) in
        [("1b", 0.97e9, (24, 8)), ("3b", 2.82e9, (40, 20)), ("7b", 6.48e9, (64, 64))]
    {
        let large = Sizes::new(&default, &shape(name)).unwrap().large;
        assert_eq!((large.heads, large.kv_heads), heads, "{name}");
        let attention = 2 * (large.heads + large.kv_heads) * head_dim * large.hidden_size;
        let weights = large.layers * (attention + 3 * large.hidden_size * large.feed_forward);
        assert!((weights as f64 / expected - 1.0).abs() < 0.05, "{name}: {weights} weights in layers");
    }
}

#[test]
fn what_does_not_fit_is_named() {
    let spec = SyntheticSpec::default();
    for (shape, parts) in [
        ("layers=1,width=64,mlp=128", ["`layers`", "at least the model's 2, found 1"]),
        ("layers=2,width=32,mlp=128,heads=4", ["`width`", "at least the model's 64, found 32"]),
        ("layers=2,width=64,mlp=64", ["`mlp`", "at least the model's 128, found 64"]),
        ("layers=2,width=64,mlp=128,heads=2,kv_heads=2", ["`heads`", "at least the model's 4, found 2"]),
        ("layers=2,width=64,mlp=128,heads=4,kv_heads=1", ["`kv_heads`", "at least the model's 2, found 1"]),
        ("layers=2,width=64,mlp=128,heads=5,kv_heads=4", ["`kv_heads`", "a divisor of the 5 query heads"]),
        ("layers=2,width=80,mlp=128", ["groups of 2 query heads, or kv_heads=N", "5 query heads"]),
        ("layers=2,width=100,mlp=128", ["the model's heads of 16", "found 100"]),
        ("layers=9999,width=64,mlp=128", ["`layers`", "1 to 4096"]),
        ("layers=2,width=64,mlp=9999999", ["`mlp`", "2 to 1048576"]),
    ] {
        let error = refusal(&spec, shape);
        assert!(parts.iter().all(|part| error.contains(part)), "{shape}: {error}");
    }
    // Three heads of a group do not share keys by twos without a second copy of these.
    let three = SyntheticSpec { heads: 6, width: 96, kv_heads: 2, ..SyntheticSpec::default() };
    let error = refusal(&three, "layers=2,width=96,mlp=128,heads=6,kv_heads=3");
    assert!(error.contains("at least 4, for groups of 2 query heads in place of 3"), "{error}");
    let blocks = SyntheticSpec { format: WeightFormat::Q4_0, ..spec.clone() };
    let error = refusal(&blocks, "layers=2,width=80,mlp=128,heads=6");
    assert!(error.contains("whole Q4_0 blocks of 32"), "{error}");
    // A block holds two heads, of which one would stay.
    let torn = refusal(
        &SyntheticSpec { heads: 6, kv_heads: 2, ..blocks },
        "layers=2,width=96,mlp=128,heads=16,kv_heads=4",
    );
    assert!(torn.contains("tearing apart blocks of 32 q4_0") && torn.contains("attn_output"), "{torn}");
    let error = refusal(&spec, "layers=4096,width=524288,mlp=1048576");
    assert!(error.contains("free; make room"), "{error}");
}

#[test]
fn other_models_are_refused_by_name() {
    let families = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/families");
    let folder = tempfile::tempdir().unwrap();
    let large = folder.path().join("large.gguf");
    for family in ["smollm3", "gemma2", "gemma3", "phi3", "granite", "olmo2", "lfm2"] {
        let small = Model::open(format!("{families}/{family}/model.gguf").as_ref()).unwrap();
        let error = small.write_inflated(&shape("7b"), &large).unwrap_err().to_string();
        assert!(error.contains(&format!("family `{family}`")) && error.contains("`qwen3`"), "{error}");
    }
    let small = folder.path().join("folder");
    SyntheticSpec::default().write_folder(&small).unwrap();
    let error = Model::open(&small).unwrap().write_inflated(&shape("7b"), &large).unwrap_err().to_string();
    assert!(error.contains("a model in a folder"), "{error}");
    // A file is not read and replaced.
    let small = folder.path().join("small.gguf");
    SyntheticSpec::default().write_gguf(&small).unwrap();
    let error = Model::open(&small).unwrap().write_inflated(&shape("layers=2,width=64,mlp=128"), &small);
    assert!(matches!(error, Err(ModelError::Invalid { .. })), "{error:?}");
}
