//! The rules that cut text into words before merging, by the names that GGUF files give them.
//!
//! Each is the pre-tokenizer of the Hugging Face tokenizers that llama.cpp knows by the name (`tokenizer.ggml.pre`,
//! decided in its `llama-vocab.cpp`).

use tokenizers::normalizers::{NFC, NormalizerWrapper};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::tokenizer::SplitDelimiterBehavior;

use super::TextError;
use super::words::Steps;

/// The steps from text to words, and what else hangs on the name.
pub(super) struct Rules {
    pub(super) steps: Steps,
    /// A word that is itself a token is taken whole, whatever the merges say.
    pub(super) ignore_merges: bool,
    /// Whether a prompt starts with the BOS token when the file does not say.
    pub(super) add_bos: bool,
}

const SUPPORTED: [&str; 28] = [
    "smollm",
    "gpt-2",
    "llama-bpe",
    "qwen2",
    "llama3",
    "llama-v3",
    "lfm2",
    "tekken",
    "gpt-4o",
    "llama4",
    "dbrx",
    "smaug-bpe",
    "glm4",
    "chatglm-bpe",
    "deepseek-coder",
    "deepseek-v3",
    "deepseek-r1-qwen",
    "qwen35",
    "stablelm2",
    "starcoder",
    "refact",
    "codeshell",
    "phi-2",
    "mpt",
    "olmo",
    "granite-docling",
    "seed-coder",
    "default",
];

/// Endings of English words, as Llama 3 and its kin cut them off.
const ENDINGS: &str = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";

/// Letters of upper and of lower case with their marks, and a character before them that is neither letter nor number.
const UPPER: &str = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]";
const LOWER: &str = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]";
const BEFORE: &str = r"[^\r\n\p{L}\p{N}]?";

/// White space, its last character left to the word after it.
const SPACES: &str = r"\s*[\r\n]+|\s+(?!\S)|\s+";

impl Rules {
    /// The rules called `name` in `tokenizer.ggml.pre`.
    ///
    /// # Errors
    /// Any other name.
    pub(super) fn named(name: &str) -> Result<Self, TextError> {
        let plain = |steps| Self { steps, ignore_merges: false, add_bos: false };
        let whole = |steps| Self { steps, ignore_merges: true, add_bos: true };
        Ok(match name {
            "gpt-2" | "phi-2" | "mpt" | "olmo" | "granite-docling" => plain(steps(vec![words()])),
            "smollm" | "starcoder" | "refact" | "codeshell" => {
                plain(steps(vec![Digits::new(true).into(), words()]))
            }
            "llama-bpe" | "llama3" | "llama-v3" | "lfm2" => whole(split(&[&case_blind(r"\p{N}{1,3}")])),
            "dbrx" | "smaug-bpe" | "glm4" | "chatglm-bpe" => plain(split(&[&case_blind(r"\p{N}{1,3}")])),
            "qwen2" | "stablelm2" | "deepseek-r1-qwen" => plain(composed(split(&[&case_blind(r"\p{N}")]))),
            "qwen35" => plain(composed(split(&[&with_marks()]))),
            "tekken" => whole(split(&[&cased(r"\p{N}", "")])),
            "gpt-4o" | "llama4" => plain(split(&[&cased(r"\p{N}{1,3}", &format!("{ENDINGS}?"))])),
            "seed-coder" => plain(split(&[&seed_coder()])),
            "deepseek-v3" => plain(split(&[r"\p{N}{1,3}", "[一-龥\u{3040}-ゟ゠-ヿ]+", &deepseek_words()])),
            "deepseek-coder" => {
                plain(split(&[r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-\u{D7FF}]+", r"\p{N}"]))
            }
            "default" => plain(split(&[
                r"[\p{P}\$\+<=>\^~\|]+",
                r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)",
                r"\p{N}+",
                "[0-9][0-9][0-9]",
            ])),
            _ => {
                return Err(TextError::UnsupportedPreTokenizer {
                    found: name.to_owned(),
                    supported: SUPPORTED.join(", "),
                });
            }
        })
    }
}

fn steps(steps: Vec<PreTokenizerWrapper>) -> Steps {
    Steps { normalizer: None, pre_tokenizer: Some(Sequence::new(steps).into()) }
}

/// The same for text with its characters composed.
fn composed(steps: Steps) -> Steps {
    Steps { normalizer: Some(NormalizerWrapper::NFC(NFC)), ..steps }
}

/// GPT-2's words, spelled in bytes.
fn words() -> PreTokenizerWrapper {
    ByteLevel::new(false, true, true).into()
}

/// Words cut by each of the patterns in turn, spelled in bytes.
fn split(patterns: &[&str]) -> Steps {
    let splits = patterns.iter().map(|&pattern| {
        Split::new(SplitPattern::Regex(pattern.into()), SplitDelimiterBehavior::Isolated, false)
            .expect("the patterns are constants")
            .into()
    });
    steps(splits.chain([ByteLevel::new(false, true, false).into()]).collect())
}

/// Words as Llama 3 and Qwen2 cut them; they differ in how many digits make a `number`.
fn case_blind(number: &str) -> String {
    format!(r"{ENDINGS}|{BEFORE}\p{{L}}+|{number}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{SPACES}")
}

/// Words as Qwen 3.5 cuts them: marks belong to the letters before them.
fn with_marks() -> String {
    format!(r"{ENDINGS}|{BEFORE}[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{SPACES}")
}

/// Words as GPT-4o and Tekken cut them: a letter of upper case after one of lower case begins a word.
fn cased(number: &str, endings: &str) -> String {
    format!(
        r"{BEFORE}{UPPER}*{LOWER}+{endings}|{BEFORE}{UPPER}+{LOWER}*{endings}|{number}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{SPACES}"
    )
}

/// Words as Seed-Coder cuts them: line ends are never joined to punctuation.
fn seed_coder() -> String {
    format!(r"{ENDINGS}|{BEFORE}\p{{L}}+|\p{{N}}{{1}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{SPACES}")
}

/// Words as DeepSeek V3 cuts them.
fn deepseek_words() -> String {
    let punctuation = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"##;
    let letters = r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+";
    format!(r"{punctuation}|{letters}| ?[\p{{P}}\p{{S}}]+[\r\n]*|{SPACES}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_of_the_list_is_known() {
        for name in SUPPORTED {
            assert!(Rules::named(name).is_ok(), "{name}");
        }
    }
}
