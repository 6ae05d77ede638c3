//! Requests to an engine: any prompt with any settings, answered with and without drafting; both answers must be equal.

use std::{cell::RefCell, sync::Arc};

use arbitrary::{Arbitrary, Unstructured};
use yggc::{
    engine::{Adjustment, Answer, Engine, FinishReason, Options, Pinning, Prompt, Request, Reuse, Sampling},
    runtime::SessionOptions,
    speculate::{BandSteps, Begin, Decoder, Limits, Lookup, StepShape},
};

use super::tiny::{CONTEXT, WIDEST, loaded};

/// Most tokens of an answer.
const MOST_TOKENS: usize = 12;
const SHAPE: StepShape =
    StepShape { depth: 3, draft_width: 1, verify_width: WIDEST, top_k: 0, draft_temperature: 1.0 };

/// What a client asks for.
#[derive(Debug, Arbitrary)]
struct Case {
    temperature: f32,
    top_k: u16,
    top_p: f32,
    min_p: f32,
    seed: u8,
    bias: Vec<(u16, f32)>,
    repetition: f32,
    frequency: f32,
    presence: f32,
    log_probs: Option<u16>,
    tokens: u8,
    stops: Vec<String>,
    is_text: bool,
    prompt: Vec<u8>,
}

/// An engine that decodes plainly, and a decoder that drafts.
struct Asked {
    engine: Engine,
    drafting: Decoder,
}

thread_local! {
    static ASKED: RefCell<Asked> = RefCell::new(open());
}

fn open() -> Asked {
    let options = Options {
        context: Some(CONTEXT),
        threads: Some(1),
        pinning: Pinning::Floating,
        ..Options::new("unused")
    };
    let engine = Engine::with_loaded(Arc::clone(loaded()), &options).expect("an engine opens");
    let options = SessionOptions {
        context: CONTEXT,
        tree_nodes: SHAPE.tree_nodes(),
        threads: 1,
        pinning: Pinning::Floating,
    };
    let session = loaded().session(&options, []).expect("a session opens");
    let lookup = Lookup::new(3, 1, &SHAPE).expect("lengths that it knows");
    let drafting = Decoder::new(session, vec![BandSteps::unplanned(Some(Box::new(lookup)), &SHAPE)])
        .expect("a planned width");
    Asked { engine, drafting }
}

/// Asks for an answer, and compares it with what a decoder that drafts says.
pub fn check(input: &[u8]) -> bool {
    let Ok(case) = Case::arbitrary_take_rest(Unstructured::new(input)) else { return false };
    ASKED.with_borrow_mut(|asked| answer(&case, asked))
}

fn answer(case: &Case, Asked { engine, drafting }: &mut Asked) -> bool {
    let request = request(case);
    let answer = engine.generate(&request).and_then(|generation| generation.collect_answer());
    let Ok(answer) = answer else { return false };
    sound(&request, &answer);
    let prompt = &answer.prompt_token_ids;
    let said = drafted(drafting, prompt, &request);
    // A stop string ends an answer that the decoder goes on with.
    assert!(said.starts_with(&answer.token_ids), "{said:?}: {answer:?}");
    if !matches!(answer.finish_reason, FinishReason::StopString { .. }) {
        assert_eq!(said, answer.token_ids, "{request:?}");
    }
    true
}

fn request(case: &Case) -> Request {
    let bytes = &case.prompt[..case.prompt.len().min(2 * CONTEXT)];
    let prompt = match case.is_text {
        true => Prompt::Raw(String::from_utf8_lossy(bytes).into_owned()),
        // Sometimes a token outside the vocabulary.
        false => Prompt::Tokens(bytes.iter().map(|byte| u32::from(*byte) * 300 / 254).collect()),
    };
    let Case { temperature, top_k, top_p, min_p, seed, repetition, frequency, presence, .. } = *case;
    Request {
        max_tokens: usize::from(case.tokens) % (MOST_TOKENS + 1),
        sampling: Sampling { temperature, top_k: top_k.into(), top_p, min_p, seed: seed.into() },
        adjustment: Adjustment {
            bias: case.bias.iter().map(|(token, added)| (u32::from(*token) % 310, *added)).collect(),
            repetition,
            frequency,
            presence,
        },
        stop: case.stops.clone(),
        log_probs: case.log_probs.map(usize::from),
        reuse: if case.seed.is_multiple_of(2) { Reuse::Prefix } else { Reuse::Nothing },
        ..Request::new(prompt)
    }
}

fn sound(request: &Request, answer: &Answer) {
    let vocabulary = loaded().set().vocabulary() as u32;
    assert!((1..=request.max_tokens).contains(&answer.token_ids.len()), "{answer:?}");
    assert!(answer.token_ids.iter().all(|token| *token < vocabulary), "{answer:?}");
    let noted = if request.log_probs.is_some() { answer.token_ids.len() } else { 0 };
    assert_eq!(answer.log_probs.len(), noted, "{answer:?}");
    assert!(request.stop.iter().all(|stop| !answer.text.contains(stop.as_str())), "{answer:?}");
}

fn drafted(decoder: &mut Decoder, prompt: &[u32], request: &Request) -> Vec<u32> {
    let Request { sampling, adjustment, log_probs, reuse, max_tokens, .. } = request;
    let begin = Begin { adjustment, log_probs: *log_probs, reuse: *reuse, ..Begin::new(prompt, *sampling) };
    let first = decoder.begin(&begin).expect("a request that an engine answers").expect("nobody cancels it");
    let (mut said, ends) = (vec![first], loaded().end_ids());
    // A decoder could say one more, which no cache has to hold; an engine's context is prompt and answer.
    let most = (*max_tokens).min(decoder.session().context() - prompt.len());
    while said.len() < most && !said.last().is_some_and(|token| ends.contains(token)) {
        let tokens = most - said.len();
        decoder.step(Limits { tokens, ends }, None).expect("it runs");
        said.extend(decoder.emitted());
    }
    said
}
