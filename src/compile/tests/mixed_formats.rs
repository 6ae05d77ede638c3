//! Fusing keeps the parts of a layer apart that a file of mixed formats stores in different ones.

use ygg_kernels::WeightFormat;

use super::{
    example::Shape,
    rewrites::{after, count},
};
use crate::ir::{Graph, Op};

/// The first of two layers as a file of mixed formats has it: values and down projection in Q6_K, the rest in Q4_K.
fn mixed(gate: WeightFormat) -> Graph {
    let (four, six) = (WeightFormat::Q4_K, WeightFormat::Q6_K);
    let mut formats = vec![six, four, four, six, four, gate, four, six];
    formats.extend([four; 7]);
    Shape {
        model: 256,
        head_dim: 64,
        kv_heads: 1,
        heads_per_kv: 4,
        feed_forward: 256,
        formats,
        ..Shape::plain()
    }
    .graph()
}

#[test]
fn fuse_qkv_keeps_the_k_formats_apart() {
    let graph = after("fuse_qkv", &mixed(WeightFormat::Q4_K));
    let mut merged: Vec<Vec<_>> = Vec::new();
    for value in graph.topological() {
        let Op::Linear { weights, .. } = &graph.node(value).op else { continue };
        let parts = weights.iter().map(|w| graph.weight(*w));
        let parts: Vec<_> = parts.map(|w| (w.name.as_str(), w.format)).collect();
        if parts.len() > 1 {
            merged.push(parts);
        }
    }
    let four = |name| (name, WeightFormat::Q4_K);
    assert_eq!(
        merged,
        [[four("0.q"), four("0.k")].to_vec(), [four("1.q"), four("1.k"), four("1.v")].to_vec()]
    );
    assert_eq!(count(&graph, "slice"), 5);
}

#[test]
fn fuse_gate_up_keeps_the_k_formats_apart() {
    assert_eq!(count(&after("fuse_gate_up", &mixed(WeightFormat::Q4_K)), "gated_linear"), 2);
    assert_eq!(count(&after("fuse_gate_up", &mixed(WeightFormat::Q6_K)), "gated_linear"), 1);
}
