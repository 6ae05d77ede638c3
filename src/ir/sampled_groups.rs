//! Some groups of a graph in place of all: what many groups of a kind take is measured on a few.

use std::collections::{BTreeMap, BTreeSet};

use ygg_kernels::WeightFormat;

use super::{
    Graph, GroupId, Op, OpWeights, WeightId,
    verify::{group_result, lending, residual_operand},
};

/// What the time of an op follows from but for what its operands hold.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct OpKind {
    name: &'static str,
    /// Columns of its result.
    columns: usize,
    /// Rows, columns and format of each weight.
    weights: Vec<(usize, usize, WeightFormat)>,
    /// Positions that its rows attend to, where those are limited.
    window: Option<u32>,
}

/// A graph with some of the groups of another.
#[derive(Clone, Debug)]
pub struct SampledGroups {
    /// Over the same weights, of which it may read fewer.
    pub graph: Graph,
    /// For how many groups each of its own stands, itself among them: groups of the same ops over weights of the same
    /// shapes and formats are of one kind, and the groups of a kind stand for equally many.
    pub stands_for: BTreeMap<GroupId, f64>,
}

impl Graph {
    /// The same graph if its groups have at most `bytes` of weights as files store them, else with about that part of
    /// the groups of every kind, and with at least one. A graph of which groups attend to keys and values of others
    /// stays whole.
    ///
    /// Results are another model's. Forwards take what they would take with the groups that are left.
    pub fn sampled_groups(&self, bytes: usize) -> SampledGroups {
        let mut kinds: BTreeMap<Vec<OpKind>, Vec<GroupId>> = BTreeMap::new();
        let mut of_groups: BTreeMap<GroupId, (Vec<OpKind>, usize)> = BTreeMap::new();
        for value in self.topological() {
            let node = self.node(value);
            let Some(group) = node.group else { continue };
            let (kind, stored) = of_groups.entry(group).or_default();
            let weights = ids(node.op.weights()).into_iter().map(|id| self.weight(id));
            let mut shapes = Vec::new();
            for weight in weights {
                *stored += weight.format.row_bytes(weight.columns).unwrap_or(0) * weight.rows;
                shapes.push((weight.rows, weight.columns, weight.format));
            }
            let window = match &node.op {
                Op::Attention { scoring, .. } => scoring.window,
                _ => None,
            };
            let columns = node.value_type.columns;
            kind.push(OpKind { name: node.op.name(), columns, weights: shapes, window });
        }
        let all: usize = of_groups.values().map(|(_, stored)| stored).sum();
        for (group, (kind, _)) in of_groups {
            kinds.entry(kind).or_default().push(group);
        }
        // Where groups attend to keys and values of others, none can be left out without changing what the others do.
        let is_whole = all <= bytes || !lending(self).is_empty();
        let share = if is_whole { 1.0 } else { bytes as f64 / all as f64 };
        let (mut stands_for, mut left_out) = (BTreeMap::new(), BTreeSet::new());
        for mut groups in kinds.into_values() {
            let count = groups.len();
            left_out.extend(groups.split_off(((count as f64 * share).ceil() as usize).clamp(1, count)));
            let each = count as f64 / groups.len() as f64;
            stands_for.extend(groups.into_iter().map(|group| (group, each)));
        }
        SampledGroups { graph: self.without_groups(&left_out), stands_for }
    }

    /// The same graph without what these groups add to the residual stream.
    fn without_groups(&self, left_out: &BTreeSet<GroupId>) -> Self {
        let mut graph = self.clone();
        for group in left_out {
            let result = group_result(&graph, *group).expect("what a verified graph computes is read");
            let stream = residual_operand(&graph, result).expect("a group ends in a residual sum");
            graph.replace_uses(result, stream);
        }
        for value in graph.topological().into_iter().rev() {
            if graph.node(value).group.is_some_and(|group| left_out.contains(&group)) {
                graph.remove(value);
            }
        }
        graph
    }
}

/// All weights that an op may read.
fn ids(weights: OpWeights<'_>) -> Vec<WeightId> {
    match weights {
        OpWeights::Nothing => Vec::new(),
        OpWeights::Rows(weight) => vec![weight],
        OpWeights::Gain(norm) => vec![norm.weight],
        OpWeights::Vectors(weights) => weights.to_vec(),
        OpWeights::Stack { weights, biases, norm } => {
            [weights, biases].concat().into_iter().chain(norm.map(|norm| norm.weight)).collect()
        }
        OpWeights::Gated { gate, up, norm } => {
            [gate, up].into_iter().chain(norm.map(|norm| norm.weight)).collect()
        }
        OpWeights::Experts { experts, biases } => [experts, biases].concat(),
    }
}
