//! Fuses the product that makes logits into the choice among them.

use crate::ir::{Graph, GraphError, Head, Op, ValueId};

/// `Candidates(Linear(x))` becomes candidates with a head over `x`: the logits are never stored.
///
/// Leaves alone linear ops with another reader, of another group, with a bias or with a residual.
///
/// # Errors
/// None for a lawful graph.
pub(in crate::compile) fn fuse_head(graph: &mut Graph) -> Result<(), GraphError> {
    for value in graph.topological() {
        let Op::Candidates { head: None, most, tokens } = graph.node(value).op.clone() else { continue };
        let logits = graph.operands(value)[0];
        let Some(head) = head(graph, value, logits) else { continue };
        let x = graph.operands(logits)[0];
        graph.rewrite(value, Op::Candidates { head: Some(head), most, tokens }, &[x])?;
        graph.remove(logits);
    }
    Ok(())
}

/// The linear op that makes `logits`, if `candidates` may take it over.
fn head(graph: &Graph, candidates: ValueId, logits: ValueId) -> Option<Head> {
    let node = graph.node(logits);
    let Op::Linear { weights, biases, norm, residual: false } = &node.op else { return None };
    let alone = graph.sole_reader(logits) == Some(candidates) && biases.is_empty();
    let fits = alone && node.group == graph.node(candidates).group;
    fits.then(|| Head { weights: weights.clone(), norm: *norm })
}
