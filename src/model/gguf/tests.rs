//! GGUF parsing: every value type, both versions, and one hostile file per rule.

use std::collections::BTreeMap;

use ygg_kernels::WeightFormat;

use super::{Array, GgufFile, TensorRecord, Value, describe, encode_header, parse};
use crate::model::ModelError;

fn record(name: &str, shape: &[usize], offset: u64) -> TensorRecord {
    TensorRecord { name: name.to_owned(), shape: shape.to_vec(), format: WeightFormat::F32, offset }
}

fn metadata(entries: &[(&str, Value)]) -> BTreeMap<String, Value> {
    entries.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect()
}

/// A file with the given tables and `data` zero bytes after the padding.
fn file(entries: &[(&str, Value)], tensors: &[TensorRecord], data: usize) -> Vec<u8> {
    let mut bytes = encode_header(3, &metadata(entries), tensors);
    bytes.resize(bytes.len().next_multiple_of(32) + data, 0);
    bytes
}

/// A file written number by number.
fn raw(version: u32, tensors: u64, entries: u64, rest: &[u8]) -> Vec<u8> {
    [b"GGUF", &version.to_le_bytes()[..], &tensors.to_le_bytes(), &entries.to_le_bytes(), rest].concat()
}

fn string(text: &[u8]) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes()[..], text].concat()
}

/// A tensor entry of type `kind` after a header that announces it.
fn raw_tensor(name: &[u8], dimensions: &[u64], kind: u32, offset: u64) -> Vec<u8> {
    let mut rest = string(name);
    rest.extend(u32::try_from(dimensions.len()).unwrap().to_le_bytes());
    dimensions.iter().for_each(|n| rest.extend(n.to_le_bytes()));
    rest.extend(kind.to_le_bytes());
    rest.extend(offset.to_le_bytes());
    let mut bytes = raw(3, 1, 0, &rest);
    bytes.resize(bytes.len().next_multiple_of(32) + 128, 0);
    bytes
}

#[track_caller]
fn refused(bytes: &[u8], parts: &[&str]) -> ModelError {
    let error = parse(bytes).expect_err("a hostile file");
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
    error
}

fn every_type() -> Vec<(&'static str, Value)> {
    let nested = Array::Array(vec![
        Array::U8(vec![1, 2]),
        Array::String(vec!["a".to_owned()]),
        Array::Array(vec![Array::F64(vec![0.5]), Array::Bool(vec![])]),
    ]);
    vec![
        ("u8", Value::U8(200)),
        ("i8", Value::I8(-3)),
        ("u16", Value::U16(60_000)),
        ("i16", Value::I16(-300)),
        ("u32", Value::U32(4_000_000_000)),
        ("i32", Value::I32(-70_000)),
        ("f32", Value::F32(0.25)),
        ("bool", Value::Bool(true)),
        ("string", Value::String("Grüße".to_owned())),
        ("u64", Value::U64(1 << 60)),
        ("i64", Value::I64(-(1 << 60))),
        ("f64", Value::F64(1e-300)),
        ("array.u8", Value::Array(Array::U8(vec![1, 255]))),
        ("array.i8", Value::Array(Array::I8(vec![-1, 1]))),
        ("array.u16", Value::Array(Array::U16(vec![1, 65_535]))),
        ("array.i16", Value::Array(Array::I16(vec![-1, 1]))),
        ("array.u32", Value::Array(Array::U32(vec![1, u32::MAX]))),
        ("array.i32", Value::Array(Array::I32(vec![-1, 1]))),
        ("array.f32", Value::Array(Array::F32(vec![-1.0, 1.5]))),
        ("array.bool", Value::Array(Array::Bool(vec![true, false]))),
        ("array.string", Value::Array(Array::String(vec![String::new(), "b".to_owned()]))),
        ("array.u64", Value::Array(Array::U64(vec![u64::MAX]))),
        ("array.i64", Value::Array(Array::I64(vec![i64::MIN]))),
        ("array.f64", Value::Array(Array::F64(vec![1.0, 2.0]))),
        ("array.array", Value::Array(nested)),
        ("array.empty", Value::Array(Array::String(vec![]))),
    ]
}

#[test]
fn every_value_type_round_trips_in_both_versions() {
    let entries = metadata(&every_type());
    for version in [2, 3] {
        let bytes = encode_header(version, &entries, &[]);
        let found = parse(&bytes).unwrap();
        assert_eq!(
            found,
            GgufFile {
                version,
                metadata: entries.clone(),
                tensors: BTreeMap::new(),
                header_bytes: bytes.len(),
            }
        );
    }
}

#[test]
fn tensors_of_every_format_lie_where_the_table_says() {
    let formats = [
        (WeightFormat::F32, 256),
        (WeightFormat::F16, 128),
        (WeightFormat::BF16, 128),
        (WeightFormat::Q8_0, 68),
        (WeightFormat::Q4_0, 36),
        (WeightFormat::Q4_1, 40),
        (WeightFormat::Q4_K, 288),
        (WeightFormat::Q6_K, 420),
        (WeightFormat::Q5_0, 44),
        (WeightFormat::Q5_1, 48),
        (WeightFormat::Q5_K, 352),
        (WeightFormat::Q2_K, 168),
        (WeightFormat::Q3_K, 220),
        (WeightFormat::IQ4_NL, 36),
        (WeightFormat::IQ4_XS, 272),
        (WeightFormat::MXFP4, 34),
        (WeightFormat::IQ2_XXS, 132),
        (WeightFormat::IQ2_XS, 148),
        (WeightFormat::IQ2_S, 164),
        (WeightFormat::IQ3_XXS, 196),
        (WeightFormat::IQ3_S, 220),
        (WeightFormat::IQ1_S, 100),
        (WeightFormat::IQ1_M, 112),
    ];
    assert!(formats.iter().map(|(format, _)| *format).eq(WeightFormat::of_gguf()));
    let mut tensors = Vec::new();
    for (i, (format, _)) in formats.into_iter().enumerate() {
        let shape = vec![2, format.block_len().max(32)];
        tensors.push(TensorRecord { name: format!("t{i}"), shape, format, offset: 512 * i as u64 });
    }
    let bytes = file(&[], &tensors, 512 * formats.len());
    let found = parse(&bytes).unwrap();
    let start = found.header_bytes.next_multiple_of(32);
    for (i, (format, len)) in formats.into_iter().enumerate() {
        let info = &found.tensors[&format!("t{i}")];
        assert_eq!((info.format, &info.shape), (format, &tensors[i].shape));
        assert_eq!(info.bytes, start + 512 * i..start + 512 * i + len);
    }
}

#[test]
fn alignment_moves_the_data() {
    let entries = [("general.alignment", Value::U32(256))];
    let mut bytes = encode_header(3, &metadata(&entries), &[record("t", &[4], 0)]);
    bytes.resize(bytes.len().next_multiple_of(256) + 16, 0);
    let found = parse(&bytes).unwrap();
    assert_eq!(found.tensors["t"].bytes, bytes.len() - 16..bytes.len());
}

#[test]
fn every_truncation_is_an_error() {
    let tensors = [record("first", &[3, 8], 0), record("second", &[5], 96)];
    let bytes = file(&every_type(), &tensors, 96 + 20);
    parse(&bytes).unwrap();
    for end in 0..bytes.len() {
        parse(&bytes[..end]).expect_err("a truncated file");
    }
}

#[test]
fn wrong_magic_version_or_byte_order_is_named() {
    refused(b"GGML\x03\0\0\0", &["magic", "`GGUF`", "GGML"]);
    refused(&raw(1, 0, 0, &[]), &["GGUF version", "1 is not supported", "2 and 3"]);
    refused(&raw(4, 0, 0, &[]), &["GGUF version", "4 is not supported"]);
    refused(&raw(3u32.swap_bytes(), 0, 0, &[]), &["byte order", "big-endian (version 3)"]);
}

#[test]
fn absurd_counts_are_refused_before_anything_is_reserved() {
    let huge = 1u64 << 60;
    refused(&raw(3, 0, huge, &[0; 64]), &["metadata count", "at most", "1152921504606846976"]);
    refused(&raw(3, huge, 0, &[0; 64]), &["tensor count", "at most", "1152921504606846976"]);
    let key = string(b"k");
    let array = |element: u32| {
        [&key[..], &9u32.to_le_bytes(), &element.to_le_bytes(), &huge.to_le_bytes(), &[0; 32]].concat()
    };
    for element in [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12] {
        refused(&raw(3, 0, 1, &array(element)), &["key `k`", "1152921504606846976"]);
    }
    let long_key = [&huge.to_le_bytes()[..], &[b'a'; 32]].concat();
    refused(&raw(3, 0, 1, &long_key), &["metadata key 0", "ends early"]);
    let long_text = [&key[..], &8u32.to_le_bytes(), &u64::MAX.to_le_bytes(), &[b'a'; 8]].concat();
    refused(&raw(3, 0, 1, &long_text), &["key `k`", "ends early"]);
}

#[test]
fn bad_metadata_is_named() {
    let entry = |key: &[u8], kind: u32, value: &[u8]| {
        raw(3, 0, 1, &[&string(key)[..], &kind.to_le_bytes(), value, &[0; 16]].concat())
    };
    refused(&entry(b"k", 13, &[]), &["key `k`", "value type from 0 to 12", "13"]);
    refused(&entry(b"k", 7, &[2]), &["key `k`", "bool", "2"]);
    refused(&entry(b"", 0, &[1]), &["metadata key 0", "1 to 65535 bytes"]);
    refused(&entry(b"\xff\xfe", 0, &[1]), &["metadata key 0", "UTF-8"]);
    refused(&entry(b"k", 8, &string(b"a\xc3\x28")), &["key `k`", "UTF-8", "byte at 1 of 3"]);
    let deep: Vec<u8> =
        (0..100).flat_map(|_| [&9u32.to_le_bytes()[..], &1u64.to_le_bytes()].concat()).collect();
    refused(&entry(b"k", 9, &deep), &["key `k`", "nested at most 8"]);
    let twice: Vec<u8> =
        (0..2).flat_map(|_| [&string(b"k")[..], &0u32.to_le_bytes(), &[1]].concat()).collect();
    refused(&raw(3, 0, 2, &[&twice[..], &[0; 32]].concat()), &["key `k`", "a second one"]);
    let texts = [&8u32.to_le_bytes()[..], &2u64.to_le_bytes(), &string(b"fine"), &string(b"\x80")].concat();
    refused(&entry(b"k", 9, &texts), &["key `k`, element 1", "UTF-8"]);
}

#[test]
fn bad_alignment_is_named() {
    for value in [
        Value::U32(0),
        Value::U32(4),
        Value::U32(48),
        Value::U64(1 << 60),
        Value::I32(-32),
        Value::String("32".to_owned()),
    ] {
        refused(&file(&[("general.alignment", value)], &[], 0), &["`general.alignment`", "power of two"]);
    }
}

#[test]
fn bad_tensor_entries_are_named() {
    refused(&raw_tensor(b"t", &[], 0, 0), &["tensor `t`", "1 to 4 dimensions", "0"]);
    refused(&raw_tensor(b"t", &[1; 5], 0, 0), &["tensor `t`", "1 to 4 dimensions", "5"]);
    refused(&raw_tensor(b"t", &[4, 0], 0, 0), &["tensor `t`", "above 0", "[0, 4]"]);
    refused(&raw_tensor(b"t", &[1 << 40, 1 << 40], 0, 0), &["tensor `t`", "2^64"]);
    refused(&raw_tensor(b"t", &[33], 8, 0), &["tensor `t`", "blocks of 32", "33 columns"]);
    refused(&raw_tensor(b"t", &[288], 12, 0), &["tensor `t`", "Q4_K blocks of 256", "288 columns"]);
    refused(&raw_tensor(b"t", &[32, 8], 14, 0), &["tensor `t`", "Q6_K blocks of 256", "32 columns"]);
    refused(&raw_tensor(b"t", &[256, 1 << 60], 14, 0), &["tensor `t`", "2^64"]);
    refused(&raw_tensor(b"t", &[256], 14, 0), &["tensor `t`", "end within"]);
    refused(&raw_tensor(b"t", &[4], 0, 8), &["tensor `t`", "multiples of 32", "8"]);
    refused(&raw_tensor(b"t", &[4], 0, 1 << 60), &["tensor `t`", "end within", "1152921504606846976"]);
    refused(&raw_tensor(b"t", &[4], 0, u64::MAX - 31), &["tensor `t`", "end within"]);
    refused(&raw_tensor(b"t", &[33], 0, 0), &["tensor `t`", "end within"]);
    refused(&raw_tensor(b"", &[4], 0, 0), &["name of tensor 0", "1 to 65535 bytes"]);
    refused(&raw_tensor(b"\xf0", &[4], 0, 0), &["name of tensor 0", "UTF-8"]);
}

#[test]
fn types_we_cannot_run_are_named_with_those_we_can() {
    for (number, name) in [(9, "Q8_1"), (24, "I8"), (26, "I32"), (34, "TQ1_0"), (999, "unknown")] {
        let error = refused(
            &raw_tensor(b"blk.0.attn_q.weight", &[32], number, 0),
            &[
                "tensor `blk.0.attn_q.weight`",
                &format!("type {number} ({name})"),
                "Q8_0 (8), Q4_0 (2), Q4_1 (3), Q4_K (12), Q6_K (14)",
            ],
        );
        assert!(matches!(error, ModelError::Unsupported { .. }));
    }
}

#[test]
fn overlapping_and_duplicate_tensors_are_named() {
    let overlap = [record("a", &[16], 0), record("b", &[16], 32)];
    refused(&file(&[], &overlap, 128), &["tensor `b`", "after tensor `a`"]);
    let same_place = [record("b", &[16], 0), record("a", &[16], 0)];
    refused(&file(&[], &same_place, 128), &["tensor `b`", "after tensor `a`"]);
    let duplicate = [record("a", &[8], 0), record("a", &[8], 32)];
    refused(&file(&[], &duplicate, 128), &["tensor `a`", "a second one"]);
}

/// The metadata of a model of one layer, changed by `change`; the error of describing it.
#[track_caller]
fn refused_config(change: &[(&str, Option<Value>)], parts: &[&str]) {
    let mut entries = metadata(&[
        ("general.architecture", Value::String("llama".to_owned())),
        ("llama.attention.head_count", Value::U32(4)),
        ("llama.attention.head_count_kv", Value::U32(2)),
        ("llama.attention.layer_norm_rms_epsilon", Value::F32(1e-5)),
        ("llama.block_count", Value::U32(1)),
        ("llama.context_length", Value::U32(64)),
        ("llama.embedding_length", Value::U32(32)),
        ("llama.feed_forward_length", Value::U32(64)),
        ("tokenizer.ggml.model", Value::String("gpt2".to_owned())),
        ("tokenizer.ggml.tokens", Value::Array(Array::String(vec!["a".to_owned(), "b".to_owned()]))),
    ]);
    for (key, value) in change {
        match value {
            Some(value) => entries.insert((*key).to_owned(), value.clone()),
            None => entries.remove(*key),
        };
    }
    let bytes = encode_header(3, &entries, &[]);
    let text = describe(&bytes, "test").expect_err("no tensors at the least").to_string();
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
}

#[test]
fn bad_configurations_are_named_by_key() {
    let count = |n| Some(Value::U32(n));
    let text = |t: &str| Some(Value::String(t.to_owned()));
    refused_config(&[], &["tensor `token_embd.weight` is missing", "[2, 32]"]);
    refused_config(&[("general.architecture", text("gpt2"))], &["`gpt2` is not supported", "`llama`"]);
    refused_config(&[("general.architecture", None)], &["`general.architecture` is missing"]);
    refused_config(&[("llama.attention.head_count", count(0))], &["`llama.attention.head_count`", "found 0"]);
    refused_config(&[("llama.attention.head_count", text("4"))], &["head_count", "integer", "string \"4\""]);
    refused_config(&[("llama.attention.head_count_kv", count(0))], &["head_count_kv`", "found 0"]);
    refused_config(&[("llama.attention.head_count_kv", count(3))], &["head_count_kv`", "divisor of the 4"]);
    let of_layers = |heads: &[i32]| Some(Value::Array(Array::I32(heads.to_vec())));
    refused_config(
        &[("llama.attention.head_count_kv", of_layers(&[2, 0]))],
        &["head_count_kv`", "array of 2"],
    );
    refused_config(
        &[("llama.attention.head_count_kv", of_layers(&[2, 4]))],
        &["head_count_kv`", "2 in one", "4"],
    );
    refused_config(
        &[("llama.embedding_length", count(34))],
        &["embedding_length`", "multiple of the 4", "34"],
    );
    refused_config(&[("llama.embedding_length", count(36))], &["key_length`", "even head size", "9"]);
    refused_config(&[("llama.embedding_length", count(u32::MAX))], &["embedding_length`", "4294967295"]);
    refused_config(&[("llama.attention.key_length", count(7))], &["key_length`", "even", "7"]);
    refused_config(&[("llama.attention.value_length", count(4))], &["value_length`", "head size, 8", "4"]);
    refused_config(&[("llama.rope.dimension_count", count(4))], &["dimension_count`", "head size, 8"]);
    refused_config(&[("llama.block_count", count(0))], &["block_count`", "1 to 4096"]);
    refused_config(&[("llama.block_count", count(1 << 30))], &["block_count`", "1 to 4096"]);
    refused_config(&[("llama.block_count", None)], &["`llama.block_count` is missing"]);
    refused_config(&[("llama.feed_forward_length", count(0))], &["feed_forward_length`", "found 0"]);
    refused_config(&[("llama.context_length", Some(Value::I32(-1)))], &["context_length`", "i32 -1"]);
    refused_config(&[("llama.vocab_size", count(3))], &["vocab_size`", "number of tokens, 2", "3"]);
    let eps = "llama.attention.layer_norm_rms_epsilon";
    refused_config(&[(eps, Some(Value::F32(f32::NAN)))], &[eps, "above 0"]);
    refused_config(&[(eps, Some(Value::F32(0.0)))], &[eps, "above 0"]);
    refused_config(&[("llama.rope.freq_base", Some(Value::F32(-1.0)))], &["freq_base`", "above 1"]);
    refused_config(
        &[("llama.rope.scaling.type", text("dynamic"))],
        &["scaling.type`", "`dynamic`", "`linear`"],
    );
    refused_config(&[("llama.rope.scaling.type", text("yarn"))], &["scaling.factor` is missing"]);
    refused_config(&[("llama.rope.dimension_count", count(5))], &["dimension_count`", "even number"]);
    refused_config(&[("llama.rope.dimension_count", count(10))], &["dimension_count`", "at most the 8"]);
    refused_config(&[("llama.rope.scaling.type", text("linear"))], &["scaling.factor` is missing"]);
    let used = |used| [("llama.expert_count", count(8)), ("llama.expert_used_count", count(used))];
    refused_config(&[("llama.expert_count", count(8))], &["expert_used_count` is missing"]);
    refused_config(&used(9), &["expert_used_count`", "1 to 8", "found 9"]);
    let shared = [("llama.expert_shared_count", count(1))];
    let with_shared: Vec<_> = used(2).into_iter().chain(shared).collect();
    refused_config(&with_shared, &["expert_shared_count`", "no expert that all rows share"]);
    refused_config(&[("split.count", count(2))], &["split.count`", "in one folder with all others"]);
    refused_config(&[("tokenizer.ggml.model", None)], &["tokenizer.ggml.model` is missing"]);
    refused_config(&[("tokenizer.ggml.eos_token_id", count(2))], &["eos_token_id`", "below 2"]);
    let kinds = Some(Value::Array(Array::I32(vec![1])));
    refused_config(&[("tokenizer.ggml.token_type", kinds)], &["token_type`", "each of 2", "found 1"]);
    let kinds = Some(Value::Array(Array::I32(vec![1, -1])));
    refused_config(&[("tokenizer.ggml.token_type", kinds)], &["token_type`", "array of 2 i32"]);
}
