//! Fill-in-the-middle: a prompt laid out with the text after the answer, by the control tokens of models that were
//! trained for it.

use yggc::{
    engine::{Prompt, Special},
    text::Tokenizer,
};

use super::answers::Refused;

/// Names of the tokens before the prompt, before the suffix and before the answer.
const MARKS: [[&str; 3]; 4] = [
    // Qwen 2.5 Coder and others.
    ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"],
    // StarCoder, Granite.
    ["<fim_prefix>", "<fim_suffix>", "<fim_middle>"],
    ["<fim-prefix>", "<fim-suffix>", "<fim-middle>"],
    // DeepSeek Coder.
    ["<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"],
];

/// The tokens of a prompt whose answer fits between it and `suffix`. Both are plain text: no control token in them is
/// recognised.
pub(super) fn between(tokenizer: &Tokenizer, prompt: &Prompt, suffix: &str) -> Result<Vec<u32>, Refused> {
    let Some([prefix_mark, suffix_mark, middle_mark]) =
        MARKS.into_iter().find_map(|names| ids(tokenizer, names))
    else {
        let what = "this model has no tokens for filling in text; leave it out, or ask a model made for that";
        return Err(Refused::field("suffix", what));
    };
    let literal = |text: &str| tokenizer.encode(text, Special::Literal);
    let before = match prompt {
        Prompt::Raw(text) => literal(text),
        Prompt::Tokens(ids) => ids.clone(),
        Prompt::Chat(_) => unreachable!("only a completion can have a suffix"),
    };
    let mut ids: Vec<u32> = tokenizer.bos().filter(|_| tokenizer.adds_bos()).into_iter().collect();
    ids.push(prefix_mark);
    ids.extend(before);
    ids.push(suffix_mark);
    ids.extend(literal(suffix));
    ids.push(middle_mark);
    Ok(ids)
}

/// The ids of tokens by their names, if the vocabulary has them all.
fn ids(tokenizer: &Tokenizer, names: [&str; 3]) -> Option<[u32; 3]> {
    let id = |name: &str| match tokenizer.encode(name, Special::Parse)[..] {
        [id] if tokenizer.spelling(id) == name => Some(id),
        _ => None,
    };
    let [prefix, suffix, middle] = names.map(id);
    Some([prefix?, suffix?, middle?])
}

#[cfg(test)]
mod tests {
    use yggc::text::{TokenKind, Vocabulary};

    use super::*;

    /// Every printable ASCII character, space and newline, then these control tokens.
    fn tokenizer(controls: &[&str], bos: Option<u32>) -> Tokenizer {
        let mut tokens: Vec<String> = (b'!'..=b'~').map(|byte| char::from(byte).to_string()).collect();
        tokens.extend(["Ġ", "Ċ"].map(String::from));
        let mut kinds = vec![TokenKind::Normal; tokens.len()];
        tokens.extend(controls.iter().map(|name| (*name).to_owned()));
        kinds.resize(tokens.len(), TokenKind::Control);
        let model = "gpt2".into();
        let pre_tokenizer = "smollm".into();
        let vocabulary = Vocabulary {
            model,
            pre_tokenizer,
            tokens,
            kinds,
            bos,
            add_bos: Some(true),
            ..Vocabulary::default()
        };
        Tokenizer::from_vocabulary(vocabulary).unwrap()
    }

    #[test]
    fn text_goes_between_the_models_own_marks() {
        for names in MARKS {
            let controls = [names[0], names[1], names[2], "<s>"];
            for (bos, first) in [(None, vec![]), (Some(99), vec![99])] {
                let tokenizer = tokenizer(&controls, bos);
                let expected = [&first[..], &[96, 64, 97, 65, 66, 98]].concat();
                for prompt in [Prompt::Raw("a".to_owned()), Prompt::Tokens(vec![64])] {
                    assert_eq!(between(&tokenizer, &prompt, "bc").unwrap(), expected, "{names:?}");
                }
                let spelled = between(&tokenizer, &Prompt::Raw(names[2].to_owned()), "b").unwrap();
                assert_eq!(spelled.iter().filter(|id| **id == 98).count(), 1, "plain text is no mark");
            }
        }
    }

    #[test]
    fn a_model_without_marks_is_told_of() {
        for controls in [&["<s>"][..], &["<|fim_prefix|>", "<|fim_suffix|>"]] {
            let refused = between(&tokenizer(controls, None), &Prompt::Raw("a".to_owned()), "b").unwrap_err();
            assert!(refused.message.starts_with("suffix: this model has no tokens"), "{refused:?}");
        }
    }
}
