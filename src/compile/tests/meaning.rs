//! Passes and layout keep the meaning: the interpreter gives the same before and after, whatever is skipped.

use proptest::prelude::*;
use ygg_kernels::{KvFormat, Tier};

use super::{example::Shape, interpreter::Forward};
use crate::{
    compile::{
        check_arena, compile,
        stages::{Proceed, run_passes},
    },
    ir::{Binding, DeviceSpec, HeadTokens},
};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn every_pass_and_the_program_keep_the_meaning(
        shape in Shape::any(),
        width in 1usize..9,
        fewer in 0usize..8,
        mask in prop::collection::vec(any::<bool>(), 8),
        seed in any::<u64>(),
        candidates in 0usize..6,
        kept_every in 0usize..4,
        inner in prop::collection::vec(0usize..8, 0..4),
        keeps_all in any::<bool>(),
    ) {
        let binding = Binding { width, outputs: width - fewer % width };
        let mut graph = shape.graph();
        if candidates > 0 && kept_every > 0 {
            let ids: Vec<u32> = (0..shape.vocab as u32).step_by(kept_every).collect();
            let tokens = HeadTokens::new(&ids, shape.vocab).unwrap();
            let head = graph.add_trimmed_head(&tokens).unwrap();
            graph.trim_head(head, tokens, candidates).unwrap();
        } else if candidates > 0 {
            graph.show_candidates(candidates).unwrap();
        }
        let within = |after: usize| after.checked_rem(graph.layers());
        let inner: Vec<usize> = inner.into_iter().filter_map(within).collect();
        graph.keep_inner(&inner).unwrap();
        if keeps_all {
            graph.keep_all_hidden().unwrap();
        }
        let forward = Forward::random(width, binding.outputs, shape.vocab, seed);
        let groups = graph.groups() as usize;
        for skipped in [&vec![false; groups][..], &mask[..groups]] {
            let mut expected = forward.run_graph(&graph, skipped);
            run_passes(&graph, binding, &mut |name, graph| {
                let found = forward.run_graph(graph, skipped);
                assert!(found.agrees_with(&expected), "{name} changes the meaning");
                expected = found;
                Proceed::On
            }).unwrap();
            let program = compile(&graph, binding, &DeviceSpec::cpu(Tier::Reference, KvFormat::F32)).unwrap();
            prop_assert_eq!(check_arena(&program, skipped), Ok(()));
            prop_assert!(forward.run_program(&program, skipped).agrees_with(&expected), "the program differs");
        }
    }
}

#[test]
fn the_interpreter_sees_a_change_of_meaning() {
    let shape = Shape::plain();
    let forward = Forward::random(5, 2, shape.vocab, 1);
    let graph = shape.graph();
    let run = |skipped: [bool; 4]| forward.run_graph(&graph, &skipped);
    let whole = run([false; 4]);
    assert!(whole.agrees_with(&run([false; 4])));
    for group in 0..4 {
        let mut skipped = [false; 4];
        skipped[group] = true;
        assert!(!run(skipped).agrees_with(&whole), "group {group} makes no difference");
    }
    assert!(!Forward::random(5, 2, shape.vocab, 2).run_graph(&graph, &[false; 4]).agrees_with(&whole));
}
