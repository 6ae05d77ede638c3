//! Replay against trees grown afresh, and the laws that accepted lengths obey.
use proptest::prelude::*;
use ygg_profiler::{Candidate, Expansion, StepTrace, TokenTrace};

use super::synthetic::{Echo, Oracle, fixed_widths, naive_tree, record, recorded_candidates, widest};
use crate::{
    plan::Shape,
    planner::{SearchError, TreeReplay, acceptance_by_rank, replay::grown_trees::GrownTrees, replay_free},
};

const WIDTHS: [u32; 6] = [1, 2, 3, 5, 8, 1000];

fn oracle() -> impl Strategy<Value = Oracle> {
    (any::<u64>(), 30u64..=100).prop_map(|(seed, skill)| Oracle { seed, skill })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_full_shape_gives_what_was_recorded(oracle in oracle(), width in 1u32..6, depth in 1u32..6) {
        let trace = record(&oracle, 12, width, depth, 6);
        trace.validate().unwrap();
        let replay = TreeReplay::new(&[&trace], width, &fixed_widths(&[1000], depth), None);
        let accepted = replay.tally(depth, 1000).unwrap().accepted();
        let recorded: usize = trace.steps().map(|step| step.verified.len()).sum();
        prop_assert_eq!(accepted.steps(), 12);
        prop_assert!((accepted.aal() - recorded as f64 / 12.0).abs() < 1e-12);
    }

    #[test]
    fn smaller_shapes_give_what_a_fresh_tree_would(
        oracle in oracle(), width in 1u32..6, depth in 1u32..6, narrow in 1u32..6,
    ) {
        let narrow = narrow.min(width);
        let trace = record(&oracle, 1, width, depth, 6);
        let step = trace.steps().next().unwrap();
        let recorded = recorded_candidates(step);
        let replay = TreeReplay::new(&[&trace], narrow, &fixed_widths(&WIDTHS, depth), None);
        for depth in 1..=depth {
            let fresh = naive_tree(|path| recorded.get(path).cloned(), step.tokens[0], narrow, depth);
            for verify_width in WIDTHS {
                match replay.tally(depth, verify_width) {
                    Ok(tally) => {
                        prop_assert_eq!(fresh.missing, 0);
                        let expected = fresh.accepted(&step.verified, verify_width);
                        prop_assert_eq!(tally.accepted().aal(), 1.0 + expected as f64);
                    }
                    Err(SearchError::IncompleteTrace { missing, .. }) => {
                        prop_assert_eq!(missing, fresh.missing as f64 / fresh.forwarded.len() as f64);
                        prop_assert!(missing > 0.0);
                    }
                    Err(other) => panic!("{other}"),
                }
            }
        }
    }

    #[test]
    fn the_best_nodes_of_every_depth_give_what_those_of_a_fresh_tree_would(
        oracle in oracle(), width in 1u32..6, depth in 1u32..6,
    ) {
        let trace = record(&oracle, 1, width, depth, 6);
        let grown = GrownTrees::new(&[&trace], width);
        let valued = grown.valued(None);
        let [step] = &valued.steps[..] else { panic!("one step was recorded") };
        let recorded = recorded_candidates(step.recorded);
        for depth in 0..=depth {
            let fresh = naive_tree(|path| recorded.get(path).cloned(), step.recorded.tokens[0], width, depth);
            let mut values: Vec<f32> = fresh.nodes.iter().map(|node| node.value).collect();
            values.sort_by(|a, b| b.total_cmp(a));
            let mut expected = vec![0.0];
            expected.extend(values.iter().scan(0.0, |sum, value| {
                *sum += f64::from(*value);
                Some(*sum)
            }));
            let tree = &step.by_depth[depth as usize];
            prop_assert_eq!(&tree.expected, &expected);
            prop_assert_eq!(tree.nodes() as usize, values.len());
            for rows in 1..=tree.nodes() {
                prop_assert_eq!(tree.accepted(rows), fresh.accepted(&step.recorded.verified, rows));
            }
        }
    }

    #[test]
    fn more_rows_and_more_growths_never_accept_less(oracle in oracle(), width in 1u32..5, depth in 1u32..6) {
        let trace = record(&oracle, 8, width, depth, 6);
        let replay = TreeReplay::new(&[&trace], width, &fixed_widths(&WIDTHS, depth), None);
        let aal = |depth, verify_width| replay.tally(depth, verify_width).unwrap().accepted().aal();
        for depth in 1..=depth {
            prop_assert_eq!(aal(depth, 1), 1.0);
            for pair in WIDTHS.windows(2) {
                prop_assert!(aal(depth, pair[0]) <= aal(depth, pair[1]));
            }
            prop_assert!(depth == 1 || aal(depth - 1, 1000) <= aal(depth, 1000));
        }
    }

    #[test]
    fn free_drafters_are_replayed_token_by_token(
        output in prop::collection::vec(0u32..4, 1..60), depth in 1u32..6, place in 1usize..5,
    ) {
        let verify_widths = [1, 2, 3, 5, 8];
        let shape = Shape { depth, draft_width: 1, verify_width: verify_widths[place] };
        let trace = TokenTrace { kind: "t".into(), temperature: 0.0, seed: 0, prompt: vec![1, 2, 1], output };
        let choice = widest(&verify_widths[..=place]);
        let tally = replay_free(std::slice::from_ref(&trace), &mut Echo, &shape, &choice);

        let text = [&trace.prompt[..], &trace.output].concat();
        let (mut at, mut steps, mut rows) = (trace.prompt.len() + 1, 0, 0);
        while at < text.len() {
            let chain = Echo::chain(&text[..at], depth.min(shape.verify_width - 1) as usize);
            let accepted = chain.iter().zip(&text[at..]).take_while(|(a, b)| a == b).count();
            at += accepted + 1;
            steps += 1;
            rows += *verify_widths.iter().find(|w| **w as usize > chain.len()).unwrap();
        }
        prop_assert_eq!(tally.accepted().steps(), steps);
        if steps > 0 {
            prop_assert_eq!(tally.accepted().aal(), (trace.output.len() - 1) as f64 / steps as f64);
            let run: u64 = tally.steps().iter().map(|(w, steps)| u64::from(*w) * steps).sum();
            prop_assert_eq!(run, u64::from(rows));
        }
    }
}

#[test]
fn a_step_that_ended_its_request_gives_no_bonus_token() {
    let chain = |verified: &[u32]| {
        let candidates = |token| vec![Candidate { token, log_prob: 0.0 }];
        let expanded = (0..3).map(|node| Expansion { node, candidates: candidates(node + 11) }).collect();
        let (parents, tokens) = (vec![0, 0, 1, 2], vec![10, 11, 12, 13]);
        StepTrace {
            context: 5,
            parents,
            tokens,
            expanded,
            verified: verified.to_vec(),
            predicted: Vec::new(),
        }
    };
    for (verified, tokens) in [
        // The bonus token follows, here or in a deeper tree.
        (&[11, 12, 13, 7][..], [2.0, 3.0, 4.0]),
        (&[11, 12, 7], [2.0, 3.0, 3.0]),
        // The last token is a node and yet nothing follows: it ended the text.
        (&[11, 12, 13], [2.0, 3.0, 3.0]),
        (&[11, 12], [2.0, 2.0, 2.0]),
        (&[11], [1.0, 1.0, 1.0]),
    ] {
        let mut trace = record(&Oracle { seed: 1, skill: 1 }, 0, 1, 3, 1);
        trace.prompts[0].steps.push(chain(verified));
        trace.validate().unwrap();
        let replay = TreeReplay::new(&[&trace], 1, &fixed_widths(&[4], 3), None);
        let aal = [1, 2, 3].map(|depth| replay.tally(depth, 4).unwrap().accepted().aal());
        assert_eq!(aal, tokens, "{verified:?}");
    }
}

#[test]
fn shapes_that_the_trace_cannot_answer_for_are_refused() {
    let oracle = Oracle { seed: 3, skill: 90 };
    let mut trace = record(&oracle, 20, 4, 4, 6);
    for step in &mut trace.prompts[0].steps {
        step.expanded.truncate(2);
        step.parents.truncate(5);
        step.tokens.truncate(5);
        step.verified.truncate(1);
    }
    trace.validate().unwrap();
    let replay = TreeReplay::new(&[&trace], 4, &fixed_widths(&[4], 4), None);
    assert!(replay.tally(1, 4).is_ok());
    let error = replay.tally(3, 4).unwrap_err().to_string();
    assert!(error.contains("Dd 3, Wd 4") && error.contains("at most 1.0 %"), "{error}");
}

#[test]
fn ranks_are_counted_along_the_walk() {
    let trace = record(&Oracle { seed: 1, skill: 100 }, 60, 5, 4, 6);
    let by_rank = acceptance_by_rank(&[&trace]);
    assert_eq!(by_rank.len(), 6);
    // This verifier always takes one of the first three candidates, each about equally often.
    assert!((by_rank[..3].iter().sum::<f64>() - 1.0).abs() < 1e-12, "{by_rank:?}");
    assert!(by_rank[..3].iter().all(|share| (0.2..0.5).contains(share)), "{by_rank:?}");
    assert!(acceptance_by_rank(&[]).is_empty());
}
