//! Drafters know the noise that draws a request's tokens: one that is as good as the verifier foresees every draw.

use yggc::{
    runtime::SkipSet,
    sample::Sampling,
    speculate::{BandSteps, Begin, Decoder, Limits, SelfDrafter, StepShape},
};

use crate::tiny_model::{models, session};

/// Growths of a chain.
const DEPTH: usize = 3;

/// Tokens of each step of an answer that the verifier drafts for itself.
fn tokens_a_step(sampling: Sampling) -> f64 {
    let model = &models()[0];
    let set = model.set(model.classes()[0]);
    let shape =
        StepShape { depth: DEPTH, draft_width: 1, verify_width: DEPTH + 1, top_k: 1, draft_temperature: 1.0 };
    let opened = session(set, 120, shape.tree_nodes(), 1);
    let whole = SelfDrafter::layer_skip(&opened, SkipSet::none(set.groups()), &shape).expect("it fits");
    let steps = vec![BandSteps::unplanned(Some(Box::new(whole)), &shape)];
    let mut decoder = Decoder::new(opened, steps).expect("it fits");
    decoder.begin(&Begin::new(&[3, 1, 4], sampling)).expect("it begins").expect("nothing cancels it");
    let (mut steps, mut tokens) = (0, 0);
    while decoder.history().len() + DEPTH < 100 {
        decoder.step(Limits { tokens: DEPTH + 1, ends: &[] }, None).expect("it steps");
        (steps, tokens) = (steps + 1, tokens + decoder.emitted().len());
    }
    f64::from(u32::try_from(tokens).expect("few")) / f64::from(steps)
}

#[test]
fn a_drafter_that_is_the_verifier_foresees_every_draw() {
    let plain = Sampling { temperature: 1.0, ..Sampling::GREEDY };
    for seed in 0..6 {
        for sampling in [
            Sampling { seed, ..plain },
            Sampling { seed, temperature: 0.6, ..plain },
            Sampling { seed, temperature: 2.0, ..plain },
            Sampling { seed, top_k: 20, ..plain },
            Sampling { seed, top_k: 40, top_p: 0.8, ..plain },
            Sampling { seed, min_p: 0.7, ..plain },
        ] {
            let found = tokens_a_step(sampling);
            // The drafter ranks in single precision.
            assert!(found > DEPTH as f64 + 0.9, "{sampling:?}: {found} tokens a step of {}", DEPTH + 1);
        }
    }
}
