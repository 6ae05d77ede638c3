//! Tests of the text room, on a small vocabulary made here.

mod chat;
mod encoding;
mod fixtures;
mod hostile;
mod json;
mod limits;
mod streaming;

use proptest::prelude::*;
use serde_json::json;

use super::{TextError, TokenKind, Tokenizer, TokenizerConfig, Vocabulary, byte_level};

/// Merges that make words, parts of words, and parts of characters.
const MERGES: [&str; 22] = [
    "h e", "l l", "Ġ t", "Ġt he", "i n", "in g", "he ll", "hell o", "Ġ w", "o r", "Ġw or", "l d", "Ċ Ċ",
    "Ġ Ġ", "1 2", "12 3", "u s", "e r", "us er", "Ã ©", "ð Ł", "ðŁ ¦",
];

const CONTROLS: [&str; 4] = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<repo_name>"];

/// Control tokens, the whole byte alphabet, what the merges make, one user-defined token.
fn vocabulary(pre_tokenizer: &str) -> Vocabulary {
    let mut tokens: Vec<String> = CONTROLS.map(String::from).to_vec();
    let mut kinds = vec![TokenKind::Control; tokens.len()];
    tokens.extend((0..=255).map(byte_level::spelling));
    tokens.extend(MERGES.iter().map(|merge| merge.replace(' ', "")));
    kinds.resize(tokens.len(), TokenKind::Normal);
    tokens.push("<tool call>".into());
    kinds.push(TokenKind::UserDefined);
    Vocabulary {
        model: "gpt2".into(),
        tokens,
        kinds,
        merges: MERGES.map(String::from).to_vec(),
        pre_tokenizer: pre_tokenizer.into(),
        bos: Some(1),
        eos: Some(2),
        unknown: Some(0),
        padding: Some(2),
        add_bos: Some(false),
        ..Vocabulary::default()
    }
}

pub(super) fn tokenizer(pre_tokenizer: &str) -> Tokenizer {
    Tokenizer::from_vocabulary(vocabulary(pre_tokenizer)).unwrap()
}

/// The same vocabulary as a `tokenizer.json`, with SmolLM2's pre-tokenizer.
fn tokenizer_json(vocabulary: &Vocabulary) -> serde_json::Value {
    let mut vocab = serde_json::Map::new();
    let mut added = Vec::new();
    for ((id, text), kind) in (0..).zip(&vocabulary.tokens).zip(&vocabulary.kinds) {
        if *kind != TokenKind::UserDefined {
            vocab.insert(text.clone(), json!(id));
        }
        if *kind != TokenKind::Normal {
            added.push(json!({
                "id": id, "content": text, "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": *kind == TokenKind::Control,
            }));
        }
    }
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": null,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Digits", "individual_digits": true},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        ]},
        "post_processor": null,
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": vocab, "merges": vocabulary.merges,
        },
    })
}

fn from_json(file: &serde_json::Value) -> Result<Tokenizer, TextError> {
    Tokenizer::from_json(&serde_json::to_vec(file).unwrap(), &TokenizerConfig::default())
}

/// The ids of tokens given by name.
fn ids(names: &[&str]) -> Vec<u32> {
    let tokens = vocabulary("smollm").tokens;
    names.iter().map(|name| tokens.iter().position(|token| token == name).expect(name) as u32).collect()
}

/// Texts that mix any characters with whole and broken names of control tokens.
fn texts() -> impl Strategy<Value = String> {
    let fragment = prop_oneof![
        4 => any::<char>().prop_map(String::from),
        3 => prop::sample::select(vec![
            "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<repo_name>", "<tool call>", "<|im_", "start|>", "end|>",
            "|>",
            ">", "<", "<|", "hello", " the", " world", "123", "\n\n", "   ", "é", "🦙", "'s", "\u{F0000}", "\u{301}",
        ]).prop_map(String::from),
    ];
    prop::collection::vec(fragment, 0..24).prop_map(|fragments| fragments.concat())
}
