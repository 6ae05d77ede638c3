//! Models whose matrices are floats of 8 or of 4 bits: every weight has, bit for bit, the value that it has in a model with
//! the products of elements and scales: of 8 bits in BF16, as transformers dequantises them, and of 4 bits in F32, with
//! scales that are rounded to BF16.

use std::{collections::BTreeMap, fs, path::Path};

use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use serde_json::{Value, json};
use ygg_kernels::{KvFormat, Tier, WeightFormat};
use yggc::{
    ir::{WeightId, WeightSpec},
    model::{
        Model, ModelError,
        gguf::{DATA_ALIGNMENT, TensorRecord, Value as GgufValue, encode_header, parse},
    },
};

use crate::{
    backends::{compare_on_the_whole, logits},
    tiny_model::{Class, Dice, TinyModel},
};

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

/// To the nearest bf16.
fn to_bf16(x: f32) -> f32 {
    half::bf16::from_f32(x).to_f32()
}

fn rounded(numbers: impl Iterator<Item = f32>) -> Vec<u8> {
    numbers.map(half::bf16::from_f32).flat_map(half::bf16::to_le_bytes).collect()
}

/// A matrix of random floats as a folder has it: its parts by what follows its name without `weight`, and its values.
type Coded = (Vec<(String, (Dtype, Vec<usize>, Vec<u8>))>, (Dtype, Vec<u8>));

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
    (parts, (Dtype::BF16, numbers))
}

/// NVFP4, by the names of compressed-tensors or of ModelOpt.
/// Scales are of any code, or, if they are `tame`, so that weights are below a fifth.
fn nvfp4(shape: &[usize], is_packed: bool, tame: bool, dice: &mut Dice) -> Coded {
    let [rows, columns] = *shape else { panic!("{shape:?} is no matrix") };
    let whole = if tame { 60.0 } else { 3000.0 };
    let whole = if is_packed { whole } else { 1.0 / whole };
    let any = |dice: &mut Dice| if tame { 0x30 + dice.below(0x11) as u8 } else { dice.below(0x7f) as u8 };
    let scales: Vec<u8> = (0..rows * columns / 16).map(|_| any(dice)).collect();
    let codes: Vec<u8> = (0..rows * columns / 2).map(|_| dice.below(256) as u8).collect();
    let of_group = |at: usize| {
        let scale = value(scales[at / 16]);
        to_bf16(if is_packed { scale / whole } else { scale * whole })
    };
    let numbers =
        (0..rows * columns).map(|at| value_of_four(codes[at / 2] >> (at % 2 * 4) & 15) * of_group(at));
    let numbers = numbers.flat_map(f32::to_le_bytes).collect();
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
    (parts, (Dtype::F32, numbers))
}

/// A family's folder with matrices coded by `code`, which of the shape of one gives none if it stays as it is; and with
/// their values.
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
        let Some((parts, (dtype, numbers))) = is_coded.then(|| code(&shape, &mut dice)).flatten() else {
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
        plain.insert(name, (dtype, shape, numbers));
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
        let [a, b] = [&plain, &coded].map(|model| {
            let WeightSpec { format, rows, columns, .. } = *model.graph.weight(id);
            let mut values = vec![f32::NAN; rows * columns];
            format.dequantise_row(&model.weights.bytes(id), &mut values);
            values
        });
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
            (shape.len() == 2 && shape[1].is_multiple_of(32)).then(|| nvfp4(shape, is_packed, false, dice))
        };
        let models = both(family, if is_packed { "compressed-tensors" } else { "modelopt" }, &code);
        let [plain, coded] = models.each_ref().map(|model| model.fingerprint());
        assert_ne!(plain, coded, "they are other files");
        are_equal(family, models);
    }
}

/// Kernels of every tier read such weights as they are: logits are those of the values in F32.
#[test]
fn models_in_nvfp4_compute_what_their_values_do() {
    let code = |shape: &[usize], dice: &mut Dice| {
        (shape.len() == 2 && shape[1].is_multiple_of(32)).then(|| nvfp4(shape, true, true, dice))
    };
    let [plain, coded] = both("llama", "compressed-tensors", &code);
    let formats = coded.graph.weights().iter().filter(|weight| weight.format == WeightFormat::NVFP4);
    assert!(formats.count() >= 14, "matrices of two layers");
    let text = Dice::new(3).tokens(40, plain.config.vocabulary);
    let [plain, coded] = [(plain, WeightFormat::F32), (coded, WeightFormat::NVFP4)]
        .map(|(model, format)| TinyModel::of(format.to_string(), model, format));
    let build = |model: &TinyModel, class| model.build(class, KvFormat::F32, vec![1, 8, 32]);
    let expected = logits(&build(&plain, Class::native(Tier::Reference)), &text, 1);
    for class in coded.classes() {
        compare_on_the_whole(
            &expected,
            &logits(&build(&coded, class), &text, 2),
            &format!("NVFP4 on {class}"),
        );
    }
}

/// The numbers of F32 and of NVFP4 in GGUF files.
const F32: u32 = 0;
const NVFP4: u32 = 40;

/// A tensor of a GGUF file: its shape, outermost first, the number of its type and its bytes.
type GgufTensors = BTreeMap<String, (Vec<usize>, u32, Vec<u8>)>;

/// Opens the GGUF file of these tensors.
fn write_gguf(metadata: &BTreeMap<String, GgufValue>, tensors: &GgufTensors) -> Result<Model, ModelError> {
    let (mut records, mut data) = (Vec::new(), Vec::new());
    for (name, (shape, number, bytes)) in tensors {
        // What is written has no NVFP4: its number comes in afterwards.
        let format = WeightFormat::of_ggml_type(*number).unwrap_or(WeightFormat::BF16);
        let offset = data.len() as u64;
        records.push(TensorRecord { name: name.clone(), shape: shape.clone(), format, offset });
        data.extend(bytes);
        data.resize(data.len().next_multiple_of(DATA_ALIGNMENT as usize), 0);
    }
    let mut file = encode_header(3, metadata, &records);
    for (name, (shape, _, _)) in tensors.iter().filter(|(_, (_, number, _))| *number == NVFP4) {
        let named = [&(name.len() as u64).to_le_bytes(), name.as_bytes()].concat();
        let place = file.windows(named.len()).position(|bytes| bytes == named).expect("its record");
        let number = place + named.len() + 4 + 8 * shape.len();
        file[number..number + 4].copy_from_slice(&NVFP4.to_le_bytes());
    }
    file.resize(file.len().next_multiple_of(DATA_ALIGNMENT as usize), 0);
    file.extend(data);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("model.gguf");
    fs::write(&path, file).expect("the folder can be written");
    Model::open(&path)
}

/// The GGUF file of a family with its matrices in NVFP4, and with their values. `numbers` is what follows the names of
/// the tensors of numbers; without them no matrix has any.
fn both_of_gguf(family: &str, numbers: Option<&str>) -> (BTreeMap<String, GgufValue>, [GgufTensors; 2]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/families").join(family);
    let whole = fs::read(path.join("model.gguf")).expect("the family is there");
    let file = parse(&whole).expect("it is whole");
    let (mut plain, mut coded, mut dice) = (GgufTensors::new(), GgufTensors::new(), Dice::new(9));
    for (name, info) in file.tensors {
        let base = name.strip_suffix(".weight").filter(|_| info.shape.len() > 1 && name.contains("blk."));
        let (Some(base), Some(0)) = (base, info.shape.last().map(|columns| columns % 64)) else {
            let number = info.format.ggml_type().expect("a number of its file");
            let same = (info.shape, number, whole[info.bytes].to_vec());
            plain.insert(name.clone(), same.clone());
            coded.insert(name, same);
            continue;
        };
        let elements: usize = info.shape.iter().product();
        let matrices: usize = info.shape.iter().rev().skip(2).product();
        let wholes: Vec<f32> = (0..matrices).map(|_| 1e-4 * (1.0 + dice.below(9) as f32)).collect();
        let blocks: Vec<u8> = (0..elements / 64 * 36).map(|_| dice.below(256) as u8).collect();
        let products = (0..elements).map(|at| {
            let (block, group, place) = (&blocks[at / 64 * 36..][..36], at % 64 / 16, at % 16);
            let code = block[4 + 8 * group + place % 8] >> (place / 8 * 4) & 15;
            let scale = block[group] & 0x7f;
            let whole = if numbers.is_some() { wholes[at * matrices / elements] } else { 1.0 };
            value_of_four(code) * to_bf16(if scale == 0x7f { 0.0 } else { value(scale) } * whole)
        });
        let of_numbers: Vec<u8> = wholes.iter().flat_map(|whole| whole.to_le_bytes()).collect();
        for (suffix, bytes) in numbers.into_iter().flat_map(|suffix| {
            let inputs = suffix.replace("scale", "input_scale");
            [(suffix.to_owned(), of_numbers.clone()), (inputs, of_numbers.clone())]
        }) {
            coded.insert(format!("{base}{suffix}"), (vec![matrices], F32, bytes));
        }
        let products = products.flat_map(f32::to_le_bytes).collect();
        plain.insert(name.clone(), (info.shape.clone(), F32, products));
        coded.insert(name, (info.shape, NVFP4, blocks));
    }
    (file.metadata, [plain, coded])
}

#[test]
fn weights_of_nvfp4_in_one_file_are_products_with_the_scales_of_their_blocks() {
    for (family, numbers) in [
        ("llama", Some(".scale")),
        ("llama", None),
        ("qwen3moe", Some(".weight.scale")),
        ("gpt_oss", Some(".scale")),
    ] {
        let (metadata, tensors) = both_of_gguf(family, numbers);
        let coded = tensors[1].values().filter(|(_, number, _)| *number == NVFP4).count();
        assert!(coded >= 5, "{family}: {coded} matrices");
        let [plain, coded] = tensors.map(|tensors| write_gguf(&metadata, &tensors).expect("it opens"));
        assert_ne!(plain.fingerprint(), coded.fingerprint(), "they are other files");
        are_equal(family, [plain, coded]);
    }
}

#[test]
fn what_is_wrong_with_nvfp4_in_one_file_is_named() {
    let q = "blk.0.attn_q";
    type Change = fn(&mut GgufTensors);
    let cases: [(Change, &[&str]); 4] = [
        (
            |tensors| tensors.get_mut("blk.0.attn_q.scale").expect("it is there").0 = vec![2],
            &["`blk.0.attn_q.scale`", "1 in F32, one for each matrix", "[2] in f32"],
        ),
        (
            |tensors| tensors.get_mut("blk.0.attn_q.scale").expect("it is there").1 = 1,
            &["`blk.0.attn_q.scale`", "1 in F32", "[1] in f16"],
        ),
        (
            |tensors| tensors.get_mut("blk.0.attn_q.weight").expect("it is there").0 = vec![128, 48],
            &["`blk.0.attn_q.weight`", "a matrix with rows of whole NVFP4 blocks of 64", "[128, 48]"],
        ),
        (
            |tensors| tensors.get_mut("blk.0.attn_norm.weight").expect("it is there").1 = NVFP4,
            &["`blk.0.attn_norm.weight`", "a matrix", "[64]"],
        ),
    ];
    for (change, said) in cases {
        let (metadata, [_, mut coded]) = both_of_gguf("llama", Some(".scale"));
        assert!(coded.contains_key(&format!("{q}.weight")));
        // Room for what is said to be larger.
        coded.values_mut().for_each(|(_, _, bytes)| bytes.resize(bytes.len() + 64, 0));
        change(&mut coded);
        let error = write_gguf(&metadata, &coded).expect_err("refused").to_string();
        assert!(said.iter().all(|part| error.contains(part)), "{error}");
    }
}

/// Codes and scales of other sizes would have to be made anew.
#[test]
fn nvfp4_is_not_inflated() {
    let (metadata, [_, coded]) = both_of_gguf("llama", Some(".scale"));
    let model = write_gguf(&metadata, &coded).expect("it opens");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let large = folder.path().join("large.gguf");
    let error = model.write_inflated(&"layers=5,width=256,mlp=640".parse().expect("a shape"), &large);
    let error = error.expect_err("refused").to_string();
    assert!(error.contains("inflation of tensor `blk.0.") && error.contains("NVFP4"), "{error}");
    assert!(!large.exists());
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
