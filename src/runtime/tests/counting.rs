//! A model for tests whose every answer is known without running it: after token `t` it says `t + 1`.

use std::{borrow::Cow, sync::Arc};

use crate::{
    backend::{Activations, KvFormat, Pinning, Tier},
    ir::{Graph, Input, KvSpec, Op, WeightFormat, WeightId, WeightSource, WeightSpec},
};

use crate::runtime::{ExecutableSet, Session, SessionOptions, SetOptions};

/// Tokens of the model; the last is followed by 0.
pub(crate) const VOCABULARY: usize = 32;
/// Its longest context.
pub(crate) const CONTEXT: usize = 100;

/// The identity as embedding and a rotated identity as head.
struct Permutation {
    embedding: Vec<u8>,
    head: Vec<u8>,
}

impl WeightSource for Permutation {
    fn bytes(&self, weight: WeightId) -> Cow<'_, [u8]> {
        Cow::Borrowed(if weight.0 == 0 { &self.embedding } else { &self.head })
    }
}

fn one_hot_rows(column_of: impl Fn(usize) -> usize) -> Vec<u8> {
    let element = |row, column| f32::from(u8::from(column == column_of(row)));
    (0..VOCABULARY)
        .flat_map(|row| (0..VOCABULARY).flat_map(move |column| element(row, column).to_le_bytes()))
        .collect()
}

/// The model's weights.
pub(crate) fn weights() -> impl WeightSource {
    Permutation {
        embedding: one_hot_rows(|token| token),
        head: one_hot_rows(|next| (next + VOCABULARY - 1) % VOCABULARY),
    }
}

/// Executables of the given widths.
pub(crate) fn set(widths: &[usize]) -> Arc<ExecutableSet> {
    let matrix = |name: &str| WeightSpec::new(name, VOCABULARY, VOCABULARY, WeightFormat::F32);
    let kv = KvSpec { layers: 0, kv_heads: 1, head_dim: 2, ..KvSpec::default() };
    let mut graph = Graph::new("counting", vec![matrix("embedding"), matrix("head")], kv);
    let mut add = |op, operands: &[_]| graph.add(op, operands, None).expect("a lawful op");
    let tokens = add(Op::Input(Input::Tokens), &[]);
    let output_rows = add(Op::Input(Input::OutputRows), &[]);
    let x = add(Op::Embed { weight: WeightId(0) }, &[tokens]);
    let x = add(Op::SelectRows, &[x, output_rows]);
    let logits =
        add(Op::Linear { weights: vec![WeightId(1)], biases: vec![], norm: None, residual: false }, &[x]);
    graph.set_logits(logits);
    graph.set_hidden(x);
    let options = SetOptions {
        tier: Tier::Portable,
        kv_format: KvFormat::F16,
        activations: Activations::Native,
        widths: widths.to_vec(),
        model_context: CONTEXT,
        threads: 1,
        resident: None,
    };
    Arc::new(ExecutableSet::build(&graph, &weights(), &options).expect("it compiles and loads"))
}

/// A session of one thread over them.
pub(crate) fn session(set: &Arc<ExecutableSet>, context: usize, tree_nodes: usize) -> Session {
    let options = SessionOptions { context, tree_nodes, threads: 1, pinning: Pinning::Floating };
    Session::open(Arc::clone(set), &options).expect("a small session opens")
}
