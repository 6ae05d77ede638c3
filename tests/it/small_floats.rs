//! Folders whose matrices are floats of 8 or of 4 bits: every weight is, bit for bit, that of a folder with the
//! products of elements and scales in BF16, which is how transformers and compressed-tensors dequantise them.

use std::{collections::BTreeMap, fs, path::Path};

use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use serde_json::{Value, json};
use yggc::{
    ir::WeightId,
    model::{Model, ModelError},
};

use crate::tiny_model::Dice;

type Tensors = BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)>;

/// The value of a float of 8 bits, by the fields of an f32: exponents are 120 larger, and f32 has subnormals too.
fn value(code: u8) -> f32 {
    let magnitude = f32::from_bits(u32::from(code & 0x7f) << 20) * 2f32.powi(120);
    if code < 0x80 { magnitude } else { -magnitude }
}

fn write(folder: &Path, config: &Value, tensors: &Tensors) -> Result<Model, ModelError> {
    let views = tensors.iter().map(|(name, (dtype, shape, bytes))| {
        (name, TensorView::new(*dtype, shape.clone(), bytes).expect("the bytes of the shape"))
    });
    let bytes = safetensors::serialize(views, None).expect("safetensors");
    fs::write(folder.join("model.safetensors"), bytes).expect("the folder can be written");
    fs::write(folder.join("config.json"), config.to_string()).expect("the folder can be written");
    Model::open(folder)
}

/// The value of a float of 4 bits, likewise: exponents are 126 larger.
fn value_of_four(code: u8) -> f32 {
    let magnitude = f32::from_bits(u32::from(code & 7) << 22) * 2f32.powi(126);
    if code < 8 { magnitude } else { -magnitude }
}

fn rounded(numbers: impl Iterator<Item = f32>) -> Vec<u8> {
    numbers.map(half::bf16::from_f32).flat_map(half::bf16::to_le_bytes).collect()
}

/// A matrix of random floats as a folder has it: its parts by what follows its name without `weight`, and in BF16.
type Coded = (Vec<(String, (Dtype, Vec<usize>, Vec<u8>))>, Vec<u8>);

/// Floats of 8 bits whose blocks have so many rows and columns, 0 for all.
fn float8(shape: &[usize], suffix: &str, block: [usize; 2], of_scales: Dtype, dice: &mut Dice) -> Coded {
    let [outer @ .., rows, columns] = shape else { panic!("{shape:?} is no matrix") };
    let sides =
        [(*rows, block[0]), (*columns, block[1])].map(|(all, side)| if side == 0 { all } else { side });
    let blocks = [rows.div_ceil(sides[0]), columns.div_ceil(sides[1])];
    let matrices: usize = outer.iter().product();
    let scales: Vec<f32> = (0..matrices * blocks[0] * blocks[1])
        .map(|_| half::bf16::from_f32(1e-3 + 1e-5 * dice.below(100) as f32).to_f32())
        .collect();
    let codes: Vec<u8> =
        (0..matrices * rows * columns).map(|_| dice.below(0x7f) as u8 | (dice.below(2) as u8) << 7).collect();
    let of = |at: usize| {
        let (matrix, row, column) = (at / columns / rows, at / columns % rows, at % columns);
        scales[(matrix * blocks[0] + row / sides[0]) * blocks[1] + column / sides[1]]
    };
    let numbers = rounded(codes.iter().enumerate().map(|(at, code)| value(*code) * of(at)));
    let scales = match of_scales {
        Dtype::F32 => scales.iter().flat_map(|scale| scale.to_le_bytes()).collect(),
        _ => rounded(scales.into_iter()),
    };
    let parts = vec![
        (format!("weight{suffix}"), (of_scales, [outer, &blocks[..]].concat(), scales)),
        ("input_scale".to_owned(), (Dtype::F32, vec![], 1f32.to_le_bytes().to_vec())),
        ("weight".to_owned(), (Dtype::F8_E4M3, shape.to_vec(), codes)),
    ];
    (parts, numbers)
}

/// NVFP4, by the names of compressed-tensors or of ModelOpt.
fn nvfp4(shape: &[usize], is_packed: bool, dice: &mut Dice) -> Coded {
    let [rows, columns] = *shape else { panic!("{shape:?} is no matrix") };
    let whole = if is_packed { 3000.0 } else { 1.0 / 3000.0 };
    let scales: Vec<u8> = (0..rows * columns / 16).map(|_| dice.below(0x7f) as u8).collect();
    let codes: Vec<u8> = (0..rows * columns / 2).map(|_| dice.below(256) as u8).collect();
    let of_group = |at: usize| {
        let scale = value(scales[at / 16]);
        if is_packed { scale / whole } else { scale * whole }
    };
    let numbers =
        (0..rows * columns).map(|at| value_of_four(codes[at / 2] >> (at % 2 * 4) & 15) * of_group(at));
    let numbers = rounded(numbers);
    let number = |x: f32, shape| (Dtype::F32, shape, x.to_le_bytes().to_vec());
    let names = if is_packed {
        [("weight_packed", vec![]), ("weight_global_scale", vec![1]), ("input_global_scale", vec![1])]
    } else {
        [("weight", vec![]), ("weight_scale_2", vec![]), ("input_scale", vec![])]
    };
    let [(of_codes, _), (of_whole, shape), (of_inputs, inputs)] = names;
    let parts = vec![
        (of_codes.to_owned(), (Dtype::U8, vec![rows, columns / 2], codes)),
        ("weight_scale".to_owned(), (Dtype::F8_E4M3, vec![rows, columns / 16], scales)),
        (of_whole.to_owned(), number(whole, shape)),
        (of_inputs.to_owned(), number(1.0, inputs)),
    ];
    (parts, numbers)
}

/// A family's folder with matrices coded by `code`, which of the shape of one gives none if it stays as it is; and with
/// those in BF16.
fn both(family: &str, method: &str, code: &dyn Fn(&[usize], &mut Dice) -> Option<Coded>) -> [Model; 2] {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/families").join(family);
    let stored = fs::read(from.join("model.safetensors")).expect("the family is there");
    let mut config: Value =
        serde_json::from_slice(&fs::read(from.join("config.json")).expect("it is there")).expect("JSON");
    let place = tempfile::tempdir().expect("a temporary folder");
    fs::write(place.path().join("tokenizer.json"), "{}").expect("the folder can be written");
    let (mut plain, mut coded, mut dice) = (Tensors::new(), Tensors::new(), Dice::new(8));
    for (name, tensor) in SafeTensors::deserialize(&stored).expect("safetensors").tensors() {
        let shape = tensor.shape().to_vec();
        let is_coded = name.contains("proj") && !name.ends_with("bias");
        let Some((parts, numbers)) = is_coded.then(|| code(&shape, &mut dice)).flatten() else {
            let same = (tensor.dtype(), shape, tensor.data().to_vec());
            plain.insert(name.clone(), same.clone());
            coded.insert(name, same);
            continue;
        };
        // Tensors of all experts have no `weight` in their names, and what follows them follows those.
        let base = name.strip_suffix("weight");
        for (of, part) in parts {
            let named = base.map(|base| format!("{base}{of}"));
            let named = named.or_else(|| Some(format!("{name}{}", of.strip_prefix("weight")?)));
            coded.extend(named.map(|name| (name, part)));
        }
        plain.insert(name, (Dtype::BF16, shape, numbers));
    }
    let plain = write(place.path(), &config, &plain).expect("it opens");
    // Mapped files stay as they are: the next ones are others.
    fs::remove_file(place.path().join("model.safetensors")).expect("it is there");
    config["quantization_config"] = json!({"quant_method": method});
    [plain, write(place.path(), &config, &coded).expect("it opens")]
}

fn are_equal(what: &str, [plain, coded]: [Model; 2]) {
    assert_eq!(plain.graph.weights().len(), coded.graph.weights().len());
    for id in (0..).map(WeightId).take(plain.graph.weights().len()) {
        let [a, b] = [&plain, &coded].map(|model| model.weights.bytes(id).into_owned());
        assert!(a == b, "{what}: {:?}", plain.graph.weight(id));
    }
}

#[test]
fn weights_are_the_products_of_elements_and_scales() {
    for (family, suffix, block, of_scales) in [
        ("llama", "_scale_inv", [16, 32], Dtype::F32),
        ("qwen3", "_scale_inv", [128, 128], Dtype::BF16),
        // Rows of a matrix are more than one weight, all experts lie in one tensor, and a scale is of a row or of all.
        ("phi3", "_scale", [1, 0], Dtype::BF16),
        ("qwen35moe", "_scale_inv", [16, 16], Dtype::F32),
        ("qwen3moe", "_scale", [0, 0], Dtype::F32),
    ] {
        let code = |shape: &[usize], dice: &mut Dice| Some(float8(shape, suffix, block, of_scales, dice));
        are_equal(family, both(family, "fp8", &code));
    }
}

#[test]
fn weights_of_nvfp4_are_products_with_two_scales() {
    for (family, is_packed) in [("llama", true), ("phi3", true), ("qwen3", false), ("gemma2", false)] {
        let code = |shape: &[usize], dice: &mut Dice| {
            (shape.len() == 2 && shape[1].is_multiple_of(16)).then(|| nvfp4(shape, is_packed, dice))
        };
        let models = both(family, if is_packed { "compressed-tensors" } else { "modelopt" }, &code);
        let [plain, coded] = models.each_ref().map(|model| model.fingerprint());
        assert_ne!(plain, coded, "they are other files");
        are_equal(family, models);
    }
}

/// Inputs that a file scales, or weights that it shifts, would make another model: read without them it would be wrong.
#[test]
fn what_weights_are_scaled_and_shifted_by_besides_is_refused() {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/families/llama");
    let stored = fs::read(from.join("model.safetensors")).expect("the family is there");
    let config = fs::read(from.join("config.json")).expect("it is there");
    let config: Value = serde_json::from_slice(&config).expect("JSON");
    for (suffix, said) in [("pre_quant_scale", "a scale of inputs"), ("weight_zero_point", "a zero point")] {
        let place = tempfile::tempdir().expect("a temporary folder");
        fs::write(place.path().join("tokenizer.json"), "{}").expect("the folder can be written");
        let tensors = SafeTensors::deserialize(&stored).expect("safetensors").tensors().into_iter();
        let mut tensors: Tensors = tensors
            .map(|(name, tensor)| (name, (tensor.dtype(), tensor.shape().to_vec(), tensor.data().to_vec())))
            .collect();
        let name = format!("model.layers.0.self_attn.q_proj.{suffix}");
        tensors.insert(name.clone(), (Dtype::F32, vec![1], vec![0; 4]));
        let error = write(place.path(), &config, &tensors).expect_err(suffix).to_string();
        assert!(error.contains(&name) && error.contains(said), "{error}");
    }
}
