//! Lawful graphs nobody would write: random ops over random values, in random groups. Whatever compiles without passes
//! compiles with them, to the same meaning.

use proptest::{prelude::*, sample::Index};
use ygg_kernels::{KvFormat, Nonlinearity, RouteVector, StateRule, Tier};

use super::{
    example::{Small, over_stream_by},
    interpreter::Forward,
};
use crate::{
    compile::{
        check_arena, compile,
        stages::{Proceed, run_passes},
        to_program::to_program,
    },
    ir::{Binding, DeviceSpec, Graph, GroupId, Op, ValueId, WeightId},
};

/// One op over values named by place, later ones oftener.
type Instruction = (u32, Index, Index);

/// Ops that run in a group, or in none; and whether the residual is read after the group's sum.
#[derive(Clone, Debug)]
struct Block {
    grouped: bool,
    instructions: Vec<Instruction>,
    residual: Index,
    residual_outlives: bool,
}

fn block() -> impl Strategy<Value = Block> {
    let instruction = (0u32..22, any::<Index>(), any::<Index>());
    let instructions = prop::collection::vec(instruction, 1..7);
    (any::<bool>(), instructions, any::<Index>(), prop::bool::weighted(0.3)).prop_map(
        |(grouped, instructions, residual, residual_outlives)| Block {
            grouped,
            instructions,
            residual,
            residual_outlives,
        },
    )
}

/// One of the last four values.
fn recent(values: &[ValueId], place: Index) -> ValueId {
    let last = &values[values.len().saturating_sub(4)..];
    last[place.index(last.len())]
}

fn run(small: &mut Small, appended: &mut bool, values: &[ValueId], (kind, a, b): Instruction) -> ValueId {
    let [a, b] = [recent(values, a), recent(values, b)];
    match kind {
        0..=2 => small.linear(kind, a),
        3 => small.norm(a),
        4 => small.scale(1.0, a),
        5 => small.scale(2.0, a),
        6 => small.add(Op::Gate(Nonlinearity::Silu), &[a, b]),
        7 => {
            let weights = vec![WeightId(0), WeightId(1)];
            let wide = small.add(Op::Linear { weights, biases: vec![], norm: None, residual: false }, &[a]);
            small.slice(3, 8, wide)
        }
        8 | 9 if !*appended => {
            *appended = true;
            let [k, v] = [small.slice(0, 4, a), small.slice(4, 4, b)];
            let k = if kind == 8 { small.rope(0, k) } else { k };
            let written = small.append(k, v);
            let q = small.rope(0, b);
            let q = small.scale(0.5, q);
            if kind == 8 { small.attention(q, written) } else { small.windowed(q, written) }
        }
        10 => {
            let product = small.linear(0, a);
            small.sum(b, product)
        }
        11 => {
            let x = small.norm(a);
            let [gate, up] = [0, 1].map(|weight| small.linear(weight, x));
            small.add(Op::Gate(Nonlinearity::Silu), &[gate, up])
        }
        12 => small.biased(0, a),
        13 => small.norm_heads(a),
        14 => small.add(Op::Softcap { cap: 2.0 }, &[a]),
        15 => {
            let x = small.norm_heads(a);
            let [gate, up] = [small.biased(0, x), small.linear(1, x)];
            let function = [Nonlinearity::GeluTanh, Nonlinearity::ClampedSilu][b.index() % 2];
            small.add(Op::Gate(function), &[gate, up])
        }
        16 => {
            let product = small.biased(1, a);
            small.sum(b, product)
        }
        17 => small.short_conv(a),
        18 => small.experts(a),
        19 => {
            let sum = small.experts_by(a, RouteVector::Factors(WeightId(4)));
            small.sum(b, sum)
        }
        20 => small.recurrence(a),
        _ => small.sum(a, b),
    }
}

fn graph(blocks: &[Block], rule: StateRule) -> Graph {
    over_stream_by(rule, |small| {
        let (mut outside, mut appended, mut groups) = (vec![small.stream], false, 0);
        for block in blocks {
            if !block.grouped {
                for instruction in &block.instructions {
                    outside.push(run(small, &mut appended, &outside, *instruction));
                }
                continue;
            }
            small.group = Some(GroupId(groups));
            groups += 1;
            let mut inside = outside.clone();
            for instruction in &block.instructions {
                inside.push(run(small, &mut appended, &inside, *instruction));
            }
            let residual = recent(&outside, block.residual);
            let sum = small.sum(residual, inside[inside.len() - 1]);
            small.group = None;
            if !block.residual_outlives {
                outside.retain(|value| *value != residual);
            }
            outside.push(sum);
        }
        outside[outside.len() - 1]
    })
}

/// Whether the graph has numbers to judge by and could be compiled as it is; if so, panics unless compiling keeps its
/// meaning. Gates and convolutions of one another's results multiply magnitudes until no `f64` holds them: by such
/// numbers nothing can be judged.
fn judged(graph: &Graph, mask: &[bool], seed: u64) -> bool {
    let binding = Binding { width: 3, outputs: 2 };
    let device = DeviceSpec::cpu(Tier::Reference, KvFormat::F32);
    let mut bound = graph.clone();
    bound.bind(binding).unwrap();
    let Ok(plain) = to_program(&bound, &device) else { return false };
    let forward = Forward::random(3, 2, 8, seed);
    let program = compile(graph, binding, &device).unwrap_or_else(|e| {
        panic!("what compiles without passes compiles with them: {e}\n{}", crate::ir::graph_text(graph))
    });
    for skipped in [&vec![false; mask.len()][..], mask] {
        let skipped = &skipped[..graph.groups() as usize];
        let mut expected = forward.run_graph(graph, skipped);
        if !expected.is_finite() {
            return false;
        }
        assert_eq!(check_arena(&plain, skipped), Ok(()));
        assert!(forward.run_program(&plain, skipped).agrees_with(&expected), "the plain program differs");
        run_passes(graph, binding, &mut |name, graph| {
            let found = forward.run_graph(graph, skipped);
            assert!(found.agrees_with(&expected), "{name} changes the meaning");
            expected = found;
            Proceed::On
        })
        .unwrap();
        assert_eq!(check_arena(&program, skipped), Ok(()));
        assert!(forward.run_program(&program, skipped).agrees_with(&expected), "the program differs");
    }
    true
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn passes_keep_what_compiles(
        blocks in prop::collection::vec(block(), 1..6),
        mask in prop::collection::vec(any::<bool>(), 6),
        seed in any::<u64>(),
    ) {
        let graph = graph(&blocks, [StateRule::Delta, StateRule::Scan][seed as usize % 2]);
        prop_assert_eq!(crate::ir::verify::verify(&graph), Ok(()));
        prop_assume!(judged(&graph, &mask, seed), "a graph that compiles, of finite numbers");
    }
}
