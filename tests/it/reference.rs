//! The default model against another implementation: float32 outputs of Hugging Face transformers on 22 texts.

use std::{fs, path::Path, sync::OnceLock};

use serde::Deserialize;
use yggc::{
    engine::{Activations, LoadOptions, Loaded, Pinning, Tier},
    measure::score,
    text::{Special, Tokenizer},
};

use crate::{
    program::default_model,
    tiny_model::{best_tier, everything},
};

/// Rows scored at once.
const WIDTH: usize = 64;

/// So many of the texts, the shortest, are scored by the portable tier: it takes half a minute for one.
const PORTABLE_TEXTS: usize = 1;
/// And so many of its tokens; `.ci/full` scores all.
const PORTABLE_TOKENS: usize = 60;
/// So many texts by the others; `.ci/full` scores all.
const SOME_TEXTS: usize = 12;

/// How far a class of kernels may be from the reference.
#[derive(Clone, Copy, Debug)]
struct Bar {
    /// Relative difference of the mean negative log-likelihood.
    nll: f64,
    /// Least share of equal most probable tokens.
    argmax: f64,
    /// The same where the reference prefers one by more than 0.2.
    clear: f64,
}

impl Bar {
    const NATIVE: Self = Self { nll: 0.01, argmax: 0.98, clear: 0.995 };
    /// A code of 8 bits is off by up to half of a 127th of the largest of 32 activations, in every linear of 30 layers.
    const INT8: Self = Self { nll: 0.03, argmax: 0.95, clear: 0.99 };

    fn of(activations: Activations) -> Self {
        match activations {
            Activations::Native => Self::NATIVE,
            Activations::Int8 => Self::INT8,
        }
    }
}

/// One line of `tests/data/reference/reference.jsonl`; its README names the fields.
#[derive(Debug, Deserialize)]
struct Reference {
    name: String,
    text: String,
    prompt_token_ids: Vec<u32>,
    token_ids: Vec<u32>,
    nll: Vec<f64>,
    argmax: Vec<u32>,
    margin: Vec<f32>,
}

/// All texts, the shortest first.
fn references() -> &'static [Reference] {
    static REFERENCES: OnceLock<Vec<Reference>> = OnceLock::new();
    REFERENCES.get_or_init(|| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/reference/reference.jsonl");
        let lines = fs::read_to_string(path).expect("the reference is there");
        let mut texts: Vec<Reference> =
            lines.lines().map(|line| serde_json::from_str(line).expect("a line of the reference")).collect();
        assert_eq!(texts.len(), 22);
        texts.sort_by_key(|text| text.token_ids.len());
        texts
    })
}

fn load(tier: Tier, activations: Activations) -> Loaded {
    let options = LoadOptions {
        tier: Some(tier),
        activations,
        cache: yggc::engine::KvFormat::F16,
        threads: None,
        widths: vec![WIDTH],
        resident: None,
    };
    Loaded::open(default_model(), &options).expect("the default model")
}

/// The default model on the best tier of this machine, for all tests here.
fn best() -> &'static Loaded {
    static BEST: OnceLock<Loaded> = OnceLock::new();
    BEST.get_or_init(|| load(best_tier(), Activations::Native))
}

/// How often the most probable token is the reference's.
#[derive(Debug, Default)]
struct Agreement {
    equal: usize,
    of: usize,
}

impl Agreement {
    fn count(&mut self, equal: bool) {
        self.equal += usize::from(equal);
        self.of += 1;
    }

    fn share(&self) -> f64 {
        self.equal as f64 / self.of as f64
    }
}

/// Scores the texts and compares. How probable a token is may differ by rounding, and so may the most probable token
/// where the reference itself hardly prefers one: by `margin`, the distance of its two highest logits.
fn compare(loaded: &Loaded, texts: &[Reference]) {
    let bar = Bar::of(loaded.activations());
    let (mut found_nll, mut expected_nll, mut tokens) = (0.0, 0.0, 0);
    let (mut all, mut clear) = (Agreement::default(), Agreement::default());
    let most = if loaded.tier() == Tier::Portable && !everything() { PORTABLE_TOKENS } else { usize::MAX };
    for text in texts {
        assert_eq!(text.token_ids.len(), text.nll.len() + 1, "{}", text.name);
        let ids = &text.token_ids[..text.token_ids.len().min(most)];
        let scored = score(loaded, ids, Pinning::Floating).expect("a text within the context");
        tokens += scored.tokens.len();
        found_nll += scored.tokens.iter().map(|t| t.nll).sum::<f64>();
        expected_nll += text.nll[..scored.tokens.len()].iter().sum::<f64>();
        for (i, token) in scored.tokens.iter().enumerate() {
            let (expected, margin) = (text.argmax[i], text.margin[i]);
            let equal = token.argmax == expected;
            all.count(equal);
            if margin > 0.2 {
                clear.count(equal);
            }
            assert!(
                equal || margin <= 0.5,
                "{}, after token {i}: expected {expected} by a margin of {margin}, found {}",
                text.name,
                token.argmax
            );
        }
    }
    let (found, expected) = (found_nll / tokens as f64, expected_nll / tokens as f64);
    let what = format!(
        "{} with {} activations on {} texts: mean nll {found:.6}, expected {expected:.6}; argmax equal at {} of {}, {} of {} where clear",
        loaded.tier(),
        loaded.activations(),
        texts.len(),
        all.equal,
        all.of,
        clear.equal,
        clear.of
    );
    assert!((found / expected - 1.0).abs() <= bar.nll, "{what}");
    // In a hundred tokens a few are more than a share of them.
    if texts.len() > PORTABLE_TEXTS {
        assert!(all.share() >= bar.argmax && clear.share() >= bar.clear, "{what}");
    }
}

/// Texts of the reference that a tier scores, out of `most`.
fn texts(tier: Tier, most: usize) -> &'static [Reference] {
    &references()[..if tier == Tier::Portable { PORTABLE_TEXTS } else { most }]
}

#[test]
fn the_default_model_computes_what_the_reference_does() {
    compare(best(), texts(best().tier(), SOME_TEXTS));
}

#[test]
#[ignore = "takes long: .ci/full runs it"]
fn the_default_model_computes_what_the_reference_does_on_every_text() {
    compare(best(), texts(best().tier(), references().len()));
}

#[test]
fn so_does_the_portable_tier() {
    if best().tier() != Tier::Portable {
        compare(&load(Tier::Portable, Activations::Native), &references()[..PORTABLE_TEXTS]);
    }
}

/// Its integer sums are the same in every tier, so one tier shows it.
#[test]
fn int8_activations_keep_to_a_bar_of_their_own() {
    let loaded = load(best_tier(), Activations::Int8);
    compare(&loaded, texts(loaded.tier(), if everything() { references().len() } else { SOME_TEXTS }));
}

/// Our tokens of a prompt, tokenised again in the reference tool's way: white space before a digit in two pieces, all
/// but its last character and that one.
fn as_the_reference_tool(tokenizer: &Tokenizer, ids: &[u32]) -> Vec<u32> {
    let text = |id: &u32| tokenizer.token_bytes(*id).unwrap_or_default();
    let mut result = Vec::with_capacity(ids.len());
    let mut rest = ids;
    while !rest.is_empty() {
        let spaces = rest.iter().take_while(|id| is_white_space(text(id))).count();
        let before_a_digit =
            rest.get(spaces).is_some_and(|id| text(id).first().is_some_and(u8::is_ascii_digit));
        if spaces > 0 && before_a_digit {
            let run = tokenizer.decode(&rest[..spaces]);
            let (last, _) = run.char_indices().next_back().expect("a run is not empty");
            result.extend(tokenizer.encode(&run[..last], Special::Literal));
            result.extend(tokenizer.encode(&run[last..], Special::Literal));
            rest = &rest[spaces..];
        } else {
            let (plain, later) = rest.split_at(spaces.max(1));
            result.extend_from_slice(plain);
            rest = later;
        }
    }
    result
}

fn is_white_space(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.is_ascii() && bytes.iter().all(u8::is_ascii_whitespace)
}

/// The model file names the pre-tokenizer `smollm`, which cuts digits off before anything else; the model's own
/// `tokenizer.json` and llama.cpp do so too. Then the white space before a digit is the end of its piece and stays
/// whole. The reference tool ignored the name and cut as GPT-2 does: the last white space goes with the word after it,
/// or, before digits, which no token joins with it, alone. One character is the same either way; a longer run, as in
/// the indented examples of two of the prompts, is not.
#[test]
fn prompts_have_the_reference_s_tokens_but_for_white_space_before_digits() {
    let tokenizer = best().tokenizer();
    let mut different = Vec::new();
    for text in references() {
        let ids = tokenizer.encode_prompt(&text.text);
        assert_eq!(tokenizer.decode(&ids), tokenizer.decode(&text.prompt_token_ids), "{}", text.name);
        assert_eq!(as_the_reference_tool(tokenizer, &ids), text.prompt_token_ids, "{}", text.name);
        if ids != text.prompt_token_ids {
            different.push(text.name.as_str());
        }
    }
    assert_eq!(different, ["HumanEval/2", "HumanEval/4"]);
}
