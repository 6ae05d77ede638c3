//! Synthetic models: the same bytes from the same seed, numbers in range, valid vocabularies.

use std::fs;

use ygg_kernels::WeightFormat;

use super::{SyntheticSpec, numbers::Stream, tensors::tensors, vocabulary::Vocabulary};

/// A change of these bytes changes every test that runs a synthetic model.
#[test]
fn a_seed_is_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let digest = |seed| {
        let path = folder.path().join("model.gguf");
        SyntheticSpec { seed, ..SyntheticSpec::default() }.write_gguf(&path).unwrap();
        blake3::hash(&fs::read(path).unwrap()).to_hex().to_string()
    };
    assert_eq!(digest(1), digest(1));
    assert_ne!(digest(1), digest(2));
    insta::assert_snapshot!(digest(1));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no unfinished file is left");
}

#[test]
fn numbers_are_normal() {
    let stream = Stream::new(3, 5);
    let n = 100_000;
    let numbers: Vec<f64> = (0..n).map(|i| stream.normal(i).into()).collect();
    let mean = numbers.iter().sum::<f64>() / n as f64;
    let variance = numbers.iter().map(|x| x * x).sum::<f64>() / n as f64;
    assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.02, "{mean} {variance}");
    assert_ne!(stream.bits(0), Stream::new(3, 6).bits(0));
}

#[test]
fn query_and_key_rows_of_the_two_containers_are_pairings_of_each_other() {
    let spec = SyntheticSpec::default();
    for tensor in tensors(&spec) {
        let mut gguf = Vec::new();
        (0..tensor.rows()).for_each(|row| tensor.gguf_row(row, &mut gguf));
        let folder = tensor.folder_bytes(0..tensor.rows());
        let row_bytes = 4 * tensor.columns();
        let rotary = tensor.gguf_name.contains("attn_q") || tensor.gguf_name.contains("attn_k");
        if !rotary {
            assert_eq!(gguf, folder, "{}", tensor.gguf_name);
            continue;
        }
        let half = spec.head_dim / 2;
        for row in 0..tensor.rows() {
            let (head, element) = (row / spec.head_dim, row % spec.head_dim);
            let pair_place = if element < half { 2 * element } else { 2 * (element - half) + 1 };
            let other = head * spec.head_dim + pair_place;
            assert_eq!(folder[row * row_bytes..][..row_bytes], gguf[other * row_bytes..][..row_bytes]);
        }
    }
}

#[test]
fn vocabularies_of_any_size_have_unique_tokens() {
    for size in [super::LEAST_VOCABULARY, 300, 1_000, 2_000] {
        let vocabulary = Vocabulary::new(size);
        let unique: std::collections::BTreeSet<_> = vocabulary.tokens.iter().collect();
        assert_eq!((vocabulary.tokens.len(), unique.len(), vocabulary.kinds.len()), (size, size, size));
        assert!(vocabulary.merges.iter().all(|(a, b)| unique.contains(&format!("{a}{b}"))));
    }
    assert_eq!(Vocabulary::new(300).tokens[3 + usize::from(b' ')], "Ġ");
}

#[test]
fn impossible_models_are_named() {
    let default = SyntheticSpec::default;
    for (spec, field) in [
        (SyntheticSpec { layers: 0, ..default() }, "`layers`"),
        (SyntheticSpec { kv_heads: 3, ..default() }, "`kv_heads`"),
        (SyntheticSpec { head_dim: 15, ..default() }, "`head_dim`"),
        (SyntheticSpec { vocabulary: 100, ..default() }, "`vocabulary`"),
        (SyntheticSpec { format: WeightFormat::Q4_1, feed_forward: 100, ..default() }, "`feed_forward`"),
        (SyntheticSpec { format: WeightFormat::Q8_0, head_dim: 6, ..default() }, "`heads * head_dim`"),
        (SyntheticSpec { format: WeightFormat::Q6_K, ..default() }, "`width`"),
    ] {
        let error = spec.write_gguf("unwritten.gguf".as_ref()).unwrap_err().to_string();
        assert!(error.contains(field), "{error}");
    }
}

#[test]
fn rows_that_repeat_are_those_that_would_be_made() {
    for distinct_rows in [4, 8, 16, 32] {
        let spec = SyntheticSpec { distinct_rows, ..SyntheticSpec::default() };
        let mut repeating = 0;
        for tensor in tensors(&spec) {
            let row = |row| {
                let mut bytes = Vec::new();
                tensor.gguf_row(row, &mut bytes);
                bytes
            };
            let Some(period) = tensor.period() else { continue };
            repeating += 1;
            for later in period..tensor.rows() {
                assert!(row(later) == row(later % period), "{} row {later}", tensor.gguf_name);
            }
        }
        assert!(repeating > 10, "{distinct_rows}");
    }
}

#[test]
fn shapes_are_lawful_in_every_format() {
    for name in SyntheticSpec::SHAPES {
        for format in WeightFormat::ALL {
            SyntheticSpec::shape(name, format).unwrap().config().unwrap();
        }
    }
    assert_eq!(SyntheticSpec::shape("llama-2b", WeightFormat::BF16), None);
}
