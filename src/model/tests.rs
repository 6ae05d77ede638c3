//! Whole models: open what was written, refuse what was damaged.

use std::{
    fs,
    path::{Path, PathBuf},
};

use ygg_kernels::{RopePairing, WeightFormat};

use super::{
    Container, GgufVocabulary, Model, ModelConfig, ModelError, RopeConfig, RopeScaling, VocabularySource,
    check_bytes, synthetic::SyntheticSpec,
};
use crate::ir::{WeightId, graph_text, verify};

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn gguf(&self, spec: &SyntheticSpec) -> PathBuf {
        let path = self.path("synthetic.gguf");
        spec.write_gguf(&path).unwrap();
        path
    }

    fn folder(&self, spec: &SyntheticSpec) -> PathBuf {
        let path = self.path("synthetic");
        spec.write_folder(&path).unwrap();
        path
    }
}

fn small() -> SyntheticSpec {
    SyntheticSpec {
        width: 32,
        heads: 2,
        kv_heads: 1,
        feed_forward: 64,
        vocabulary: 260,
        ..SyntheticSpec::default()
    }
}

#[track_caller]
fn says(error: &ModelError, parts: &[&str]) {
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
}

/// A model whose rows are whole blocks of `format`.
fn of_format(format: WeightFormat) -> SyntheticSpec {
    let least = format.block_len().max(64);
    SyntheticSpec {
        format,
        width: least,
        head_dim: least / 4,
        feed_forward: 2 * least,
        ..SyntheticSpec::default()
    }
}

#[test]
fn a_q4_k_file_is_mixed_as_the_files_of_that_name_are() {
    let place = Place::new();
    let model = Model::open(&place.gguf(&of_format(WeightFormat::Q4_K))).unwrap();
    let formats_of = |part: &str| -> Vec<WeightFormat> {
        let weights = model.graph.weights().iter().filter(|weight| weight.name.contains(part));
        weights.map(|weight| weight.format).collect()
    };
    let (four, six) = (WeightFormat::Q4_K, WeightFormat::Q6_K);
    assert_eq!(formats_of("attn_v"), [six, four]);
    assert_eq!(formats_of("ffn_down"), [six, four]);
    assert_eq!(formats_of("attn_q"), [four, four]);
    assert_eq!(formats_of("token_embd"), [six]);
    assert_eq!(formats_of("attn_norm"), [WeightFormat::F32; 2]);
}

#[test]
fn every_format_opens_from_both_containers_with_one_configuration() {
    for format in WeightFormat::of_gguf() {
        for tied in [true, false] {
            let place = Place::new();
            // Codes of some formats are searched for, row by row.
            let spec = SyntheticSpec { tied, distinct_rows: 8, ..of_format(format) };
            let gguf = Model::open(&place.gguf(&spec)).unwrap();
            let folder = Model::open(&place.folder(&spec)).unwrap();
            assert_eq!(gguf.config, spec.config().unwrap());
            assert_eq!(folder.config, gguf.config);
            assert_eq!((gguf.container, folder.container), (Container::Gguf, Container::Folder));
            assert_eq!((&gguf.stop_tokens, &folder.stop_tokens), (&vec![2], &vec![2]));
            assert_eq!(gguf.chat_template, folder.chat_template);
            for model in [&gguf, &folder] {
                verify::verify(&model.graph).unwrap();
                assert!(model.unused_tensors.is_empty());
                for (i, weight) in model.graph.weights().iter().enumerate() {
                    let bytes = model.weights.bytes(WeightId(u32::try_from(i).unwrap()));
                    let row = weight.format.row_bytes(weight.columns).unwrap();
                    assert_eq!(bytes.len(), weight.rows * row, "{}", weight.name);
                }
            }
        }
    }
}

#[test]
fn the_two_containers_give_one_graph_up_to_names_and_pairing() {
    let place = Place::new();
    let spec = SyntheticSpec { tied: false, ..SyntheticSpec::default() };
    let gguf = Model::open(&place.gguf(&spec)).unwrap();
    let folder = Model::open(&place.folder(&spec)).unwrap();
    let mut renamed = graph_text(&folder.graph);
    for (from, to) in [
        ("model.embed_tokens", "token_embd"),
        ("model.norm", "output_norm"),
        ("lm_head", "output"),
        ("model.layers.", "blk."),
        ("input_layernorm", "attn_norm"),
        ("post_attention_layernorm", "ffn_norm"),
        ("self_attn.q_proj", "attn_q"),
        ("self_attn.k_proj", "attn_k"),
        ("self_attn.v_proj", "attn_v"),
        ("self_attn.o_proj", "attn_output"),
        ("mlp.gate_proj", "ffn_gate"),
        ("mlp.up_proj", "ffn_up"),
        ("mlp.down_proj", "ffn_down"),
    ] {
        renamed = renamed.replace(from, to);
    }
    assert_eq!(renamed, graph_text(&gguf.graph));
    assert_eq!(gguf.graph.ropes()[0].pairing, RopePairing::Adjacent);
    assert_eq!(folder.graph.ropes()[0].pairing, RopePairing::Halves);
    assert_eq!(gguf.graph.ropes()[0].inv_freq, folder.graph.ropes()[0].inv_freq);
    assert_eq!(gguf.graph.kv(), folder.graph.kv());
}

#[test]
fn graph_of_two_tied_layers() {
    let place = Place::new();
    let model = Model::open(&place.gguf(&SyntheticSpec::default())).unwrap();
    insta::assert_snapshot!(graph_text(&model.graph));
}

#[test]
fn graph_of_a_folder_with_its_own_head() {
    let place = Place::new();
    let spec = SyntheticSpec { layers: 1, tied: false, ..SyntheticSpec::default() };
    let model = Model::open(&place.folder(&spec)).unwrap();
    insta::assert_snapshot!(graph_text(&model.graph));
}

#[test]
fn scaling_rules_survive_both_containers() {
    let llama3 = RopeScaling::Llama3 {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_context: 512.0,
    };
    for scaling in [RopeScaling::Linear { factor: 4.0 }, llama3] {
        let place = Place::new();
        let rope = RopeConfig { base: 500_000.0, scaling };
        let spec = SyntheticSpec { rope: rope.clone(), ..small() };
        let gguf = Model::open(&place.gguf(&spec)).unwrap();
        let folder = Model::open(&place.folder(&spec)).unwrap();
        assert_eq!(folder.config.rope, rope);
        assert!(gguf.unused_tensors.is_empty(), "{:?}", gguf.unused_tensors);
        let expected = rope.inv_freq(spec.head_dim);
        assert_eq!(folder.graph.ropes()[0].inv_freq, expected);
        for (found, expected) in gguf.graph.ropes()[0].inv_freq.iter().zip(expected.iter()) {
            assert!((found / expected - 1.0).abs() < 1e-6, "{found} {expected}");
        }
    }
}

#[test]
fn the_vocabulary_is_handed_on_as_it_is() {
    let place = Place::new();
    let VocabularySource::Gguf(found) = Model::open(&place.gguf(&small())).unwrap().vocabulary else {
        panic!("a GGUF file has its own vocabulary");
    };
    assert_eq!((found.model.as_str(), found.pre.as_str()), ("gpt2", "smollm"));
    assert_eq!((found.bos, found.eos, found.unknown, found.padding), (Some(1), Some(2), Some(0), Some(2)));
    assert_eq!(
        (found.add_bos, found.tokens.len(), found.merges.as_slice()),
        (Some(false), 260, &["Ġ a".to_owned()][..])
    );
    assert_eq!(found.kinds[..4], [GgufVocabulary::CONTROL, 3, 3, GgufVocabulary::NORMAL]);

    let folder = place.folder(&small());
    let VocabularySource::Json { tokenizer, config } = Model::open(&folder).unwrap().vocabulary else {
        panic!("a folder has a tokenizer.json");
    };
    assert_eq!(tokenizer, fs::read(folder.join("tokenizer.json")).unwrap());
    assert_eq!(config, Some(fs::read(folder.join("tokenizer_config.json")).unwrap()));
}

#[test]
fn what_is_not_a_model_is_refused_in_words() {
    let place = Place::new();
    let file = |name: &str, content: &[u8]| {
        let path = place.path(name);
        fs::write(&path, content).unwrap();
        path
    };
    let open = |path: &Path| Model::open(path).expect_err("not a model");
    says(&open(&place.path("missing.gguf")), &["cannot read", "missing.gguf", "No such file"]);
    says(&open(&file("empty.gguf", b"")), &["empty.gguf", "expected a .gguf file", "found an empty file"]);
    says(&open(&file("text.gguf", b"Hello there.\n")), &["text.gguf", "found text"]);
    says(&open(&file("bytes.gguf", b"\0\x01\x02")), &["bytes.gguf", "does not begin with `GGUF`"]);
    says(&open(&file("m.safetensors", b"\0\x01\x02")), &["give the folder it is in"]);
    says(&open(place.0.path()), &["is not a model", "a folder without config.json"]);
}

#[test]
fn a_truncated_file_is_refused_wherever_it_ends() {
    let place = Place::new();
    let bytes = fs::read(place.gguf(&small())).unwrap();
    let cut = place.path("cut.gguf");
    let padding = 32;
    for i in 0..150 {
        let end = i * (bytes.len() - padding) / 150;
        fs::write(&cut, &bytes[..end]).unwrap();
        says(&Model::open(&cut).expect_err("a truncated file"), &["cut.gguf"]);
    }
    let folder = place.folder(&small());
    let weights = folder.join("model.safetensors");
    let bytes = fs::read(&weights).unwrap();
    for i in 1..150 {
        fs::write(&weights, &bytes[..i * bytes.len() / 150]).unwrap();
        says(&Model::open(&folder).expect_err("a truncated file"), &["model.safetensors", "ends early"]);
    }
}

#[test]
fn fingerprints_follow_headers_and_weights() {
    let place = Place::new();
    let fingerprint = |path: &Path| Model::open(path).unwrap().fingerprint();
    let path = place.gguf(&small());
    let first = fingerprint(&path);
    assert_eq!(first, fingerprint(&path));
    assert_eq!(first.to_string().len(), 64);
    assert_ne!(first, fingerprint(&place.gguf(&SyntheticSpec { seed: 2, ..small() })));
    assert_ne!(first, fingerprint(&place.gguf(&SyntheticSpec { context: 100, ..small() })));

    let folder = place.folder(&small());
    let second = fingerprint(&folder);
    assert_ne!(first, second);
    let weights = folder.join("model.safetensors");
    let mut bytes = fs::read(&weights).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&weights, bytes).unwrap();
    assert_ne!(second, fingerprint(&folder));
}

#[test]
fn tensors_nothing_reads_are_listed_and_biases_refused() {
    use ::safetensors::{Dtype, serialize, tensor::TensorView};
    let place = Place::new();
    let folder = place.folder(&small());
    let weights = folder.join("model.safetensors");
    let bytes = fs::read(&weights).unwrap();
    let with = |name: &str| {
        let file = ::safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let mut tensors: Vec<_> = file.tensors();
        tensors.push((name.to_owned(), TensorView::new(Dtype::F32, vec![4], &[0; 16]).unwrap()));
        fs::write(&weights, serialize(tensors, None).unwrap()).unwrap();
        Model::open(&folder)
    };
    let buffer = "model.layers.0.self_attn.rotary_emb.inv_freq";
    assert_eq!(with(buffer).unwrap().unused_tensors, [buffer]);
    let bias = "model.layers.0.self_attn.q_proj.bias";
    says(&with(bias).unwrap_err(), &[bias, "a bias is not supported"]);
}

/// A cheap generator for places and bytes of mutations.
struct Noise(u64);

impl Noise {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        (self.0 >> 33) as usize % n
    }
}

/// What the fuzz target does, for a fixed number of mutations of valid files, most of them in the headers.
#[test]
fn fuzz_smoke() {
    const INTERESTING: [u64; 8] = [0, 1, 0x7F, 0xFF, 1 << 31, 1 << 60, u64::MAX, 1 << 63];
    let place = Place::new();
    let gguf = fs::read(place.gguf(&small())).unwrap();
    let folder = place.folder(&small());
    let config = fs::read(folder.join("config.json")).unwrap();
    let weights = fs::read(folder.join("model.safetensors")).unwrap();
    let folder = [&config[..], &[0], &weights[..]].concat();
    let header = |bytes: &[u8], of: &[u8]| bytes.windows(of.len()).position(|w| w == of).unwrap();
    let gguf_header = header(&gguf, b"output_norm.weight") + 64;
    let folder_header = config.len() + 9 + u64::from_le_bytes(weights[..8].try_into().unwrap()) as usize;

    let mut noise = Noise(42);
    let mut accepted: Vec<ModelConfig> = Vec::new();
    for (valid, header_bytes) in [(&gguf, gguf_header), (&folder, folder_header)] {
        accepted.push(check_bytes(valid).unwrap());
        for _ in 0..4_000 {
            let mut bytes = valid.clone();
            for _ in 0..=noise.below(3) {
                let at = noise.below(header_bytes.min(bytes.len() - 8));
                match noise.below(5) {
                    0 => bytes[at] ^= 1 << noise.below(8),
                    1 => bytes[at] = noise.below(256) as u8,
                    2 => bytes[at..at + 8].copy_from_slice(&INTERESTING[noise.below(8)].to_le_bytes()),
                    3 => drop(bytes.drain(at..at + 1 + noise.below(7))),
                    _ => bytes.truncate(at.max(16)),
                }
            }
            if let Ok(config) = check_bytes(&bytes) {
                accepted.push(config);
            }
        }
    }
    assert!(accepted.iter().all(|c| c.heads.is_multiple_of(c.kv_heads) && c.head_dim.is_multiple_of(2)));
    assert!(accepted.len() > 20, "mutations must reach deep: {} were accepted", accepted.len());
}
