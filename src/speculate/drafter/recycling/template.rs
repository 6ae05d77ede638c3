//! The tree that is filled at every step: which successor of which node stands where.
//!
//! Imbalanced, as Token Recycling's is: the better a successor, the more is drafted below it. Nodes are taken by the
//! product of their ranks' worths, best first, so the first nodes of the template are the template of fewer nodes.

/// Successors kept of every token.
pub(super) const MOST_RANKS: usize = 8;
/// Nodes of the whole template, root included.
const MOST_NODES: u32 = 80;
/// Depth of the whole template.
const MOST_DEPTH: u32 = 6;
/// What a successor of each rank is worth relative to its parent: the best is as good as all others together, and each
/// of those two thirds of the one before it, about.
const WORTH: [f32; MOST_RANKS] = [0.5, 0.17, 0.11, 0.07, 0.05, 0.04, 0.03, 0.02];

/// A node of the template.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct TemplateNode {
    /// Its parent's place in the template; `None` for the root of the tree, which is not in it.
    pub(super) parent: Option<usize>,
    /// Which successor of its parent's token it carries.
    pub(super) rank: u16,
    depth: u32,
    /// Product of the worths along its path.
    pub(super) value: f32,
}

/// The nodes below the root, best first: parents precede children.
#[derive(Clone, Debug)]
pub(super) struct Template(Vec<TemplateNode>);

impl Template {
    /// The template cut to `depth` and to `nodes` nodes, the root among them.
    pub(super) fn new(depth: u32, nodes: u32) -> Self {
        let (depth, nodes) = (depth.min(MOST_DEPTH), nodes.min(MOST_NODES));
        let mut open = Vec::new();
        let mut chosen: Vec<TemplateNode> = Vec::new();
        let children = |parent: Option<usize>, value: f32, depth: u32| {
            (0..).zip(WORTH).map(move |(rank, worth)| TemplateNode {
                parent,
                rank,
                depth,
                value: value * worth,
            })
        };
        if depth > 0 {
            open.extend(children(None, 1.0, 1));
        }
        while chosen.len() + 1 < nodes as usize {
            // Of equal values the one that was opened first.
            let best = (0..open.len()).rev().max_by(|a, b| open[*a].value.total_cmp(&open[*b].value));
            let Some(best) = best else { break };
            let node = open.remove(best);
            chosen.push(node);
            if node.depth < depth {
                open.extend(children(Some(chosen.len() - 1), node.value, node.depth + 1));
            }
        }
        Self(chosen)
    }

    /// Nodes below the root.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The nodes below the root, parents first.
    pub(super) fn nodes(&self) -> impl Iterator<Item = &TemplateNode> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_template_has_eighty_nodes_of_six_depths_and_smaller_ones_are_its_beginning() {
        let whole = Template::new(100, 1000);
        assert_eq!(whole.len() + 1, 80);
        assert_eq!(whole.nodes().map(|n| n.depth).max(), Some(6));
        assert!(whole.0.is_sorted_by(|a, b| a.value >= b.value), "best first");
        for (place, node) in whole.nodes().enumerate() {
            let above = node.parent.map_or((0, 1.0), |parent| (whole.0[parent].depth, whole.0[parent].value));
            assert!(node.parent.is_none_or(|parent| parent < place));
            assert_eq!((node.depth, node.value), (above.0 + 1, above.1 * WORTH[usize::from(node.rank)]));
            let twins = whole.nodes().filter(|n| (n.parent, n.rank) == (node.parent, node.rank));
            assert_eq!(twins.count(), 1);
        }
        for nodes in 1..80 {
            assert_eq!(Template::new(6, nodes).0, whole.0[..nodes as usize - 1]);
        }
        let shallow = Template::new(2, 20);
        assert_eq!((shallow.len(), shallow.nodes().map(|n| n.depth).max()), (19, Some(2)));
        assert_eq!(Template::new(0, 9).len(), 0);
    }

    /// No node left out is worth more than one that is in, by trying all paths of ranks.
    #[test]
    fn nothing_better_is_left_out() {
        let template = Template::new(6, 80);
        let least = template.0.last().expect("it has nodes").value;
        let mut better = 0;
        let mut paths = vec![(1.0_f32, 0_u32)];
        while let Some((value, depth)) = paths.pop() {
            for worth in WORTH {
                if depth < 6 && value * worth > least {
                    better += 1;
                    paths.push((value * worth, depth + 1));
                }
            }
        }
        assert_eq!(better, template.nodes().filter(|n| n.value > least).count());
    }
}
