//! Log-probabilities of tokens in the shapes of OpenAI's API, and where tokens begin in a text.

use std::iter;

use serde_json::{Map, Value, json};
use yggc::{engine::TokenLogProbs, text::Tokenizer};

use super::queue::ReadPrompt;

/// Most log-probabilities that an answer has of what its request sent, tokens of prompts and of options: some hundred
/// bytes each while the answer is made.
pub(super) const MOST_OF_REQUEST: usize = 1 << 18;

/// Stands for the logarithm of 0, which JSON cannot express; other servers write the same number.
pub(super) const LEAST_LOG_PROB: f32 = -9999.0;

/// How tokens are named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenNames {
    /// By their text; `bytes:` and bytes where these are no text by themselves.
    Texts,
    /// By `token_id:` and their number, as vLLM does if it is asked.
    Ids,
}

/// A token with its log-probabilities.
#[derive(Debug, Clone)]
pub(super) struct Noted {
    pub(super) id: u32,
    /// None of the first token of a prompt, which follows nothing.
    pub(super) log_probs: Option<TokenLogProbs>,
    /// Characters of the text before it.
    pub(super) offset: usize,
}

/// Counts the characters before each token of a text.
///
/// The law: the offset of a token is that of the character which has the token's first byte, U+FFFD for bytes that are
/// no text included. So tokens that share a character have one offset, and where a text is cut into pieces says
/// nothing.
#[derive(Debug, Default)]
pub(super) struct Offsets {
    /// The beginning of a character whose end did not come.
    pending: Vec<u8>,
    /// Characters before it.
    chars: usize,
}

impl Offsets {
    /// The offset of the next token.
    pub(super) fn push(&mut self, id: u32, tokenizer: &Tokenizer) -> usize {
        // As a detokenizer has it, an id outside the vocabulary is an unknown character.
        let bytes = tokenizer.token_bytes(id).unwrap_or("\u{fffd}".as_bytes());
        self.push_bytes(bytes)
    }

    /// Notes the tokens of a prompt that the text begins with, with `most` of the best tokens of each place.
    pub(super) fn note_prompt(
        &mut self,
        ReadPrompt { ids, log_probs }: &ReadPrompt,
        text: &str,
        most: usize,
        tokenizer: &Tokenizer,
    ) -> Vec<Noted> {
        let log_probs = log_probs.iter().map(|of_token| {
            let TokenLogProbs { log_prob, best } = of_token;
            Some(TokenLogProbs { log_prob: *log_prob, best: best[..most.min(best.len())].to_vec() })
        });
        let mut noted = Vec::with_capacity(ids.len());
        for (place, (id, log_probs)) in ids.iter().zip(iter::once(None).chain(log_probs)).enumerate() {
            let offset = match tokenizer.is_control(*id) {
                false => self.push(*id, tokenizer),
                // The text of a prompt has its control tokens, but not the one that the tokenizer puts first.
                true => {
                    let name = tokenizer.spelling(*id);
                    let is_written = place > 0 || text.starts_with(&name);
                    self.push_bytes(if is_written { name.as_bytes() } else { b"" })
                }
            };
            noted.push(Noted { id: *id, log_probs, offset });
        }
        // A tokenizer may put a space before a text, which the text has not.
        let added = self.chars.saturating_sub(text.chars().count());
        noted.iter_mut().for_each(|token| token.offset = token.offset.saturating_sub(added));
        self.chars -= added;
        noted
    }

    fn push_bytes(&mut self, bytes: &[u8]) -> usize {
        let begin = self.pending.len();
        self.pending.extend_from_slice(bytes);
        let mut place = 0;
        // Where the token begins is in the first character that ends after its first byte; the last may be unfinished.
        let mut offset = None;
        for chunk in self.pending.utf8_chunks() {
            for character in chunk.valid().chars() {
                place += character.len_utf8();
                offset = offset.or((begin < place).then_some(self.chars));
                self.chars += 1;
            }
            let invalid = chunk.invalid();
            let is_unfinished = place + invalid.len() == self.pending.len() && may_go_on(invalid);
            if invalid.is_empty() || is_unfinished {
                break;
            }
            place += invalid.len();
            offset = offset.or((begin < place).then_some(self.chars));
            self.chars += 1;
        }
        self.pending.drain(..place);
        offset.unwrap_or(self.chars)
    }
}

/// Whether bytes are the beginning of a character.
fn may_go_on(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
}

impl TokenNames {
    fn name(self, tokenizer: &Tokenizer, id: u32) -> String {
        let bytes = tokenizer.token_bytes(id).unwrap_or_default();
        match self {
            Self::Ids => format!("token_id:{id}"),
            Self::Texts if std::str::from_utf8(bytes).is_err() => {
                let bytes: String = bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect();
                format!("bytes:{bytes}")
            }
            Self::Texts => tokenizer.spelling(id),
        }
    }

    /// As a chat has them.
    pub(super) fn of_chat(self, noted: &[Noted], tokenizer: &Tokenizer) -> Value {
        let token = |id: u32, log_prob: f32| {
            let bytes = tokenizer.token_bytes(id).unwrap_or_default();
            json!({"token": self.name(tokenizer, id), "logprob": said(log_prob), "bytes": bytes})
        };
        // The text of a chat does not begin with its prompt, so all have some.
        let content = noted.iter().filter_map(|noted| Some((noted.id, noted.log_probs.as_ref()?)));
        let content = content.map(|(id, log_probs)| {
            let mut own = token(id, log_probs.log_prob);
            own["top_logprobs"] = log_probs.best.iter().map(|(id, log_prob)| token(*id, *log_prob)).collect();
            own
        });
        json!({"content": content.collect::<Vec<_>>(), "refusal": null})
    }

    /// As a completion has them: the most probable tokens of a place, and the one that was chosen.
    pub(super) fn of_completion(self, noted: &[Noted], tokenizer: &Tokenizer) -> Value {
        let tokens: Vec<String> = noted.iter().map(|noted| self.name(tokenizer, noted.id)).collect();
        let own: Vec<Option<f32>> =
            noted.iter().map(|noted| Some(said(noted.log_probs.as_ref()?.log_prob))).collect();
        let offsets: Vec<usize> = noted.iter().map(|noted| noted.offset).collect();
        let best = noted.iter().map(|Noted { id, log_probs, offset: _ }| {
            let Some(log_probs) = log_probs else { return Value::Null };
            let mut named = Map::new();
            // The best come first: of tokens with one name, the most probable stays.
            for (id, log_prob) in log_probs.best.iter().copied().chain([(*id, log_probs.log_prob)]) {
                named.entry(self.name(tokenizer, id)).or_insert_with(|| json!(said(log_prob)));
            }
            Value::Object(named)
        });
        let best: Vec<Value> = best.collect();
        json!({"tokens": tokens, "token_logprobs": own, "top_logprobs": best, "text_offset": offsets})
    }
}

/// The tokens of a prompt as vLLM lists them: of every place the `most` best tokens and the prompt's, by their ids;
/// null of the first. The rank of a token that is none of the best is not known.
pub(super) fn of_prompt(
    ReadPrompt { ids, log_probs }: &ReadPrompt,
    most: usize,
    tokenizer: &Tokenizer,
) -> Value {
    let place = |(id, TokenLogProbs { log_prob, best }): (&u32, &TokenLogProbs)| {
        let best = &best[..most.min(best.len())];
        let mut named = Map::new();
        let ranked = (1..).zip(best).map(|(rank, (id, log_prob))| (*id, *log_prob, Some(rank)));
        for (id, log_prob, rank) in ranked.chain([(*id, *log_prob, None::<usize>)]) {
            named.entry(id.to_string()).or_insert_with(
                || json!({"logprob": said(log_prob), "rank": rank, "decoded_token": tokenizer.spelling(id)}),
            );
        }
        Value::Object(named)
    };
    iter::once(Value::Null).chain(ids.iter().skip(1).zip(log_probs).map(place)).collect()
}

/// A log-probability that JSON can express.
fn said(log_prob: f32) -> f32 {
    log_prob.max(LEAST_LOG_PROB)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use yggc::text::{TokenKind, Vocabulary};

    use super::*;

    /// Bytes as tokens of SentencePiece, two more spellings of `a`, and a control token.
    fn tokenizer() -> Tokenizer {
        let mut tokens: Vec<String> = (0..=255).map(|byte| format!("<0x{byte:02X}>")).collect();
        let mut kinds = vec![TokenKind::Byte; tokens.len()];
        for (token, kind) in
            [("a", TokenKind::Normal), ("<unk>", TokenKind::Unknown), ("<end>", TokenKind::Control)]
        {
            tokens.push(token.to_owned());
            kinds.push(kind);
        }
        let scores = vec![0.0; tokens.len()];
        let vocabulary = Vocabulary {
            model: "llama".into(),
            tokens,
            kinds,
            scores,
            unknown: Some(257),
            ..Vocabulary::default()
        };
        Tokenizer::from_vocabulary(vocabulary).unwrap()
    }

    fn noted(id: u32, log_prob: f32, best: &[(u32, f32)]) -> Noted {
        Noted { id, log_probs: Some(TokenLogProbs { log_prob, best: best.to_vec() }), offset: 3 }
    }

    #[test]
    fn of_tokens_with_one_text_the_most_probable_stays_and_bytes_are_told() {
        let tokenizer = tokenizer();
        let byte_of_a = u32::from(b'a');
        let best = [(256, -0.1), (byte_of_a, -2.0), (0xf0, -3.0)];
        let texts = TokenNames::Texts.of_completion(&[noted(258, -7.5, &best)], &tokenizer);
        assert_eq!(
            texts,
            json!({"tokens": ["<end>"], "token_logprobs": [-7.5], "text_offset": [3],
                   "top_logprobs": [{"a": -0.1_f32, "bytes:\\xf0": -3.0, "<end>": -7.5}]})
        );
        let ids = TokenNames::Ids.of_completion(&[noted(256, -0.1, &best)], &tokenizer);
        assert_eq!(ids["tokens"], json!(["token_id:256"]));
        let expected = json!([{"token_id:256": -0.1_f32, "token_id:97": -2.0, "token_id:240": -3.0}]);
        assert_eq!(ids["top_logprobs"], expected, "a chosen token is told once");
        let none = TokenNames::Texts.of_completion(&[noted(0xff, f32::NEG_INFINITY, &[])], &tokenizer);
        assert_eq!(none["top_logprobs"], json!([{"bytes:\\xff": -9999.0}]), "the chosen one alone");
    }

    #[test]
    fn a_chat_tells_bytes_beside_names() {
        let tokenizer = tokenizer();
        let chat = |names: TokenNames| {
            let said = names.of_chat(&[noted(0xf0, -1.0, &[(258, f32::NEG_INFINITY)])], &tokenizer);
            said["content"][0].clone()
        };
        let top = |name: &str| json!([{"token": name, "logprob": -9999.0, "bytes": []}]);
        assert_eq!(
            chat(TokenNames::Texts),
            json!({"token": "bytes:\\xf0", "logprob": -1.0, "bytes": [240], "top_logprobs": top("<end>")})
        );
        assert_eq!(
            chat(TokenNames::Ids),
            json!({"token": "token_id:240", "logprob": -1.0, "bytes": [240], "top_logprobs": top("token_id:258")})
        );
    }

    #[test]
    fn tokens_that_share_a_character_have_one_offset() {
        let mut offsets = Offsets::default();
        let tokens: [&[u8]; 8] = [b"a", b"\xf0\x9f", b"\x98", b"", b"\x80b", b"\xc3\xa9", b"\xf0\x9f", b"c"];
        assert_eq!(tokens.map(|token| offsets.push_bytes(token)), [0, 1, 1, 1, 1, 3, 4, 5]);
    }

    proptest! {
        #[test]
        fn offsets_are_those_of_the_character_with_the_first_byte(
            tokens in prop::collection::vec(
                prop::collection::vec(
                    prop::sample::select(b"ab\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xed\xa0\xff".to_vec()), 1..5),
                0..12),
        ) {
            // The judge: the character of every byte of the whole text.
            let whole = tokens.concat();
            let mut of_byte = Vec::new();
            let mut characters = 0;
            for chunk in whole.utf8_chunks() {
                for character in chunk.valid().chars() {
                    of_byte.extend(vec![characters; character.len_utf8()]);
                    characters += 1;
                }
                if !chunk.invalid().is_empty() {
                    of_byte.extend(vec![characters; chunk.invalid().len()]);
                    characters += 1;
                }
            }
            prop_assert_eq!(String::from_utf8_lossy(&whole).chars().count(), characters);
            let mut offsets = Offsets::default();
            let mut begin = 0;
            for token in &tokens {
                prop_assert_eq!(offsets.push_bytes(token), of_byte[begin]);
                begin += token.len();
            }
        }
    }
}
