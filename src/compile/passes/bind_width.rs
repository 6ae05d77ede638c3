//! Binds the symbolic rows to numbers.

use crate::ir::{Binding, Graph, GraphError};

/// Gives every type its number of rows. Leaves every op alone.
///
/// # Errors
/// As [`Graph::bind`].
pub(in crate::compile) fn bind_width(graph: &mut Graph, binding: Binding) -> Result<(), GraphError> {
    graph.bind(binding)
}
