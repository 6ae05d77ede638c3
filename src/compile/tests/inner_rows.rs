//! Inner rows are what layers read, and nothing else of a program changes.

use ygg_kernels::{KvFormat, Tier};

use super::{example::Shape, interpreter::Forward};
use crate::{
    compile::compile,
    ir::{Binding, DeviceSpec, Graph, Op, Program},
};

const BINDING: Binding = Binding { width: 5, outputs: 2 };

fn compiled(graph: &Graph) -> Program {
    compile(graph, BINDING, &DeviceSpec::cpu(Tier::Reference, KvFormat::F32)).unwrap()
}

#[test]
fn they_are_the_last_hidden_rows_of_fewer_layers() {
    let shape = Shape { layers: 3, ..Shape::plain() };
    let forward = Forward::random(BINDING.width, BINDING.outputs, shape.vocab, 7);
    for keeps_all in [false, true] {
        let mut graph = shape.graph();
        graph.keep_inner(&[2, 0, 1]).unwrap();
        if keeps_all {
            graph.keep_all_hidden().unwrap();
        }
        let groups = graph.groups() as usize;
        let found = forward.run_program(&compiled(&graph), &vec![false; groups]).inner;
        for (layers, found) in [2, 0, 1].into_iter().zip(&found) {
            // A model whose last groups are skipped has the layers before them.
            let skipped: Vec<bool> = (0..groups).map(|group| group >= 2 * layers).collect();
            let mut fewer = shape.graph();
            if keeps_all {
                fewer.keep_all_hidden().unwrap();
            }
            let expected = forward.run_graph(&fewer, &skipped).hidden.unwrap();
            assert!(found.is_close_to(&expected), "after {layers} layers, all: {keeps_all}");
        }
        assert!(!found[0].is_close_to(&found[2]), "a layer changes its rows");
    }
}

#[test]
fn all_other_steps_are_those_of_the_program_without_them() {
    let plain = compiled(&Shape::plain().graph());
    for keeps_all in [false, true] {
        let mut graph = Shape::plain().graph();
        graph.keep_inner(&[1]).unwrap();
        if keeps_all {
            graph.keep_all_hidden().unwrap();
        }
        let keeping = compiled(&graph);
        let inner = keeping.inner[0];
        let rows = if keeps_all { BINDING.width } else { BINDING.outputs };
        assert_eq!((inner.rows, inner.columns, keeping.inner.len()), (rows, 48, 1));
        let (copies, others): (Vec<_>, Vec<_>) =
            keeping.steps.iter().partition(|step| step.result.region() == Some(inner));
        let [copy] = copies[..] else { panic!("{} steps make inner rows", copies.len()) };
        assert_eq!(copy.op, if keeps_all { Op::Scale { factor: 1.0 } } else { Op::SelectRows });
        assert_eq!(copy.group, None, "no group leaves them out");
        assert_eq!(others.len(), plain.steps.len());
        for (step, plain) in others.iter().zip(&plain.steps) {
            assert_eq!((&step.op, step.kernel, step.group), (&plain.op, plain.kernel, plain.group));
        }
    }
    assert_eq!(plain.inner, []);
}

#[test]
fn rows_that_no_layer_reads_are_refused() {
    let mut graph = Shape::plain().graph();
    let error = graph.keep_inner(&[graph.layers()]).unwrap_err().to_string();
    assert!(error.contains("rows after 2 layers") && error.contains("of the 2 that there are"), "{error}");
}
