//! A substitute multiplies by other matrices of the same shapes, and changes nothing else of a program.

use ygg_kernels::{KvFormat, Tier, WeightFormat};

use super::example::Shape;
use crate::{
    compile::compile,
    ir::{Binding, DeviceSpec, Elements, HeadTokens, OpWeights, Program, Substituted, WeightId, WeightSpec},
};

const BINDING: Binding = Binding { width: 3, outputs: 2 };

/// The matrices that a program multiplies by, step by step.
fn multiplied(program: &Program) -> Vec<WeightId> {
    let of_step = |weights| match weights {
        OpWeights::Stack { weights, .. } => weights.to_vec(),
        OpWeights::Gated { gate, up, .. } => vec![gate, up],
        _ => Vec::new(),
    };
    program.steps.iter().flat_map(|step| of_step(step.op.weights())).collect()
}

#[test]
fn only_the_matrices_differ_from_the_whole_program() {
    let device = DeviceSpec::cpu(Tier::Reference, KvFormat::F32);
    for tied in [true, false] {
        // 64 columns are whole blocks of every matrix.
        let shape =
            Shape { model: 64, feed_forward: 96, heads_per_kv: 4, head_dim: 8, tied, ..Shape::plain() };
        let mut whole = shape.graph();
        whole.show_candidates(4).unwrap();
        let own = whole.multiplied();
        let mut changed = whole.clone();
        let substitutes = changed.add_substitute(WeightFormat::Q4_0);
        assert_eq!(substitutes.iter().map(|substitute| substitute.of).collect::<Vec<_>>(), own);
        for Substituted { of, by } in &substitutes {
            let (of, by) = (changed.weight(*of), changed.weight(*by));
            let name = format!("{} in q4_0", of.name);
            assert_eq!(
                *by,
                WeightSpec {
                    name,
                    format: WeightFormat::Q4_0,
                    elements: Elements::in_order(of.columns),
                    ..of.clone()
                }
            );
        }
        changed.multiply_by(&substitutes).unwrap();
        crate::ir::verify::verify(&changed).unwrap();
        let [whole, changed] = [&whole, &changed].map(|graph| compile(graph, BINDING, &device).unwrap());
        assert_eq!(changed.steps.len(), whole.steps.len());
        let by = |of: WeightId| substitutes.iter().find(|substitute| substitute.of == of).unwrap().by;
        let expected: Vec<WeightId> = multiplied(&whole).into_iter().map(by).collect();
        assert_eq!(multiplied(&changed), expected);
        for (step, whole) in changed.steps.iter().zip(&whole.steps) {
            assert_eq!((step.op.name(), step.group), (whole.op.name(), whole.group));
            if step.op.weights() == OpWeights::Nothing {
                assert_eq!(step.op, whole.op);
            }
        }
    }
}

#[test]
fn a_trimmed_head_goes_with_it() {
    let mut graph = Shape { model: 64, feed_forward: 96, heads_per_kv: 4, ..Shape::plain() }.graph();
    let substitutes = graph.add_substitute(WeightFormat::Q4_0);
    let tokens = HeadTokens::new(&[3, 40], 100).unwrap();
    let head = graph.add_trimmed_head(&tokens).unwrap();
    graph.trim_head(head, tokens, 4).unwrap();
    graph.multiply_by(&substitutes).unwrap();
    crate::ir::verify::verify(&graph).unwrap();
    assert!(graph.multiplied().contains(&head));
}

#[test]
fn what_would_not_be_smaller_has_no_substitute() {
    for (format, share) in [(WeightFormat::Q4_0, 1.0), (WeightFormat::F32, 4.5 / 32.0)] {
        let shape =
            Shape { model: 64, feed_forward: 96, heads_per_kv: 4, formats: vec![format], ..Shape::plain() };
        let mut graph = shape.graph();
        assert_eq!(graph.substitute_share(4), share, "{format}");
        assert_eq!(graph.add_substitute(WeightFormat::Q4_0).is_empty(), share == 1.0, "{format}");
    }
    let graph = Shape { model: 64, feed_forward: 96, heads_per_kv: 4, ..Shape::plain() }.graph();
    assert_eq!(graph.substitute_share(2), 1.0, "rows are no whole blocks of 256");
    assert_eq!(graph.substitute_share(5), 1.0, "there is none of five bits");
}

#[test]
fn a_matrix_of_another_shape_is_refused() {
    let mut graph = Shape { model: 64, feed_forward: 96, heads_per_kv: 4, ..Shape::plain() }.graph();
    let substitutes = graph.add_substitute(WeightFormat::Q4_0);
    let own = substitutes[0].of;
    let other =
        substitutes.iter().find(|other| graph.weight(other.of).rows != graph.weight(own).rows).unwrap();
    assert!(graph.multiply_by(&[Substituted { of: own, by: other.by }]).is_err());
}
