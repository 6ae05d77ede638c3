//! How control tokens treat the white space next to them, for families whose GGUF files do not say it.
//!
//! A GGUF file has no place for `lstrip` and `rstrip` of added tokens. They are false in the published tokenizers of
//! every family that [families.md](../../docs/families.md) lists but Phi's, so the rule recognises those, by the kind
//! of tokenizer and by the control tokens of their chat format: a file keeps both where its name is changed. llama.cpp
//! decides Phi 3 by the name of the model (`llama-vocab.cpp`), and knows no rule for Phi 4.

use std::collections::BTreeMap;

use super::lexicon::Search;
use super::matcher::Edges;
use super::{TokenKind, Vocabulary};

/// What the tokens of a family take along.
struct Family {
    /// `tokenizer.ggml.model`.
    model: &'static str,
    /// `tokenizer.ggml.pre`; any if empty.
    pre_tokenizer: &'static str,
    /// Control tokens that only this family has with these two.
    controls: [&'static str; 3],
    edges: Edges,
    /// Tokens that take nothing along.
    except: &'static [&'static str],
}

const AFTER: Edges = Edges { strips_left: false, strips_right: true, is_word: false };
const AROUND: Edges = Edges { strips_left: true, strips_right: true, is_word: false };

const FAMILIES: [Family; 3] = [
    // Phi 3 and 3.5, mini and medium.
    Family {
        model: "llama",
        pre_tokenizer: "",
        controls: ["<|user|>", "<|assistant|>", "<|end|>"],
        edges: AFTER,
        except: &["<unk>", "<s>", "<|endoftext|>"],
    },
    // Phi 4 mini.
    Family {
        model: "gpt2",
        pre_tokenizer: "gpt-4o",
        controls: ["<|user|>", "<|assistant|>", "<|end|>"],
        edges: AFTER,
        except: &["<|endoftext|>", "<|endofprompt|>"],
    },
    // Phi 4.
    Family {
        model: "gpt2",
        pre_tokenizer: "dbrx",
        controls: ["<|im_start|>", "<|im_sep|>", "<|im_end|>"],
        edges: AROUND,
        except: &[],
    },
];

/// How tokens of this vocabulary are found in text, where that differs from the rule.
pub(super) fn searches(vocabulary: &Vocabulary) -> BTreeMap<u32, Search> {
    let Vocabulary { model, pre_tokenizer, tokens, kinds, .. } = vocabulary;
    let is_control = |name: &&str| {
        tokens.iter().zip(kinds).any(|(text, kind)| text == name && *kind == TokenKind::Control)
    };
    let is_it = |family: &&Family| {
        family.model == model
            && (family.pre_tokenizer.is_empty() || family.pre_tokenizer == pre_tokenizer)
            && family.controls.iter().all(&is_control)
    };
    let Some(family) = FAMILIES.iter().find(is_it) else { return BTreeMap::new() };
    let search = Search { edges: family.edges, normal_form: None };
    (0..)
        .zip(tokens.iter().zip(kinds))
        .filter(|(_, (text, kind))| {
            matches!(kind, TokenKind::Control | TokenKind::Unknown | TokenKind::UserDefined)
                && !family.except.contains(&text.as_str())
        })
        .map(|(id, _)| (id, search.clone()))
        .collect()
}
