//! The stages of hand-made steps and what they wait for.
use petgraph::{algo::toposort, visit::EdgeFiltered};
use ygg_profiler::{Cell, CellSamples, LatencyTable};

use super::*;

fn name(text: &str) -> DrafterName {
    DrafterName::new(text).unwrap()
}

fn samples(stage: &str, width: u32, us: f64) -> CellSamples {
    CellSamples { cell: Cell { stage: stage.parse().unwrap(), width, context: 0 }, samples_us: vec![us] }
}

fn table() -> LatencyTable {
    let mut cells: Vec<_> = [1, 2, 4].iter().map(|w| samples("verify", *w, 100.0)).collect();
    cells.extend([1, 2, 4].iter().map(|w| samples("draft:x", *w, 10.0 * f64::from(*w))));
    cells.extend([1, 2, 4].iter().map(|w| samples("draft_head:x", *w, 15.0 * f64::from(*w))));
    cells.extend([1, 2, 4].iter().map(|w| samples("verify_walk", *w, 101.0)));
    cells.extend([1, 2, 4].iter().map(|w| samples("verify_tail:x", *w, 104.0)));
    cells.extend([samples("first_growth:x", 2, 13.0), samples("next_growth:x", 2, 21.0)]);
    cells.extend([1, 2, 4].iter().map(|w| samples("verify_grown:x", *w, 99.0)));
    cells.extend([4, 8].iter().map(|w| samples("host:decide", *w, f64::from(*w))));
    LatencyTable::from_samples(&cells, 0.1).unwrap()
}

fn graph(schedule: Schedule, tail: Tail, depth: u32, decided_nodes: Option<u32>) -> StageGraph {
    let (table, drafter) = (table(), name("x"));
    let shape = Shape { depth, draft_width: 2, verify_width: 4 };
    TreeStep { schedule, tail, decided_nodes, ..TreeStep::plain(&table, &drafter, shape) }.stages().unwrap()
}

/// One line a stage: its name and time, what it waits for, and what of the step before.
fn described(graph: &StageGraph) -> Vec<String> {
    let line = |(place, run): (usize, &StageRun)| {
        let mut parts = vec![run.stage.of_step().to_string()];
        parts.extend(run.us.map(|us| us.to_string()));
        for (sign, wait) in [("<", Wait::SameStep), ("<<", Wait::StepBefore)] {
            let mut others: Vec<usize> =
                graph.waits(place).filter(|(_, w)| *w == wait).map(|(other, _)| other).collect();
            others.sort_unstable();
            parts.extend(others.iter().map(|other| format!("{sign} {}", graph.run(*other).stage.of_step())));
        }
        parts.join(" ")
    };
    graph.runs().enumerate().map(line).collect()
}

#[test]
fn a_plain_step_is_a_chain_into_the_next() {
    let lines = described(&graph(Schedule::Plain, Tail::Shared, 2, Some(5)));
    let expected = [
        "draft 10 << accept << commit",
        "grow < draft",
        "draft 20 < grow",
        "grow < draft",
        "decide 8 < grow",
        "prune < decide",
        "mask < prune",
        "verify 100 < mask",
        "accept < verify",
        "commit < accept",
    ];
    assert_eq!(lines, expected);
}

/// What was measured of a block drafter is a whole proposal of so many nodes.
#[test]
fn a_block_is_priced_as_one_growth_however_deep() {
    for (depth, us) in [(1, 20), (2, 40), (9, 40)] {
        let lines = described(&graph(Schedule::Plain, Tail::Block, depth, None));
        let first = format!("draft {us} << accept << commit");
        let rest =
            ["prune < draft", "mask < prune", "verify 100 < mask", "accept < verify", "commit < accept"];
        assert_eq!(lines[0], first);
        assert_eq!(lines[1..], rest);
    }
    let walked = described(&graph(Schedule::DeviceWalk, Tail::Block, 2, None));
    assert_eq!(walked, ["draft 40 << verify", "prune < draft", "mask < prune", "verify 101 < mask"]);
}

#[test]
fn heads_drafted_ahead_are_the_first_growths_of_the_next_step() {
    let lines = described(&graph(Schedule::HeadAhead, Tail::Shared, 2, None));
    let expected = [
        "grow << draft << accept",
        "draft 20 < grow << commit",
        "grow < draft",
        "prune < grow",
        "mask < prune",
        "verify 100 < mask",
        "draft 40 < verify",
        "accept < verify",
        "commit < draft < accept",
    ];
    assert_eq!(lines, expected);
    let lines = described(&graph(Schedule::HeadAhead, Tail::Shared, 1, None));
    assert_eq!(lines[3], "verify 100 < mask << commit", "no other forward needs the cache as it then is");
}

#[test]
fn in_one_launch_growths_are_part_of_the_forwards() {
    let lines = described(&graph(Schedule::OneLaunch, Tail::Shared, 3, None));
    let expected = ["draft 13 << accept << commit", "draft 21 < draft", "draft 21 < draft", "prune < draft"];
    assert_eq!(lines[..4], expected);
}

#[test]
fn a_device_that_walks_leaves_the_host_nothing_behind_the_verifier() {
    let lines = described(&graph(Schedule::DeviceWalk, Tail::Shared, 1, None));
    let expected =
        ["draft 10 << verify", "grow < draft", "prune < grow", "mask < prune", "verify 101 < mask"];
    assert_eq!(lines, expected);
    let lines = described(&graph(Schedule::TwoLaunches, Tail::Shared, 2, None));
    let expected =
        ["draft 13 << verify", "draft 21 < draft", "prune < draft", "mask < prune", "verify 101 < mask"];
    assert_eq!(lines, expected);
    let lines = described(&graph(Schedule::WholeStep, Tail::Shared, 2, None));
    assert_eq!(
        lines,
        ["draft 13 << verify", "draft 21 < draft", "verify 99 < draft"],
        "nothing is the host's"
    );
}

#[test]
fn tails_are_drafted_behind_the_step_or_beside_its_verification() {
    let lines = described(&graph(Schedule::Plain, Tail::Plain, 1, None));
    assert_eq!(lines[0], "draft 10 << accept << commit << draft");
    assert_eq!(lines.last().unwrap(), "draft 10 < commit");
    let lines = described(&graph(Schedule::HeadAhead, Tail::Ahead, 2, None));
    let mut expected = described(&graph(Schedule::HeadAhead, Tail::Shared, 2, None));
    let verify = expected.iter_mut().find(|line| line.starts_with("verify")).unwrap();
    *verify = verify.replace("100", "104");
    assert_eq!(lines, expected);
    let lines = described(&graph(Schedule::Plain, Tail::Joined, 1, None));
    assert_eq!(lines[0], "draft 30 << accept << commit", "a head of two rows, by weights of its own");
    assert_eq!(lines.last().unwrap(), "commit < accept");
}

#[test]
fn a_step_waits_in_no_circle_and_what_is_missing_is_named() {
    for schedule in Schedule::ALL {
        for tail in [Tail::Shared, Tail::Joined, Tail::Plain, Tail::Ahead] {
            let StageGraph { graph } = graph(schedule, tail, 3, Some(7));
            let step = EdgeFiltered::from_fn(&graph, |edge| *edge.weight() == Wait::SameStep);
            assert_eq!(toposort(&step, None).unwrap().len(), graph.node_count());
        }
    }
    let (table, drafter) = (table(), name("x"));
    let refused = |shape, schedule, decided_nodes| {
        let tail = Tail::Shared;
        let step = TreeStep { schedule, tail, decided_nodes, ..TreeStep::plain(&table, &drafter, shape) };
        step.stages().unwrap_err().to_string()
    };
    let shape = Shape { depth: 2, draft_width: 3, verify_width: 4 };
    assert!(refused(shape, Schedule::Plain, None).contains("draft:x was not measured at width 3"));
    assert!(refused(shape, Schedule::OneLaunch, None).contains("first_growth:x was not measured at width 3"));
    let shape = Shape { depth: 1, draft_width: 8, verify_width: 8 };
    assert!(refused(shape, Schedule::HeadAhead, None).contains("verify was not measured at width 8"));
    let step = TreeStep { tail: Tail::Ahead, ..TreeStep::plain(&table, &drafter, shape) };
    let error = step.stages().unwrap_err().to_string();
    assert!(error.contains("verify_tail:x was not measured at width 8"), "{error}");
    assert!(refused(shape, Schedule::DeviceWalk, None).contains("verify_walk was not measured at width 8"));
    assert!(refused(shape, Schedule::Plain, Some(9)).contains("host:decide was not measured at width 9"));
}
