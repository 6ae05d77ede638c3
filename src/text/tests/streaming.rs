//! Decoding token by token.

use proptest::prelude::*;

use super::{ids, texts, tokenizer};
use crate::text::{Detokenizer, Special};

fn all(detokenizer: &mut Detokenizer, ids: &[u32]) -> Vec<String> {
    let mut pieces: Vec<String> = ids.iter().map(|&id| detokenizer.push(id).to_owned()).collect();
    pieces.push(detokenizer.finish().to_owned());
    pieces
}

#[test]
fn a_character_comes_whole() {
    let mut detokenizer = tokenizer("smollm").detokenizer();
    let llama = ids(&["h", "ðŁ", "<|im_end|>", "¦", "Ļ", "h"]);
    assert_eq!(all(&mut detokenizer, &llama), ["h", "", "", "", "🦙", "h", ""]);
}

#[test]
fn what_can_no_longer_become_a_character_is_replaced_at_once() {
    let mut detokenizer = tokenizer("smollm").detokenizer();
    assert_eq!(all(&mut detokenizer, &ids(&["ðŁ", "h", "¦"])), ["", "\u{FFFD}h", "\u{FFFD}", ""]);
    assert_eq!(all(&mut detokenizer, &ids(&["ðŁ¦", "Ã", "Ã©"])), ["", "\u{FFFD}", "\u{FFFD}é", ""]);
    assert_eq!(all(&mut detokenizer, &[u32::MAX]), ["\u{FFFD}", ""]);
}

#[test]
fn an_unfinished_character_is_replaced_at_the_end() {
    let mut detokenizer = tokenizer("smollm").detokenizer();
    assert_eq!(all(&mut detokenizer, &ids(&["h", "ðŁ¦"])), ["h", "", "\u{FFFD}"]);
    assert_eq!(all(&mut detokenizer, &ids(&["Ļ"])), ["\u{FFFD}", ""], "nothing is left of the text before");
}

proptest! {
    #[test]
    fn joined_pieces_are_the_decoded_whole(ids in prop::collection::vec(0..290_u32, 0..64)) {
        let tokenizer = tokenizer("smollm");
        prop_assert_eq!(all(&mut tokenizer.detokenizer(), &ids).concat(), tokenizer.decode(&ids));
    }

    #[test]
    fn joined_pieces_are_the_encoded_text(text in texts()) {
        let tokenizer = tokenizer("smollm");
        let ids = tokenizer.encode(&text, Special::Literal);
        prop_assert_eq!(all(&mut tokenizer.detokenizer(), &ids).concat(), text);
    }
}
