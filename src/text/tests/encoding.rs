//! Encoding and decoding whole texts.

use proptest::prelude::*;

use super::{from_json, ids, texts, tokenizer, tokenizer_json, vocabulary};
use crate::text::{Special, TextError, TokenKind, Tokenizer};

#[test]
fn merges_in_order_of_rank() {
    let smollm = tokenizer("smollm");
    assert_eq!(smollm.encode("hello the world", Special::Literal), ids(&["hello", "Ġthe", "Ġwor", "ld"]));
    assert_eq!(smollm.encode("thinging", Special::Literal), ids(&["t", "h", "ing", "ing"]));
    assert!(smollm.encode("", Special::Parse).is_empty());
}

#[test]
fn pre_tokenizers_cut_digits_and_white_space_their_own_way() {
    let cut = |name: &str, text: &str| tokenizer(name).encode(text, Special::Literal);
    assert_eq!(cut("gpt-2", "1234"), ids(&["123", "4"]));
    assert_eq!(cut("smollm", "1234"), ids(&["1", "2", "3", "4"]));
    assert_eq!(cut("llama-bpe", "1234"), ids(&["123", "4"]));
    assert_eq!(cut("llama-bpe", "4123"), ids(&["4", "12", "3"]), "three digits at a time");
    assert_eq!(cut("qwen2", "1234"), ids(&["1", "2", "3", "4"]));
    assert_eq!(cut("gpt-2", "\n\n a"), ids(&["ĊĊ", "Ġ", "a"]));
    assert_eq!(cut("gpt-2", "\n\n  1"), ids(&["ĊĊ", "Ġ", "Ġ", "1"]), "a number takes one space along");
    assert_eq!(cut("smollm", "\n\n  1"), ids(&["ĊĊ", "ĠĠ", "1"]), "digits are cut off first");
    assert_eq!(cut("gpt-2", "HE'LL"), cut("smollm", "HE'LL"));
    assert_eq!(cut("llama-bpe", "x\n\n  the"), ids(&["x", "ĊĊ", "Ġ", "Ġthe"]));
}

#[test]
fn llama_takes_a_word_that_is_a_token_whole() {
    for (name, expected) in [("llama-bpe", vec!["lo"]), ("gpt-2", vec!["l", "o"])] {
        let mut vocabulary = vocabulary(name);
        vocabulary.tokens.push("lo".into());
        vocabulary.kinds.push(TokenKind::Normal);
        let names = vocabulary.tokens.clone();
        let tokenizer = Tokenizer::from_vocabulary(vocabulary).unwrap();
        let found: Vec<&str> =
            tokenizer.encode("lo", Special::Literal).iter().map(|&id| names[id as usize].as_str()).collect();
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn qwen_composes_characters() {
    let qwen = tokenizer("qwen2");
    assert_eq!(qwen.encode("e\u{301}", Special::Literal), ids(&["Ã©"]));
    assert_eq!(qwen.decode(&qwen.encode("e\u{301}", Special::Literal)), "é");
}

#[test]
fn control_tokens_only_where_asked_for() {
    let smollm = tokenizer("smollm");
    let text = "<|im_start|>user\nhello<|im_end|>";
    assert_eq!(
        smollm.encode(text, Special::Parse),
        ids(&["<|im_start|>", "user", "Ċ", "hello", "<|im_end|>"])
    );
    let literal = smollm.encode(text, Special::Literal);
    assert!(!literal.iter().any(|&id| smollm.is_control(id)));
    assert_eq!(smollm.decode(&literal), text);
}

#[test]
fn a_control_token_is_no_word_even_where_words_are_taken_whole() {
    let mut vocabulary = vocabulary("llama-bpe");
    vocabulary.tokens[0] = "assistant".into();
    let llama = Tokenizer::from_vocabulary(vocabulary).unwrap();
    assert_eq!(llama.encode("assistant", Special::Parse), [0]);
    assert!(!llama.encode("assistant", Special::Literal).contains(&0));
}

#[test]
fn user_defined_tokens_are_text_and_always_found() {
    let smollm = tokenizer("smollm");
    for special in [Special::Parse, Special::Literal] {
        let found = smollm.encode("he<tool call>he", special);
        assert_eq!(found, ids(&["he", "<tool call>", "he"]));
        assert_eq!(smollm.decode(&found), "he<tool call>he");
    }
}

#[test]
fn decoding_skips_control_tokens_and_shows_what_is_no_text() {
    let smollm = tokenizer("smollm");
    assert_eq!(smollm.decode(&ids(&["<|im_start|>", "Ã©", "<|im_end|>"])), "é");
    assert_eq!(smollm.decode(&ids(&["Ã", "h"])), "\u{FFFD}h");
    assert_eq!(smollm.decode(&[u32::MAX]), "\u{FFFD}");
    assert_eq!(smollm.token_bytes(ids(&["ðŁ"])[0]), Some(&[0xF0, 0x9F][..]));
    assert_eq!(smollm.token_bytes(1), Some(&[][..]));
    assert_eq!(smollm.token_bytes(smollm.vocab_len() as u32), None);
    assert!(!smollm.is_control(u32::MAX));
}

#[test]
fn byte_unused_and_odd_tokens_decode() {
    let mut vocabulary = vocabulary("smollm");
    let first = vocabulary.tokens.len() as u32;
    for (text, kind) in [
        ("<0xE2>", TokenKind::Byte),
        ("[PAD]", TokenKind::Unused),
        ("[PAD]", TokenKind::Unused),
        ("a b", TokenKind::Normal),
    ] {
        vocabulary.tokens.push(text.into());
        vocabulary.kinds.push(kind);
    }
    let tokenizer = Tokenizer::from_vocabulary(vocabulary).unwrap();
    assert_eq!(tokenizer.token_bytes(first), Some(&[0xE2][..]));
    assert_eq!(tokenizer.token_bytes(first + 1), Some(&[][..]));
    assert!(tokenizer.is_control(first + 2));
    assert_eq!(tokenizer.decode(&[first + 3]), "a b");
    assert!(!tokenizer.encode("[PAD]", Special::Parse).contains(&(first + 1)));
}

#[test]
fn bytes_without_a_token_are_left_out_and_listed() {
    let mut vocabulary = vocabulary("smollm");
    let missing = super::byte_level::spelling(0x04);
    let at = vocabulary.tokens.iter().position(|token| *token == missing).unwrap();
    vocabulary.tokens[at] = "[PAD]".into();
    vocabulary.kinds[at] = TokenKind::Unused;
    let tokenizer = Tokenizer::from_vocabulary(vocabulary).unwrap();
    assert_eq!(tokenizer.missing_bytes(), [0x04]);
    assert_eq!(tokenizer.decode(&tokenizer.encode("a\u{4}b", Special::Literal)), "ab");
}

#[test]
fn raw_prompts_begin_as_the_model_wants() {
    let with = |name: &str, add_bos: Option<bool>, bos: Option<u32>| {
        let mut vocabulary = vocabulary(name);
        (vocabulary.add_bos, vocabulary.bos) = (add_bos, bos);
        Tokenizer::from_vocabulary(vocabulary).unwrap()
    };
    let he = ids(&["he"])[0];
    assert_eq!(with("smollm", None, Some(1)).encode_prompt("he"), [he]);
    assert_eq!(with("smollm", Some(true), Some(1)).encode_prompt("he"), [1, he]);
    assert_eq!(with("smollm", Some(true), None).encode_prompt("he"), [he]);
    assert_eq!(with("llama-bpe", None, Some(1)).encode_prompt("he"), [1, he]);
    assert_eq!(with("llama-bpe", None, Some(1)).encode_prompt(""), [1]);
    assert_eq!(with("llama-bpe", None, Some(1)).encode_prompt("<|im_start|>he"), [1, he], "not twice");
    assert_eq!(with("llama-bpe", Some(false), Some(1)).encode_prompt("he"), [he]);
}

#[test]
fn generation_ends_at_the_files_eos_and_at_the_usual_names() {
    let mut vocabulary = vocabulary("smollm");
    assert_eq!(Tokenizer::from_vocabulary(vocabulary.clone()).unwrap().end_ids(), [0, 2]);
    vocabulary.eos = Some(3);
    vocabulary.kinds[0] = TokenKind::UserDefined;
    assert_eq!(Tokenizer::from_vocabulary(vocabulary.clone()).unwrap().end_ids(), [2, 3]);
    vocabulary.eos = None;
    assert_eq!(Tokenizer::from_vocabulary(vocabulary).unwrap().end_ids(), [2]);
}

#[test]
fn unknown_kinds_are_named() {
    assert_eq!(TokenKind::try_from(6), Ok(TokenKind::Byte));
    assert_eq!(TokenKind::try_from(7), Err(TextError::UnknownTokenKind { found: 7 }));
}

proptest! {
    #[test]
    fn decoding_undoes_encoding(text in texts()) {
        for name in ["smollm", "gpt-2", "llama-bpe"] {
            let tokenizer = tokenizer(name);
            let literal = tokenizer.encode(&text, Special::Literal);
            prop_assert!(!literal.iter().any(|&id| tokenizer.is_control(id)));
            prop_assert_eq!(tokenizer.decode(&literal), text.as_str());
        }
        let qwen = tokenizer("qwen2");
        let composed = qwen.decode(&qwen.encode(&text, Special::Literal));
        prop_assert_eq!(qwen.decode(&qwen.encode(&composed, Special::Literal)), composed);
    }

    /// The judge is Hugging Face's own reading of the same tokenizer.json.
    #[test]
    fn encodes_as_hugging_face_does(text in texts()) {
        let file = tokenizer_json(&vocabulary("smollm"));
        let mut judge = tokenizers::Tokenizer::from_bytes(serde_json::to_vec(&file).unwrap()).unwrap();
        let expected = judge.encode(text.as_str(), false).unwrap();
        prop_assert_eq!(tokenizer("smollm").encode(&text, Special::Parse), expected.get_ids());
        prop_assert_eq!(from_json(&file).unwrap().encode(&text, Special::Parse), expected.get_ids());

        judge.set_encode_special_tokens(true);
        let expected = judge.encode(text.as_str(), false).unwrap();
        prop_assert_eq!(tokenizer("smollm").encode(&text, Special::Literal), expected.get_ids());
    }
}
