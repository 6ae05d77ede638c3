//! Rows that are given with the tokens of a text: a verifier's, of some of its layers, which the drafter joins to one
//! of its own width. Nodes that it drafts itself are given its own rows.
//!
//! One graph is for nodes; the graph for the text differs in the rows that it is given and in a norm of them or the
//! product that joins them (the `fc` of EAGLE-3, <https://arxiv.org/abs/2503.01840>), or is another altogether, which
//! leaves nothing but keys and values (DFlash, <https://arxiv.org/abs/2602.06036>).

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
    /// The same over rows that are normalised first.
    Normed(Norm),
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
        let made = match self.text_rows.as_ref().map(|rows| &rows.graph) {
            None | Some(TextGraph::Same) => return Ok(None),
            Some(TextGraph::Own(graph)) => {
                // Formats of weights may have been changed since.
                let mut graph = (**graph).clone();
                graph.weights = Arc::clone(&self.weights);
                // One skip set is for all programs of a model.
                graph.groups = self.groups;
                return Ok(Some(graph));
            }
            Some(made) => made,
        };
        let mut graph = self.clone();
        let is_given = |value: &ValueId| matches!(graph.node(*value).op, Op::GivenRows { .. });
        let given = graph.topological().into_iter().find(is_given);
        let given = given.ok_or_else(|| GraphError::Law {
            place: "rows of the text".to_owned(),
            expected: "an op that gives rows".to_owned(),
            found: "none".to_owned(),
        })?;
        match made {
            TextGraph::Joined(joining) => graph.join(given, joining)?,
            TextGraph::Normed(norm) => {
                let columns = self.weight(norm.weight).columns;
                let whole = graph.add(Op::GivenRows { columns }, &[], None)?;
                graph.rewrite(given, Op::RmsNorm(*norm), &[whole])?;
            }
            TextGraph::Same | TextGraph::Own(_) => unreachable!("returned above"),
        }
        Ok(Some(graph))
    }

    /// Has `given` be rows that are joined of wider ones.
    fn join(&mut self, given: ValueId, Joining { weights, bias, norms }: &Joining) -> Result<(), GraphError> {
        let widths: Vec<usize> = weights.iter().map(|weight| self.weight(*weight).columns).collect();
        let whole = self.add(Op::GivenRows { columns: widths.iter().sum() }, &[], None)?;
        let product = |weight: &WeightId, bias: Option<WeightId>| Op::Linear {
            weights: vec![*weight],
            biases: bias.into_iter().collect(),
            norm: None,
            residual: false,
        };
        let (mut start, mut sum) = (0, None);
        let last = weights.len() - 1;
        for (place, (weight, len)) in weights.iter().zip(widths).enumerate() {
            let mut part =
                if last == 0 { whole } else { self.add(Op::Slice { start, len }, &[whole], None)? };
            start += len;
            if let Some(norm) = norms.get(place) {
                part = self.add(Op::RmsNorm(*norm), &[part], None)?;
            }
            let product = product(weight, bias.filter(|_| place == 0));
            sum = Some(match sum {
                None if place == last => {
                    self.rewrite(given, product, &[part])?;
                    given
                }
                None => self.add(product, &[part], None)?,
                Some(sum) => {
                    let product = self.add(product, &[part], None)?;
                    if place == last {
                        self.rewrite(given, Op::Add, &[sum, product])?;
                        given
                    } else {
                        self.add(Op::Add, &[sum, product], None)?
                    }
                }
            });
        }
        Ok(())
    }
}
