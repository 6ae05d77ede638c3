//! Inflated models answer what the small ones do: in every weight format, in every supported family, and as a whole
//! program.

use std::{fs, path::Path};

use ygg_kernels::{Activations, KvFormat, Tier, WeightFormat};
use yggc::model::{Model, synthetic::SyntheticSpec};

use crate::{
    bad_input::refused,
    program::{failure, success},
    tiny_commands::{json, model, on_machine},
    tiny_model::{Class, Dice, TinyModel, best_tier, everything, is_cuda, session},
};

/// The small model inflated to a shape.
fn inflated(small: &TinyModel, shape: &str) -> TinyModel {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("large.gguf");
    let shape = shape.parse().expect("a shape");
    small.model.write_inflated(&shape, &path).unwrap_or_else(|error| panic!("{}: {error}", small.name));
    // The map outlives the file.
    TinyModel::of(small.name.clone(), Model::open(&path).expect("what was written opens"), small.format)
}

fn argmax(logits: &[f32]) -> u32 {
    (0..logits.len()).rev().max_by(|a, b| logits[*a].total_cmp(&logits[*b])).expect("logits") as u32
}

/// The logits after a prompt and after each of the tokens that follow it.
fn logits(model: &TinyModel, class: Class, prompt: &[u32], next: &mut dyn FnMut(&[f32]) -> Option<u32>) {
    let set = model.build(class, KvFormat::F16, vec![1]);
    let mut session = session(&set, prompt.len() + TOKENS, 1, 1);
    let mut logits = session.prefill(prompt).expect("it fits").to_vec();
    while let Some(token) = next(&logits) {
        let mut forward = session.forward(1).expect("width 1 is planned");
        forward.push(token, 0, 0, |tail| {
            tail[0] = 0;
            1
        });
        logits = forward.run(None).row(0).to_vec();
        session.commit(&[0]);
    }
}

/// Greedy tokens of an answer.
const TOKENS: usize = 24;

/// Along a greedy answer of the small model the inflated one has its logits and its tokens. Where activations are
/// rounded, one that another rounding of a gain moves across an edge moves logits, and a token whose rival was near may
/// change.
fn answers_the_same(small: &TinyModel, shape: &str, class: Class) {
    let large = inflated(small, shape);
    let count = if is_cuda() { 6 } else { TOKENS };
    let what = format!("{} to {shape} on {class}", small.name);
    let is_rounded = class.activations == Activations::Int8 || class.tier != Tier::Portable;
    let mut dice = Dice::new(3);
    let prompt: Vec<u32> = (0..12).map(|_| dice.below(small.model.config.vocabulary) as u32).collect();
    let mut answer: Vec<(u32, Vec<f32>)> = Vec::new();
    logits(small, class, &prompt, &mut |logits| {
        answer.push((argmax(logits), logits.to_vec()));
        answer.last().map(|(token, _)| *token).filter(|_| answer.len() < count)
    });
    let mut equal = 0;
    let mut steps = answer.iter();
    logits(&large, class, &prompt, &mut |found| {
        let (token, expected) = steps.next()?;
        let mean_square = expected.iter().map(|x| x * x).sum::<f32>() / expected.len() as f32;
        let limit = if is_rounded { 0.15 } else { 2e-3 } * mean_square.sqrt();
        let off = expected.iter().zip(found).map(|(e, f)| (e - f).abs()).fold(0.0, f32::max);
        assert!(off <= limit, "{what}: a logit is off by {off}, expected at most {limit}");
        equal += usize::from(argmax(found) == *token);
        Some(*token).filter(|_| steps.len() > 0)
    });
    let least = if is_rounded { count * 9 / 10 } else { count };
    assert!(equal >= least, "{what}: {equal} of {count} tokens are equal");
}

/// More of everything; with more keys for the same queries; and for short blocks with one query head in addition to
/// two.
const SHAPES: [&str; 3] = [
    "layers=3,width=512,mlp=512,heads=8,kv_heads=4",
    "layers=2,width=768,mlp=256,heads=4,kv_heads=4",
    "layers=3,width=288,mlp=288,heads=9,kv_heads=3",
];

fn small(format: WeightFormat, tied: bool) -> TinyModel {
    let spec = SyntheticSpec {
        width: 256,
        head_dim: 64,
        feed_forward: 256,
        format,
        tied,
        seed: 9,
        ..SyntheticSpec::default()
    };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("small.gguf");
    spec.write_gguf(&path).expect("the model is written");
    TinyModel::of(format!("{format}"), Model::open(&path).expect("a generated model opens"), format)
}

/// Native activations on the portable tier, which rounds none of them, and what the fastest tier does.
fn classes(model: &TinyModel) -> Vec<Class> {
    let exact = Class::native(Tier::Portable);
    let is_tried = |class: &Class| class.tier == best_tier() || *class == exact;
    model.classes().into_iter().filter(is_tried).collect()
}

/// Each format in one of the shapes; where every case is tried, in all.
#[test]
fn every_format_answers_what_it_did() {
    let formats = WeightFormat::of_gguf().zip(0..);
    for (format, number) in formats {
        let small = small(format, number % 2 == 0);
        let shapes = if format.block_len() > 64 { &SHAPES[..2] } else { &SHAPES[..] };
        let one = number % shapes.len();
        for shape in if everything() && !is_cuda() { shapes } else { &shapes[one..=one] } {
            for class in classes(&small) {
                answers_the_same(&small, shape, class);
            }
        }
    }
}

#[test]
fn every_supported_family_answers_what_it_did() {
    for (family, shape) in [
        ("llama", "layers=5,width=160,mlp=320,heads=8,kv_heads=4"),
        ("mistral", "layers=5,width=160,mlp=320,heads=8,kv_heads=8"),
        ("qwen2", "layers=5,width=160,mlp=320,heads=8,kv_heads=8"),
        ("qwen3", "layers=5,width=160,mlp=320,heads=8,kv_heads=4"),
    ] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/families").join(family);
        let model = Model::open(&folder.join("model.gguf")).expect("it is there");
        let small = TinyModel::of(family.to_owned(), model, WeightFormat::F16);
        for class in classes(&small) {
            answers_the_same(&small, shape, class);
        }
    }
}

#[test]
fn the_program_writes_what_answers_the_same() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let large = folder.path().join("large.gguf");
    let mut command = on_machine("inspect", model());
    command.args(["--inflate", "layers=6,width=128,mlp=256"]).arg("-o").arg(&large);
    let said = success(&command.output().expect("yggc starts"));
    for part in
        ["inflated to layers=6", "hidden size    128", "feed-forward   256", "8 of 16, 4 for keys and values"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!said.contains("packed weights"), "weights are not packed to say so: {said}");
    assert_eq!(fs::read_dir(folder.path()).expect("readable").count(), 1, "nothing unfinished is left");
    let asked = ["-p", "one and one and one", "--raw", "--no-spec", "-n", "24", "--json"];
    let [of_small, of_large] = [model(), &large].map(|model| json(on_machine("run", model).args(asked)));
    assert_eq!(of_large["token_ids"], of_small["token_ids"]);
}

#[test]
fn what_cannot_be_inflated_ends_with_a_reason_and_no_file() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let large = folder.path().join("large.gguf");
    let inflate = |shape: &str, output: &Path| {
        let mut command = on_machine("inspect", model());
        command.args(["--inflate", shape]).arg("-o").arg(output);
        command
    };
    let said = failure(&inflate("70b", &large).output().expect("yggc starts"), 2);
    assert!(said.contains("1b, 3b, 7b") && said.contains("layers=32"), "{said}");
    refused(&mut inflate("layers=1,width=64,mlp=128", &large), 3, &["`layers`", "at least the model's 4"]);
    refused(&mut inflate("layers=4096,width=524288,mlp=1048576", &large), 3, &["bytes", "make room"]);
    refused(
        &mut inflate("1b", &folder.path().join("missing/large.gguf")),
        3,
        &["cannot write", "large.gguf"],
    );
    assert_eq!(fs::read_dir(folder.path()).expect("readable").count(), 0);
}
