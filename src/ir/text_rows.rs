//! Rows that are given with the tokens of a text: a verifier's, of some of its layers, which the drafter joins to one
//! of its own width. Nodes that it drafts itself are given its own rows.
//!
//! One graph is for nodes; the graph for the text differs in the rows that it is given and in the product that joins
//! them (the `fc` of EAGLE-3, <https://arxiv.org/abs/2503.01840>), or is another altogether, which leaves nothing but
//! keys and values (DFlash, <https://arxiv.org/abs/2602.06036>).

use std::sync::Arc;

use super::{Graph, GraphError, Norm, Op, ValueId, WeightId};

/// Which rows a drafter is given with the tokens of a text.
#[derive(Clone, Debug)]
pub struct TextRows {
    /// The verifier's layers: for each number, the residual stream after so many. Their rows follow one another in what
    /// is given.
    pub layers: Vec<usize>,
    /// What forwards of the text compute.
    pub graph: TextGraph,
}

/// How the graph for tokens of a text is made of that for nodes.
#[derive(Clone, Debug)]
pub enum TextGraph {
    /// It is the same: the given rows are as wide as the drafter's own.
    Same,
    /// The same over rows that are joined to one as wide as the drafter's own.
    Joined(Joining),
    /// Another, over the same weights and the same cache.
    Own(Box<Graph>),
}

/// A product that joins given rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Joining {
    /// The parts `[D, K]` of a matrix by columns: one for every row of another layer, of `K` elements, or one for all
    /// of them.
    pub weights: Vec<WeightId>,
    /// A vector `[D]` that is added.
    pub bias: Option<WeightId>,
    /// Norms in front, of what each part multiplies; none, or one for each.
    pub norms: Vec<Norm>,
}

impl Graph {
    /// Declares the rows that are given with the tokens of a text.
    pub fn set_text_rows(&mut self, rows: TextRows) {
        self.text_rows = Some(rows);
    }

    /// The verifier's layers whose rows are given with the tokens of a text; none of a model that reads tokens alone.
    pub fn layers_read(&self) -> &[usize] {
        self.text_rows.as_ref().map_or(&[], |rows| &rows.layers)
    }

    /// The graph for tokens of a text, if it is another than that for nodes.
    ///
    /// # Errors
    /// [`GraphError`] if no rows are given, or those of the text cannot be joined to such.
    pub fn of_text(&self) -> Result<Option<Self>, GraphError> {
        let Joining { weights, bias, norms } = match self.text_rows.as_ref().map(|rows| &rows.graph) {
            None | Some(TextGraph::Same) => return Ok(None),
            Some(TextGraph::Own(graph)) => {
                // Formats of weights may have been changed since.
                let mut graph = (**graph).clone();
                graph.weights = Arc::clone(&self.weights);
                // One skip set is for all programs of a model.
                graph.groups = self.groups;
                return Ok(Some(graph));
            }
            Some(TextGraph::Joined(joining)) => joining,
        };
        let mut graph = self.clone();
        let is_given = |value: &ValueId| matches!(graph.node(*value).op, Op::GivenRows { .. });
        let given = graph.topological().into_iter().find(is_given);
        let given = given.ok_or_else(|| GraphError::Law {
            place: "rows of the text".to_owned(),
            expected: "an op that gives rows".to_owned(),
            found: "none".to_owned(),
        })?;
        let columns = |weight: &WeightId| self.weight(*weight).columns;
        let whole = graph.add(Op::GivenRows { columns: weights.iter().map(columns).sum() }, &[], None)?;
        let product = |weight: &WeightId, bias: Option<WeightId>| Op::Linear {
            weights: vec![*weight],
            biases: bias.into_iter().collect(),
            norm: None,
            residual: false,
        };
        let (mut start, mut sum) = (0, None);
        let last = weights.len() - 1;
        for (place, weight) in weights.iter().enumerate() {
            let len = columns(weight);
            let mut part =
                if last == 0 { whole } else { graph.add(Op::Slice { start, len }, &[whole], None)? };
            start += len;
            if let Some(norm) = norms.get(place) {
                part = graph.add(Op::RmsNorm(*norm), &[part], None)?;
            }
            let product = product(weight, bias.filter(|_| place == 0));
            sum = Some(match sum {
                None if place == last => {
                    graph.rewrite(given, product, &[part])?;
                    given
                }
                None => graph.add(product, &[part], None)?,
                Some(sum) => {
                    let product = graph.add(product, &[part], None)?;
                    if place == last {
                        graph.rewrite(given, Op::Add, &[sum, product])?;
                        given
                    } else {
                        graph.add(Op::Add, &[sum, product], None)?
                    }
                }
            });
        }
        Ok(Some(graph))
    }
}
