//! Guesses on texts whose n-grams are known by hand, and memory over a long text.

use super::{
    super::testing::{path, shape},
    *,
};
use crate::speculate::Stats;

const SETTINGS: NgramSettings = NgramSettings { entries: 1 << 12, ..NgramSettings::DEFAULT };

/// Proposes as [`Drafter::propose`] does, without a session.
fn propose(drafter: &mut Ngram, history: &[u32], tree: &mut TokenTree) {
    let (depth, nodes) = (drafter.limits.depth as usize, drafter.limits.nodes as usize);
    tree.reset(*history.last().unwrap());
    drafter.catch_up(history);
    drafter.pool.draft(tree, depth, nodes);
    if drafter.settings.backward {
        drafter.guess_backward(history, (depth, nodes), None, tree);
    }
    drafter.guess_forward(history, (depth, nodes), None, tree);
}

/// Every path of the tree that a text of these n-grams drafts, longest first where one ends.
fn paths(settings: NgramSettings, history: &[u32], shape: &StepShape) -> Vec<Vec<u32>> {
    let mut drafter = Ngram::new(settings, shape).unwrap();
    drafter.begin(history);
    let mut tree = TokenTree::with_capacity(64);
    propose(&mut drafter, history, &mut tree);
    tree.check().unwrap();
    assert!(tree.len() <= shape.verify_width);
    let leaves = tree.nodes().filter(|node| tree.children(*node).next().is_none() && node.index() > 0);
    leaves.map(|leaf| path(&tree, leaf)).collect()
}

#[test]
fn the_backward_guess_goes_on_by_the_longest_suffix_and_the_forward_ones_fill_up() {
    // After `3` came 4 and then 9; after `2 3` came 4 alone.
    let history = [1, 2, 3, 4, 5, 6, 3, 9, 8, 1, 2, 3];
    let wide = shape(4, 4, 16);
    assert_eq!(paths(SETTINGS, &history, &wide), [vec![4, 5, 6, 3], vec![9, 8, 1]]);
    let backward = NgramSettings { forward_guesses: 0, ..SETTINGS };
    assert_eq!(paths(backward, &history, &wide), [vec![4, 5, 6, 3]]);
    let forward = NgramSettings { backward: false, ..SETTINGS };
    assert_eq!(paths(forward, &history, &wide), [vec![9, 8, 1], vec![4, 5, 6]]);
    let one = NgramSettings { forward_guesses: 1, ..forward };
    assert_eq!(paths(one, &history, &wide), [vec![9, 8, 1]]);
    assert_eq!(paths(SETTINGS, &history, &shape(4, 4, 3)), [vec![4, 5]]);
}

#[test]
fn without_parts_only_whole_n_grams_are_known() {
    // `9 3` ends no 4-gram's first three tokens, so only the forward dictionary has an answer.
    let history = [1, 2, 3, 4, 5, 9, 3];
    let whole = NgramSettings { parts: false, ..SETTINGS };
    assert_eq!(paths(SETTINGS, &history, &shape(2, 4, 8)), [vec![4, 5]]);
    assert_eq!(paths(whole, &history, &shape(2, 4, 8)), [vec![4, 5]]);
    assert_eq!(
        paths(NgramSettings { forward_guesses: 0, ..whole }, &history, &shape(2, 4, 8)),
        [[0_u32; 0]; 0]
    );
    #[cfg(feature = "planner")]
    assert_eq!(paths(whole.lookahead(), &[1, 2, 3, 4, 5, 1], &shape(4, 4, 8)), [vec![2, 3, 4]]);
}

#[test]
fn a_pool_without_room_is_refused() {
    let pool = NgramSettings { pool: 2, ..SETTINGS };
    assert!(Ngram::new(pool, &shape(3, 3, 8)).is_ok());
    let error = Ngram::new(pool, &shape(3, 3, 7)).unwrap_err().to_string();
    assert!(error.contains("verify width: expected 8 or more"), "{error}");
    let error = Ngram::new(pool, &shape(2, 4, 9)).unwrap_err().to_string();
    assert!(error.contains("depth: expected 3 or more"), "{error}");
    let mut drafter = Ngram::new(pool, &shape(3, 3, 8)).unwrap();
    let history = [1, 2, 3, 4, 5, 6, 1];
    drafter.begin(&history);
    let mut tree = TokenTree::with_capacity(10);
    propose(&mut drafter, &history, &mut tree);
    tree.check().unwrap();
    assert_eq!((tree.len(), tree.pinned()), (8, 6));
    assert_eq!(
        (drafter.candidates_to_learn(), Ngram::new(SETTINGS, &shape(3, 3, 8)).unwrap().candidates_to_learn()),
        (OFFERED, 0)
    );
}

#[test]
fn memory_is_bounded_and_a_proposal_takes_microseconds() {
    let shape = shape(6, 3, 16);
    let mut drafter = Ngram::new(SETTINGS, &shape).unwrap();
    let reserved = |d: &Ngram| {
        let Dictionaries { forward, backward, .. } = &d.dictionaries;
        [forward.capacity(), backward.capacity(), d.guess.capacity()]
    };
    let before = reserved(&drafter);
    let mut tree = TokenTree::with_capacity(shape.tree_nodes());
    let (mut history, mut state, mut drafted, mut stats) = (Vec::new(), 1_u32, 0, Stats::default());
    let mut lap = Lap::start();
    for i in 0..200_000 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        if i % 2_000 == 0 {
            history.clear();
        }
        history.push(if i % 50 < 25 { i % 50 } else { state >> 22 });
        if history.len() == 1 {
            drafter.begin(&history);
        }
        propose(&mut drafter, &history, &mut tree);
        drafted += tree.len() - 1;
    }
    stats.add_time(StepStage::Draft, lap.next());
    assert_eq!(reserved(&drafter), before);
    assert!(drafted > 200_000, "only {drafted} tokens were drafted");
    let us = stats.stage_time(StepStage::Draft).as_secs_f64() * 1e6 / 200_000.0;
    #[expect(clippy::print_stderr, reason = "a figure to read, not to judge by")]
    {
        eprintln!("a token learned and a proposal made: {us:.2} us");
    }
}

fn taught() -> Ngram {
    let settings = NgramSettings { entries: 64, ..NgramSettings::DEFAULT };
    let mut drafter = Ngram::new(settings, &shape(4, 2, 8)).unwrap();
    drafter.begin(&(0..400).map(|i| i * i % 37).collect::<Vec<u32>>());
    drafter
}

#[test]
fn a_kept_state_makes_the_same_drafts() {
    let mut drafter = taught();
    let state = drafter.state().unwrap();
    let mut restored = Ngram::new(drafter.settings, &shape(4, 2, 8)).unwrap();
    assert!(restored.restore(&state, 37).unwrap());
    assert_eq!(restored.state().unwrap(), state);
    let mut drafted = 0;
    for token in 0..37 {
        let draft = |drafter: &mut Ngram| {
            let mut tree = TokenTree::with_capacity(8);
            drafter.begin(&[token]);
            propose(drafter, &[token], &mut tree);
            tree.nodes().map(|node| (tree.parent(node), tree.token(node))).collect::<Vec<_>>()
        };
        let (expected, found) = (draft(&mut drafter), draft(&mut restored));
        assert_eq!(found, expected, "after {token}");
        drafted += found.len() - 1;
    }
    assert!(drafted > 20, "{drafted} drafted");
}

#[test]
fn states_of_other_settings_or_tokens_are_refused_and_change_nothing() {
    let drafter = taught();
    let kept = drafter.kept();
    let refused = |settings: NgramSettings, kept: &NgramState, vocabulary, says: &str| {
        let mut drafter = Ngram::new(settings, &shape(4, 2, 8)).unwrap();
        let empty = drafter.state();
        let error = drafter.restore(&DrafterState::Ngram(kept.clone()), vocabulary).unwrap_err().to_string();
        assert!(error.contains(says) && drafter.state() == empty, "{error}");
    };
    let settings = drafter.settings;
    refused(NgramSettings { order: 5, ..settings }, &kept, 37, "order 5, parts true, found");
    refused(NgramSettings { parts: false, ..settings }, &kept, 37, "parts false, found");
    refused(settings, &kept, 36, "tokens below 36");
    for gram in [vec![1], vec![1; 9]] {
        let long = NgramState { backward: vec![vec![1, 2], gram], ..kept.clone() };
        refused(settings, &long, 37, "n-grams of 2 to 8 tokens");
    }
}
