//! What each pass takes and what it leaves alone, on graphs made for the case. Every case is also judged by the
//! interpreter, and compiled to the end.

use ygg_kernels::{KvFormat, Nonlinearity, Tier};

use super::{
    example::{Factor, Shape, Small, over_stream},
    interpreter::Forward,
};
use crate::{
    compile::{PASSES, compile, stages::run_lawfully},
    ir::{Binding, DeviceSpec, Graph, GroupId, Head, Input, Op, ValueId, WeightId},
};

const A: Option<GroupId> = Some(GroupId(0));
const B: Option<GroupId> = Some(GroupId(1));

/// The graph after one pass, judged.
pub(super) fn after(pass: &str, graph: &Graph) -> Graph {
    let (name, pass) = PASSES.iter().find(|(name, _)| *name == pass).expect("a pass of that name");
    let binding = Binding { width: 3, outputs: 2 };
    let whole = vec![false; graph.groups() as usize];
    let mut bound = graph.clone();
    bound.bind(binding).unwrap();
    let vocab = graph.weight(WeightId(0)).rows;
    let forward = Forward::random(3, 2, vocab, 11);
    let expected = forward.run_graph(&bound, &whole);
    run_lawfully(name, &|graph| pass(graph), &mut bound).unwrap();
    assert!(forward.run_graph(&bound, &whole).agrees_with(&expected), "{name} changes the meaning");
    let program = compile(graph, binding, &DeviceSpec::cpu(Tier::Reference, KvFormat::F32)).unwrap();
    assert!(forward.run_program(&program, &whole).agrees_with(&expected), "the program differs");
    bound
}

/// How many ops of a name a graph has.
pub(super) fn count(graph: &Graph, name: &str) -> usize {
    graph.topological().into_iter().filter(|v| graph.node(*v).op.name() == name).count()
}

/// How many ops of a name are left after a pass over what `build` makes of the stream.
fn left(pass: &str, name: &str, build: impl FnOnce(&mut Small) -> ValueId) -> usize {
    count(&after(pass, &over_stream(build)), name)
}

fn heads(small: &mut Small, x: ValueId) -> [ValueId; 2] {
    [small.slice(0, 4, x), small.slice(4, 4, x)]
}

#[test]
fn fold_constants_drops_ones_and_merges_factors() {
    let ones = |small: &mut Small| small.scale(1.0, small.stream);
    assert_eq!(left("fold_constants", "scale", ones), 0);
    let chain = |small: &mut Small| {
        let inner = small.scale(4.0, small.stream);
        small.scale(0.5, inner)
    };
    assert_eq!(left("fold_constants", "scale", chain), 1);
    let shared = |small: &mut Small| {
        let inner = small.scale(4.0, small.stream);
        let outer = small.scale(0.5, inner);
        small.sum(outer, inner)
    };
    assert_eq!(left("fold_constants", "scale", shared), 2);
}

#[test]
fn fold_constants_leaves_factors_that_overflow_or_cross_groups() {
    let huge = |small: &mut Small| {
        let inner = small.scale(1e30, small.stream);
        small.scale(1e30, inner)
    };
    assert_eq!(left("fold_constants", "scale", huge), 2);
    let crossing = |small: &mut Small| {
        let stream = small.stream;
        let inner = small.scale(4.0, stream);
        small.group = A;
        let outer = small.scale(0.5, inner);
        small.sum(stream, outer)
    };
    assert_eq!(left("fold_constants", "scale", crossing), 2);
}

#[test]
fn fold_constants_keeps_a_copy_that_outlives_the_original() {
    let copy = |small: &mut Small| {
        let stream = small.stream;
        let copy = small.scale(1.0, stream);
        small.group = A;
        let product = small.linear(0, stream);
        let sum = small.sum(stream, product);
        small.group = None;
        small.sum(sum, copy)
    };
    assert_eq!(left("fold_constants", "scale", copy), 1);
}

#[test]
fn fold_constants_moves_query_factors_into_attention() {
    for factor in [Factor::BeforeRope, Factor::AfterRope, Factor::Twice] {
        let graph = after("fold_constants", &Shape { factor, ..Shape::plain() }.graph());
        assert_eq!(count(&graph, "scale"), 0, "{factor:?}");
    }
    let two_readers = |small: &mut Small| {
        let [k, v] = heads(small, small.stream);
        let appended = small.append(k, v);
        let q = small.scale(2.0, small.stream);
        let attended = small.attention(q, appended);
        small.sum(attended, q)
    };
    assert_eq!(left("fold_constants", "scale", two_readers), 1);
    let keys = |small: &mut Small| {
        let [k, v] = heads(small, small.stream);
        let k = small.scale(2.0, k);
        let appended = small.append(k, v);
        small.attention(small.stream, appended)
    };
    assert_eq!(left("fold_constants", "scale", keys), 1);
}

#[test]
fn fuse_qkv_merges_per_format_and_group() {
    let three = |small: &mut Small| {
        let [a, b, c] = [0, 1, 2].map(|weight| small.linear(weight, small.stream));
        let ab = small.sum(a, b);
        let left = small.scale(0.5, ab);
        let right = small.scale(2.0, c);
        small.sum(left, right)
    };
    // Nothing takes `a`; `b` and `c` are a residual sum's and another format's.
    assert_eq!(left("fuse_qkv", "linear", three), 3);
    let free = |small: &mut Small| {
        let [a, b, c] = [0, 1, 2].map(|weight| small.linear(weight, small.stream));
        let [a, b, c] = [a, b, c].map(|x| small.scale(2.0, x));
        let ab = small.sum(a, b);
        small.sum(ab, c)
    };
    let graph = after("fuse_qkv", &over_stream(free));
    assert_eq!((count(&graph, "linear"), count(&graph, "slice")), (2, 2));
    let groups = |small: &mut Small| {
        let x = small.scale(2.0, small.stream);
        let first = small.linear(0, x);
        let first = small.scale(2.0, first);
        let stream = small.sum(small.stream, first);
        small.group = A;
        let second = small.linear(1, x);
        let second = small.scale(2.0, second);
        small.sum(stream, second)
    };
    assert_eq!(left("fuse_qkv", "linear", groups), 2);
}

#[test]
fn fuse_qkv_leaves_gate_and_up_to_their_pass() {
    let graph = after("fuse_qkv", &Shape::plain().graph());
    // q, k, v merged: in addition o, gate, up, down in each of two layers, and the head.
    assert_eq!((count(&graph, "linear"), count(&graph, "slice")), (11, 6));
}

fn gated(formats: [u32; 2], second_reader: bool) -> impl FnOnce(&mut Small) -> ValueId {
    move |small| {
        let [gate, up] = formats.map(|weight| small.linear(weight, small.stream));
        let product = small.add(Op::Gate(Nonlinearity::Silu), &[gate, up]);
        if second_reader { small.sum(product, gate) } else { product }
    }
}

#[test]
fn fuse_gate_up_needs_one_format_and_one_reader() {
    assert_eq!(left("fuse_gate_up", "gated_linear", gated([0, 1], false)), 1);
    assert_eq!(left("fuse_gate_up", "gated_linear", gated([0, 0], false)), 1);
    assert_eq!(left("fuse_gate_up", "gated_linear", gated([0, 2], false)), 0);
    assert_eq!(left("fuse_gate_up", "gated_linear", gated([0, 1], true)), 0);
    let twice = |small: &mut Small| {
        let gate = small.linear(0, small.stream);
        small.add(Op::Gate(Nonlinearity::Silu), &[gate, gate])
    };
    assert_eq!(left("fuse_gate_up", "gated_linear", twice), 0);
    let two_inputs = |small: &mut Small| {
        let other = small.scale(2.0, small.stream);
        let [gate, up] = [small.linear(0, small.stream), small.linear(1, other)];
        small.add(Op::Gate(Nonlinearity::Silu), &[gate, up])
    };
    assert_eq!(left("fuse_gate_up", "gated_linear", two_inputs), 0);
}

#[test]
fn biases_go_with_their_products() {
    // Three products of one value: two with a bias become one, that without stays.
    let some_biased = |small: &mut Small| {
        let parts =
            [small.biased(0, small.stream), small.biased(1, small.stream), small.linear(0, small.stream)];
        let sum = small.sum(parts[0], parts[1]);
        small.sum(sum, parts[2])
    };
    let graph = after("fuse_qkv", &over_stream(some_biased));
    let merged =
        |value: &ValueId| matches!(&graph.node(*value).op, Op::Linear { biases, .. } if biases.len() == 2);
    assert_eq!(graph.topological().iter().filter(|value| merged(value)).count(), 1);
    assert_eq!(count(&graph, "linear"), 2);
    // Neither a gate, nor a residual sum, nor the choice of tokens takes over a product with a bias.
    let gated = |small: &mut Small| {
        let [gate, up] = [small.biased(0, small.stream), small.biased(1, small.stream)];
        small.add(Op::Gate(Nonlinearity::Silu), &[gate, up])
    };
    assert_eq!(left("fuse_gate_up", "gated_linear", gated), 0);
    let added = |small: &mut Small| {
        let product = small.biased(0, small.stream);
        small.sum(small.stream, product)
    };
    assert_eq!(left("fuse_residual", "add", added), 1);
}

#[test]
fn norms_of_heads_stay_in_front() {
    let heads = |small: &mut Small| {
        let x = small.norm_heads(small.stream);
        small.linear(0, x)
    };
    assert_eq!(left("fuse_norm", "rms_norm", heads), 1);
}

#[test]
fn fuse_gate_up_stays_in_its_group() {
    let crossing = |small: &mut Small| {
        let stream = small.stream;
        let [gate, up] = [0, 1].map(|weight| small.linear(weight, stream));
        small.group = A;
        let product = small.add(Op::Gate(Nonlinearity::Silu), &[gate, up]);
        small.sum(stream, product)
    };
    assert_eq!(left("fuse_gate_up", "gated_linear", crossing), 0);
}

#[test]
fn fuse_rope_takes_queries_and_keys() {
    let graph = after("fuse_rope", &Shape { factor: Factor::BeforeRope, ..Shape::plain() }.graph());
    assert_eq!(count(&graph, "rope"), 0);
    let rotated = |q: usize, k: usize| {
        left("fuse_rope", "rope", |small| {
            let [keys, v] = heads(small, small.stream);
            let keys = small.rope(k, keys);
            let appended = small.append(keys, v);
            let queries = small.rope(q, small.stream);
            small.attention(queries, appended)
        })
    };
    assert_eq!(rotated(0, 0), 0);
    assert_eq!(rotated(1, 0), 1, "heads of another width than the cache's");
    assert_eq!(rotated(0, 1), 1, "heads of another width than the cache's");
}

#[test]
fn fuse_rope_leaves_shared_and_doubled_rotations() {
    let shared = |small: &mut Small| {
        let [k, v] = heads(small, small.stream);
        let k = small.rope(0, k);
        let appended = small.append(k, v);
        let attended = small.attention(small.stream, appended);
        let [first, _] = heads(small, attended);
        small.sum(first, k)
    };
    assert_eq!(left("fuse_rope", "rope", shared), 1);
    let values = |small: &mut Small| {
        let [k, v] = heads(small, small.stream);
        let v = small.rope(0, v);
        let appended = small.append(k, v);
        small.attention(small.stream, appended)
    };
    assert_eq!(left("fuse_rope", "rope", values), 1);
    let twice = |small: &mut Small| {
        let [k, v] = heads(small, small.stream);
        let appended = small.append(k, v);
        let q = small.rope(0, small.stream);
        let q = small.rope(0, q);
        small.attention(q, appended)
    };
    assert_eq!(left("fuse_rope", "rope", twice), 1, "attention rotates once, the other rotation stays");
    let other_positions = |small: &mut Small| {
        let [k, v] = heads(small, small.stream);
        let appended = small.append(k, v);
        let q = small.add(Op::Rope(small.ropes[0]), &[small.stream, small.slots]);
        small.attention(q, appended)
    };
    assert_eq!(left("fuse_rope", "rope", other_positions), 1, "rotated by slots");
}

#[test]
fn fuse_norm_needs_linear_readers_of_its_group() {
    let graph = after("fuse_norm", &Shape::plain().graph());
    assert_eq!(count(&graph, "rms_norm"), 0);
    let read_by_sum = |small: &mut Small| {
        let x = small.norm(small.stream);
        let product = small.linear(0, x);
        small.sum(x, product)
    };
    assert_eq!(left("fuse_norm", "rms_norm", read_by_sum), 1);
    let residual = |small: &mut Small| {
        let x = small.norm(small.stream);
        let op = Op::Linear { weights: vec![WeightId(0)], biases: vec![], norm: None, residual: true };
        let y = small.scale(2.0, small.stream);
        small.add(op, &[y, x])
    };
    assert_eq!(left("fuse_norm", "rms_norm", residual), 1);
    let crossing = |small: &mut Small| {
        let stream = small.stream;
        let x = small.norm(stream);
        small.group = A;
        let product = small.linear(0, x);
        small.sum(stream, product)
    };
    assert_eq!(left("fuse_norm", "rms_norm", crossing), 1);
    let doubled = |small: &mut Small| {
        let x = small.norm(small.stream);
        let x = small.norm(x);
        small.linear(0, x)
    };
    assert_eq!(left("fuse_norm", "rms_norm", doubled), 1);
}

#[test]
fn fuse_norm_leaves_a_norm_that_outlives_its_input() {
    let outliving = |small: &mut Small| {
        let stream = small.stream;
        let x = small.norm(stream);
        small.group = A;
        let own = small.scale(2.0, stream);
        let sum = small.sum(stream, own);
        small.group = None;
        let op = Op::Linear { weights: vec![WeightId(0)], biases: vec![], norm: None, residual: true };
        small.add(op, &[x, sum])
    };
    assert_eq!(left("fuse_norm", "rms_norm", outliving), 1);
}

fn fused_sums(build: impl FnOnce(&mut Small) -> ValueId) -> usize {
    left("fuse_residual", "add", build)
}

#[test]
fn fuse_residual_takes_sums_over_linear_ops() {
    let graph = after("fuse_residual", &Shape::plain().graph());
    assert_eq!(count(&graph, "add"), 0);
    let small = |small: &mut Small| {
        let x = small.scale(2.0, small.stream);
        let product = small.linear(0, x);
        small.sum(small.stream, product)
    };
    assert_eq!(fused_sums(small), 0);
}

#[test]
fn fuse_residual_leaves_what_is_needed_elsewhere() {
    let over_itself = |small: &mut Small| {
        let product = small.linear(0, small.stream);
        small.sum(small.stream, product)
    };
    assert_eq!(fused_sums(over_itself), 1);
    let over_a_view_of_itself = |small: &mut Small| {
        let [first, second] = heads(small, small.stream);
        let both = small.sum(first, second);
        let [k, v] = [first, both];
        small.append(k, v);
        let whole = small.slice(0, 8, small.stream);
        let product = small.linear(0, whole);
        small.sum(small.stream, product)
    };
    assert_eq!(fused_sums(over_a_view_of_itself), 2);
    let linear_read_twice = |small: &mut Small| {
        let x = small.scale(2.0, small.stream);
        let product = small.linear(0, x);
        let sum = small.sum(small.stream, product);
        small.add(Op::Gate(Nonlinearity::Silu), &[sum, product])
    };
    assert_eq!(fused_sums(linear_read_twice), 1);
    let residual_read_later = |small: &mut Small| {
        let x = small.scale(2.0, small.stream);
        let product = small.linear(0, x);
        let sum = small.sum(small.stream, product);
        small.add(Op::Gate(Nonlinearity::Silu), &[sum, small.stream])
    };
    assert_eq!(fused_sums(residual_read_later), 1);
    let reversed = |small: &mut Small| {
        let x = small.scale(2.0, small.stream);
        let product = small.linear(0, x);
        small.sum(product, small.stream)
    };
    assert_eq!(fused_sums(reversed), 1);
}

#[test]
fn fuse_residual_lets_one_of_two_sums_replace_a_residual() {
    let two = |small: &mut Small| {
        let x = small.scale(2.0, small.stream);
        let [a, b] = [0, 1].map(|weight| small.linear(weight, x));
        let [left, right] = [small.sum(small.stream, a), small.sum(small.stream, b)];
        small.add(Op::Gate(Nonlinearity::Silu), &[left, right])
    };
    assert_eq!(fused_sums(two), 1);
}

#[test]
fn fuse_residual_stays_in_its_group() {
    let crossing = |small: &mut Small| {
        let stream = small.stream;
        let x = small.scale(2.0, stream);
        let product = small.linear(0, x);
        small.group = A;
        small.sum(stream, product)
    };
    assert_eq!(fused_sums(crossing), 1);
    let read_by_a_group_that_waits = |small: &mut Small| {
        let stream = small.stream;
        let x = small.scale(2.0, stream);
        let product = small.linear(0, x);
        let sum = small.sum(stream, product);
        small.group = B;
        let own = small.linear(1, stream);
        small.sum(sum, own)
    };
    // The group reads both the sum and its residual, so the sum cannot be in place; the group's own can.
    let graph = after("fuse_residual", &over_stream(read_by_a_group_that_waits));
    let add = graph.topological().into_iter().find(|v| graph.node(*v).op == Op::Add).unwrap();
    assert_eq!((count(&graph, "add"), graph.node(add).group), (1, None));
}

/// How many linear ops are left once the head is fused, where candidates are shown of what `build` makes of the logits.
fn heads_left(build: impl FnOnce(&mut Graph, ValueId) -> ValueId) -> usize {
    let mut graph = over_stream(|small| small.scale(2.0, small.stream));
    let selected = graph.shown().unwrap();
    let head =
        Op::Linear { weights: vec![WeightId(0), WeightId(1)], biases: vec![], norm: None, residual: false };
    let logits = graph.add(head, &[selected], None).unwrap();
    let shown = build(&mut graph, logits);
    graph.set_logits(shown);
    graph.show_candidates(5).unwrap();
    count(&after("fuse_head", &graph), "linear")
}

#[test]
fn fuse_head_takes_a_product_that_only_candidates_read() {
    assert_eq!(heads_left(|_, logits| logits), 0);
    let scaled =
        |graph: &mut Graph, logits: ValueId| graph.add(Op::Scale { factor: 0.5 }, &[logits], None).unwrap();
    assert_eq!(heads_left(scaled), 1);
    let read_twice = |graph: &mut Graph, logits: ValueId| {
        let doubled = graph.add(Op::Scale { factor: 2.0 }, &[logits], None).unwrap();
        let gated = graph.add(Op::Gate(Nonlinearity::Silu), &[logits, doubled], None).unwrap();
        let kept = Op::Slice { start: 0, len: 4 };
        let [k, v] = [(); 2].map(|()| graph.add(kept.clone(), &[gated], None).unwrap());
        let [slots, positions] = [Input::Slots, Input::Positions].map(|input| {
            graph.topological().into_iter().find(|v| graph.node(*v).op == Op::Input(input)).unwrap()
        });
        graph.add(Op::AppendKv { layer: 0, rope: None }, &[k, v, slots, positions], None).unwrap();
        logits
    };
    assert_eq!(heads_left(read_twice), 1);
    let added_in_place = |graph: &mut Graph, logits: ValueId| {
        let op = Op::Linear {
            weights: vec![WeightId(1), WeightId(0)],
            biases: vec![],
            norm: None,
            residual: true,
        };
        let x = graph.operands(logits)[0];
        graph.add(op, &[x, logits], None).unwrap()
    };
    assert_eq!(heads_left(added_in_place), 2);
}

#[test]
fn fuse_head_takes_the_norm_along() {
    let mut graph = Shape::plain().graph();
    graph.show_candidates(4).unwrap();
    let binding = Binding { width: 3, outputs: 2 };
    let program = compile(&graph, binding, &DeviceSpec::cpu(Tier::Reference, KvFormat::F32)).unwrap();
    let last = program.steps.last().unwrap();
    let Op::Candidates { head: Some(Head { norm: Some(_), .. }), most: 4, tokens: None } = &last.op else {
        panic!("{:?} ends the program", last.op)
    };
    assert_eq!((program.shown.rows, program.shown.columns), (2, 9));
}

#[test]
fn drop_dead_keeps_what_writes() {
    let graph = over_stream(|small| {
        let [k, v] = heads(small, small.stream);
        let v = small.scale(3.0, v);
        small.append(k, v);
        let unread = small.linear(0, small.stream);
        small.norm(unread);
        small.scale(2.0, small.stream)
    });
    let graph = after("drop_dead", &graph);
    assert_eq!((count(&graph, "linear"), count(&graph, "rms_norm")), (0, 0));
    assert_eq!((count(&graph, "append_kv"), count(&graph, "slice"), count(&graph, "scale")), (1, 2, 2));
    let inputs = count(&graph, "input");
    assert_eq!(inputs, 4, "tokens, positions, slots, output rows; no tails");
}
