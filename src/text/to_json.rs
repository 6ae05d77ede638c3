//! Writes the tokenizer of a model file as Hugging Face's `tokenizer.json`, for programs that read only that.

use serde_json::{Value, json};

use super::lexicon::Spelling;
use super::sentence_piece::MARK;
use super::tokenizer::Parts;
use super::words::ModelParts;
use super::{TextError, TokenKind, Tokenizer, Vocabulary};

impl Vocabulary {
    /// The `tokenizer.json` of the same tokenizer: as [`Special::Parse`](super::Special::Parse) encodes, with no token
    /// put before a text.
    ///
    /// # Errors
    /// As [`Tokenizer::from_vocabulary`].
    pub fn to_json(&self) -> Result<Value, TextError> {
        Tokenizer::from_vocabulary(self.clone())?;
        let Parts { tokens, kinds, spelling, searches, steps, model, unknown, .. } =
            Tokenizer::parts(self.clone())?;
        let of_kind = |is: fn(TokenKind) -> bool| {
            (0_u32..)
                .zip(&tokens)
                .zip(&kinds)
                .filter(move |(_, kind)| is(**kind))
                .map(|((id, text), _)| (id, text))
        };
        let added: Vec<Value> = of_kind(|kind| {
            matches!(kind, TokenKind::Control | TokenKind::Unknown | TokenKind::UserDefined)
        })
        .map(|(id, text)| {
            let special = kinds[id as usize] != TokenKind::UserDefined;
            let edges = searches.get(&id).map(|search| search.edges).unwrap_or_default();
            json!({"id": id, "content": text, "single_word": edges.is_word, "lstrip": edges.strips_left,
                   "rstrip": edges.strips_right, "normalized": false, "special": special})
        })
        .collect();
        let model = match model {
            ModelParts::Bpe { merges, ignore_merges, byte_fallback, fuse_unknown } => {
                let used = of_kind(|kind| kind != TokenKind::Unused);
                let vocab: serde_json::Map<String, Value> =
                    used.map(|(id, text)| (text.clone(), id.into())).collect();
                json!({"type": "BPE", "dropout": null, "unk_token": unknown.map(|id| &tokens[id as usize]),
                       "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": fuse_unknown,
                       "byte_fallback": byte_fallback, "ignore_merges": ignore_merges, "vocab": vocab,
                       "merges": merges})
            }
            ModelParts::Unigram { scores, byte_fallback } => {
                let vocab: Vec<(&String, f64)> = tokens.iter().zip(scores).collect();
                json!({"type": "Unigram", "unk_id": unknown, "vocab": vocab, "byte_fallback": byte_fallback})
            }
        };
        Ok(json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": added,
            "normalizer": steps.normalizer, "pre_tokenizer": steps.pre_tokenizer, "post_processor": null,
            "decoder": decoder(spelling), "model": model,
        }))
    }
}

/// The decoder that makes text of tokens spelled so.
fn decoder(spelling: Spelling) -> Value {
    let Spelling::Marks { space_prefix } = spelling else {
        return json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true});
    };
    let mut steps = vec![
        json!({"type": "Replace", "pattern": {"String": MARK.to_string()}, "content": " "}),
        json!({"type": "ByteFallback"}),
        json!({"type": "Fuse"}),
    ];
    if space_prefix {
        steps.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
    }
    json!({"type": "Sequence", "decoders": steps})
}
