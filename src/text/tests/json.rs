//! Hugging Face tokenizer files.

use serde_json::{Value, json};

use super::{from_json, ids, tokenizer_json, vocabulary};
use crate::text::{Special, TextError, Tokenizer, TokenizerConfig};

/// The file of the usual vocabulary after `change`.
fn changed(change: impl FnOnce(&mut Value)) -> Result<Tokenizer, TextError> {
    let mut file = tokenizer_json(&vocabulary("smollm"));
    change(&mut file);
    from_json(&file)
}

fn refused(change: impl FnOnce(&mut Value)) -> String {
    changed(change).unwrap_err().to_string()
}

#[test]
fn the_config_names_the_special_tokens() {
    let file = serde_json::to_vec(&tokenizer_json(&vocabulary("smollm"))).unwrap();
    let config = TokenizerConfig::from_json(
        br#"{"bos_token": "<|im_start|>", "eos_token": {"content": "<repo_name>", "lstrip": false},
            "add_bos_token": true, "chat_template": "{{ bos_token }}", "model_max_length": 8192}"#,
    )
    .unwrap();
    assert_eq!(config.chat_template.as_deref(), Some("{{ bos_token }}"));
    let tokenizer = Tokenizer::from_json(&file, &config).unwrap();
    assert_eq!((tokenizer.bos(), tokenizer.eos(), tokenizer.adds_bos()), (Some(1), Some(3), true));
    assert_eq!(tokenizer.end_ids(), [0, 2, 3]);

    let config = TokenizerConfig { eos: Some("</none>".into()), ..TokenizerConfig::default() };
    let error = Tokenizer::from_json(&file, &config).unwrap_err().to_string();
    assert!(error.contains("eos token is \"</none>\""), "{error}");
}

#[test]
fn of_several_templates_the_default_one_is_taken() {
    let config = TokenizerConfig::from_json(
        br#"{"chat_template": [{"name": "rag", "template": "r"}, {"name": "default", "template": "d"}]}"#,
    );
    assert_eq!(config.unwrap().chat_template.as_deref(), Some("d"));
    assert_eq!(TokenizerConfig::from_json(b"{}"), Ok(TokenizerConfig::default()));
    let error = TokenizerConfig::from_json(b"[").unwrap_err().to_string();
    assert!(error.starts_with("tokenizer_config.json could not be read"), "{error}");
}

#[test]
fn the_post_processor_may_lead_with_bos() {
    let start = "<|im_start|>";
    let with_tokens = |single: Value, special_tokens: Value| {
        json!({"type": "Sequence", "processors": [
            {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false, "use_regex": true},
            {"type": "TemplateProcessing", "single": single, "pair": [], "special_tokens": special_tokens},
        ]})
    };
    let template = |single: Value| {
        with_tokens(single, json!({start: {"id": start, "ids": ids(&[start]), "tokens": [start]}}))
    };
    let bos = json!({"SpecialToken": {"id": "<|im_start|>", "type_id": 0}});
    let text = json!({"Sequence": {"id": "A", "type_id": 0}});
    let tokenizer = changed(|file| file["post_processor"] = template(json!([bos, text]))).unwrap();
    assert_eq!(tokenizer.encode_prompt("he"), ids(&["<|im_start|>", "he"]));
    let error = refused(|file| file["post_processor"] = template(json!([text, bos])));
    assert!(error.contains("post_processor"), "{error}");
    let error = refused(|file| file["post_processor"] = with_tokens(json!([bos, text]), json!({})));
    assert!(error.contains(start) && error.contains("special_tokens"), "{error}");
}

#[test]
fn merges_may_be_lists() {
    let pairs: Vec<Vec<&str>> = super::MERGES.iter().map(|merge| merge.split(' ').collect()).collect();
    let tokenizer = changed(|file| file["model"]["merges"] = json!(pairs)).unwrap();
    assert_eq!(tokenizer.encode("hello", Special::Literal), ids(&["hello"]));
}

#[test]
fn split_and_normal_form_are_read() {
    let tokenizer = changed(|file| {
        file["normalizer"] = json!({"type": "NFC"});
        file["pre_tokenizer"]["pretokenizers"] = json!([
            {"type": "Split", "pattern": {"Regex": "\\p{N}{1,3}"}, "behavior": "Isolated", "invert": false},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
        ]);
    })
    .unwrap();
    assert_eq!(tokenizer.encode("4123e\u{301}", Special::Literal), ids(&["4", "12", "3", "Ã©"]));
}

#[test]
fn an_id_left_out_is_unused() {
    let tokenizer = changed(|file| {
        file["added_tokens"]
            .as_array_mut()
            .unwrap()
            .push(json!({"id": 300, "content": "<late>", "special": true}));
    })
    .unwrap();
    assert_eq!(tokenizer.vocab_len(), 301);
    assert_eq!(tokenizer.encode("<late>", Special::Parse), [300]);
    assert!(tokenizer.is_control(299));
}

#[test]
fn what_is_not_supported_is_named() {
    for (pointer, value, named) in [
        ("/model", json!({"type": "WordPiece", "vocab": {"a": 0}}), "model.type is \"WordPiece\""),
        ("/model/dropout", json!(0.1), "model.dropout is \"0.1\""),
        ("/model/end_of_word_suffix", json!("</w>"), "end_of_word_suffix is \"</w>\""),
        ("/normalizer", json!({"type": "Uppercase"}), "normalizer is"),
        ("/pre_tokenizer", json!({"type": "Metaspace"}), "pre_tokenizer is"),
        ("/pre_tokenizer", json!(null), "pre_tokenizer is a list without a ByteLevel step"),
        ("/decoder", json!({"type": "WordPiece", "prefix": "##", "cleanup": true}), "decoder is"),
        ("/added_tokens/0/id", json!(u32::MAX), "4294967296 token ids"),
        ("/added_tokens/0/id", json!(-1), "tokenizer.json could not be read"),
        ("/added_tokens/0/id", json!(1), "id 1 is given to both"),
        ("/added_tokens/0/id", json!(50), "id 50 is given to both"),
        ("/model/vocab/he", json!(50), "id 50 is given to both"),
        ("/model/merges/0", json!("ab cd"), "merge 0 names \"ab\""),
        ("/model/merges/0", json!(["h"]), "tokenizer.json could not be read"),
    ] {
        let error = refused(|file| *file.pointer_mut(pointer).unwrap() = value);
        assert!(error.contains(named), "{pointer}: {error}");
    }
    let split = json!({"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated", "invert": false});
    let error = refused(|file| file["pre_tokenizer"]["pretokenizers"][0] = split);
    assert!(error.contains("pre_tokenizer is"), "{error}");
}

#[test]
fn a_text_twice_in_the_vocabulary_is_refused() {
    let file = tokenizer_json(&vocabulary("smollm")).to_string();
    let twice = file.replacen("\"vocab\":{", "\"vocab\":{\"he\":0,", 1);
    assert_ne!(file, twice);
    let error = Tokenizer::from_json(twice.as_bytes(), &TokenizerConfig::default()).unwrap_err();
    assert!(matches!(error, TextError::DuplicateToken { .. } | TextError::DuplicateId { .. }), "{error}");
}

#[test]
fn a_truncated_file_is_an_error_wherever_it_ends() {
    let file = tokenizer_json(&vocabulary("smollm")).to_string();
    for end in (0..file.len()).step_by(97) {
        let error = Tokenizer::from_json(&file.as_bytes()[..end], &TokenizerConfig::default()).unwrap_err();
        assert!(matches!(error, TextError::Json { .. }), "{end}: {error}");
    }
}
