//! What retrieval proposes from small stores.

use std::fs;

use tempfile::TempDir;

use super::{
    super::testing::{paths, proposed, shape},
    *,
};
use crate::speculate::corpus::Corpus;

fn store(snippets: &[&[u32]]) -> (TempDir, CorpusStore) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("test.store");
    let mut corpus = Corpus::default();
    snippets.iter().for_each(|snippet| corpus.push(snippet, &[]));
    fs::write(&path, corpus.encode(100, [0; 32]).unwrap().0).unwrap();
    let store = CorpusStore::open(&path).unwrap();
    (folder, store)
}

#[test]
fn the_most_frequent_continuations_of_the_longest_match_come_first() {
    let (_folder, store) =
        store(&[&[1, 2, 3, 4], &[1, 2, 3, 5], &[1, 2, 3, 5, 6], &[1, 2, 8, 9], &[7, 2, 3, 4], &[7, 2, 3, 4]]);
    let of = |history: &[u32], shape: &StepShape| {
        paths(&proposed(&mut Retrieval::new(store.clone(), 4, 2, shape).unwrap(), history, shape, None))
    };
    let expected: [&[u32]; 5] = [&[3], &[3, 5], &[8], &[3, 4], &[3, 5, 6]];
    assert_eq!(of(&[9, 1, 2], &shape(3, 2, 6))[..3], expected[..3]);
    let mut all = of(&[9, 1, 2], &shape(3, 2, 7));
    all.sort();
    let expected: [&[u32]; 6] = [&[3], &[3, 4], &[3, 5], &[3, 5, 6], &[8], &[8, 9]];
    assert_eq!(all, expected);
    assert_eq!(of(&[9, 1, 2], &shape(3, 1, 4)), [&[3][..], &[3, 5], &[3, 5, 6]]);
    // The whole match decides, not its end alone.
    assert_eq!(of(&[7, 2, 3], &shape(2, 2, 5)), [&[4][..]]);
    assert_eq!(of(&[1, 2, 3], &shape(1, 2, 3)), [&[5][..], &[4]]);
    // One token is no match of two, and what ends a snippet goes nowhere.
    assert_eq!(of(&[9, 3], &shape(2, 2, 5)), Vec::<Vec<u32>>::new());
    assert_eq!(of(&[8, 9], &shape(2, 2, 5)), Vec::<Vec<u32>>::new());
}

#[test]
fn values_fall_along_a_path_and_share_what_their_siblings_have() {
    let (_folder, store) = store(&[&[1, 2, 3, 4], &[1, 2, 3, 5], &[1, 2, 3, 5], &[1, 2, 8]]);
    let shape = shape(3, 4, 8);
    let tree = proposed(&mut Retrieval::new(store, 4, 2, &shape).unwrap(), &[1, 2], &shape, None);
    for node in tree.nodes() {
        let below: f32 = tree.children(node).map(|child| tree.value(child)).sum();
        assert!(below < tree.value(node), "{below} below {}", tree.value(node));
    }
    let three = tree.child(NodeId::ROOT, 3).unwrap();
    assert!(tree.value(three) > tree.value(tree.child(NodeId::ROOT, 8).unwrap()));
    assert!(tree.sources(three).contains(SOURCE));
}

#[test]
fn no_proposal_exceeds_its_limits() {
    let long: Vec<u32> = (0..60).collect();
    let (_folder, store) = store(&[&long, &[1; 50]]);
    for (depth, width, verify) in [(1, 1, 2), (12, 1, 16), (4, 16, 64), (4, 40, 9), (15, 2, 5)] {
        let shape = shape(depth, width, verify);
        let mut drafter = Retrieval::new(store.clone(), 16, 1, &shape).unwrap();
        for history in [&long[..20], &[1; 20], &[1, 1, 2], &[99]] {
            let tree = proposed(&mut drafter, history, &shape, None);
            assert!(tree.len() <= verify.min(shape.tree_nodes()));
            assert!(tree.nodes().all(|n| tree.depth(n) <= (depth as u32).min(DEEPEST)));
        }
    }
    let shape = shape(12, 1, 16);
    let mut drafter = Retrieval::new(store, 16, 2, &shape).unwrap();
    assert_eq!(proposed(&mut drafter, &long[..20], &shape, None).len(), 1 + DEEPEST as usize);
}

#[test]
fn the_store_fills_up_what_lookup_leaves() {
    let (_folder, store) = store(&[&[1, 2, 3, 4, 5], &[1, 2, 6], &[1, 2, 6]]);
    let shape = shape(2, 2, 5);
    let lookup = Lookup::new(3, 1, &shape).unwrap();
    let mut mix = Retrieval::new(store, 4, 2, &shape).unwrap().after_lookup(lookup.clone());
    let history = [1, 2, 3, 9, 1, 2];
    let both = paths(&proposed(&mut mix, &history, &shape, None));
    let alone = paths(&proposed(&mut lookup.clone(), &history, &shape, None));
    assert_eq!(alone, [&[3][..], &[3, 9]]);
    assert_eq!(both, [&[3][..], &[3, 9], &[6], &[3, 4]]);
    let tight = StepShape { verify_width: 3, ..shape };
    assert_eq!(paths(&proposed(&mut mix, &history, &tight, None)), alone, "nothing is left to fill");
}

#[test]
fn match_lengths_that_cannot_be_are_refused() {
    let (_folder, store) = store(&[&[1, 2]]);
    for (longest, shortest) in [(2, 3), (2, 0), (17, 2)] {
        assert!(Retrieval::new(store.clone(), longest, shortest, &shape(1, 1, 1)).is_err());
    }
}
