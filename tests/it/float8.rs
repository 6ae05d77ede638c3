//! Folders whose matrices are floats of 8 bits: every weight is, bit for bit, that of a folder with the products of
//! elements and scales in BF16, which is how transformers dequantises them.

use std::{collections::BTreeMap, fs, path::Path};

use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use serde_json::{Value, json};
use yggc::{ir::WeightId, model::Model};

use crate::tiny_model::Dice;

type Tensors = BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)>;

/// The value of a float of 8 bits, by the fields of an f32: exponents are 120 larger, and f32 has subnormals too.
fn value(code: u8) -> f32 {
    let magnitude = f32::from_bits(u32::from(code & 0x7f) << 20) * 2f32.powi(120);
    if code < 0x80 { magnitude } else { -magnitude }
}

fn write(folder: &Path, config: &Value, tensors: &Tensors) -> Model {
    let views = tensors.iter().map(|(name, (dtype, shape, bytes))| {
        (name, TensorView::new(*dtype, shape.clone(), bytes).expect("the bytes of the shape"))
    });
    let bytes = safetensors::serialize(views, None).expect("safetensors");
    fs::write(folder.join("model.safetensors"), bytes).expect("the folder can be written");
    fs::write(folder.join("config.json"), config.to_string()).expect("the folder can be written");
    Model::open(folder).expect("it opens")
}

/// A family's folder with matrices of random floats of 8 bits, whose blocks have so many rows and columns, 0 for all;
/// and with those in BF16.
fn both(family: &str, suffix: &str, block: [usize; 2], of_scales: Dtype) -> [Model; 2] {
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
        if !is_coded {
            let same = (tensor.dtype(), shape, tensor.data().to_vec());
            plain.insert(name.clone(), same.clone());
            coded.insert(name, same);
            continue;
        }
        let [outer @ .., rows, columns] = &shape[..] else { panic!("{name} is no matrix") };
        let sides =
            [(*rows, block[0]), (*columns, block[1])].map(|(all, side)| if side == 0 { all } else { side });
        let blocks = [rows.div_ceil(sides[0]), columns.div_ceil(sides[1])];
        let matrices: usize = outer.iter().product();
        let scales: Vec<f32> = (0..matrices * blocks[0] * blocks[1])
            .map(|_| half::bf16::from_f32(1e-3 + 1e-5 * dice.below(100) as f32).to_f32())
            .collect();
        let codes: Vec<u8> = (0..matrices * rows * columns)
            .map(|_| dice.below(0x7f) as u8 | (dice.below(2) as u8) << 7)
            .collect();
        let of = |at: usize| {
            let (matrix, row, column) = (at / columns / rows, at / columns % rows, at % columns);
            scales[(matrix * blocks[0] + row / sides[0]) * blocks[1] + column / sides[1]]
        };
        let numbers = codes.iter().enumerate().map(|(at, code)| half::bf16::from_f32(value(*code) * of(at)));
        let numbers = numbers.flat_map(half::bf16::to_le_bytes).collect();
        let scales = match of_scales {
            Dtype::F32 => scales.iter().flat_map(|scale| scale.to_le_bytes()).collect(),
            _ => scales.iter().flat_map(|scale| half::bf16::from_f32(*scale).to_le_bytes()).collect(),
        };
        plain.insert(name.clone(), (Dtype::BF16, shape.clone(), numbers));
        coded.insert(format!("{name}{suffix}"), (of_scales, [outer, &blocks[..]].concat(), scales));
        if let Some(base) = name.strip_suffix("weight") {
            coded.insert(format!("{base}input_scale"), (Dtype::F32, vec![], 1f32.to_le_bytes().to_vec()));
        }
        coded.insert(name, (Dtype::F8_E4M3, shape, codes));
    }
    let plain = write(place.path(), &config, &plain);
    // Mapped files stay as they are: the next ones are others.
    fs::remove_file(place.path().join("model.safetensors")).expect("it is there");
    config["quantization_config"] = json!({"quant_method": "fp8", "weight_block_size": [128, 128]});
    [plain, write(place.path(), &config, &coded)]
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
        let [plain, coded] = both(family, suffix, block, of_scales);
        assert_eq!(plain.graph.weights().len(), coded.graph.weights().len());
        for id in (0..).map(WeightId).take(plain.graph.weights().len()) {
            let [a, b] = [&plain, &coded].map(|model| model.weights.bytes(id).into_owned());
            assert!(a == b, "{family}: {:?}", plain.graph.weight(id));
        }
    }
}
