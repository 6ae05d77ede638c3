//! Templates against trees written out as sets of paths: the best by exhaustive search, k-ary ones, and what fills
//! them.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::{super::Filling, *};
use crate::tree::{NodeId, Source, TokenTree};

/// Ranks from the root down.
type Path = Vec<usize>;

fn paths(template: &Template) -> Vec<Path> {
    let mut paths: Vec<Path> = vec![Vec::new()];
    for node in 1..template.nodes() {
        let mut path = paths[template.parent(node)].clone();
        path.push(template.rank(node));
        paths.push(path);
    }
    paths
}

fn worth(by_rank: &[f64], paths: impl IntoIterator<Item = impl AsRef<[usize]>>) -> f64 {
    paths.into_iter().map(|path| path.as_ref().iter().map(|rank| by_rank[*rank]).product::<f64>()).sum()
}

/// Every tree of at most `nodes` nodes over as many ranks, at most `depth` deep, as the set of its paths.
fn every_tree(ranks: usize, nodes: usize, depth: usize) -> BTreeSet<BTreeSet<Path>> {
    let mut all = BTreeSet::from([BTreeSet::from([Path::new()])]);
    for _ in 1..nodes {
        let mut larger = all.clone();
        for tree in &all {
            for path in tree.iter().filter(|path| path.len() < depth) {
                for rank in 0..ranks {
                    let child: Path = path.iter().copied().chain([rank]).collect();
                    larger.insert(tree.iter().cloned().chain([child]).collect());
                }
            }
        }
        all = larger;
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn the_best_template_is_the_best_of_all_trees(
        by_rank in prop::collection::vec(0u32..5, 1..4), nodes in 1usize..7, depth in 0usize..4,
    ) {
        let by_rank: Vec<f64> = by_rank.into_iter().map(|quarters| f64::from(quarters) / 4.0).collect();
        let best = Template::best(&by_rank, nodes, depth);
        best.check().unwrap();
        prop_assert!(best.nodes() <= nodes && best.levels().len() <= depth);
        let trees = every_tree(by_rank.len(), nodes, depth);
        let most = trees.iter().map(|tree| worth(&by_rank, tree)).fold(0.0, f64::max);
        prop_assert!((worth(&by_rank, paths(&best)) - most).abs() < 1e-12, "{best:?} has less than {most}");
    }

    /// Where no child is worth more than its parent, the best tree is the best nodes.
    #[test]
    fn the_best_template_holds_the_best_paths(
        by_rank in prop::collection::vec(0.01f64..0.6, 1..9), nodes in 1usize..65, depth in 1usize..7,
    ) {
        let mut by_rank = by_rank;
        by_rank.sort_by(|a, b| b.total_cmp(a));
        let mut tree = vec![Path::new()];
        while tree.len() < nodes {
            let children = tree.iter().filter(|path| path.len() < depth).flat_map(|path| {
                (0..by_rank.len()).map(move |rank| path.iter().copied().chain([rank]).collect::<Path>())
            });
            let worth = |path: &Path| worth(&by_rank, [path]);
            let new = children.filter(|path| !tree.contains(path));
            let Some(best) = new.max_by(|a, b| worth(a).total_cmp(&worth(b))) else { break };
            tree.push(best);
        }
        let best = Template::best(&by_rank, nodes, depth);
        best.check().unwrap();
        prop_assert_eq!(best.nodes(), tree.len());
        prop_assert!((worth(&by_rank, paths(&best)) - worth(&by_rank, &tree)).abs() < 1e-9);
    }

    #[test]
    fn a_kary_tree_is_every_path_as_far_as_nodes_reach(k in 1usize..5, depth in 0usize..4, nodes in 1usize..80) {
        let template = Template::kary(k, depth, nodes);
        template.check().unwrap();
        let mut level = vec![Path::new()];
        let mut all = level.clone();
        for _ in 0..depth {
            let below = |path: &Path| (0..k).map(|rank| path.iter().copied().chain([rank]).collect()).collect::<Vec<Path>>();
            level = level.iter().flat_map(below).collect();
            all.extend(level.clone());
        }
        all.truncate(nodes);
        prop_assert_eq!(paths(&template), all);
    }

    #[test]
    fn levels_and_children_are_those_of_the_paths(
        by_rank in prop::collection::vec(0.1f64..1.0, 1..5), nodes in 1usize..40, depth in 1usize..6,
    ) {
        let template = Template::best(&by_rank, nodes, depth);
        let paths = paths(&template);
        for (node, path) in paths.iter().enumerate() {
            for rank in 0..by_rank.len() {
                let child: Path = path.iter().copied().chain([rank]).collect();
                prop_assert_eq!(template.child(node, rank), paths.iter().position(|path| *path == child));
            }
        }
        for (depth, level) in (1..).zip(template.levels()) {
            let here: Vec<usize> = (0..paths.len()).filter(|node| paths[*node].len() == depth).collect();
            let parents: BTreeSet<usize> = here.iter().map(|node| template.parent(*node)).collect();
            prop_assert_eq!((level.nodes.collect::<Vec<_>>(), level.parents), (here, parents.len()));
        }
        let most = paths.iter().flatten().max();
        prop_assert_eq!(template.candidates(), most.map_or(0, |rank| rank + 1));
    }

    /// Every path whose ranks there are candidates for, and nothing else; in the order in which a level is forwarded.
    #[test]
    fn a_filled_tree_has_the_ranked_tokens(
        by_rank in prop::collection::vec(0.1f64..1.0, 1..5), nodes in 1usize..30, depth in 1usize..5,
        seed in any::<u64>(),
    ) {
        let template = Template::best(&by_rank, nodes, depth);
        // Tokens tell the whole path; some nodes have fewer candidates than the template wants.
        let candidates = |tokens: &[u32]| -> Vec<(u32, f32)> {
            let node = tokens.iter().fold(seed, |h, t| (h ^ u64::from(*t)).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let count = by_rank.len() - usize::from(node >> 60 == 0).min(by_rank.len());
            (0..count as u32).map(|rank| (100 * tokens.len() as u32 + rank, -0.5 * (rank + 1) as f32)).collect()
        };
        let mut filling = Filling::new(template.clone());
        let mut tree = TokenTree::with_capacity(nodes);
        for _ in 0..2 {
            tree.reset(7);
            filling.restart();
            let mut rows = vec![NodeId::ROOT];
            for _ in 0..depth {
                for row in &rows {
                    let mut path = Vec::new();
                    tree.path(*row, &mut path);
                    let tokens: Vec<u32> = path.iter().map(|node| tree.token(*node)).collect();
                    filling.expand(&mut tree, *row, candidates(&tokens), Source::new(1));
                }
                filling.grown(&mut rows);
                prop_assert!(rows.is_sorted());
            }
            tree.check().unwrap();
            let mut filled = BTreeSet::new();
            for node in tree.nodes() {
                let mut path = Vec::new();
                tree.path(node, &mut path);
                filled.insert(path[1..].iter().map(|node| tree.token(*node)).collect::<Vec<_>>());
            }
            let mut expected = BTreeSet::new();
            'paths: for path in paths(&template) {
                let mut tokens = vec![7];
                for rank in path {
                    let Some((token, _)) = candidates(&tokens).get(rank).copied() else { continue 'paths };
                    tokens.push(token);
                }
                expected.insert(tokens[1..].to_vec());
            }
            prop_assert_eq!(&filled, &expected);
        }
    }
}

#[test]
fn a_tree_that_is_full_or_has_the_token_takes_no_more() {
    let mut filling = Filling::new(Template::kary(3, 2, 13));
    let mut tree = TokenTree::with_capacity(3);
    tree.reset(1);
    let mut rows = Vec::new();
    filling.expand(&mut tree, NodeId::ROOT, [(5, -0.1), (5, -0.2), (6, f32::NAN), (8, -1.0)], Source::NONE);
    filling.grown(&mut rows);
    assert_eq!(rows, [NodeId::from_index(1)]);
    filling.expand(&mut tree, rows[0], [(5, -0.1), (6, -0.2)], Source::NONE);
    filling.grown(&mut rows);
    assert!(rows.is_empty(), "the last level has no children");
    assert_eq!(tree.len(), 3);
}

#[test]
fn broken_templates_are_refused() {
    for (parents, ranks, reason) in [
        (&[][..], &[][..], "a parent and a rank"),
        (&[0, 0], &[0], "a parent and a rank"),
        (&[0], &[1], "a root with parent 0"),
        (&[1, 0], &[0, 0], "a root with parent 0"),
        (&[0, 1], &[0, 0], "a parent before it"),
        (&[0, 0, 1, 0], &[0, 0, 0, 1], "a parent before it"),
        (&[0, 0, 0], &[0, 1, 1], "a higher rank"),
        (&[0, 0, 0], &[0, 1, 0], "a higher rank"),
    ] {
        let template = Template { parents: parents.to_vec(), ranks: ranks.to_vec() };
        let error = template.check().unwrap_err().to_string();
        assert!(error.contains(reason), "{template:?}: {error}");
    }
}
