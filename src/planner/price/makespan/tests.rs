//! The simulator against a clock that ticks, over all orders of issue, and against schedules worked out by hand.
use petgraph::graph::NodeIndex;
use proptest::prelude::*;
use ygg_profiler::{Cell, CellSamples, DrafterName, LatencyTable, Stage, StepStage};

use super::*;
use crate::{
    plan::{Schedule, Shape, step_us},
    planner::{StageRun, Tail, TreeStep},
};

const LANES: [Lanes; 2] = [Lanes::One, Lanes::Apart];

fn name(text: &str) -> DrafterName {
    DrafterName::new(text).unwrap()
}

fn samples(stage: &str, width: u32, us: f64) -> CellSamples {
    CellSamples { cell: Cell { stage: stage.parse().unwrap(), width, context: 0 }, samples_us: vec![us] }
}

/// The end of each stage when it is given whole microseconds: at every tick, each lane goes on with the stage it is at,
/// and at the end of that begins the next of its own as soon as all that it waits for has ended. `waits` are places of
/// `us`.
fn ticked(us: &[u32], lane_of: &[usize], waits: &[Vec<usize>], order: &[usize]) -> Vec<u32> {
    let mut end: Vec<Option<u32>> = vec![None; us.len()];
    let mut queues: [Vec<usize>; 3] =
        std::array::from_fn(|lane| order.iter().copied().filter(|p| lane_of[*p] == lane).collect());
    for now in 0.. {
        // A stage of no time may free another at the same moment.
        let mut has_begun = true;
        while std::mem::take(&mut has_begun) {
            for queue in &mut queues {
                let Some(next) = queue.first().copied() else { continue };
                let has_ended = |place: &usize| end[*place].is_some_and(|end| end <= now);
                let is_free = order
                    .iter()
                    .filter(|p| lane_of[**p] == lane_of[next])
                    .all(|p| end[*p].is_none_or(|end| end <= now));
                if is_free && waits[next].iter().all(has_ended) {
                    end[next] = Some(now + us[next]);
                    queue.remove(0);
                    has_begun = true;
                }
            }
        }
        if queues.iter().all(Vec::is_empty) {
            break;
        }
    }
    end.into_iter().map(|end| end.expect("every stage has run")).collect()
}

/// All orders in which every stage comes after those it waits for.
fn all_orders(waits: &[Vec<usize>]) -> Vec<Vec<usize>> {
    fn extend(waits: &[Vec<usize>], order: &mut Vec<usize>, all: &mut Vec<Vec<usize>>) {
        if order.len() == waits.len() {
            all.push(order.clone());
        }
        for place in 0..waits.len() {
            if !order.contains(&place) && waits[place].iter().all(|other| order.contains(other)) {
                order.push(place);
                extend(waits, order, all);
                order.pop();
            }
        }
    }
    let mut all = Vec::new();
    extend(waits, &mut Vec::new(), &mut all);
    all
}

fn same_step(graph: &StageGraph) -> Vec<Vec<usize>> {
    let earlier = |place| graph.waits(place).filter(|(_, wait)| *wait == Wait::SameStep).map(|(p, _)| p);
    (0..graph.runs().len()).map(|place| earlier(place).collect()).collect()
}

fn lanes_of(graph: &StageGraph, lanes: Lanes) -> Vec<usize> {
    graph.runs().map(|run| lanes.of(run.resource)).collect()
}

fn whole_us(graph: &StageGraph) -> Vec<u32> {
    graph.runs().map(|run| run.us.unwrap_or(0.0) as u32).collect()
}

/// `steps` steps in a row as one, ticked; the ends of the stages of each step.
fn ticked_steps(graph: &StageGraph, lanes: Lanes, steps: usize) -> Vec<Vec<u32>> {
    let stages = graph.runs().len();
    let mut waits = Vec::new();
    for step in 0..steps {
        for place in 0..stages {
            let before = graph.waits(place).filter_map(|(other, wait)| match wait {
                Wait::SameStep => Some(step * stages + other),
                Wait::StepBefore => (step > 0).then(|| (step - 1) * stages + other),
            });
            waits.push(before.collect());
        }
    }
    let order: Vec<usize> = (0..steps * stages).collect();
    let ends = ticked(&whole_us(graph).repeat(steps), &lanes_of(graph, lanes).repeat(steps), &waits, &order);
    ends.chunks(stages).map(<[u32]>::to_vec).collect()
}

fn stage_run(resource: Resource, us: f64) -> StageRun {
    StageRun { stage: Stage::Verify, resource, us: Some(us) }
}

/// A graph of one step from times, resources and, as bits, what each stage waits for.
fn graph_of(stages: &[(u32, usize, u8)]) -> StageGraph {
    let mut graph = StageGraph::default();
    for (place, (us, resource, waits)) in stages.iter().enumerate() {
        let resource = [Resource::Compute, Resource::Host, Resource::Copy][*resource];
        let earlier: Vec<NodeIndex> =
            (0..place).filter(|other| waits >> other & 1 == 1).map(NodeIndex::new).collect();
        graph.add(stage_run(resource, f64::from(*us)), &earlier);
    }
    graph
}

/// Every stage that a step can have, at widths 1, 2 and 4, for whole microseconds.
fn table(us: &[u32]) -> LatencyTable {
    let forwards = [
        "verify",
        "verify_walk",
        "verify_grown:x",
        "verify_tail:x",
        "draft:x",
        "first_growth:x",
        "next_growth:x",
    ];
    let stages = forwards.map(str::to_owned).into_iter();
    let stages = stages.chain(StepStage::BETWEEN_FORWARDS.map(|stage| Stage::Host(stage).to_string()));
    let cells = stages.flat_map(|stage| [1, 2, 4].map(|width| (stage.clone(), width)));
    let cells: Vec<_> = cells.zip(us).map(|((s, w), us)| samples(&s, w, f64::from(*us))).collect();
    LatencyTable::from_samples(&cells, 0.1).unwrap()
}

/// Cells of [`table`].
const CELLS: usize = 42;

fn any_shape() -> impl Strategy<Value = Shape> {
    let widths = (prop::sample::select(vec![1, 2, 4]), prop::sample::select(vec![2, 4]));
    (1u32..4, widths).prop_map(|(depth, (draft_width, verify_width))| Shape {
        depth,
        draft_width,
        verify_width,
    })
}

fn any_variant() -> impl Strategy<Value = (Schedule, Tail)> {
    let tails = vec![Tail::Shared, Tail::Plain, Tail::Ahead];
    (prop::sample::select(Schedule::ALL.to_vec()), prop::sample::select(tails))
}

proptest! {
    #[test]
    fn one_step_is_what_a_ticking_clock_says_for_every_order(
        stages in prop::collection::vec((1u32..9, 0usize..3, any::<u8>()), 1..7),
    ) {
        let graph = graph_of(&stages);
        let waits = same_step(&graph);
        for lanes in LANES {
            let lane_of = lanes_of(&graph, lanes);
            let length = |order: &[usize]| {
                let runs = graph.next_step(order, lanes, &mut Clock::default(), None);
                let ends: Vec<u32> = runs.iter().map(|run| run.end_us as u32).collect();
                (ends == ticked(&whole_us(&graph), &lane_of, &waits, order), *ends.iter().max().unwrap())
            };
            let orders = all_orders(&waits);
            prop_assert!(orders.contains(&graph.order()), "stages are issued after what they wait for");
            let lengths: Vec<_> = orders.iter().map(|order| length(order)).collect();
            prop_assert!(lengths.iter().all(|(agrees, _)| *agrees), "{:?} {:?}", stages, lanes);
            let shortest = lengths.iter().map(|(_, length)| *length).min().unwrap();
            let sum: u32 = stages.iter().map(|(us, ..)| us).sum();
            let loads = |lane| {
                lane_of.iter().zip(&stages).filter(|(l, _)| **l == lane).map(|(_, s)| s.0).sum::<u32>()
            };
            prop_assert!(shortest >= (0..3).map(loads).max().unwrap());
            prop_assert!(lengths.iter().all(|(_, length)| *length <= sum));
            if lanes == Lanes::One {
                prop_assert_eq!(shortest, sum);
            }
        }
    }

    #[test]
    fn even_steps_are_what_a_ticking_clock_comes_to(
        us in prop::collection::vec(1u32..10, CELLS), shape in any_shape(), variant in any_variant(),
        decides in any::<bool>(),
    ) {
        let (table, drafter) = (table(&us), name("x"));
        let ((schedule, tail), decided_nodes) = (variant, decides.then_some(3));
        let step = TreeStep { schedule, tail, decided_nodes, ..TreeStep::plain(&table, &drafter, shape) };
        let graph = step.stages().unwrap();
        for lanes in LANES {
            let timeline = graph.timeline(lanes);
            let steps = ticked_steps(&graph, lanes, 8);
            let ends = |step: usize| steps[step].iter().map(|end| f64::from(*end));
            for (later, earlier) in ends(7).zip(ends(6)) {
                prop_assert!((later - earlier - timeline.step_us).abs() < 1e-6);
            }
            let first = steps[7].iter().zip(whole_us(&graph)).map(|(end, us)| end - us).min().unwrap();
            for (end, run) in ends(7).zip(&timeline.runs) {
                prop_assert!((end - f64::from(first) - run.end_us).abs() < 1e-6);
            }
            let sum: f64 = graph.runs().filter_map(|run| run.us).sum();
            let times = graph.times(lanes);
            prop_assert!((step_us(&times) - timeline.step_us).abs() < 1e-6, "{:?}", times);
            prop_assert!(times.iter().all(|time| time.us >= 0.0));
            match lanes {
                Lanes::One => prop_assert!((timeline.step_us - sum).abs() < 1e-6),
                Lanes::Apart => prop_assert!(timeline.step_us <= sum + 1e-6),
            }
        }
    }

    #[test]
    fn a_plain_step_is_the_sum_of_equation_3_and_the_host_work(
        us in prop::collection::vec(1u32..30, CELLS), shape in any_shape(),
    ) {
        let (table, drafter) = (table(&us), name("x"));
        let (schedule, tail) = (Schedule::Plain, Tail::Shared);
        let step = TreeStep { schedule, tail, ..TreeStep::plain(&table, &drafter, shape) };
        let Shape { depth, draft_width, verify_width } = shape;
        let us = |stage: &str, width| table.latency_us(&stage.parse().unwrap(), width, 0).unwrap();
        let later = f64::from(depth - 1) * us("draft:x", draft_width);
        let mut expected = vec![
            ("draft:x", us("draft:x", 1) + later),
            ("host:grow", f64::from(depth) * us("host:grow", draft_width)),
        ];
        let once = ["host:prune", "host:mask", "verify", "host:accept", "host:commit"];
        expected.extend(once.map(|stage| (stage, us(stage, verify_width))));
        let times = step.stages().unwrap().times(Lanes::One);
        prop_assert_eq!(times.len(), expected.len());
        for (time, (stage, us)) in times.iter().zip(&expected) {
            prop_assert_eq!(&time.stage.to_string(), stage);
            prop_assert!((time.us - us).abs() < 1e-9);
        }
    }

    #[test]
    fn stages_are_issued_in_a_best_order(
        us in prop::collection::vec(1u32..30, CELLS), shape in any_shape(), is_ahead in any::<bool>(),
        has_tail in any::<bool>(),
    ) {
        let (table, drafter) = (table(&us), name("x"));
        let schedule = Schedule::ALL[usize::from(is_ahead)];
        let tail = if has_tail { Tail::Plain } else { Tail::Shared };
        let step = TreeStep { schedule, tail, ..TreeStep::plain(&table, &drafter, shape) };
        let graph = step.stages().unwrap();
        let orders = all_orders(&same_step(&graph));
        let step_us = |order: &[usize]| graph.timeline_in(order, Lanes::Apart).step_us;
        let shortest = orders.iter().map(|order| step_us(order)).fold(f64::INFINITY, f64::min);
        prop_assert!(step_us(&graph.order()) <= shortest + 1e-6, "{:?} {:?}", schedule, tail);
    }
}

/// A table of the stages that matter below; verification is 100 and accepting 30 at every width.
fn hand_table() -> LatencyTable {
    let cells = [
        ("verify", 4, 100.0),
        ("verify_tail:x", 4, 115.0),
        ("draft:x", 1, 40.0),
        ("draft:x", 2, 45.0),
        ("draft:x", 4, 50.0),
        ("host:grow", 2, 5.0),
        ("host:accept", 4, 30.0),
        ("host:commit", 4, 7.0),
    ];
    LatencyTable::from_samples(&cells.map(|(stage, width, us)| samples(stage, width, us)), 0.1).unwrap()
}

fn hand_step(schedule: Schedule, tail: Tail, lanes: Lanes) -> (f64, Vec<(String, f64)>) {
    let (table, drafter) = (hand_table(), name("x"));
    let shape = Shape { depth: 2, draft_width: 2, verify_width: 4 };
    let step = TreeStep { schedule, tail, ..TreeStep::plain(&table, &drafter, shape) };
    let graph = step.stages().unwrap();
    let times = graph.times(lanes).into_iter().map(|time| (time.stage.to_string(), time.us)).collect();
    (graph.timeline(lanes).step_us, times)
}

#[test]
fn heads_drafted_ahead_hide_the_walk_only_where_the_host_works_beside_the_drafter() {
    let named = |times: [(&str, f64); 5]| times.map(|(name, us)| (name.to_owned(), us)).to_vec();
    let plain = [("draft:x", 85.0), ("host:grow", 10.0), ("verify", 100.0)];
    let plain = [&plain[..], &[("host:accept", 30.0), ("host:commit", 7.0)]].concat();
    for lanes in LANES {
        let expected = (232.0, named(plain.clone().try_into().unwrap()));
        assert_eq!(hand_step(Schedule::Plain, Tail::Shared, lanes), expected);
    }
    // 50 in the place of 40, and nothing in parallel.
    let ahead = [("host:grow", 10.0), ("draft:x", 95.0), ("verify", 100.0)];
    let one = [&ahead[..], &[("host:accept", 30.0), ("host:commit", 7.0)]].concat();
    let expected = (242.0, named(one.try_into().unwrap()));
    assert_eq!(hand_step(Schedule::HeadAhead, Tail::Shared, Lanes::One), expected);
    // The walk runs in parallel with the heads; the move waits for them, and only its last two run in parallel with no
    // growth.
    let apart = [("host:grow", 10.0), ("draft:x", 95.0), ("verify", 100.0)];
    let apart = [&apart[..], &[("host:accept", 0.0), ("host:commit", 2.0)]].concat();
    let (step_us, times) = hand_step(Schedule::HeadAhead, Tail::Shared, Lanes::Apart);
    let expected: Vec<(String, f64)> = named(apart.try_into().unwrap());
    assert!((step_us - 207.0).abs() < 1e-9, "{step_us}");
    for ((stage, us), (expected_stage, expected_us)) in times.iter().zip(&expected) {
        assert_eq!(stage, expected_stage);
        assert!((us - expected_us).abs() < 1e-9, "{stage}: {us} instead of {expected_us}");
    }
}

#[test]
fn tails_cost_a_row_behind_the_step_or_what_they_add_to_the_verification() {
    let step_us = |schedule, tail, lanes| hand_step(schedule, tail, lanes).0;
    for lanes in LANES {
        assert_eq!(step_us(Schedule::Plain, Tail::Plain, lanes), 232.0 + 40.0);
        let ahead = step_us(Schedule::HeadAhead, Tail::Shared, lanes);
        assert_eq!(step_us(Schedule::HeadAhead, Tail::Ahead, lanes), ahead + 15.0);
    }
}

#[test]
fn host_and_device_work_apart_where_walks_of_the_device_were_measured() {
    assert_eq!(Lanes::measured(&hand_table()), Lanes::One);
    let walks = [samples("verify", 1, 100.0), samples("verify_walk", 1, 100.0)];
    assert_eq!(Lanes::measured(&LatencyTable::from_samples(&walks, 0.1).unwrap()), Lanes::Apart);
}

#[test]
#[should_panic(expected = "steps are not even")]
fn steps_that_never_become_even_are_a_fault() {
    let mut graph = StageGraph::default();
    let fast = graph.add(stage_run(Resource::Compute, 1.0), &[]);
    let slow = graph.add(stage_run(Resource::Host, 2.0), &[]);
    graph.wait_for_step_before(fast, &[fast]);
    graph.wait_for_step_before(slow, &[slow]);
    graph.timeline(Lanes::Apart);
}
