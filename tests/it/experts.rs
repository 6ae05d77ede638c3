//! Models with experts: upcycled ones are the dense model that they were made of, experts share places where memory is
//! short, and what is not computed is refused by name.

use std::path::Path;

use ygg_kernels::{KvFormat, WeightFormat};
use yggc::{
    ir::{Residence, WeightSpec},
    model::{
        Model,
        synthetic::{SyntheticExperts, SyntheticSpec},
    },
    runtime::{ExecutableSet, RuntimeError, SetOptions},
};

use crate::streaming::{model_streams_alike, opened, written};
use crate::tiny_model::{Class, Dice, TinyModel, best_tier, is_cuda, loading, session};

/// By how much logits of an upcycled model are off: the weights of experts sum to one but for rounding.
const ROUNDING: f32 = 2e-3;

fn spec(format: WeightFormat, experts: Option<SyntheticExperts>) -> SyntheticSpec {
    let sizes = SyntheticSpec { width: 64, feed_forward: 96, layers: 3, ..SyntheticSpec::default() };
    SyntheticSpec { format, experts, vocabulary: 300, ..sizes }
}

fn open(spec: &SyntheticSpec, is_folder: bool) -> Model {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("model");
    if is_folder { spec.write_folder(&path) } else { spec.write_gguf(&path) }.expect("it is written");
    Model::open(&path).unwrap_or_else(|error| panic!("{spec:?}: {error}"))
}

/// A model with experts in float32.
pub(crate) fn in_floats() -> Model {
    let experts = SyntheticExperts { count: 5, used: 2, are_copies: false };
    open(&SyntheticSpec { layers: 1, context: 300, ..spec(WeightFormat::F32, Some(experts)) }, false)
}

/// Logits after each of some tokens, in forwards of several widths.
fn logits(model: &TinyModel, class: Class, tokens: &[u32]) -> Vec<Vec<f32>> {
    let set = model.build(class, KvFormat::F32, vec![1, 4, 16]);
    let mut session = session(&set, tokens.len(), 1, 1);
    let mut all = Vec::new();
    session.score(tokens, |_, logits| all.push(logits.to_vec())).expect("they fit");
    all
}

/// More experts than rows, fewer, and as many as a row uses; in every class of arithmetic.
#[test]
fn an_upcycled_model_is_the_dense_one() {
    let mut dice = Dice::new(5);
    let tokens: Vec<u32> = (0..21).map(|_| dice.below(300) as u32).collect();
    for format in [WeightFormat::F32, WeightFormat::Q8_0, WeightFormat::Q4_0] {
        for is_folder in [false, true] {
            let dense = TinyModel::of("dense".to_owned(), open(&spec(format, None), is_folder), format);
            for (count, used) in [(40, 3), (5, 2), (2, 2)] {
                let experts = SyntheticExperts { count, used, are_copies: true };
                let upcycled = open(&spec(format, Some(experts)), is_folder);
                assert!(upcycled.unused_tensors.is_empty(), "{:?}", upcycled.unused_tensors);
                let upcycled = TinyModel::of(format!("{count} experts in {format}"), upcycled, format);
                for class in upcycled.classes() {
                    let (expected, found) =
                        (logits(&dense, class, &tokens), logits(&upcycled, class, &tokens));
                    for (place, (expected, found)) in expected.iter().zip(&found).enumerate() {
                        let off = expected.iter().zip(found).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                        assert!(off <= ROUNDING, "{} on {class}: {off} after token {place}", upcycled.name);
                    }
                }
            }
        }
    }
}

fn load(model: &Model, resident: Option<usize>) -> Result<ExecutableSet, RuntimeError> {
    let options = SetOptions {
        tier: best_tier(),
        kv_format: KvFormat::F16,
        activations: best_tier().activations(),
        widths: vec![1],
        model_context: model.config.context,
        threads: 1,
        resident,
    };
    ExecutableSet::load(&model.graph, &loading(model), &options)
}

/// Experts that are read, of a format of each kind of kernel: more than a row uses, so few that all rows use all, and
/// matrices of several reads.
#[test]
fn experts_that_share_places_are_read_to_the_bit() {
    let cases = [
        (WeightFormat::F16, (12, 2), 64, vec![(0, 1), (60 << 10, 2)]),
        (WeightFormat::Q8_0, (4, 3), 96, vec![(0, 2)]),
        (WeightFormat::Q4_K, (6, 2), 512, vec![(0, 2), (1 << 20, 1)]),
        (WeightFormat::BF16, (4, 2), 2400, vec![(0, 2)]),
    ];
    let place = tempfile::tempdir().expect("a temporary folder");
    for (format, (count, used), feed_forward, more) in cases {
        let experts = SyntheticExperts { count, used, are_copies: false };
        if is_cuda() && feed_forward > 256 {
            continue;
        }
        let sizes = SyntheticSpec { width: 256, heads: 4, head_dim: 64, ..spec(format, Some(experts)) };
        let spec = SyntheticSpec { feed_forward, ..sizes };
        let model = opened(&written(place.path(), &format!("{format}.gguf"), &spec));
        model_streams_alike(&model, format, |least| {
            more.iter().map(|(more, threads)| (least + more, *threads)).collect()
        });
    }
}

/// All rows use every matrix that is not an expert's: experts are read before any of these is, and have as many places
/// as the budget goes for. On a GPU they stay.
#[test]
fn experts_are_streamed_first_and_a_row_s_have_places_at_least() {
    let experts = SyntheticExperts { count: 5, used: 2, are_copies: false };
    let place = tempfile::tempdir().expect("a temporary folder");
    let spec = SyntheticSpec { width: 256, feed_forward: 256, ..spec(WeightFormat::Q8_0, Some(experts)) };
    let model = opened(&written(place.path(), "model.gguf", &spec));
    let load = |resident| load(&model, Some(resident));
    let least = match load(0) {
        Err(RuntimeError::Budget(error)) => error.least,
        other => panic!("expected a budget that is too small, found {other:?}"),
    };
    let whole = load(usize::MAX).expect("there is no limit").placed().expect("there is a budget").resident;
    // What experts have, and whether any other matrix is streamed.
    let laid = |resident: usize| {
        let set = load(resident).expect("enough");
        let (mut places, mut others) = (Vec::new(), false);
        for WeightSpec { name, residence, .. } in set.graph().weights().iter() {
            match residence {
                _ if name.contains("_exps") => places.push(*residence),
                residence => others |= residence.is_streamed(),
            }
        }
        assert_eq!(places.len(), 3 * 3 * 5);
        places.dedup();
        assert_eq!(places.len(), 1, "all alike: {places:?}");
        (places[0], others)
    };
    let pooled = |places| Residence::Pooled { places };
    if is_cuda() {
        assert_eq!(laid(least), (Residence::Resident, true));
        return;
    }
    assert_eq!(laid(least), (pooled(2), true));
    assert_eq!(laid(whole - 1), (pooled(4), false));
    assert_eq!(laid(whole), (Residence::Resident, false));
    let splits =
        load(least).expect("enough").weight_splits().expect("it compiles").expect("there is a budget");
    for split in &splits.all {
        let placed = load(split.budget).expect("enough").placed();
        assert_eq!(placed, Some(split.placed), "within {}", split.budget);
    }
    assert_eq!(splits.all.last().map(|split| split.placed.streamed), Some(0));
}

fn refused(path: &Path) -> String {
    Model::open(path).expect_err("it is refused").to_string()
}

/// A folder's configuration with one value that cannot be.
#[test]
fn what_experts_cannot_be_is_refused_by_name() {
    let experts = SyntheticExperts { count: 4, used: 2, are_copies: false };
    let cases = [
        ("num_experts_per_tok", "5", "1 to 4"),
        ("num_experts_per_tok", "0", "1 to 4"),
        ("num_experts_per_tok", "null", "how many experts"),
        ("num_local_experts", "100000", "1 to 4096"),
        ("num_local_experts", "3", "block_sparse_moe.gate"),
        ("num_local_experts", "null", "mlp.gate_proj"),
    ];
    for (key, value, expected) in cases {
        let place = tempfile::tempdir().expect("a temporary folder");
        let path = place.path().join("model");
        spec(WeightFormat::F32, Some(experts)).write_folder(&path).expect("it is written");
        let config = path.join("config.json");
        let mut json: serde_json::Value =
            serde_json::from_slice(&std::fs::read(&config).expect("it is there")).expect("JSON");
        json[key] = serde_json::from_str(value).expect("JSON");
        std::fs::write(&config, json.to_string()).expect("it is written");
        let said = refused(&path);
        assert!(said.contains(expected), "{key} {value}: {said}");
    }
}

/// More than a GPU's kernels have room for; a processor runs them.
#[test]
fn a_gpu_says_how_many_experts_it_takes() {
    let experts = SyntheticExperts { count: 513, used: 2, are_copies: false };
    let spec =
        SyntheticSpec { width: 32, feed_forward: 32, layers: 1, ..spec(WeightFormat::F32, Some(experts)) };
    let loaded = load(&open(&spec, false), None);
    if !is_cuda() {
        loaded.expect("a processor runs them");
        return;
    }
    let said = loaded.expect_err("refused").to_string();
    assert!(said.contains("experts") && said.contains("at most 512") && said.contains("513"), "{said}");
}
