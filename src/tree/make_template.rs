//! Makes templates, for comparison: k-ary ones, and the one of most expected tokens if acceptance depends on rank
//! alone.
//!
//! Sequoia (<https://arxiv.org/abs/2402.12374>), tree construction by dynamic programming, with the tree bounded in
//! depth too: a child of rank r is accepted with probability `by_rank[r]` wherever it is, so the value of a node is the
//! product along its path, and the best tree of n nodes is the best way to share n - 1 nodes among the subtrees of the
//! root's children.

use std::collections::VecDeque;

use super::Template;

impl Template {
    /// The root alone.
    fn root() -> Self {
        Self { parents: vec![0], ranks: vec![0] }
    }

    /// Adds a node after all others.
    fn push(&mut self, parent: usize, rank: usize) {
        self.parents.push(u32::try_from(parent).expect("templates are small"));
        self.ranks.push(u16::try_from(rank).expect("ranks are small"));
    }

    /// The tree in which every node has its `children` best candidates as children, down to `depth`, or as much of that
    /// as `nodes` nodes hold, level by level.
    ///
    /// # Panics
    /// If `nodes` is 0.
    pub fn kary(children: usize, depth: usize, nodes: usize) -> Self {
        assert!(nodes > 0, "a tree has its root");
        let mut template = Self::root();
        let mut level = 0..1;
        for _ in 0..depth {
            for parent in level.clone() {
                for rank in 0..children {
                    if template.nodes() < nodes {
                        template.push(parent, rank);
                    }
                }
            }
            level = level.end..template.nodes();
        }
        template
    }

    /// The template of at most `nodes` nodes, the root included, and at most `depth` levels below the root that is
    /// expected to give most tokens, if a child of rank r is accepted with probability `by_rank[r]`. Nodes that would
    /// add nothing are left out.
    ///
    /// # Panics
    /// If `nodes` is 0.
    pub fn best(by_rank: &[f64], nodes: usize, depth: usize) -> Self {
        assert!(nodes > 0, "a tree has its root");
        let shares: Vec<Shares> = (0..depth).fold(Vec::new(), |mut shallower: Vec<Shares>, _| {
            let next = Shares::new(by_rank, nodes, shallower.last());
            shallower.push(next);
            shallower
        });
        let mut template = Template::root();
        let mut waiting = VecDeque::from([(0, nodes, depth)]);
        while let Some((parent, nodes, depth)) = waiting.pop_front() {
            let Some(below) = depth.checked_sub(1) else { continue };
            for (rank, share) in
                shares[below].of(nodes).into_iter().enumerate().filter(|(_, share)| *share > 0)
            {
                waiting.push_back((template.nodes(), share, below));
                template.push(parent, rank);
            }
        }
        template
    }
}

/// The best trees of one depth, for every number of nodes: how each shares its nodes among the root's children.
struct Shares {
    /// Expected tokens of the best subtree of n nodes at most, its root included and certain.
    tokens: Vec<f64>,
    /// `[rank][m]`: nodes that the subtree of this rank gets, when m are left for it and the ranks after it.
    taken: Vec<Vec<usize>>,
}

impl Shares {
    /// Of trees one level deeper than those of `shallower`; `None` stands for roots alone, which give one token
    /// whatever nodes they may have.
    fn new(by_rank: &[f64], most: usize, shallower: Option<&Shares>) -> Self {
        let subtree = |nodes: usize| shallower.map_or(1.0, |shares| shares.tokens[nodes]);
        let mut later = vec![0.0; most];
        let mut taken = vec![Vec::new(); by_rank.len()];
        for (rank, probability) in by_rank.iter().enumerate().rev() {
            let mut here = vec![0.0; most];
            taken[rank] = vec![0; most];
            for left in 0..most {
                here[left] = later[left];
                for share in (1..=left).filter(|_| *probability > 0.0) {
                    let tokens = probability * subtree(share) + later[left - share];
                    if tokens > here[left] {
                        (here[left], taken[rank][left]) = (tokens, share);
                    }
                }
            }
            later = here;
        }
        let tokens = (0..=most).map(|nodes| nodes.checked_sub(1).map_or(0.0, |left| 1.0 + later[left]));
        Self { tokens: tokens.collect(), taken }
    }

    /// Nodes of the subtrees of the root's children, by rank, in the best tree of `nodes` nodes at most.
    fn of(&self, nodes: usize) -> Vec<usize> {
        let mut left = nodes - 1;
        let share = |taken: &Vec<usize>| {
            let share = taken[left];
            left -= share;
            share
        };
        self.taken.iter().map(share).collect()
    }
}
