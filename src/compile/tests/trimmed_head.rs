//! A trimmed head changes the last step of a program and nothing else.

use ygg_kernels::{KvFormat, Tier};

use super::example::Shape;
use crate::{
    compile::compile,
    ir::{Binding, DeviceSpec, Graph, Head, HeadTokens, Op, WeightId},
};

const BINDING: Binding = Binding { width: 3, outputs: 2 };

fn trimmed(mut graph: Graph, ids: &[u32]) -> Graph {
    let tokens = HeadTokens::new(ids, Shape::plain().vocab).unwrap();
    let head = graph.add_trimmed_head(&tokens).unwrap();
    graph.trim_head(head, tokens, 4).unwrap();
    graph
}

#[test]
fn only_the_head_differs_from_the_whole_program() {
    let device = DeviceSpec::cpu(Tier::Reference, KvFormat::F32);
    let mut whole = Shape::plain().graph();
    let weights = whole.weights().len();
    let graph = trimmed(whole.clone(), &[3, 40, 99]);
    whole.show_candidates(4).unwrap();
    let [whole, trimmed] = [whole, graph].map(|graph| compile(&graph, BINDING, &device).unwrap());

    let spec = &trimmed.weights[weights];
    assert_eq!((spec.name.as_str(), spec.rows, spec.columns), ("embed of 3 tokens", 3, 48));
    assert_eq!(trimmed.weights[..weights], whole.weights[..]);
    assert_eq!(spec.format, whole.weights[0].format);

    let (last, others) = trimmed.steps.split_last().unwrap();
    let (whole_last, whole_others) = whole.steps.split_last().unwrap();
    assert_eq!(others.len(), whole_others.len());
    for (step, whole) in others.iter().zip(whole_others) {
        assert_eq!((&step.op, step.kernel, step.group), (&whole.op, whole.kernel, whole.group));
    }
    let Op::Candidates {
        head: Some(Head { weights: matrices, norm: Some(_) }),
        most: 4,
        tokens: Some(tokens),
    } = &last.op
    else {
        panic!("{:?} ends the program", last.op)
    };
    assert_eq!((&matrices[..], tokens.as_slice()), (&[WeightId(weights as u32)][..], &[3, 40, 99][..]));
    assert_eq!(last.kernel, whole_last.kernel);
    assert_eq!((trimmed.shown.rows, trimmed.shown.columns), (whole.shown.rows, whole.shown.columns));
}

/// A bound of logits stays after the head that is trimmed.
#[test]
fn a_bounded_head_is_trimmed_too() {
    let mut graph = Shape::plain().graph();
    let logits = graph.shown().unwrap();
    let bounded = graph.add(Op::Softcap { cap: 3.0 }, &[logits], None).unwrap();
    graph.set_logits(bounded);
    let tokens = HeadTokens::new(&[1, 2, 3], 100).unwrap();
    let head = graph.add_trimmed_head(&tokens).unwrap();
    graph.trim_head(head, tokens, 2).unwrap();
    crate::ir::verify::verify(&graph).unwrap();
    let candidates = graph.shown().unwrap();
    let bound = graph.operands(candidates)[0];
    assert_eq!(graph.node(bound).op, Op::Softcap { cap: 3.0 });
    assert_eq!(graph.node(bound).value_type.columns, 3);
}

#[test]
fn what_has_no_head_to_trim_is_refused() {
    let mut candidates = Shape::plain().graph();
    candidates.show_candidates(4).unwrap();
    let mut scaled = Shape::plain().graph();
    let logits = scaled.shown().unwrap();
    let twice = scaled.add(Op::Scale { factor: 2.0 }, &[logits], None).unwrap();
    scaled.set_logits(twice);
    for (graph, found) in [(candidates, "`candidates`"), (scaled, "`scale`")] {
        let error = graph.head().unwrap_err().to_string();
        assert!(error.contains("product with one matrix") && error.contains(found), "{error}");
    }
}

#[test]
fn rows_and_tokens_of_a_head_must_agree() {
    let mut graph = Shape::plain().graph();
    let tokens = |ids: &[u32]| HeadTokens::new(ids, 100).unwrap();
    let head = graph.add_trimmed_head(&tokens(&[1, 2, 3])).unwrap();
    let error = graph.trim_head(head, tokens(&[1, 2]), 4).unwrap_err().to_string();
    assert!(error.contains("a logit for each of 2 tokens"), "{error}");
}
