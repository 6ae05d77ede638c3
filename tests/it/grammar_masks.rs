//! Masks of drafted nodes: those that are computed while a device verifies a tree change no token of a constrained
//! answer.

use std::sync::Arc;

use yggc::{
    engine::{Activations, Constraint, KvFormat, LoadOptions, Loaded},
    grammar::Matcher,
    runtime::{Pinning, Session, SessionOptions},
    sample::Sampling,
    speculate::{
        BandSteps, Begin, Budget, Decoder, Drafter, Limits, SpeculateError, Speculation, Stats, StepShape,
    },
    tree::{NodeId, Source, TokenTree},
};

use crate::{
    tiny_commands::model,
    tiny_model::{best_tier, is_cuda},
};

const SHAPE: StepShape =
    StepShape { depth: 5, draft_width: 2, verify_width: 8, top_k: 0, draft_temperature: 1.0 };
const PROMPT: [u32; 6] = [40, 41, 42, 40, 41, 42];
const HOT: Sampling = Sampling { temperature: 0.9, top_k: 0, top_p: 0.95, min_p: 0.0, seed: 5 };

/// Proposes the true continuation, and for each of its tokens another.
#[derive(Debug)]
struct Tempting(Vec<u32>);

impl Drafter for Tempting {
    fn propose(&mut self, tree: &mut TokenTree, budget: Budget<'_>) -> Result<(), SpeculateError> {
        let mut node = NodeId::ROOT;
        for (depth, token) in self.0[budget.history.len()..].iter().take(budget.depth).enumerate() {
            let value = 0.9_f32.powi(i32::try_from(depth).expect("a tree is not deep") + 1);
            let other = self.0[(budget.history.len() + depth * 7) % self.0.len()];
            if other != *token {
                let _ = tree.insert(node, other, 0.5 * value, 1, Source::new(2)).node();
            }
            let Some(next) = tree.insert(node, *token, value, 0, Source::new(2)).node() else { break };
            node = next;
        }
        Ok(())
    }
}

/// The text with its prompt, and the counters.
fn decoded(
    loaded: &Loaded,
    grammar: &Matcher,
    sampling: Sampling,
    drafter: Option<Tempting>,
) -> (Vec<u32>, Stats) {
    let nodes = SHAPE.depth * SHAPE.draft_width + 1;
    let options = SessionOptions { context: 128, tree_nodes: nodes, threads: 1, pinning: Pinning::Floating };
    let session = Session::open(Arc::clone(loaded.set()), &options).expect("it opens");
    let shape = if drafter.is_some() { SHAPE } else { StepShape::PLAIN };
    let speculation = if drafter.is_some() { Speculation::AsOpened } else { Speculation::Off };
    let drafter = drafter.map(|drafter| Box::new(drafter) as Box<dyn Drafter>);
    let mut decoder =
        Decoder::new(session, vec![BandSteps::unplanned(drafter, &shape)]).expect("a planned width");
    let begin = Begin { grammar: Some(grammar), speculation, ..Begin::new(&PROMPT, sampling) };
    decoder.begin(&begin).expect("the prompt fits");
    while !decoder.is_complete() && decoder.history().len() < 100 {
        let limits = Limits { tokens: 100 - decoder.history().len(), ends: loaded.end_ids() };
        decoder.step(limits, None).expect("the step runs");
        if decoder.emitted().last().is_some_and(|last| loaded.end_ids().contains(last)) {
            break;
        }
    }
    (decoder.history().to_vec(), decoder.stats().clone())
}

#[test]
fn masks_that_are_ready_when_the_walk_comes_change_no_token() {
    let options = LoadOptions {
        tier: Some(best_tier()),
        activations: Activations::Native,
        cache: KvFormat::F16,
        threads: Some(1),
        widths: vec![2, 4, 8, 64],
        resident: None,
    };
    let loaded = Loaded::open(model(), &options).expect("a generated model loads");
    let (mut accepted, mut ahead) = (0, 0);
    for constraint in [
        Constraint::JsonSchema(
            r#"{"type": "array", "items": {"type": "string", "maxLength": 9}}"#.to_owned(),
        ),
        Constraint::Regex("([a-z]{3,9} ){4}[0-9]+".to_owned()),
        Constraint::Regex("[a-z]{60}[0-9]+".to_owned()),
        Constraint::JsonObject,
    ] {
        let grammar = loaded.matcher(&constraint).expect("it can be kept");
        for sampling in [Sampling::GREEDY, HOT] {
            let (expected, plain) = decoded(&loaded, &grammar, sampling, None);
            assert_eq!(plain.masks_ahead, 0);
            let (found, stats) = decoded(&loaded, &grammar, sampling, Some(Tempting(expected.clone())));
            assert_eq!(found, expected, "{constraint:?}, {sampling:?}");
            accepted += stats.accepted;
            ahead += stats.masks_ahead;
        }
    }
    assert!(accepted > 50, "{accepted} nodes were accepted");
    // A processor computes no mask while it runs a forward.
    assert_eq!(ahead > 20, is_cuda(), "{ahead} masks were ready");
}
