//! What cannot be compiled, and what the error says.

use ygg_kernels::{KvFormat, Tier};

use super::example::{Shape, over_stream};
use crate::{
    compile::{CompileError, compile, compile_until, stages::run_lawfully},
    ir::{Binding, DeviceSpec, Graph, GroupId, Input, KvSpec, Op, WeightId},
};

const ONE: Binding = Binding { width: 1, outputs: 1 };

fn device() -> DeviceSpec {
    DeviceSpec::cpu(Tier::Reference, KvFormat::F32)
}

fn refusal(graph: &Graph, binding: Binding, device: &DeviceSpec) -> String {
    compile(graph, binding, device).expect_err("refused").to_string()
}

#[test]
fn bindings_without_rows() {
    let graph = Shape::plain().graph();
    for (width, outputs) in [(0, 0), (4, 0), (4, 5), (0, 1)] {
        let found = compile(&graph, Binding { width, outputs }, &device()).unwrap_err();
        assert_eq!(found, CompileError::Binding { width, outputs });
    }
}

#[test]
fn widths_beyond_the_address_space() {
    let graph = Shape::plain().graph();
    for width in [usize::MAX, usize::MAX / 100, usize::MAX / 4 / 48] {
        let error = compile(&graph, Binding { width, outputs: 1 }, &device()).unwrap_err();
        assert!(matches!(error, CompileError::TooLarge { .. }), "{error}");
    }
}

#[test]
fn alignments_that_are_none() {
    for alignment in [0, 2, 96] {
        let device = DeviceSpec { arena_alignment: alignment, ..device() };
        assert!(refusal(&Shape::plain().graph(), ONE, &device).contains("power of two"));
    }
}

#[test]
fn an_unlawful_source() {
    let graph =
        Graph::new("empty", vec![], KvSpec { layers: 0, kv_heads: 1, head_dim: 2, ..KvSpec::default() });
    assert!(refusal(&graph, ONE, &device()).starts_with("after `source`: graph law broken at what is shown"));
}

#[test]
fn a_pass_that_breaks_the_law_is_named() {
    let mut graph = Shape::plain().graph();
    let lose_rows = |graph: &mut Graph| {
        let logits = graph.shown().unwrap();
        let stream = graph.topological().into_iter().find(|v| graph.node(*v).op.name() == "embed").unwrap();
        graph.replace_uses(graph.operands(logits)[0], stream);
        Ok(())
    };
    let error = run_lawfully("lose_rows", &lose_rows, &mut graph).unwrap_err();
    assert!(error.to_string().starts_with("after `lose_rows`: graph law broken"), "{error}");
}

#[test]
fn unknown_stages() {
    let error = compile_until(&Shape::plain().graph(), ONE, &device(), "fuse").unwrap_err().to_string();
    assert!(error.contains("`fuse`") && error.contains("source, bind_width, fold_constants"), "{error}");
}

#[test]
fn early_stages_of_what_cannot_be_compiled_are_shown() {
    let graph = over_stream(|small| {
        let weights = vec![WeightId(0), WeightId(2)];
        let wide =
            small.add(Op::Linear { weights, biases: vec![], norm: None, residual: false }, &[small.stream]);
        small.slice(4, 8, wide)
    });
    let found = refusal(&graph, ONE, &device());
    assert!(found.contains("matrices of one format") && found.contains("[F32, BF16]"), "{found}");
    assert!(compile_until(&graph, ONE, &device(), "drop_dead").unwrap().text.contains("a|c"));
    assert!(compile_until(&graph, ONE, &device(), "program").is_err());
}

#[test]
fn a_residual_that_the_sum_reads_twice() {
    let op = Op::Linear { weights: vec![WeightId(0)], biases: vec![], norm: None, residual: true };
    let graph = over_stream(|small| small.add(op, &[small.stream, small.stream]));
    assert!(refusal(&graph, ONE, &device()).contains("read by the sum a second time"));
}

#[test]
fn a_residual_that_is_needed_after_its_sum() {
    let op = Op::Linear { weights: vec![WeightId(0)], biases: vec![], norm: None, residual: true };
    let graph = over_stream(|small| {
        let doubled = small.scale(2.0, small.stream);
        let sum = small.add(op, &[doubled, small.stream]);
        small.sum(sum, small.stream)
    });
    assert!(refusal(&graph, ONE, &device()).contains("no order of steps"));
}

#[test]
fn a_residual_that_is_the_logits() {
    let mut graph = over_stream(|small| small.stream);
    let logits = graph.shown().unwrap();
    let op = Op::Linear { weights: vec![WeightId(0)], biases: vec![], norm: None, residual: true };
    let x = graph.add(Op::Scale { factor: 2.0 }, &[logits], None).unwrap();
    let sum = graph.add(op, &[x, logits], None).unwrap();
    let kv = [Op::Slice { start: 0, len: 4 }, Op::Slice { start: 4, len: 4 }];
    let [k, v] = kv.map(|op| graph.add(op, &[sum], None).unwrap());
    let [slots, positions] = [Input::Slots, Input::Positions].map(|input| {
        graph.topological().into_iter().find(|v| graph.node(*v).op == Op::Input(input)).unwrap()
    });
    graph.add(Op::AppendKv { layer: 0, rope: None }, &[k, v, slots, positions], None).unwrap();
    assert!(refusal(&graph, ONE, &device()).contains("wanted when the forward is over"));
}

#[test]
fn groups_that_wait_for_each_other() {
    let graph = over_stream(|small| {
        let stream = small.stream;
        small.group = Some(GroupId(1));
        let tap = small.linear(0, stream);
        small.group = Some(GroupId(0));
        let own = small.linear(1, stream);
        let sum = small.sum(stream, own);
        small.group = Some(GroupId(1));
        small.sum(sum, tap)
    });
    let found = refusal(&graph, ONE, &device());
    assert!(found.contains("groups that run one after the other"), "{found}");
}
