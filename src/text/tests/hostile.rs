//! Damaged and unsupported vocabularies: errors that name the fault.

use proptest::prelude::*;

use super::{byte_level, vocabulary};
use crate::text::{TextError, TokenKind, Tokenizer, Vocabulary};

/// The error of the usual vocabulary after `damage`.
fn refused(damage: impl FnOnce(&mut Vocabulary)) -> TextError {
    let mut vocabulary = vocabulary("smollm");
    damage(&mut vocabulary);
    Tokenizer::from_vocabulary(vocabulary).unwrap_err()
}

#[test]
fn what_is_not_supported_is_named_with_what_is() {
    let error = refused(|v| v.model = "rwkv".into()).to_string();
    assert!(error.contains("`rwkv`") && error.contains("`gpt2`"), "{error}");
    for name in ["falcon", ""] {
        let error = refused(|v| v.pre_tokenizer = name.into()).to_string();
        assert!(error.contains(&format!("`{name}`")), "{error}");
        assert!(error.contains("smollm, gpt-2, llama-bpe, qwen2"), "{error}");
    }
}

#[test]
fn sizes_must_agree() {
    let error = refused(|v| v.kinds.truncate(9));
    assert!(matches!(error, TextError::LengthMismatch { tokens: 283, kinds: 9 }), "{error}");
    assert!(matches!(
        Tokenizer::from_vocabulary(Vocabulary {
            model: "gpt2".into(),
            pre_tokenizer: "gpt-2".into(),
            ..Vocabulary::default()
        }),
        Err(TextError::VocabularySize { found: 0, .. })
    ));
}

#[test]
fn tokens_must_differ_and_be_well_formed() {
    let error = refused(|v| v.tokens[270] = "<|im_end|>".into());
    assert_eq!(error, TextError::DuplicateToken { token: "<|im_end|>".into(), first: 2, second: 270 });
    let error = refused(|v| v.tokens[3] = String::new());
    assert!(matches!(error, TextError::BadToken { id: 3, .. }), "{error}");
    let error = refused(|v| v.kinds[3] = TokenKind::Byte);
    assert!(matches!(error, TextError::BadToken { id: 3, expected: "<0xNN>", .. }), "{error}");
}

#[test]
fn plain_text_must_be_spellable() {
    let error = refused(|v| {
        let space = v.tokens.iter().position(|token| *token == byte_level::spelling(b' ')).unwrap();
        v.tokens[space] = "▁".into();
    });
    assert_eq!(error, TextError::MissingByte { byte: b' ' });
}

#[test]
fn merges_must_be_pairs_of_tokens() {
    for merge in ["", " ", "he", "h ", " e", "h e l"] {
        let error = refused(|v| v.merges[1] = merge.into());
        assert_eq!(error, TextError::MalformedMerge { index: 1, merge: merge.into() });
    }
    for (merge, token) in [
        ("h zz", "zz"),
        ("zz h", "zz"),
        ("z z", "zz"),
        ("<|im_start|> h", "<|im_start|>"),
        ("< repo_name>", "repo_name>"),
    ] {
        let error = refused(|v| v.merges[1] = merge.into());
        assert_eq!(error, TextError::UnknownMergeToken { index: 1, token: token.into() }, "{merge}");
    }
    let error = refused(|v| v.merges[5] = v.merges[2].clone());
    assert_eq!(error, TextError::DuplicateMerge { first: 2, second: 5 });
}

#[test]
fn a_merge_may_not_make_a_control_token() {
    let error = refused(|v| {
        v.tokens[3] = "zz".into();
        v.merges.push("z z".into());
    });
    assert!(matches!(error, TextError::UnknownMergeToken { ref token, .. } if token == "zz"), "{error}");
}

#[test]
fn special_ids_must_be_in_range() {
    let outside = Some(u32::MAX);
    for (name, error) in [
        ("bos", refused(|v| v.bos = outside)),
        ("eos", refused(|v| v.eos = outside)),
        ("unknown", refused(|v| v.unknown = outside)),
        ("padding", refused(|v| v.padding = outside)),
    ] {
        assert!(
            matches!(error, TextError::UnknownSpecialToken { name: found, .. } if found == name),
            "{error}"
        );
    }
}

proptest! {
    /// Nothing that a damaged file may hold makes the constructor or what it made panic.
    #[test]
    fn damage_never_panics(
        changes in prop::collection::vec((0..300_usize, 1..7_i32, "\\PC{0,4}"), 0..6),
        merges in prop::collection::vec(("[a-e<ĠÃ]{0,3} ?", "[a-e<ĠÃ]{0,3}"), 0..6),
        text in super::texts(),
    ) {
        let mut vocabulary = vocabulary("llama-bpe");
        for (at, kind, token) in changes {
            let at = at % vocabulary.tokens.len();
            vocabulary.tokens[at] = token;
            vocabulary.kinds[at] = TokenKind::try_from(kind).unwrap();
        }
        vocabulary.merges.extend(merges.into_iter().map(|(left, right)| left + &right));
        if let Ok(tokenizer) = Tokenizer::from_vocabulary(vocabulary) {
            let ids = tokenizer.encode_prompt(&text);
            prop_assert!(ids.iter().all(|&id| (id as usize) < tokenizer.vocab_len()));
            prop_assert_eq!(tokenizer.decode(&ids).is_empty(), ids.iter().all(|&id| tokenizer.is_control(id)));
        }
    }
}
