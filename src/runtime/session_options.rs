//! Options of a session.

use crate::backend::Pinning;

/// Options of a session.
#[derive(Clone, Copy, Debug)]
pub struct SessionOptions {
    /// Longest sequence in tokens, prompt and output together.
    pub context: usize,
    /// Nodes of the largest token tree, root included; where heads are drafted ahead, as many more as are drafted at
    /// once, which are written after the tree's.
    pub tree_nodes: usize,
    /// Worker threads, the caller included.
    pub threads: usize,
    /// Whether workers are bound to processors.
    pub pinning: Pinning,
}
