//! The vocabulary of synthetic models: byte-level BPE over every byte, with a few control tokens and merges.

use crate::model::GgufVocabulary;

/// Control tokens: ids 0, 1 and 2.
pub(super) const CONTROL: [&str; 3] = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"];
/// `<|endoftext|>`.
pub(super) const UNKNOWN: u32 = 0;
/// `<|im_start|>`.
pub(super) const BOS: u32 = 1;
/// `<|im_end|>`.
pub(super) const EOS: u32 = 2;

/// Turns between `<|im_start|>` and `<|im_end|>`.
pub(super) const CHAT_TEMPLATE: &str = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' \
     + message['content'] + '<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}\
     {{ '<|im_start|>assistant\n' }}{% endif %}";

/// Tokens of a vocabulary of `size`: control tokens, bytes, then merges of a space or a letter with a letter as far
/// as they go, then places that are never used.
pub(super) struct Vocabulary {
    pub(super) tokens: Vec<String>,
    pub(super) kinds: Vec<u32>,
    /// Pairs in order of rank.
    pub(super) merges: Vec<(String, String)>,
}

impl Vocabulary {
    pub(super) fn new(size: usize) -> Self {
        let mut tokens: Vec<String> = CONTROL.map(str::to_owned).into();
        let mut kinds = vec![GgufVocabulary::CONTROL; tokens.len()];
        tokens.extend((0..=255).map(|byte| byte_char(byte).to_string()));
        let space = byte_char(b' ');
        let firsts = std::iter::once(space).chain('a'..='z');
        let merges: Vec<_> = firsts
            .flat_map(|a| ('a'..='z').map(move |b| (a.to_string(), b.to_string())))
            .take(size - tokens.len())
            .collect();
        tokens.extend(merges.iter().map(|(a, b)| format!("{a}{b}")));
        kinds.resize(tokens.len(), GgufVocabulary::NORMAL);
        kinds.resize(size, GgufVocabulary::UNUSED);
        let used = tokens.len();
        tokens.extend((used..size).map(|id| format!("<|unused_{id}|>")));
        Self { tokens, kinds, merges }
    }
}

/// GPT-2's spelling of a byte: printable bytes stand for themselves, the others for characters from U+0100 on.
fn byte_char(byte: u8) -> char {
    let printable = |b: u8| matches!(b, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    if printable(byte) {
        return byte.into();
    }
    let place = (0..byte).filter(|b| !printable(*b)).count();
    char::from_u32(0x100 + u32::try_from(place).expect("below 256")).expect("a letter of Latin Extended-A")
}
