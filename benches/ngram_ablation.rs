//! Compression ratios (plain steps for each step) of the n-gram drafter, of itself without each of its parts, of
//! Lookahead decoding over the same pool, and of its relatives: SPECTRA's ablation. Counts steps, not time: any build
//! will do.
//!
//! `cargo bench --bench ngram_ablation -- MODEL PROMPTS.jsonl PROMPT_COUNT TOKENS` prints one JSON object a line.

use std::{error::Error, path::Path, sync::Arc};

use yggc::{
    engine::{Activations, LoadOptions, Loaded, Pinning, Sampling},
    measure::read_prompts,
    plan::{DrafterKind, LookupSettings, NgramSettings, SuffixSettings},
    runtime::{Session, SessionOptions},
    speculate::{BandSteps, Decoder, Limits, StepShape, make_drafter},
};

/// Room for the pool's 21 rows, the root, and as many guesses.
const SHAPE: StepShape =
    StepShape { depth: 6, draft_width: 8, verify_width: 48, top_k: 0, draft_temperature: 1.0 };
const CORE: NgramSettings = NgramSettings { pool: 7, ..NgramSettings::DEFAULT };

fn variants() -> Vec<(&'static str, DrafterKind)> {
    let ngrams = [
        ("core", CORE),
        ("core, explored 0.9", NgramSettings { explored_percent: 90, ..CORE }),
        ("no refinement", NgramSettings { explored_percent: 0, ..CORE }),
        ("no forward dictionary", NgramSettings { forward_guesses: 0, ..CORE }),
        ("no backward dictionary", NgramSettings { backward: false, ..CORE }),
        ("no parts of n-grams", NgramSettings { parts: false, ..CORE }),
        ("no pool", NgramSettings { pool: 0, ..CORE }),
        ("lookahead", CORE.lookahead()),
    ];
    let ngrams = ngrams.map(|(name, settings)| (name, DrafterKind::Ngram(settings)));
    let relatives = [
        ("lookup", DrafterKind::Lookup(LookupSettings { longest_match: 4, shortest_match: 1 })),
        ("suffix", DrafterKind::Suffix(SuffixSettings::DEFAULT)),
        ("recycling", DrafterKind::Recycling),
    ];
    ngrams.into_iter().chain(relatives).collect()
}

#[expect(clippy::print_stdout, reason = "what a bench is for")]
fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let [model, prompts, count, tokens] = &arguments[..] else {
        return Err(format!("expected MODEL PROMPTS.jsonl PROMPT_COUNT TOKENS, found {arguments:?}").into());
    };
    let (count, tokens): (usize, usize) = (count.parse()?, tokens.parse()?);
    let options = LoadOptions {
        tier: None,
        activations: Activations::Native,
        cache: yggc::engine::KvFormat::F16,
        threads: None,
        widths: vec![2, 4, 8, 16, 32, SHAPE.verify_width],
        resident: None,
    };
    let loaded = Loaded::open(Path::new(model), &options)?;
    let prompts = read_prompts(Path::new(prompts))?;
    let every = (prompts.len() / count.max(1)).max(1);
    let prompts: Vec<Vec<u32>> = prompts
        .iter()
        .step_by(every)
        .take(count)
        .map(|prompt| prompt.token_ids(&loaded))
        .collect::<Result<_, _>>()?;
    let longest = prompts.iter().map(Vec::len).max().ok_or("expected prompts, found none")?;
    let mut answers: Vec<Vec<u32>> = Vec::new();
    for (name, kind) in std::iter::once(("plain", DrafterKind::None)).chain(variants()) {
        let shape = if kind == DrafterKind::None { StepShape::PLAIN } else { SHAPE };
        let session_options = SessionOptions {
            context: (longest + tokens).min(loaded.set().model_context()),
            tree_nodes: shape.tree_nodes(),
            threads: loaded.threads(),
            pinning: Pinning::Floating,
        };
        let session = Session::open(Arc::clone(loaded.set()), &session_options)?;
        let drafter = make_drafter(&kind, &shape, &session)?;
        let mut decoder = Decoder::new(session, vec![BandSteps::unplanned(drafter, &shape)])?;
        let (mut steps, mut emitted, mut drafted) = (0, 0, 0);
        for (i, prompt) in prompts.iter().enumerate() {
            let ends = loaded.end_ids();
            let mut last = decoder.start(prompt, Sampling::GREEDY)?;
            loop {
                let left = tokens - (decoder.history().len() - prompt.len());
                if left == 0 || ends.contains(&last) {
                    break;
                }
                decoder.step(Limits { tokens: left, ends }, None)?;
                last = *decoder.emitted().last().expect("a step emits");
            }
            steps += decoder.stats().steps;
            emitted += decoder.stats().step_tokens;
            drafted += decoder.stats().drafted;
            match answers.get(i) {
                Some(plain) if plain != decoder.history() => {
                    return Err(format!("{name} answers prompt {i} otherwise than plain decoding").into());
                }
                Some(_) => {}
                None => answers.push(decoder.history().to_vec()),
            }
        }
        let ratio = emitted as f64 / steps as f64;
        let line = serde_json::json!({
            "variant": name, "tokens": emitted, "steps": steps, "drafted": drafted, "compression_ratio": ratio,
        });
        println!("{line}");
    }
    Ok(())
}
