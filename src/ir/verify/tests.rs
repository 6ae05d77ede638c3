//! One breach per law, and what the refusal names.

use ygg_kernels::{Nonlinearity, Scoring, StateForm, StateRule, StateShape, WeightFormat};

use super::*;
use crate::ir::{ConvSpec, Head, Input, KvSpec, Norm, StateSpec, WeightId, WeightSpec};

const ATTENTION: GroupId = GroupId(0);

struct Parts {
    graph: Graph,
    stream: ValueId,
    append: ValueId,
    attended: ValueId,
    sum: ValueId,
    head: ValueId,
}

fn matrix(name: &str, rows: usize, columns: usize) -> WeightSpec {
    WeightSpec::new(name, rows, columns, WeightFormat::F32)
}

fn linear(weight: u32) -> Op {
    Op::Linear { weights: vec![WeightId(weight)], biases: vec![], norm: None, residual: false }
}

fn attention(layer: usize) -> Op {
    Op::Attention { layer, heads: 2, scoring: Scoring::scaled(0.5), rope: None, sinks: None }
}

/// A model of one attention sub-layer and a head over its stream.
fn lawful() -> Parts {
    let weights = vec![
        matrix("embed", 10, 8),
        matrix("kv", 4, 8),
        matrix("head", 10, 8),
        matrix("gain", 1, 8),
        matrix("two", 1, 2),
        matrix("one", 1, 1),
    ];
    let shape = StateShape {
        rule: StateRule::Delta,
        key_heads: 1,
        value_heads: 1,
        key_dim: 1,
        value_dim: 2,
        taps: 2,
    };
    let conv = ConvSpec { layers: 1, channels: 2 };
    let mut graph = Graph::new(
        "law",
        weights,
        KvSpec {
            layers: 2,
            kv_heads: 1,
            head_dim: 4,
            conv,
            states: StateSpec { layers: 1, shape },
            ..KvSpec::default()
        },
    );
    let mut add = |op: Op, operands: &[ValueId], group| graph.add(op, operands, group).unwrap();
    let inputs = [Input::Tokens, Input::Positions, Input::Slots, Input::Tails, Input::OutputRows]
        .map(|input| add(Op::Input(input), &[], None));
    let [tokens, positions, slots, tails, rows] = inputs;
    let stream = add(Op::Embed { weight: WeightId(0) }, &[tokens], None);
    let norm = Norm { weight: WeightId(3), eps: 1e-5 };
    let x = add(Op::RmsNorm(norm), &[stream], Some(ATTENTION));
    let k = add(linear(1), &[x], Some(ATTENTION));
    let append = add(Op::AppendKv { layer: 0, rope: None }, &[k, k, slots, positions], Some(ATTENTION));
    let attended = add(attention(0), &[x, append, tails, positions], Some(ATTENTION));
    let sum = add(Op::Add, &[stream, attended], Some(ATTENTION));
    let selected = add(Op::SelectRows, &[sum, rows], None);
    let head = add(linear(2), &[selected], None);
    graph.set_logits(head);
    Parts { graph, stream, append, attended, sum, head }
}

fn breach(graph: &Graph) -> String {
    verify(graph).expect_err("the law is broken").to_string()
}

#[test]
fn accepts_a_lawful_graph() {
    let parts = lawful();
    assert_eq!(verify(&parts.graph), Ok(()));
    assert_eq!(group_result(&parts.graph, ATTENTION), Some(parts.sum));
}

#[test]
fn refuses_a_value_whose_type_its_op_does_not_infer() {
    let Parts { mut graph, stream, head, .. } = lawful();
    let narrow = graph.add(Op::Slice { start: 0, len: 4 }, &[stream], None).unwrap();
    let selected = graph.operands(head)[0];
    graph.replace_uses(selected, narrow);
    let found = breach(&graph);
    assert!(found.contains(&head.to_string()) && found.contains("operands that fit"), "{found}");

    let Parts { mut graph, stream, head, .. } = lawful();
    let selected = graph.operands(head)[0];
    graph.replace_uses(selected, stream);
    let found = breach(&graph);
    assert!(found.contains("type f32[W, 10]") && found.contains("f32[R, 10]"), "{found}");
}

#[test]
fn rewriting_keeps_the_type() {
    let Parts { mut graph, sum, stream, .. } = lawful();
    let narrower = graph.rewrite(sum, Op::Slice { start: 0, len: 4 }, &[stream]);
    assert!(narrower.unwrap_err().to_string().contains("expected type f32[W, 8]"));
    assert!(graph.rewrite(sum, Op::Gate(Nonlinearity::Silu), &[stream]).is_err());
    assert_eq!(verify(&graph), Ok(()), "a refused rewrite changes nothing");
}

#[test]
fn refuses_a_second_append_to_a_layer() {
    let Parts { mut graph, append, .. } = lawful();
    let operands = graph.operands(append);
    graph.add(Op::AppendKv { layer: 0, rope: None }, &operands, Some(ATTENTION)).unwrap();
    let found = breach(&graph);
    assert!(found.contains("one append in layer 0") && found.contains(&append.to_string()), "{found}");
}

#[test]
fn refuses_attention_over_the_append_of_another_layer() {
    let Parts { mut graph, attended, .. } = lawful();
    let operands = graph.operands(attended);
    graph.rewrite(attended, attention(1), &operands).unwrap();
    assert!(breach(&graph).contains("the append of layer 1"));
}

#[test]
fn a_group_that_lends_its_keys_is_never_left_out() {
    let Parts { mut graph, attended, sum, .. } = lawful();
    assert_eq!(lending(&graph), BTreeSet::new());
    let mut operands = graph.operands(attended);
    operands[0] = sum;
    let other = graph.add(attention(0), &operands, Some(GroupId(1))).unwrap();
    graph.add(Op::Add, &[sum, other], Some(GroupId(1))).unwrap();
    assert_eq!(verify(&graph), Ok(()), "an effect is no value that a group hands on");
    assert_eq!(group_result(&graph, ATTENTION), Some(sum));
    assert_eq!(lending(&graph), BTreeSet::from([ATTENTION]));
}

#[test]
fn refuses_a_second_convolution_in_a_layer_and_taps_that_do_not_fit() {
    let Parts { mut graph, stream, append, attended, .. } = lawful();
    let (slots, tails) = (graph.operands(append)[2], graph.operands(attended)[2]);
    let x = graph.add(Op::Slice { start: 0, len: 6 }, &[stream], None).unwrap();
    let conv = |layer, taps| Op::ShortConv { layer, taps: WeightId(taps) };
    for (op, x, part) in [
        (conv(0, 3), stream, "of 2 channels"),
        (conv(1, 3), x, "a layer below 1"),
        (conv(0, 0), x, "1 to 8 taps for each of 2"),
    ] {
        let refused = graph.add(op, &[x, slots, tails], None).unwrap_err().to_string();
        assert!(refused.contains(part), "{refused}");
    }
    let first = graph.add(conv(0, 3), &[x, slots, tails], None).unwrap();
    assert_eq!(verify(&graph), Ok(()));
    graph.add(conv(0, 3), &[x, slots, tails], None).unwrap();
    let found = breach(&graph);
    assert!(found.contains("one convolution in layer 0") && found.contains(&first.to_string()), "{found}");
}

#[test]
fn refuses_a_second_recurrence_in_a_layer_and_what_does_not_fit() {
    let Parts { mut graph, stream, append, attended, .. } = lawful();
    let (slots, tails) = (graph.operands(append)[2], graph.operands(attended)[2]);
    let mut slice = |start, len| graph.add(Op::Slice { start, len }, &[stream], None).unwrap();
    let [x, said, all] = [slice(0, 4), slice(4, 1), slice(0, 8)];
    let form = StateForm { is_grouped: true, is_logarithm: true, steps: StateForm::ALL_STEPS };
    let rule = |layer, taps| Op::Recurrence { layer, vectors: [taps, 5, 5].map(WeightId).to_vec(), form };
    let never = StateForm { steps: [1.0, 0.5], ..form };
    let never = Op::Recurrence { layer: 0, vectors: [3, 5, 5].map(WeightId).to_vec(), form: never };
    let of_scans = Op::Recurrence { layer: 0, vectors: [3, 5, 5, 5, 5].map(WeightId).to_vec(), form };
    for (op, x, part) in [
        (rule(0, 3), all, "columns [4, 1, 1]"),
        (rule(1, 3), x, "a layer below 1"),
        (rule(0, 4), x, "vectors of [8, 1, 1] elements"),
        (of_scans, x, "vectors of [8, 1, 1] elements"),
        (never, x, "of a shape that kernels take"),
    ] {
        let refused = graph.add(op, &[x, said, said, slots, tails], None).unwrap_err().to_string();
        assert!(refused.contains(part), "{refused}");
    }
    let first = graph.add(rule(0, 3), &[x, said, said, slots, tails], None).unwrap();
    assert_eq!(verify(&graph), Ok(()));
    graph.add(rule(0, 3), &[x, said, said, slots, tails], None).unwrap();
    let found = breach(&graph);
    assert!(found.contains("one recurrence in layer 0") && found.contains(&first.to_string()), "{found}");
}

#[test]
fn refuses_a_group_that_leaks() {
    let Parts { mut graph, attended, sum, .. } = lawful();
    graph.add(Op::Add, &[sum, attended], None).unwrap();
    let found = breach(&graph);
    assert!(found.contains("0.attention"), "{found}");
    let Parts { mut graph, append, attended, .. } = lawful();
    let mut operands = graph.operands(attended);
    operands[1] = append;
    graph.add(attention(0), &operands, None).unwrap();
    assert!(breach(&graph).contains("0.attention"));
}

#[test]
fn refuses_a_group_whose_residual_comes_from_inside() {
    let Parts { mut graph, stream, attended, sum, .. } = lawful();
    graph.rewrite(sum, Op::Add, &[attended, stream]).unwrap();
    let found = breach(&graph);
    assert!(found.contains("a residual sum over a value from outside"), "{found}");
}

#[test]
fn refuses_a_group_that_hands_on_no_sum() {
    let Parts { mut graph, stream, sum, .. } = lawful();
    graph.rewrite(sum, Op::Scale { factor: 2.0 }, &[stream]).unwrap();
    assert!(breach(&graph).contains("a residual sum"));
}

#[test]
fn refuses_missing_logits_and_logits_of_every_row() {
    let Parts { mut graph, stream, .. } = lawful();
    graph.set_logits(stream);
    assert!(breach(&graph).contains("one per output"));
    let empty = Graph::new("empty", vec![], graph.kv());
    assert!(breach(&empty).contains("a declared value"));
}

#[test]
fn refuses_candidates_that_an_op_reads() {
    let Parts { mut graph, .. } = lawful();
    graph.show_candidates(3).unwrap();
    assert_eq!(verify(&graph), Ok(()));
    let candidates = graph.shown().unwrap();
    assert_eq!(graph.node(candidates).value_type.columns, 7);
    let reader = graph.add(Op::Scale { factor: 2.0 }, &[candidates], None).unwrap();
    let found = breach(&graph);
    assert!(found.contains("no op reads") && found.contains(&reader.to_string()), "{found}");
}

#[test]
fn candidates_are_of_logits_and_at_least_one() {
    let Parts { mut graph, .. } = lawful();
    assert!(graph.show_candidates(0).unwrap_err().to_string().contains("at least one candidate"));
    let mut empty = Graph::new("empty", vec![], graph.kv());
    assert!(empty.show_candidates(3).unwrap_err().to_string().contains("declared logits"));
    let of_another_width =
        Op::Candidates { head: Some(Head { weights: vec![], norm: None }), most: 3, tokens: None };
    let head = graph.shown().unwrap();
    assert!(graph.add(of_another_width, &[head], None).unwrap_err().to_string().contains("matrices of 10"));
}
