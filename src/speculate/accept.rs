//! Acceptance: walks a verified tree along the verifier's own tokens.

use std::{cell::Cell, convert::Infallible, iter};

use crate::{
    runtime::Accepted,
    tree::{NodeId, TokenTree},
};

/// Where a walk must end.
#[derive(Clone, Copy, Debug)]
pub struct Limits<'a> {
    /// Most tokens to emit, at least 1.
    pub tokens: usize,
    /// Tokens that end the text.
    pub ends: &'a [u32],
}

/// What the verifier says after a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Said {
    /// Its token.
    pub token: u32,
    /// Whether the text ends with it, whatever the token is.
    pub ends: bool,
}

/// The result of a walk, in buffers reserved once.
#[derive(Clone, Debug)]
pub struct Walk {
    /// Verified nodes whose keys and values belong to the sequence: the root and the accepted nodes before the last
    /// emitted token.
    pub path: Vec<NodeId>,
    /// Tokens emitted: the accepted ones, then the bonus token, cut at the limits.
    pub emitted: Vec<u32>,
    /// Nodes accepted.
    pub accepted: usize,
}

impl Walk {
    /// Room for trees of `nodes` nodes.
    pub fn with_capacity(nodes: usize) -> Self {
        Self { path: Vec::with_capacity(nodes), emitted: Vec::with_capacity(nodes + 1), accepted: 0 }
    }

    /// Walks from the root: at each node the verifier says its own token for the next position; a verified child that
    /// carries it is accepted and walked to; otherwise it is the bonus token. Exact for any tree (sampler-match): what
    /// is emitted does not depend on what was drafted.
    ///
    /// `rows[i]` is the node of row `i` of the verification, ascending; `position` is the place of the first emitted
    /// token in the sequence. `verified(row, place)` is the verifier's token at a place, by what it showed of a row.
    pub fn run(
        &mut self,
        tree: &TokenTree,
        rows: &[NodeId],
        position: usize,
        limits: Limits<'_>,
        mut verified: impl FnMut(usize, u64) -> u32,
    ) {
        let said = |row, place| Ok::<_, Infallible>(Said { token: verified(row, place), ends: false });
        let Ok(()) = self.try_run(tree, rows, position, limits, said);
    }

    /// As [`run`](Self::run), where the verifier may end the text, or fail to say a token: the walk then ends with the
    /// token before.
    ///
    /// # Errors
    /// As `verified`, if no token was said.
    pub fn try_run<E>(
        &mut self,
        tree: &TokenTree,
        rows: &[NodeId],
        position: usize,
        limits: Limits<'_>,
        mut verified: impl FnMut(usize, u64) -> Result<Said, E>,
    ) -> Result<(), E> {
        let Self { path, emitted, accepted } = self;
        path.clear();
        path.push(NodeId::ROOT);
        emitted.clear();
        *accepted = 0;
        let (row, is_over, mut fault) = (Cell::new(0), Cell::new(false), None);
        let said = iter::from_fn(|| match verified(row.get(), (position + emitted.len()) as u64) {
            Ok(Said { token, ends }) => {
                emitted.push(token);
                is_over.set(ends || emitted.len() >= limits.tokens || limits.ends.contains(&token));
                Some(token)
            }
            Err(error) => {
                fault = Some(error);
                None
            }
        });
        let along_rows = |node: NodeId| Some((node, rows.binary_search(&node).ok()?));
        for (node, its_row) in tree.follow(said).map_while(along_rows) {
            *accepted += 1;
            if is_over.get() {
                break;
            }
            path.push(node);
            row.set(its_row);
        }
        if let Some(error) = fault {
            if emitted.is_empty() {
                return Err(error);
            }
            // The last emitted token is committed with the step that finds the token after it.
            path.pop();
        }
        Ok(())
    }

    /// Takes what a device walked through, up to the limits: what [`run`](Self::run) gives with the verifier's tokens.
    pub fn follow(&mut self, rows: &[NodeId], accepted: Accepted<'_>, limits: Limits<'_>) {
        self.path.clear();
        self.emitted.clear();
        self.accepted = 0;
        for (row, token) in accepted.rows.iter().zip(accepted.tokens) {
            self.path.push(rows[*row as usize]);
            self.emitted.push(*token);
            self.accepted += usize::from(self.path.len() < accepted.rows.len());
            if self.emitted.len() == limits.tokens || limits.ends.contains(token) {
                return;
            }
        }
    }
}
