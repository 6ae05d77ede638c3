//! Drops what nothing reads.

use crate::ir::{Graph, GraphError, Op};

/// Removes every value that is not needed for what is kept or an append. Leaves appends alone: they write the cache,
/// which later forwards read.
///
/// # Errors
/// None of its own.
pub(in crate::compile) fn drop_dead(graph: &mut Graph) -> Result<(), GraphError> {
    for value in graph.topological().into_iter().rev() {
        let writes = matches!(graph.node(value).op, Op::AppendKv { .. });
        if !writes && !graph.is_kept(value) && graph.readers(value).is_empty() {
            graph.remove(value);
        }
    }
    Ok(())
}
