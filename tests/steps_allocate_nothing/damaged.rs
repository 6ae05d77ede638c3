//! Damaged and hostile model files of every family, in both containers: an error or a model, soon, without a panic, and
//! without allocating for what a file claims to have. Both at once are told by the peak of live bytes compared with the
//! file's size.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use serde_json::Value as Json;
use yggc::{
    model::{
        GgufVocabulary, Model, VocabularySource,
        gguf::{Array, DATA_ALIGNMENT, TensorRecord, Value, encode_header, parse},
    },
    text::{
        ChatTemplate, Conversation, GenerationPrompt, Message, Role, TokenKind, Tokenizer, TokenizerConfig,
        Vocabulary,
    },
};

use super::peak_of;
use mutation::Mutator;

#[path = "../../fuzz/src/mutation.rs"]
#[allow(dead_code, unreachable_pub, reason = "a library to the fuzz targets, a module here")]
mod mutation;

pub(crate) const FAMILIES: [&str; 14] = [
    "qwen2",
    "qwen3",
    "llama",
    "mistral",
    "smollm3",
    "granite",
    "olmo2",
    "phi3",
    "gemma2",
    "gemma3",
    "lfm2",
    "qwen35",
    "gemma4",
    "granitehybrid",
];

/// Damaged files of a family in a container: some, or as many as the release demands.
const SOME: u64 = 12;
const ALL: u64 = 100;

/// What opening may allocate for each byte of the files.
const BYTES_PER_BYTE: usize = 10;
/// What it takes in addition, whatever the file: tables of characters of the regular expressions that cut text into
/// words.
const OWN_BYTES: usize = 12 << 20;
/// The same where a hostile pattern makes the compiler of regular expressions go as far as its own limit.
const PATTERN_BYTES: usize = 32 << 20;
/// A bound against hangs. Opening takes some milliseconds, without optimisation some tens of them.
const TIME: Duration = Duration::from_secs(20);

const TEMPLATE: &str = include_str!("../data/text/templates/qwen2.5.jinja");

/// A model in files, by name.
type Files = BTreeMap<&'static str, Vec<u8>>;

/// Opens all that a model's files say, and tries its tokenizer and template. What is wrong, if anything.
fn open(path: &Path) -> Result<(), String> {
    let said = |error: &dyn std::fmt::Display| error.to_string();
    let model = Model::open(path).map_err(|error| said(&error))?;
    let _ = model.fingerprint();
    let tokenizer = match &model.vocabulary {
        VocabularySource::Gguf(found) => {
            Tokenizer::from_vocabulary(vocabulary(found).map_err(|error| said(&error))?)
        }
        VocabularySource::Json { tokenizer, config } => config
            .as_deref()
            .map_or_else(|| Ok(TokenizerConfig::default()), TokenizerConfig::from_json)
            .and_then(|config| Tokenizer::from_json(tokenizer, &config)),
    };
    let tokenizer = tokenizer.map_err(|error| said(&error))?;
    let ids = tokenizer.encode_prompt("<s>Some text, 123 <|user|>\n");
    let _ = tokenizer.decode(&ids);
    if let Some(template) = &model.chat_template {
        let template = ChatTemplate::compile(template).map_err(|error| said(&error))?;
        let conversation = Conversation::new(vec![Message::new(Role::User, "hello")], GenerationPrompt::Add);
        tokenizer.encode_chat(&template, &conversation).map_err(|error| said(&error))?;
    }
    Ok(())
}

fn vocabulary(found: &GgufVocabulary) -> Result<Vocabulary, yggc::text::TextError> {
    let kinds = found.kinds.iter().map(|kind| TokenKind::try_from(i32::try_from(*kind).unwrap_or(i32::MAX)));
    Ok(Vocabulary {
        model: found.model.clone(),
        tokens: found.tokens.clone(),
        kinds: kinds.collect::<Result<_, _>>()?,
        merges: found.merges.clone(),
        scores: found.scores.clone(),
        pre_tokenizer: found.pre.clone(),
        bos: found.bos,
        eos: found.eos,
        unknown: found.unknown,
        add_bos: found.add_bos,
        add_space_prefix: found.add_space_prefix,
        removes_extra_spaces: found.removes_extra_spaces,
        character_table: found.character_table.clone(),
        ..Vocabulary::default()
    })
}

/// A tokenizer of so many tokens: SentencePiece's for the families that have it and for one too small to spell all
/// bytes, else in bytes.
fn tokenizer(family: &str, count: usize) -> Vocabulary {
    let is_marks = matches!(family, "llama" | "mistral" | "phi3" | "gemma2" | "gemma3" | "gemma4" | "olmo2");
    let controls = ["<unk>", "<s>", "</s>", "<|user|>", "<|assistant|>", "<|end|>"];
    let mut tokens: Vec<String> = controls.map(str::to_owned).to_vec();
    let mut kinds = vec![TokenKind::Control; tokens.len()];
    kinds[0] = TokenKind::Unknown;
    tokens.extend(('!'..='~').map(String::from));
    tokens.extend(if is_marks { vec!["▁"] } else { vec!["Ġ", "Ċ"] }.into_iter().map(String::from));
    tokens.extend(["he", "ll", "hell"].map(String::from));
    kinds.resize(tokens.len(), TokenKind::Normal);
    tokens.truncate(count);
    kinds.truncate(count);
    while tokens.len() < count {
        tokens.push(format!("<unused{}>", tokens.len()));
        kinds.push(TokenKind::Unused);
    }
    Vocabulary {
        model: if is_marks { "llama" } else { "gpt2" }.into(),
        scores: if is_marks { (0..count).map(|id| -(id as f32)).collect() } else { Vec::new() },
        merges: if is_marks { Vec::new() } else { ["h e", "l l", "he ll"].map(String::from).to_vec() },
        pre_tokenizer: if is_marks { "default" } else { "llama-bpe" }.into(),
        unknown: is_marks.then_some(0),
        tokens,
        kinds,
        bos: Some(1),
        eos: Some(2),
        ..Vocabulary::default()
    }
}

fn data(family: &str, name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/families").join(family);
    fs::read(folder.join(name)).expect("the tiny model is there")
}

/// The tiny model of a family, with a tokenizer and a template.
fn folder(family: &str) -> Files {
    let config = data(family, "config.json");
    let json: Json = serde_json::from_slice(&config).expect("JSON");
    let count = json["vocab_size"].as_u64().expect("a number") as usize;
    let file = tokenizer(family, count).to_json().expect("a tokenizer");
    let tokenizer_config =
        serde_json::json!({"bos_token": "<s>", "eos_token": "</s>", "chat_template": TEMPLATE});
    BTreeMap::from([
        ("config.json", config),
        ("model.safetensors", data(family, "model.safetensors")),
        ("tokenizer.json", file.to_string().into_bytes()),
        ("tokenizer_config.json", tokenizer_config.to_string().into_bytes()),
        ("generation_config.json", br#"{"eos_token_id": [2, 5]}"#.to_vec()),
    ])
}

fn gguf(family: &str) -> Vec<u8> {
    let whole = data(family, "model.gguf");
    let mut file = parse(&whole).expect("the tiny model is whole");
    let size = file.metadata.iter().find(|(key, _)| key.ends_with(".vocab_size")).expect("it has the key").1;
    let vocabulary = tokenizer(family, usize::try_from(size.as_count().expect("a count")).expect("small"));
    let kinds = vocabulary.kinds.iter().map(|kind| *kind as i32).collect();
    for (key, value) in [
        ("model", Value::String(vocabulary.model)),
        ("pre", Value::String(vocabulary.pre_tokenizer)),
        ("tokens", Value::Array(Array::String(vocabulary.tokens))),
        ("token_type", Value::Array(Array::I32(kinds))),
        ("merges", Value::Array(Array::String(vocabulary.merges))),
        ("bos_token_id", Value::U32(1)),
        ("eos_token_id", Value::U32(2)),
        ("unknown_token_id", Value::U32(0)),
    ] {
        file.metadata.insert(format!("tokenizer.ggml.{key}"), value);
    }
    if !vocabulary.scores.is_empty() {
        file.metadata.insert("tokenizer.ggml.scores".into(), Value::Array(Array::F32(vocabulary.scores)));
    }
    file.metadata.insert("tokenizer.chat_template".into(), Value::String(TEMPLATE.into()));
    let first = file.tensors.values().map(|tensor| tensor.bytes.start).min().expect("it has tensors");
    let records: Vec<TensorRecord> = file
        .tensors
        .iter()
        .map(|(name, tensor)| TensorRecord {
            name: name.clone(),
            shape: tensor.shape.clone(),
            format: tensor.format,
            offset: (tensor.bytes.start - first) as u64,
        })
        .collect();
    let mut out = encode_header(3, &file.metadata, &records);
    out.resize(out.len().next_multiple_of(DATA_ALIGNMENT as usize), 0);
    out.extend_from_slice(&whole[first..]);
    out
}

/// Writes files, opens the model, and checks what that took. Whether it opened.
#[track_caller]
#[allow(clippy::disallowed_methods, reason = "a generous bound against hangs")]
fn try_files(place: &Path, files: &Files, opened: &str, what: &str, worst: &mut (usize, Duration)) -> bool {
    let _ = fs::remove_dir_all(place);
    fs::create_dir(place).expect("a writable folder");
    for (name, bytes) in files {
        fs::write(place.join(name), bytes).expect("a writable folder");
    }
    let size: usize = files.values().map(Vec::len).sum();
    let began = Instant::now();
    let (peak, result) = peak_of(|| open(&place.join(opened)));
    let took = began.elapsed();
    *worst = (worst.0.max(peak), worst.1.max(took));
    assert!(took < TIME, "{what}: {took:?}, {result:?}");
    // A template may make 16 MiB before it is refused, in addition to the tables.
    let is_costly = ["pattern", "doubling"].iter().any(|part| what.contains(part));
    let own = if is_costly { PATTERN_BYTES } else { OWN_BYTES };
    let limit = BYTES_PER_BYTE * size + own;
    assert!(peak <= limit, "{what}: {peak} bytes for files of {size}, {result:?}");
    if let Err(error) = &result {
        assert!(!error.is_empty() && error.len() < 2_000, "{what}: {error}");
    }
    result.is_ok()
}

/// Checks a family: whole, under random damage, and under every kind of planned one.
pub(crate) fn check(family: &str, is_folder: bool) {
    let (files, opened): (Files, &str) =
        if is_folder { (folder(family), "") } else { (BTreeMap::from([("m.gguf", gguf(family))]), "m.gguf") };
    let temporary = tempfile::tempdir().expect("a temporary folder");
    let place: PathBuf = temporary.path().join("model");
    let mut worst = (0, Duration::ZERO);
    let container = if is_folder { "folder" } else { "GGUF" };
    let mut attempt = |files: &Files, what: &str| {
        try_files(&place, files, opened, &format!("{family}, {container}, {what}"), &mut worst)
    };
    assert!(attempt(&files, "whole"), "{family} as {container} does not open whole");
    let planned = if is_folder { hostile_folders(&files) } else { hostile_gguf(&files["m.gguf"]) };
    for (what, files) in &planned {
        attempt(files, what);
    }
    let mut mutator = Mutator::new(family.len() as u64 * 7 + u64::from(is_folder));
    let mut accepted = 0;
    let count = if everything() { ALL } else { SOME };
    for i in 0..count {
        let mut damaged = files.clone();
        let names: Vec<&&str> = files.keys().collect();
        let name = *names[i as usize % names.len()];
        let bytes = damaged.get_mut(name).expect("it is there");
        // Weights are most of a file; what says things about them is in front.
        let head = if name == "m.gguf" || name == "model.safetensors" {
            bytes.len().min(12 << 10)
        } else {
            bytes.len()
        };
        let front = mutator.of(&[bytes[..head].to_vec()]);
        bytes.splice(..head, front);
        accepted += usize::from(attempt(&damaged, &format!("damage {i} of {name}")));
    }
    report(&format!(
        "{family}, {container}: {accepted} of {count} damaged ones open; at most {} KiB and {:?}",
        worst.0 >> 10,
        worst.1
    ));
}

#[allow(clippy::print_stdout, reason = "what was found is the measure of a release")]
fn report(line: &str) {
    println!("{line}");
}

/// Whether everything is tried, as `.ci/full` demands.
#[expect(clippy::disallowed_methods, reason = "how much is tested is told by the environment")]
fn everything() -> bool {
    std::env::var_os("YGG_TEST_EVERYTHING").is_some()
}

/// Files with one planned damage each.
type Planned = Vec<(String, Files)>;

fn hostile_gguf(whole: &[u8]) -> Planned {
    let file = parse(whole).expect("whole");
    let mut planned: Planned = Vec::new();
    let mut add = |what: String, bytes: Vec<u8>| planned.push((what, BTreeMap::from([("m.gguf", bytes)])));
    for part in [0, 3, 4, 8, 23, 24, 31, file.header_bytes / 2, file.header_bytes, whole.len() - 1] {
        add(format!("cut at {part}"), whole[..part].to_vec());
    }
    let edited = |at: usize, bytes: &[u8]| {
        let mut file = whole.to_vec();
        file[at..at + bytes.len()].copy_from_slice(bytes);
        file
    };
    for count in [0, 1, 1 << 20, 1 << 31, 1 << 40, 1 << 62, u64::MAX] {
        add(format!("{count} tensors"), edited(8, &count.to_le_bytes()));
        add(format!("{count} keys"), edited(16, &count.to_le_bytes()));
        // After the header is the length of the first key.
        add(format!("a key of {count} bytes"), edited(24, &count.to_le_bytes()));
        for name in [
            "tokenizer.ggml.tokens",
            "tokenizer.ggml.scores",
            "tokenizer.ggml.merges",
            "tokenizer.ggml.token_type",
        ] {
            // After the name: type, type of the elements, number of them.
            if let Some(at) = place_of(whole, name) {
                add(format!("{count} in {name}"), edited(at + 8, &count.to_le_bytes()));
            }
        }
    }
    for name in
        ["tokenizer.ggml.tokens", "tokenizer.ggml.model", "tokenizer.chat_template", "general.architecture"]
    {
        let at = place_of(whole, name).expect("it has the key");
        for kind in 0..14_u32 {
            add(format!("type {kind} of {name}"), edited(at, &kind.to_le_bytes()));
            add(format!("elements of type {kind} in {name}"), edited(at + 4, &kind.to_le_bytes()));
        }
    }
    for tensor in file.tensors.keys() {
        let at = place_of(whole, tensor).expect("it has the tensor");
        add(format!("{tensor} missing"), edited(at - 1, b"~"));
        add(format!("{tensor} of 2^32 dimensions"), edited(at, &u32::MAX.to_le_bytes()));
        add(format!("{tensor} of 2^62 rows"), edited(at + 4, &(1_u64 << 62).to_le_bytes()));
    }
    let place = file.tensors.values().next().expect("a tensor").bytes.clone();
    add("NaN for weights".into(), edited(place.start, &vec![0xFF; place.len()]));
    // As many entries as fit, each as small as can be.
    let filled = |keys: u64, entry: &dyn Fn(u32) -> Vec<u8>| {
        let mut file = encode_header(3, &BTreeMap::new(), &[]);
        file[16..24].copy_from_slice(&keys.to_le_bytes());
        (0..keys).for_each(|key| file.extend(entry(key as u32)));
        file
    };
    let named =
        |key: u32, rest: &[u8]| [&8_u64.to_le_bytes()[..], format!("{key:08}").as_bytes(), rest].concat();
    add("50,000 keys".into(), filled(50_000, &|key| named(key, &[0, 0, 0, 0, 1])));
    let list = |kind: u32, count: u64, bytes: usize| {
        [&9_u32.to_le_bytes()[..], &kind.to_le_bytes(), &count.to_le_bytes(), &vec![0; bytes]].concat()
    };
    add("100,000 empty texts".into(), filled(1, &|key| named(key, &list(8, 100_000, 800_000))));
    add("100,000 empty lists".into(), filled(1, &|key| named(key, &list(9, 100_000, 1_200_000))));
    // Arrays in arrays, as deep as the file is long: each says its type, and that it has one element.
    let mut deep = encode_header(3, &BTreeMap::new(), &[]);
    deep[16..24].copy_from_slice(&1_u64.to_le_bytes());
    deep.extend_from_slice(&1_u64.to_le_bytes());
    deep.extend_from_slice(b"a");
    for _ in 0..100_000 {
        deep.extend_from_slice(&9_u32.to_le_bytes());
        deep.extend_from_slice(&1_u64.to_le_bytes());
    }
    add("100,000 arrays in arrays".into(), deep);
    planned
}

/// The place after a name in a GGUF file: that of its type, or of a tensor's number of dimensions.
fn place_of(bytes: &[u8], name: &str) -> Option<usize> {
    let sought = [&(name.len() as u64).to_le_bytes()[..], name.as_bytes()].concat();
    bytes.windows(sought.len()).position(|window| window == sought).map(|at| at + sought.len())
}

fn hostile_folders(whole: &Files) -> Planned {
    let mut planned: Planned = Vec::new();
    let mut with = |what: &str, name: &'static str, bytes: Vec<u8>| {
        let mut files = whole.clone();
        files.insert(name, bytes);
        planned.push((format!("{name} {what}"), files));
    };
    for name in ["config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"] {
        let text = &whole[name];
        for part in [0, 1, text.len() / 2, text.len() - 1] {
            with(&format!("cut at {part}"), name, text[..part].to_vec());
        }
        for deep in ["[", "{\"a\":"] {
            with(&format!("with {deep} 100,000 times"), name, deep.repeat(100_000).into_bytes());
            let inside = format!("{{\"model_type\":{}", deep.repeat(100_000));
            with(&format!("with {deep} inside, 100,000 times"), name, inside.into_bytes());
        }
        let json: Json = serde_json::from_slice(text).expect("JSON");
        for key in json.as_object().expect("an object").keys() {
            for value in [
                Json::Null,
                (-1).into(),
                u64::MAX.into(),
                1e300.into(),
                "x".into(),
                Json::Array(vec![]),
                true.into(),
            ] {
                let mut changed = json.clone();
                changed[key.as_str()] = value.clone();
                with(&format!("with {value} for {key}"), name, changed.to_string().into_bytes());
            }
        }
    }
    let weights = &whole["model.safetensors"];
    for part in [0, 7, 8, 100, weights.len() - 1] {
        with(&format!("cut at {part}"), "model.safetensors", weights[..part].to_vec());
    }
    for length in [0, 1, 1 << 20, 100_000_000, 1 << 40, u64::MAX] {
        let mut bytes = weights.clone();
        bytes[..8].copy_from_slice(&u64::to_le_bytes(length));
        with(&format!("with a header of {length} bytes"), "model.safetensors", bytes);
    }
    for header in [
        "[".repeat(100_000),
        "{\"a\":".repeat(100_000),
        hostile_tensor("[18446744073709551615,2]", "[0,8]"),
        hostile_tensor("[4]", "[0,18446744073709551615]"),
        hostile_tensor("[4]", "[8,0]"),
    ] {
        let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &[0; 64]].concat();
        with("with a hostile header", "model.safetensors", bytes);
    }
    for (what, part, value) in hostile_steps() {
        let mut json: Json = serde_json::from_slice(&whole["tokenizer.json"]).expect("JSON");
        json[part] = value;
        with(&format!("with {what}"), "tokenizer.json", json.to_string().into_bytes());
    }
    for (what, template) in [
        ("doubling", "{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}".to_owned()),
        ("deep", format!("{{{{ {} }}}}", "(".repeat(100_000))),
        ("wide", format!("{{{{ {} }}}}", vec!["1"; 50_000].join("+"))),
    ] {
        with(what, "tokenizer_config.json", serde_json::json!({"chat_template": template}).to_string().into_bytes());
    }
    planned
}

fn hostile_tensor(shape: &str, offsets: &str) -> String {
    format!(r#"{{"a":{{"dtype":"F32","shape":{shape},"data_offsets":{offsets}}}}}"#)
}

/// Steps of tokenizers that claim much.
fn hostile_steps() -> Vec<(&'static str, &'static str, Json)> {
    let nested = |kind: &str, list: &str, inner: Json| {
        (0..60).fold(inner, |inner, _| serde_json::json!({"type": kind, list: [inner]}))
    };
    let split = |pattern: String| serde_json::json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false});
    vec![
        (
            "normalizers in normalizers",
            "normalizer",
            nested("Sequence", "normalizers", serde_json::json!({"type": "NFC"})),
        ),
        ("steps in steps", "pre_tokenizer", nested("Sequence", "pretokenizers", split("a".into()))),
        (
            "decoders in decoders",
            "decoder",
            nested("Sequence", "decoders", serde_json::json!({"type": "Fuse"})),
        ),
        (
            "processors in processors",
            "post_processor",
            nested(
                "Sequence",
                "processors",
                serde_json::json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}),
            ),
        ),
        ("a deep pattern", "pre_tokenizer", split("(".repeat(50_000) + &")".repeat(50_000))),
        ("a large pattern", "pre_tokenizer", split("(((a{100}){100}){100}){100}".into())),
        ("a pattern that tries much", "pre_tokenizer", split(r"(?=(a+)+$)(a*)*\1b".into())),
        (
            "a table that is none",
            "normalizer",
            serde_json::json!({"type": "Precompiled", "precompiled_charsmap": "AAAA"}),
        ),
        (
            "an id beyond all",
            "added_tokens",
            serde_json::json!([{"id": u32::MAX, "content": "x", "special": true}]),
        ),
        (
            "a token twice",
            "added_tokens",
            serde_json::json!([{"id": 5, "content": "x"}, {"id": 5, "content": "y"}]),
        ),
    ]
}
