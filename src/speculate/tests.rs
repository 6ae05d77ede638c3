//! Tests over the counting model, whose answers are known without decoding: walks, limits, counters.

use std::sync::{Arc, mpsc};

use super::{
    BandSteps, Budget, Decoder, Drafter, Limits, Said, SpeculateError, Stats, StepOutcome, StepShape,
    TraceObserver, Walk, tree_forward::tree_forward,
};
use crate::{
    plan::{DepthChoice, DepthCost, DepthCosts, DepthNetwork, Schedule},
    runtime::{
        Choice, Session,
        tests::counting::{VOCABULARY, session, set},
    },
    sample::Sampling,
    tree::{NodeId, Source, TokenTree},
};

const SHAPE: StepShape =
    StepShape { depth: 5, draft_width: 2, verify_width: 8, top_k: 0, draft_temperature: 1.0 };

/// A tree under `root` of `(parent, token)` in order of ids.
fn tree(root: u32, nodes: &[(usize, u32)]) -> TokenTree {
    let mut tree = TokenTree::with_capacity(nodes.len() + 1);
    tree.reset(root);
    for (parent, token) in nodes {
        let inserted = tree.insert(NodeId::from_index(*parent), *token, 0.5, 0, Source::new(0));
        assert!(inserted.node().is_some());
    }
    tree
}

/// Verifies the nodes `rows` of a tree without a prefix and walks it.
fn walk(tree: &TokenTree, rows: &[usize], limits: Limits<'_>) -> Walk {
    let mut session = session(&set(&[8]), 50, 12);
    let rows: Vec<NodeId> = rows.iter().copied().map(NodeId::from_index).collect();
    let best = tree_forward(&mut session, tree, &rows).unwrap().choose(Choice::ARGMAX, None);
    let mut walk = Walk::with_capacity(tree.len());
    walk.run(tree, &rows, 1, limits, |row, _| best.row(row).best());
    walk
}

fn path(walk: &Walk) -> Vec<usize> {
    walk.path.iter().map(|node| node.index()).collect()
}

const FREE: Limits<'_> = Limits { tokens: 20, ends: &[] };

#[test]
fn a_walk_follows_the_verifier_and_ends_with_its_own_token() {
    let branches = tree(10, &[(0, 7), (0, 11), (2, 12), (2, 5), (3, 14), (1, 8)]);
    let walk = walk(&branches, &[0, 1, 2, 3, 4, 5, 6], FREE);
    assert_eq!(
        (walk.emitted.as_slice(), path(&walk), walk.accepted),
        ([11, 12, 13].as_slice(), vec![0, 2, 3], 2)
    );
}

#[test]
fn a_node_that_was_pruned_is_not_accepted() {
    let chain = tree(10, &[(0, 11), (1, 12), (2, 13)]);
    let walk = walk(&chain, &[0, 1], FREE);
    assert_eq!((walk.emitted.as_slice(), path(&walk), walk.accepted), ([11, 12].as_slice(), vec![0, 1], 1));
}

#[test]
fn a_walk_ends_at_its_limits_and_what_it_emits_last_is_not_committed() {
    let chain = tree(10, &[(0, 11), (1, 12), (2, 13), (3, 14)]);
    let rows = [0, 1, 2, 3, 4];
    let one = walk(&chain, &rows, Limits { tokens: 1, ends: &[] });
    assert_eq!((one.emitted.as_slice(), path(&one)), ([11].as_slice(), vec![0]));
    let three = walk(&chain, &rows, Limits { tokens: 3, ends: &[] });
    assert_eq!((three.emitted.as_slice(), path(&three)), ([11, 12, 13].as_slice(), vec![0, 1, 2]));
    let ended = walk(&chain, &rows, Limits { tokens: 20, ends: &[3, 12] });
    assert_eq!((ended.emitted.as_slice(), path(&ended)), ([11, 12].as_slice(), vec![0, 1]));
    let whole = walk(&chain, &rows, FREE);
    assert_eq!((whole.emitted.as_slice(), whole.accepted), ([11, 12, 13, 14, 15].as_slice(), 4));
}

#[test]
fn a_verifier_may_end_a_walk_or_fail_to_go_on() {
    let chain = tree(10, &[(0, 11), (1, 12), (2, 13)]);
    let rows: Vec<NodeId> = chain.nodes().collect();
    let walked = |said: &[Result<Said, u32>]| {
        let mut walk = Walk::with_capacity(chain.len());
        let result = walk.try_run(&chain, &rows, 1, FREE, |row, place| {
            assert_eq!(place, 1 + row as u64);
            said[row]
        });
        (result, walk.emitted.clone(), path(&walk), walk.accepted)
    };
    let goes = |token| Ok(Said { token, ends: false });
    let ends = |token| Ok(Said { token, ends: true });
    assert_eq!(walked(&[goes(11), ends(12)]), (Ok(()), vec![11, 12], vec![0, 1], 2));
    assert_eq!(walked(&[ends(11)]), (Ok(()), vec![11], vec![0], 1));
    // What was emitted before a fault stays, and its last token is not committed.
    assert_eq!(walked(&[goes(11), goes(12), Err(7)]), (Ok(()), vec![11, 12], vec![0, 1], 2));
    assert_eq!(walked(&[Err(7)]), (Err(7), vec![], vec![0], 0));
}

/// Counts on for `right` tokens, then goes wrong.
#[derive(Debug)]
struct Counter {
    right: usize,
}

impl Drafter for Counter {
    fn propose(&mut self, tree: &mut TokenTree, budget: Budget<'_>) -> Result<(), SpeculateError> {
        let mut node = NodeId::ROOT;
        for i in 0..budget.depth {
            let next = (tree.token(node) + if i < self.right { 1 } else { 2 }) % VOCABULARY as u32;
            node = tree.insert(node, next, 1.0, 0, Source::new(0)).node().expect("room for a chain");
        }
        Ok(())
    }
}

fn counting(context: usize) -> Session {
    session(&set(&[4, 8]), context, SHAPE.tree_nodes())
}

fn upwards(from: u32, len: usize) -> Vec<u32> {
    (0..len as u32).map(|i| (from + i) % VOCABULARY as u32).collect()
}

#[test]
fn a_decoder_counts_whatever_is_drafted_and_counts_what_it_did() {
    for right in 0..=5 {
        let mut decoder = Decoder::new(
            counting(100),
            vec![BandSteps::unplanned(Some(Box::new(Counter { right })), &SHAPE)],
        )
        .unwrap();
        assert_eq!(decoder.start(&[3], Sampling::GREEDY).unwrap(), 4);
        for _ in 0..6 {
            let report = decoder.step(FREE, None).unwrap();
            assert_eq!((report.rows, report.accepted), (6, right));
            assert_eq!(decoder.emitted().len(), right + 1);
            assert_eq!(decoder.session().committed() + 1, decoder.history().len());
        }
        assert_eq!(decoder.history(), upwards(3, 2 + 6 * (right + 1)));
        let stats = decoder.stats();
        assert_eq!((stats.steps, stats.drafted, stats.accepted), (6, 30, 6 * right as u64));
        assert_eq!(stats.aal(), Some(right as f64 + 1.0));
        let by_depth: Vec<f64> = (0..5).map(|depth| if depth < right { 1.0 } else { 0.0 }).collect();
        assert_eq!(stats.acceptance_by_depth(), by_depth);
        decoder.start(&[9], Sampling::GREEDY).unwrap();
        assert_eq!((decoder.stats().steps, decoder.history()), (0, [9, 10].as_slice()));
    }
}

#[test]
fn a_decoder_fills_the_context_to_its_end() {
    for context in 2..20 {
        let mut decoder = Decoder::new(
            counting(context),
            vec![BandSteps::unplanned(Some(Box::new(Counter { right: 9 })), &SHAPE)],
        )
        .unwrap();
        decoder.start(&[0], Sampling::GREEDY).unwrap();
        while decoder.history().len() <= context {
            let tokens = context + 1 - decoder.history().len();
            decoder.step(Limits { tokens, ends: &[] }, None).unwrap();
        }
        assert_eq!(decoder.history(), upwards(0, context + 1));
        assert_eq!(decoder.session().committed(), context);
    }
}

/// A counter that writes down what it is taught.
#[derive(Debug)]
struct Pupil {
    counter: Counter,
    notes: mpsc::Sender<Note>,
}

/// What a [`Pupil`] noted.
#[derive(Debug, PartialEq)]
enum Note {
    Begun(Vec<u32>),
    /// Tokens of the verified rows, what each was offered, tokens of the path, the history, and how much of it is new.
    Learned(Vec<u32>, Vec<Vec<u32>>, Vec<u32>, Vec<u32>, usize),
}

impl Drafter for Pupil {
    fn propose(&mut self, tree: &mut TokenTree, budget: Budget<'_>) -> Result<(), SpeculateError> {
        self.counter.propose(tree, budget)
    }

    fn candidates_to_learn(&self) -> usize {
        3
    }

    fn begin(&mut self, history: &[u32]) {
        self.notes.send(Note::Begun(history.to_vec())).unwrap();
    }

    fn learn(&mut self, outcome: &StepOutcome<'_>) {
        let StepOutcome { tree, rows, offers, path, history, emitted } = *outcome;
        let tokens = |nodes: &[NodeId]| nodes.iter().map(|node| tree.token(*node)).collect();
        let offered = (0..rows.len()).map(|row| offers.row(row).iter().map(|c| c.token).collect());
        let note = Note::Learned(tokens(rows), offered.collect(), tokens(path), history.to_vec(), emitted);
        self.notes.send(note).unwrap();
    }
}

#[test]
fn a_drafter_that_learns_is_shown_every_step_greedy_or_sampled() {
    let taught = |sampling, tokens: &[usize]| {
        let (notes, noted) = mpsc::channel();
        let pupil = Pupil { counter: Counter { right: 2 }, notes };
        let mut decoder =
            Decoder::new(counting(60), vec![BandSteps::unplanned(Some(Box::new(pupil)), &SHAPE)]).unwrap();
        decoder.start(&[5, 6], sampling).unwrap();
        for tokens in tokens {
            decoder.step(Limits { tokens: *tokens, ends: &[] }, None).unwrap();
        }
        drop(decoder);
        noted.into_iter().collect::<Vec<_>>()
    };
    // The last step may emit one token only, so it drafts nothing and is taught of its root.
    let greedy = taught(Sampling::GREEDY, &[20, 20, 1]);
    assert_eq!(greedy[0], Note::Begun(vec![5, 6, 7]));
    let Note::Learned(rows, offered, path, history, emitted) = &greedy[2] else { panic!("{:?}", greedy[2]) };
    assert_eq!(
        (rows.as_slice(), path.as_slice()),
        ([10, 11, 12, 14, 16, 18].as_slice(), [10, 11, 12].as_slice())
    );
    assert_eq!((history.as_slice(), *emitted), (upwards(5, 9).as_slice(), 3));
    for (row, offered) in rows.iter().zip(offered) {
        assert_eq!((offered.len(), offered[0]), (3, (row + 1) % VOCABULARY as u32));
    }
    let Note::Learned(rows, _, path, _, emitted) = &greedy[3] else { panic!("{:?}", greedy[3]) };
    assert_eq!((rows.as_slice(), path.as_slice(), *emitted), ([13].as_slice(), [13].as_slice(), 1));
    // Cold enough to say what is best: the same is shown of logits as of candidates.
    let sampled = taught(Sampling { temperature: 1e-3, ..Sampling::GREEDY }, &[20, 20, 1]);
    assert_eq!(sampled, greedy);
    assert_eq!(greedy.len(), 4);
}

#[test]
fn a_drafter_that_learns_is_shown_the_requests_of_its_temperature_alone() {
    let (notes, noted) = mpsc::channel();
    let pupil = Pupil { counter: Counter { right: 2 }, notes };
    let narrow = StepShape { depth: 2, draft_width: 1, verify_width: 3, ..SHAPE };
    let greedy = BandSteps::unplanned(Some(Box::new(Counter { right: 5 })), &SHAPE);
    let warm = BandSteps { temperature: 0.5, ..BandSteps::unplanned(Some(Box::new(pupil)), &narrow) };
    let mut decoder = Decoder::new(counting(60), vec![greedy, warm]).unwrap();
    for temperature in [0.0, 0.5, 0.0, 0.4, 0.1, 0.6] {
        let is_taught = temperature > 0.25;
        let first = decoder.start(&[5, 6], Sampling { temperature, ..Sampling::GREEDY }).unwrap();
        assert_eq!((decoder.band(), decoder.shape().depth), if is_taught { (1, 2) } else { (0, 5) });
        let begun: Vec<Note> = noted.try_iter().collect();
        assert_eq!(begun, if is_taught { vec![Note::Begun(vec![5, 6, first])] } else { vec![] });
        for _ in 0..3 {
            let rows = decoder.step(FREE, None).unwrap().rows;
            let learned: Vec<Note> = noted.try_iter().collect();
            match &learned[..] {
                [] => assert!(!is_taught),
                [Note::Learned(verified, offered, _, history, emitted)] => {
                    assert!(is_taught && (verified.len(), offered.len()) == (rows, rows));
                    assert!(offered.iter().all(|offered| offered.len() == 3));
                    assert_eq!((history.as_slice(), *emitted), (decoder.history(), decoder.emitted().len()));
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn a_drafter_that_would_learn_from_more_than_there_is_is_refused() {
    #[derive(Debug)]
    struct Greedy;
    impl Drafter for Greedy {
        fn propose(&mut self, _tree: &mut TokenTree, _budget: Budget<'_>) -> Result<(), SpeculateError> {
            Ok(())
        }
        fn candidates_to_learn(&self) -> usize {
            crate::runtime::ExecutableSet::MOST_CANDIDATES + 1
        }
    }
    let greedy = || BandSteps::unplanned(Some(Box::new(Greedy)), &SHAPE);
    let warm = BandSteps { temperature: 0.5, ..greedy() };
    for bands in [vec![greedy()], vec![BandSteps::plain(), warm]] {
        let error = Decoder::new(counting(9), bands).unwrap_err().to_string();
        assert!(error.contains("candidates to learn from"), "{error}");
    }
}

/// A drafter that shows the observer everything it does.
#[derive(Debug)]
struct Shown;

impl Drafter for Shown {
    fn propose(&mut self, _tree: &mut TokenTree, budget: Budget<'_>) -> Result<(), SpeculateError> {
        budget.observer.expect("the step was given one").expanded(NodeId::ROOT, &[]);
        Ok(())
    }
}

#[derive(Debug, Default)]
struct Seen(usize);

impl TraceObserver for Seen {
    fn expanded(&mut self, _node: NodeId, _candidates: &[crate::sample::Candidate]) {
        self.0 += 1;
    }
}

#[test]
fn an_observer_reaches_the_drafter_and_an_empty_proposal_is_plain_decoding() {
    let mut decoder =
        Decoder::new(counting(50), vec![BandSteps::unplanned(Some(Box::new(Shown)), &SHAPE)]).unwrap();
    decoder.start(&[1], Sampling::GREEDY).unwrap();
    let mut seen = Seen::default();
    for _ in 0..3 {
        let report = decoder.step(FREE, Some(&mut seen)).unwrap();
        assert_eq!((report.rows, report.accepted), (1, 0));
    }
    // Nothing is drafted for the last token.
    decoder.step(Limits { tokens: 1, ends: &[] }, None).unwrap();
    assert_eq!((seen.0, decoder.history()), (3, upwards(1, 6).as_slice()));
}

#[test]
#[should_panic(expected = "2 tokens asked for, room for 1")]
fn a_step_beyond_the_context_is_a_fault_of_the_caller() {
    let mut decoder = Decoder::new(counting(2), vec![BandSteps::plain()]).unwrap();
    decoder.start(&[1], Sampling::GREEDY).unwrap();
    let _ = decoder.step(Limits { tokens: 2, ends: &[] }, None);
}

#[test]
fn counters_by_depth_end_where_nothing_was_offered() {
    let mut stats = Stats::default();
    assert_eq!((stats.aal(), stats.acceptance_by_depth()), (None, vec![]));
    stats.count_depths(3, 2);
    stats.count_depths(1, 0);
    stats.count_depths(0, 0);
    stats.count_depths(1_000, 999);
    let shares = stats.acceptance_by_depth();
    assert_eq!(shares[..4], [2.0 / 3.0, 1.0, 0.5, 1.0]);
    assert_eq!(shares.len(), 64);
}

#[test]
fn one_set_serves_many_sessions() {
    let set = set(&[]);
    let mut sessions = [session(&set, 20, 1), session(&set, 20, 1)];
    sessions[0].prefill(&[1, 2]).unwrap();
    sessions[1].prefill(&[3]).unwrap();
    assert_eq!(sessions.each_ref().map(Session::committed), [2, 1]);
    assert_eq!(Arc::strong_count(&set), 3);
}

/// Where a network looks: at the hidden row that gave a token, which in the counting model is the token before it, or
/// at the token's own embedding.
#[derive(Clone, Copy, Debug)]
enum Look {
    Hidden,
    Embedding,
}

/// A network that is sure of drafts where the token it looks at is of the lower half, and of none elsewhere.
fn lower_half(look: Look) -> DepthNetwork {
    let mut network = DepthNetwork::blank(2 * VOCABULARY, SHAPE.depth);
    let units = network.layers().first_bias.len();
    let start = match look {
        Look::Hidden => 0,
        Look::Embedding => VOCABULARY,
    };
    // One unit of each layer carries the answer.
    for token in 0..VOCABULARY / 2 {
        network.parameters[(start + token) * units] = 100.0;
    }
    let second = 2 * VOCABULARY * units + units;
    network.parameters[second] = 1.0;
    let heads = second + units * units + units;
    for depth in 0..SHAPE.depth {
        network.parameters[heads + depth * units] = 1.0;
        network.parameters[heads + SHAPE.depth * units + depth] = -20.0;
    }
    network.validate().unwrap();
    network
}

/// Steps that count and choose their depth.
fn told(right: usize, costs: DepthCosts, network: DepthNetwork) -> BandSteps {
    let mut steps = BandSteps::unplanned(Some(Box::new(Counter { right })), &SHAPE);
    steps.sub_plan.ranges[0].depth_choice = DepthChoice::Predicted(costs);
    BandSteps { network: Some(network), ..steps }
}

fn costs(step_us: impl Fn(u32) -> f64) -> DepthCosts {
    let cost = |depth| DepthCost { depth, step_us: step_us(depth), saved_us: 0.0 };
    DepthCosts { reach: vec![1.0; SHAPE.depth], costs: (0..=SHAPE.depth as u32).map(cost).collect() }
}

#[test]
fn a_step_drafts_as_deep_as_its_own_place_in_the_text_tells() {
    for look in [Look::Hidden, Look::Embedding] {
        for right in [0, 1, 3, 9] {
            let depths = costs(|depth| 10.0 + f64::from(depth));
            let steps = told(right, depths, lower_half(look));
            let mut decoder = Decoder::new(counting(100), vec![steps]).unwrap();
            let prompt = upwards(0, 3);
            decoder.start(&prompt, Sampling::GREEDY).unwrap();
            for _ in 0..20 {
                let root = *decoder.history().last().unwrap();
                let seen = match look {
                    Look::Hidden => (root as usize + VOCABULARY - 1) % VOCABULARY,
                    Look::Embedding => root as usize,
                };
                let report = decoder.step(FREE, None).unwrap();
                let expected = if seen < VOCABULARY / 2 { SHAPE.depth + 1 } else { 1 };
                assert_eq!(report.rows, expected, "root {root}, {look:?}, right {right}");
            }
            let emitted = decoder.history().len();
            assert_eq!(decoder.history(), upwards(0, emitted), "plain decoding's tokens");
            // Where nothing can be drafted, nothing is asked.
            decoder.step(Limits { tokens: 1, ends: &[] }, None).unwrap();
        }
    }
}

#[test]
fn what_is_left_to_emit_limits_the_depth_told() {
    let steps = told(9, costs(|_| 10.0), lower_half(Look::Embedding));
    let mut decoder = Decoder::new(counting(100), vec![steps]).unwrap();
    decoder.start(&[1], Sampling::GREEDY).unwrap();
    let report = decoder.step(Limits { tokens: 3, ends: &[] }, None).unwrap();
    assert_eq!((report.rows, report.accepted), (3, 2));
}

#[test]
fn networks_and_depths_that_do_not_fit_are_refused() {
    let refused = |steps| Decoder::new(counting(50), vec![steps]).unwrap_err().to_string();
    let refusal = |costs, network| refused(told(1, costs, network));
    let wide = refusal(costs(|_| 1.0), DepthNetwork::blank(2 * VOCABULARY + 1, SHAPE.depth));
    assert!(wide.contains("inputs of the depth network") && wide.contains("expected 64"), "{wide}");
    let mut shallow = costs(|_| 1.0);
    shallow.costs.pop();
    let shallow = refusal(shallow, lower_half(Look::Hidden));
    assert!(shallow.contains("choice of depth: expected depths ascending from 0 to Dd"), "{shallow}");
    let blind = refused(BandSteps { network: None, ..told(1, costs(|_| 1.0), lower_half(Look::Hidden)) });
    assert!(blind.contains("depth network: expected one where steps choose their depth"), "{blind}");
    let mut ahead = told(1, costs(|_| 1.0), lower_half(Look::Hidden));
    ahead.sub_plan.schedule = Schedule::HeadAhead;
    let ahead = refused(ahead);
    assert!(
        ahead.contains("schedule of steps with a predicted depth: expected plain or one_launch"),
        "{ahead}"
    );
}
