//! Tests of the token tree against an obvious map of paths, and of the law's checker against broken trees.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

const A: Source = Source::new(0);
const B: Source = Source::new(15);

fn n(index: usize) -> NodeId {
    NodeId::from_index(index)
}

/// root -> {10 -> {30}, 20}
fn small() -> TokenTree {
    let mut tree = TokenTree::with_capacity(4);
    tree.reset(7);
    assert_eq!(tree.insert(NodeId::ROOT, 10, 0.5, 0, A), Insert::Added(n(1)));
    assert_eq!(tree.insert(NodeId::ROOT, 20, 0.25, 1, A), Insert::Added(n(2)));
    assert_eq!(tree.insert(n(1), 30, 0.125, 0, A), Insert::Added(n(3)));
    tree
}

#[test]
fn accessors_tell_what_was_inserted() {
    let tree = small();
    assert_eq!(tree.check(), Ok(()));
    assert_eq!((tree.len(), tree.is_full(), tree.token(NodeId::ROOT)), (4, true, 7));
    assert_eq!((tree.parent(n(3)), tree.depth(n(3)), tree.value(n(3))), (Some(n(1)), 2, 0.125));
    assert_eq!((tree.rank(n(2)), tree.sources(n(2)), tree.parent(NodeId::ROOT)), (1, A, None));
    assert!(tree.sources(NodeId::ROOT) == Source::NONE);
    assert_eq!(tree.children(NodeId::ROOT).collect::<Vec<_>>(), [n(1), n(2)]);
    assert_eq!((tree.child(NodeId::ROOT, 20), tree.child(NodeId::ROOT, 30)), (Some(n(2)), None));
    assert_eq!(tree.ancestors(n(3)).collect::<Vec<_>>(), [n(1), NodeId::ROOT]);
    let mut path = vec![n(9)];
    tree.path(n(3), &mut path);
    assert_eq!(path, [NodeId::ROOT, n(1), n(3)]);
}

#[test]
fn a_text_is_followed_until_no_child_carries_its_next_token_and_asked_for_no_further() {
    let tree = small();
    let followed = |text: &[u32]| tree.follow(text.iter().copied()).collect::<Vec<_>>();
    assert_eq!(followed(&[10, 30, 5]), [n(1), n(3)]);
    assert_eq!((followed(&[20, 30]), followed(&[30]), followed(&[])), (vec![n(2)], vec![], vec![]));
    let mut asked = 0;
    let text = [10, 20, 30].into_iter().inspect(|_| asked += 1);
    let mut walk = tree.follow(text);
    assert_eq!([walk.next(), walk.next(), walk.next()], [Some(n(1)), None, None]);
    drop(walk);
    assert_eq!(asked, 2);
}

#[test]
fn a_known_child_merges_even_when_the_tree_is_full() {
    let mut tree = small();
    assert_eq!(tree.insert(NodeId::ROOT, 20, 0.75, 4, B), Insert::Merged(n(2)));
    assert_eq!((tree.value(n(2)), tree.rank(n(2)), tree.sources(n(2))), (0.75, 1, A.union(B)));
    assert_eq!(tree.sources(n(2)), A.union(B));
    assert!(tree.sources(n(2)).contains(B) && !tree.sources(n(1)).contains(B));
    assert_eq!(tree.insert(NodeId::ROOT, 99, 0.75, 4, B), Insert::Full);
    assert_eq!(tree.len(), 4);
    tree.reset(1);
    assert_eq!((tree.len(), tree.children(NodeId::ROOT).count(), tree.check()), (1, 0, Ok(())));
}

#[test]
fn storage_never_moves() {
    let mut tree = small();
    let before = (tree.tokens.as_ptr(), tree.values.as_ptr(), tree.next_siblings.as_ptr());
    for round in 0..3 {
        tree.reset(round);
        for token in 0..10 {
            let _ = tree.insert(NodeId::ROOT, token, 0.5, 0, A);
        }
    }
    assert_eq!(before, (tree.tokens.as_ptr(), tree.values.as_ptr(), tree.next_siblings.as_ptr()));
    assert_eq!(tree.len(), 4);
}

#[test]
#[should_panic(expected = "is a probability")]
fn a_nan_value_is_a_broken_invariant() {
    let _ = TokenTree::clone(&small()).insert(NodeId::ROOT, 1, f32::NAN, 0, A);
}

#[test]
#[should_panic(expected = "is not in a tree of 0 nodes")]
fn an_insert_before_the_first_reset_is_a_broken_invariant() {
    let _ = TokenTree::with_capacity(2).insert(NodeId::ROOT, 1, 0.5, 0, A);
}

#[test]
fn check_finds_each_broken_law() {
    type Break = fn(&mut TokenTree);
    let cases: &[(Break, usize, &str)] = &[
        (|t| t.capacity = 3, 0, "expected a tree of 3 nodes, found 4"),
        (|t| t.values[0] = 0.5, 0, "found parent None, value 0.5, depth 0"),
        (|t| t.parents[3] = 3, 3, "expected a parent before it"),
        (|t| t.parents[3] = NONE, 3, "expected a parent before it, found None"),
        (|t| t.parents[3] = 2, 3, "expected it once among its parent's children, found 0"),
        (|t| t.depths[2] = 2, 2, "expected depth 1, found 2"),
        (|t| t.values[1] = -1.0, 1, "expected a value of at least 0, found -1"),
        (|t| t.next_siblings[1] = NONE, 2, "expected it once among its parent's children, found 0"),
        (|t| t.next_siblings[2] = 1, 1, "among"),
        (|t| t.tokens[2] = 10, 0, "expected children with different tokens, found token 10 twice"),
    ];
    for (i, (break_law, node, words)) in cases.iter().enumerate() {
        let mut tree = small();
        break_law(&mut tree);
        let error = tree.check().expect_err("a broken law");
        assert_eq!(error.node, n(*node), "case {i}: {error}");
        assert!(error.to_string().contains(words), "case {i}: {error}");
    }
}

proptest! {
    #[test]
    fn tree_is_the_map_of_its_paths(inserts in prop::collection::vec((0..40_usize, 0..5_u32, 0..9_u8, 0..4_u16), 0..60),
                                    capacity in 1..40_usize) {
        let mut tree = TokenTree::with_capacity(capacity);
        tree.reset(0);
        // Key: parent and token. Value: what the node should say.
        let mut model: BTreeMap<(NodeId, u32), (NodeId, f32, u16, Source)> = BTreeMap::new();
        for (parent, token, value, rank) in inserts {
            let parent = n(parent % tree.len());
            let (value, source) = (f32::from(value) / 8.0, Source::new(value));
            let new = n(tree.len());
            let done = tree.insert(parent, token, value, rank, source);
            let full = model.len() + 1 == capacity;
            match model.get_mut(&(parent, token)) {
                Some(known) => {
                    *known = (known.0, known.1.max(value), known.2.min(rank), known.3.union(source));
                    prop_assert_eq!(done, Insert::Merged(known.0));
                }
                None if full => prop_assert_eq!(done, Insert::Full),
                None => {
                    prop_assert_eq!(done, Insert::Added(new));
                    model.insert((parent, token), (new, value, rank, source));
                }
            }
            prop_assert_eq!(tree.check(), Ok(()));
        }
        prop_assert_eq!(tree.len(), model.len() + 1);
        for (&(parent, token), &(node, value, rank, sources)) in &model {
            prop_assert_eq!(tree.child(parent, token), Some(node));
            prop_assert_eq!(tree.parent(node), Some(parent));
            prop_assert_eq!((tree.token(node), tree.value(node), tree.rank(node)), (token, value, rank));
            prop_assert_eq!(tree.sources(node), sources);
            prop_assert_eq!(tree.depth(node) as usize, tree.ancestors(node).count());
        }
    }
}
