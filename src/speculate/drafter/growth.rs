//! How a model drafter's tree grows: equally, or as a template says. Both take candidates of forwarded nodes and give
//! the nodes to forward next.

use crate::{
    runtime::{Choice, ExecutableSet, Grown},
    speculate::{SpeculateError, StepShape},
    tree::{Filling, Frontier, Insert, NodeId, Source, Template, TokenTree},
};

/// The growth of one tree after another, in storage reserved once.
#[derive(Debug)]
pub(super) enum Growth {
    /// The `width` best candidates wherever they attach.
    Equal { frontier: Frontier, width: usize },
    /// A tree of one shape, whose candidates are taken by rank.
    Static(Filling),
}

impl Growth {
    /// Checks that `set` has executables for the growths of a shape, where each is forwarded.
    ///
    /// # Errors
    /// [`SpeculateError::Shape`] if none holds one.
    pub(super) fn expect_width(set: &ExecutableSet, shape: &StepShape) -> Result<(), SpeculateError> {
        if set.width_for(shape.draft_width).is_some() {
            return Ok(());
        }
        let expected = format!("at most {}", set.widths().last().expect("width 1 is planned"));
        Err(SpeculateError::Shape { what: "draft width", expected, found: shape.draft_width })
    }

    /// Equal growth in a shape, and what is chosen of every row.
    ///
    /// # Errors
    /// [`SpeculateError::Shape`] if no executable gives as many candidates.
    pub(super) fn equal(shape: &StepShape) -> Result<(Self, Choice), SpeculateError> {
        let top_k = shape.top_k.max(1);
        if top_k > ExecutableSet::MOST_CANDIDATES {
            let expected = format!("at most {}", ExecutableSet::MOST_CANDIDATES);
            return Err(SpeculateError::Shape { what: "candidates per node", expected, found: top_k });
        }
        let frontier = Frontier::with_capacity(shape.tree_nodes(), top_k);
        let choice = Choice { k: top_k, temperature: Some(shape.draft_temperature) };
        Ok((Growth::Equal { frontier, width: shape.draft_width }, choice))
    }

    /// Growth by a template, in a shape that it must fit.
    ///
    /// # Errors
    /// [`SpeculateError::Shape`] if the shape is less deep, has fewer nodes on a level or keeps fewer candidates of a
    /// node.
    pub(super) fn by_template(
        template: &Template,
        shape: &StepShape,
        choice: Choice,
    ) -> Result<Self, SpeculateError> {
        let levels = template.levels();
        let widest = levels.iter().map(|level| level.nodes.len()).max().unwrap_or(0);
        for (what, most, found) in [
            ("depth of a template", shape.depth, levels.len()),
            ("nodes on a level of a template", shape.draft_width, widest),
            ("candidates per node of a template", choice.k, template.candidates()),
        ] {
            if found > most {
                return Err(SpeculateError::Shape { what, expected: format!("at most {most}"), found });
            }
        }
        Ok(Growth::Static(Filling::new(template.clone())))
    }

    /// Forgets everything; due whenever the tree is reset.
    pub(super) fn restart(&mut self) {
        match self {
            Growth::Equal { frontier, width: _ } => frontier.clear(),
            Growth::Static(filling) => filling.restart(),
        }
    }

    /// Offers the children `(token, log_prob)` of `node`, most probable first.
    pub(super) fn expand(
        &mut self,
        tree: &mut TokenTree,
        node: NodeId,
        candidates: impl IntoIterator<Item = (u32, f32)>,
        source: Source,
    ) {
        match self {
            Growth::Equal { frontier, width: _ } => frontier.expand(tree, node, candidates),
            Growth::Static(filling) => filling.expand(tree, node, candidates, source),
        }
    }

    /// Ends one growth: replaces `rows` by the nodes that the next one would forward, in the order of their ids.
    pub(super) fn grow(&mut self, tree: &mut TokenTree, source: Source, rows: &mut Vec<NodeId>) {
        match self {
            Growth::Equal { frontier, width } => frontier.grow(tree, *width, source, rows),
            Growth::Static(filling) => filling.grown(rows),
        }
    }
}

/// Adds the nodes that a device has grown to a tree of their root.
pub(super) fn plant(grown: Grown<'_>, source: Source, tree: &mut TokenTree) {
    let Grown { tokens, parents, ranks, scores, forwarded: _ } = grown;
    let nodes = tokens.iter().zip(parents).zip(ranks.iter().zip(scores));
    for ((token, parent), (rank, score)) in nodes.skip(1) {
        let parent = NodeId::from_index(*parent as usize);
        let rank = u16::try_from(*rank).expect("few candidates are kept");
        let inserted = tree.insert(parent, *token, score.exp().min(1.0), rank, source);
        assert!(matches!(inserted, Insert::Added(_)), "the device grows trees of distinct children that fit");
    }
}
