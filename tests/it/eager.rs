//! Eager execution gives what static programs give: the same tokens and the same bits of logits and hidden rows, on
//! every tier.

use std::sync::Arc;

use ygg_kernels::{KvFormat, Tier};
use yggc::{
    compile::{compile, compile_unfused},
    ir::{Binding, DeviceSpec, Op},
    runtime::{ExecutableSet, SetOptions},
    sample::Sampling,
    speculate::{BandSteps, Decoder, Limits},
};

use crate::tiny_model::{Class, Dice, TinyModel, bits, models, session, some_models, thread_counts};

const CONTEXT: usize = 128;
const TOKENS: usize = 10;

fn eager(model: &TinyModel, class: Class) -> Arc<ExecutableSet> {
    let options = SetOptions {
        tier: class.tier,
        kv_format: KvFormat::F16,
        activations: class.activations,
        widths: Vec::new(),
        model_context: model.model.config.context,
        threads: 1,
        resident: None,
    };
    let set = ExecutableSet::build_eager(&model.model.graph, model.model.weights.as_ref(), &options);
    Arc::new(set.expect("a generated model compiles and loads"))
}

/// Tokens of an answer, and the bits of the hidden row after each.
fn answer(
    set: &Arc<ExecutableSet>,
    threads: usize,
    prompt: &[u32],
    sampling: Sampling,
) -> (Vec<u32>, Vec<Vec<u32>>) {
    let mut decoder =
        Decoder::new(session(set, CONTEXT, 1, threads), vec![BandSteps::plain()]).expect("plain decoding");
    decoder.start(prompt, sampling).expect("the prompt fits");
    let mut hidden = Vec::new();
    for step in 1..TOKENS {
        decoder.step(Limits { tokens: TOKENS - step, ends: &[] }, None).expect("the step runs");
        hidden.push(bits(decoder.session().hidden(0).expect("models declare hidden rows")));
    }
    (decoder.history().to_vec(), hidden)
}

#[test]
fn eager_answers_are_plain_ones_to_the_bit() {
    for (number, model) in some_models().enumerate() {
        for class in model.classes().into_iter().filter(|class| class.tier != Tier::Reference) {
            let (eager, fused) = (eager(model, class), model.set(class));
            let mut dice = Dice::new(number as u64);
            for &threads in thread_counts() {
                let prompt = dice.tokens(30, fused.vocabulary());
                for sampling in [Sampling::GREEDY, Sampling { temperature: 0.9, seed: 5, ..Sampling::GREEDY }]
                {
                    let expected = answer(fused, 1, &prompt, sampling);
                    let found = answer(&eager, threads, &prompt, sampling);
                    assert_eq!(found, expected, "{} on {class}, {threads} threads", model.name);
                }
                let logits = |set| bits(session(set, CONTEXT, 1, threads).restart(&prompt).expect("it fits"));
                assert_eq!(logits(&eager), logits(fused), "{} on {class}", model.name);
            }
        }
    }
}

#[test]
fn the_scalar_tier_is_no_measure_of_anything() {
    let model = &models()[0];
    let options = SetOptions {
        tier: Tier::Reference,
        kv_format: KvFormat::F16,
        activations: yggc::engine::Activations::Native,
        widths: Vec::new(),
        model_context: 64,
        threads: 1,
        resident: None,
    };
    let refused = ExecutableSet::build_eager(&model.model.graph, model.model.weights.as_ref(), &options);
    let error = refused.expect_err("no eager reference").to_string();
    assert!(error.contains("eager execution is for tiers that are timed"), "{error}");
}

#[test]
fn unfused_programs_have_every_op_of_the_graph_and_bytes_for_each() {
    for model in models() {
        let device = DeviceSpec::cpu(Tier::Portable, KvFormat::F16);
        let binding = Binding { width: 3, outputs: 3 };
        let graph = &model.model.graph;
        let unfused = compile_unfused(graph, binding, &device).expect("a lawful graph");
        let fused = compile(graph, binding, &device).expect("a lawful graph");
        // Nothing is fused into routes and products of experts, which are most of such a model's steps.
        let has_experts = fused.steps.iter().any(|step| matches!(step.op, Op::Route { .. }));
        let quarters = if has_experts { 5 } else { 6 };
        assert!(unfused.steps.len() > fused.steps.len() * quarters / 4, "{}", model.name);
        for step in &unfused.steps {
            match &step.op {
                Op::Linear { weights, biases: _, norm, residual } => {
                    assert!(weights.len() == 1 && norm.is_none() && !residual, "{:?}", step.op);
                }
                Op::AppendKv { rope, .. } | Op::Attention { rope, .. } => {
                    assert!(rope.is_none(), "{:?}", step.op)
                }
                Op::Candidates { head, .. } => assert!(head.is_none(), "{:?}", step.op),
                Op::GatedLinear { .. } => panic!("a fused op"),
                Op::Input(_)
                | Op::GivenRows { .. }
                | Op::Slice { .. }
                | Op::Embed { .. }
                | Op::RmsNorm(_)
                | Op::Gate(_)
                | Op::Rope(_)
                | Op::ShortConv { .. }
                | Op::Recurrence { .. }
                | Op::Route { .. }
                | Op::RoutedGated { .. }
                | Op::RoutedLinear { .. }
                | Op::Add
                | Op::Scale { .. }
                | Op::Softcap { .. }
                | Op::SelectRows => {}
            }
        }
        let mut regions: Vec<_> = unfused.steps.iter().filter_map(|step| step.result.region()).collect();
        regions.sort_by_key(|region| region.offset_bytes);
        for pair in regions.windows(2) {
            let end = pair[0].offset_bytes + pair[0].rows * pair[0].row_stride * size_of::<f32>();
            assert!(end <= pair[1].offset_bytes, "{:?} and {:?} share bytes", pair[0], pair[1]);
        }
    }
}
