//! A lower bound of a step's work, from its shapes and weights: bytes moved and floating-point operations.

use std::collections::BTreeSet;

use serde::Serialize;
use ygg_kernels::{KvLayer, Operand as Reads, StateRule};

use super::{Head, Op, Program, RowInputs, Step, WeightId};

/// The least that a step moves and computes, whatever its kernel.
///
/// Bytes are those of weights as the file stores them, of cache rows and of activations: each read once, each result
/// written once. Row inputs, rotary tables and the gains of norms are small and left out. Operations are the
/// multiplications and additions of matrix products and attention; what is done to single elements counts as movement
/// only, and logits that are forgotten once they are weighed do not move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default, Serialize)]
pub struct Work {
    /// Bytes read and written.
    pub bytes: u64,
    /// Multiplications and additions.
    pub flops: u64,
}

impl Work {
    /// The work of one step of `program` on the given rows.
    pub fn of(program: &Program, step: &Step, inputs: &RowInputs) -> Self {
        let weight_bytes = |weights: &[WeightId], rows: Option<usize>| -> usize {
            let specs = weights.iter().map(|id| &program.weights[id.0 as usize]);
            specs
                .map(|w| {
                    let row = w.format.row_bytes(w.columns).expect("the model's loader has checked sizes");
                    rows.unwrap_or(w.rows) * row
                })
                .sum()
        };
        let read: usize =
            step.operands.iter().filter_map(|o| o.region()).map(|r| r.rows * r.columns * 4).sum();
        let result = step.result.region();
        let written = result.map_or(0, |r| r.rows * r.columns * 4);
        let product = |columns: usize| {
            let x = step.operands[0].region().expect("a product has a left side");
            2 * x.rows * x.columns * columns
        };
        let columns = result.map_or(0, |r| r.columns);
        let kv_row_bytes = match step.kernel.class.operand {
            Reads::Kv(format) => {
                2 * heads_of(program, step)[0] * format.head_bytes(heads_of(program, step)[1])
            }
            Reads::Rows | Reads::Weight(_) => 0,
        };
        let (bytes, flops) = match &step.op {
            Op::Input(_) | Op::Slice { .. } => unreachable!("inputs and views are no steps"),
            Op::Embed { weight } => (weight_bytes(&[*weight], Some(inputs.width())) + written, 0),
            Op::Linear { weights, .. } => (weight_bytes(weights, None) + read + written, product(columns)),
            Op::GatedLinear { gate, up, .. } => {
                (weight_bytes(&[*gate, *up], None) + read + written, product(2 * columns))
            }
            Op::RmsNorm(_) | Op::Gate(_) | Op::Rope(_) | Op::Add | Op::Scale { .. } | Op::Softcap { .. } => {
                (read + written, 0)
            }
            Op::Route { .. } => (read + written, 0),
            Op::RoutedGated { experts, .. } | Op::RoutedLinear { experts, .. } => {
                // Which experts rows share is not known: as if each row had experts of its own, as long as there are
                // any.
                let x = step.operands[0].region().expect("a product has a left side");
                let routes = step.operands[1].region().expect("a routed product has routes");
                let matrices = if matches!(step.op, Op::RoutedGated { .. }) { 2 } else { 1 };
                let pairs = x.rows * (routes.columns / 2);
                let used = pairs.min(experts.len() / matrices);
                let matrix = &program.weights[experts[0].0 as usize];
                let bytes = weight_bytes(&experts[..matrices * used], None) + read + written;
                (bytes, 2 * matrices * pairs * matrix.rows * matrix.columns)
            }
            Op::SelectRows | Op::GivenRows { .. } => (2 * written, 0),
            Op::Candidates { head: None, .. } => (read + written, 0),
            Op::Candidates { head: Some(Head { weights, .. }), .. } => {
                let vocabulary = weights.iter().map(|id| program.weights[id.0 as usize].rows).sum();
                (weight_bytes(weights, None) + read + written, product(vocabulary))
            }
            Op::AppendKv { .. } => {
                let stored = inputs.slots().iter().filter(|slot| **slot != KvLayer::NO_SLOT).count();
                (read + stored * kv_row_bytes, 0)
            }
            Op::ShortConv { taps, .. } => {
                let conv = program.kv.conv;
                let count = program.weights[taps.0 as usize].columns / conv.channels;
                let kept = inputs.slots().iter().filter(|slot| **slot != KvLayer::NO_SLOT).count();
                let before: usize = lengths(inputs).map(|length| length.min(count).saturating_sub(1)).sum();
                let bytes = read + written + (kept + before) * conv.channels * size_of::<f32>();
                (bytes + weight_bytes(&[*taps], None), 0)
            }
            Op::Recurrence { vectors, .. } => {
                let shape = program.kv.states.shape;
                let rows = inputs.slots().iter().filter(|slot| **slot != KvLayer::NO_SLOT).count();
                // The committed state is read and written once, each row and those that its taps reach once.
                let state = shape.value_heads * shape.key_dim * shape.value_dim;
                let bytes = read + written + (2 * state + 2 * rows * shape.channels()) * size_of::<f32>();
                // Of every element of a state: decayed, the change, a product with the query; by a delta rule decayed
                // twice, and a product with the key.
                let each = if shape.rule == StateRule::Scan { 5 } else { 7 };
                (bytes + weight_bytes(vectors, None), each * (rows + 1) * state)
            }
            Op::Attention { heads, scoring, .. } => {
                let window = scoring.window.map_or(usize::MAX, |window| window as usize);
                let seen: usize = lengths(inputs).map(|length| length.min(window)).sum();
                let slots = slots_seen(inputs).min(window.saturating_mul(inputs.width()));
                let bytes = read + written + slots * kv_row_bytes;
                (bytes, 4 * seen * heads * heads_of(program, step)[1])
            }
        };
        Self { bytes: bytes as u64, flops: flops as u64 }
    }
}

/// The heads of the keys and values that a step writes or reads, none of other steps: `[G, E]`.
fn heads_of(program: &Program, step: &Step) -> [usize; 2] {
    match step.op {
        Op::AppendKv { layer, .. } | Op::Attention { layer, .. } => program.kv.heads(layer),
        _ => [0; 2],
    }
}

/// Length of what each row attends to.
fn lengths(inputs: &RowInputs) -> impl Iterator<Item = usize> {
    inputs.prefix().iter().zip(inputs.tail_len()).map(|(prefix, tail)| (prefix + tail) as usize)
}

/// Slots that any row attends to.
fn slots_seen(inputs: &RowInputs) -> usize {
    let prefix = inputs.prefix().iter().copied().max().unwrap_or(0);
    let tails = inputs.tails().chunks(inputs.tail_capacity()).zip(inputs.tail_len());
    let tail_slots: BTreeSet<u32> = tails
        .flat_map(|(tail, len)| &tail[..*len as usize])
        .copied()
        .filter(|slot| *slot >= prefix)
        .collect();
    prefix as usize + tail_slots.len()
}
