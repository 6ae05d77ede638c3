//! What the prior proposes from small stores.

use std::fs;

use tempfile::TempDir;

use super::{
    super::testing::{paths, proposed, shape},
    *,
};
use crate::{
    sample::Sampling,
    speculate::corpus::{Corpus, Offer},
};

/// A text, and what the model offers after it, with probabilities.
type Offered = (&'static [u32], &'static [(u32, f32)]);

/// A store in which the model offers these tokens with these probabilities after the last token of each snippet.
fn store(snippets: &[Offered]) -> (TempDir, CorpusStore) {
    let mut corpus = Corpus::default();
    for (snippet, offered) in snippets {
        let candidates = offered.iter().map(|(token, p)| Candidate { token: *token, log_prob: p.ln() });
        let offer = Offer::of(&candidates.collect::<Vec<_>>());
        // Of the places before nothing is said that could be proposed.
        let offers = [vec![Offer::EMPTY; snippet.len() - 1], vec![offer]].concat();
        corpus.push(snippet, &offers);
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("test.store");
    fs::write(&path, corpus.encode(100, [0; 32]).unwrap().0).unwrap();
    let store = CorpusStore::open(&path).unwrap();
    (folder, store)
}

/// What a prior over the store proposes.
fn behind(store: &CorpusStore, history: &[u32], shape: &StepShape, coupling: Option<&Coupling>) -> TokenTree {
    proposed(&mut Prior::new(store.clone(), shape), history, shape, coupling)
}

/// After 1 comes 2 or 3, after 1 2 usually 4, but 5 after 9 1 2.
const OFFERED: [Offered; 5] = [
    (&[1], &[(2, 0.6), (3, 0.3)]),
    (&[1, 2], &[(4, 0.9)]),
    (&[8, 1, 2], &[(4, 0.8)]),
    (&[9, 1, 2], &[(5, 0.7)]),
    (&[7, 3], &[(6, 0.25)]),
];

#[test]
fn the_longest_known_context_of_every_node_speaks_and_likely_paths_come_first() {
    let (_folder, store) = store(&OFFERED);
    let tree = behind(&store, &[8, 1], &shape(3, 4, 9), None);
    assert_eq!(paths(&tree), [&[2][..], &[2, 4], &[3], &[3, 6]]);
    let tree_of = |history: &[u32]| paths(&behind(&store, history, &shape(2, 4, 9), None));
    let expected: [&[u32]; 5] = [&[2], &[2, 4], &[3], &[2, 5], &[3, 6]];
    assert_eq!(tree_of(&[4, 1]), expected, "the mean over what is known");
    let values: Vec<f32> = tree.nodes().skip(1).map(|node| tree.value(node)).collect();
    for (value, expected) in values.iter().zip([0.6, 0.48, 0.3, 0.075]) {
        assert!((value - expected).abs() < 1e-3, "{values:?}");
    }
    assert_eq!(tree_of(&[9, 1])[..2], [&[2][..], &[2, 5]]);
    assert_eq!(tree_of(&[9, 1, 2]), [[5]]);
    assert_eq!(tree_of(&[8, 1, 2]), [[4]]);
    assert_eq!(tree_of(&[8, 50]), Vec::<Vec<u32>>::new(), "nothing is known after 50");
}

#[test]
fn no_proposal_exceeds_its_limits() {
    let (_folder, store) = store(&OFFERED);
    for (depth, width, verify) in [(1, 1, 2), (3, 1, 4), (3, 4, 3), (3, 2, 2), (1, 2, 9)] {
        let shape = shape(depth, width, verify);
        let tree = behind(&store, &[9, 1], &shape, None);
        assert!(tree.len() > 1 && tree.len() <= verify.min(shape.tree_nodes()));
        assert!(tree.nodes().all(|node| tree.depth(node) as usize <= depth));
        assert!(tree.nodes().all(|node| tree.children(node).count() <= width));
    }
}

/// Drawn by the noise from the very distribution that the table has, the first child is the winner as often as it says.
#[test]
fn values_under_noise_are_the_chances_to_win() {
    const ODDS: [(u32, f32); 5] = [(1, 0.5), (2, 0.3), (3, 0.1), (4, 0.06), (5, 0.04)];
    let (_folder, store) = store(&[(&[9], &ODDS)]);
    let draws = 4_000;
    for temperature in [0.7, 1.0] {
        let (mut won, mut said) = (0.0, 0.0);
        let tempered: Vec<f32> = ODDS.iter().map(|(_, p)| p.ln() / temperature).collect();
        for seed in 0..draws {
            let coupling = Coupling::of(Sampling { temperature, seed, ..Sampling::GREEDY }).unwrap();
            let tree = behind(&store, &[3, 9], &shape(1, 2, 9), Some(&coupling));
            let first = tree.children(NodeId::ROOT).next().unwrap();
            let weight = |i: usize| tempered[i].exp() * coupling.odds(2, ODDS[i].0);
            let best = (0..ODDS.len()).max_by(|a, b| weight(*a).total_cmp(&weight(*b))).unwrap();
            won += f64::from(u8::from(tree.token(first) == ODDS[best].0));
            said += f64::from(tree.value(first));
        }
        let (won, said) = (won / draws as f64, said / draws as f64);
        assert!(won > 0.999, "all is known at {temperature}: {won}");
        assert!(said > 0.5 && said <= won, "{said} of {won} at {temperature}");
    }
}
