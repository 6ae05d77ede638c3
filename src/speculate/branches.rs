//! Log-probabilities of several continuations of one text, as branches of one tree.
//!
//! Every node that something follows gets one row of a forward, in the tree's order from the root down each branch.
//! Rows are written to scratch slots after the committed tokens and stay there while others follow, so forwards share
//! what is above them. Where scratch has no room, or a row would have more ancestors in scratch than rows may have, the
//! path above the next node is committed for a while. What follows depends on it then; when a node of another branch is
//! next, the committed path is cut to where the branches part. In that order of nodes, all that is above the next one
//! is always either committed or in scratch: no row is run twice.

use crate::{
    runtime::Session,
    sample::LogNormaliser,
    speculate::SpeculateError,
    tree::{NodeId, TokenTree},
};

/// Stands for a node that is not in scratch.
const NOWHERE: u32 = u32::MAX;

/// What of a tree has been run.
#[derive(Debug)]
pub(super) struct BranchRun<'s> {
    session: &'s mut Session,
    tree: &'s TokenTree,
    /// Committed tokens before the tree's root.
    base: usize,
    /// By node, the nodes of its subtree that need a row, itself included: 0 of the last nodes of branches.
    rows_below: Vec<usize>,
    /// The path from the root that is committed.
    trunk: Vec<NodeId>,
    /// The nodes in scratch, by offset; those from `done` on have not been run yet.
    scratch: Vec<NodeId>,
    done: usize,
    /// By node, its offset in scratch.
    offsets: Vec<u32>,
    /// By node, the log-probability of its token after the tokens above it; of the root 0.
    log_probs: Vec<f64>,
    forwards: u64,
}

/// What running the branches of a tree gave.
#[derive(Debug)]
pub(super) struct BranchScores {
    /// By node of the tree, the log-probability in nats of its token after the text and the tokens above it; of the
    /// root 0.
    pub(super) log_probs: Vec<f64>,
    /// Forwards that were run.
    pub(super) forwards: u64,
    /// Rows of them, one for every node that another follows.
    pub(super) rows: u64,
}

/// Runs the branches of a tree whose root is the token after the committed ones. The session has the same tokens
/// afterwards as before, whatever happens. `None` if it was cancelled.
///
/// # Errors
/// [`SpeculateError`] when the session refuses or the device fails.
pub(super) fn score_branches(
    session: &mut Session,
    tree: &TokenTree,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<Option<BranchScores>, SpeculateError> {
    let base = session.committed();
    let mut run = BranchRun::new(session, tree);
    let ended = run.run(is_cancelled);
    let rows = run.rows_below[NodeId::ROOT.index()] as u64;
    let BranchRun { log_probs, forwards, .. } = run;
    session.truncate(base);
    Ok(ended?.then_some(BranchScores { log_probs, forwards, rows }))
}

impl<'s> BranchRun<'s> {
    fn new(session: &'s mut Session, tree: &'s TokenTree) -> Self {
        let mut rows_below = vec![0; tree.len()];
        // Children come after their parents.
        for node in tree.nodes().rev() {
            let below: usize = tree.children(node).map(|child| rows_below[child.index()]).sum();
            rows_below[node.index()] = below + usize::from(tree.children(node).next().is_some());
        }
        Self {
            base: session.committed(),
            session,
            tree,
            rows_below,
            trunk: Vec::new(),
            scratch: Vec::new(),
            done: 0,
            offsets: vec![NOWHERE; tree.len()],
            log_probs: vec![0.0; tree.len()],
            forwards: 0,
        }
    }

    /// Runs every node that needs a row; whether it was not cancelled.
    fn run(&mut self, is_cancelled: &dyn Fn() -> bool) -> Result<bool, SpeculateError> {
        let widest = *self.session.set().widths().last().expect("width 1 is always planned");
        let tree = self.tree;
        let mut next = vec![NodeId::ROOT];
        while let Some(node) = next.pop() {
            if self.needs_room(node) && !self.make_room(node, is_cancelled)? {
                return Ok(false);
            }
            self.offsets[node.index()] = u32::try_from(self.scratch.len()).expect("scratch is small");
            self.scratch.push(node);
            if self.scratch.len() - self.done == widest && !self.forward(is_cancelled)? {
                return Ok(false);
            }
            let children = tree.children(node).filter(|child| self.rows_below[child.index()] > 0);
            let begin = next.len();
            next.extend(children);
            next[begin..].reverse();
        }
        self.forward(is_cancelled)
    }

    /// Whether a node's row can only be placed after the scratch has been cleared.
    fn needs_room(&self, node: NodeId) -> bool {
        let Some(parent) = self.tree.parent(node) else { return false };
        let is_at_trunk = self.trunk.last() == Some(&parent);
        if !is_at_trunk && self.offsets[parent.index()] == NOWHERE {
            return true;
        }
        let free = self.session.scratch_slots() - self.scratch.len();
        let below = self.rows_below[node.index()];
        // A subtree that would fit as a whole is not cut: the rest of a cut one fills fewer forwards.
        let is_cut = below > free && below <= self.session.scratch_slots();
        let tail = self.depth(node) + 1;
        free == 0 || tail > self.session.tree_nodes() || is_cut
    }

    /// Nodes above one that are not committed.
    fn depth(&self, node: NodeId) -> usize {
        self.tree.depth(node) as usize - self.trunk.len()
    }

    /// Commits the path to a node's parent and nothing else, and clears the scratch; whether it was not cancelled.
    fn make_room(&mut self, node: NodeId, is_cancelled: &dyn Fn() -> bool) -> Result<bool, SpeculateError> {
        if !self.forward(is_cancelled)? {
            return Ok(false);
        }
        let mut path: Vec<NodeId> = self.tree.ancestors(node).collect();
        path.reverse();
        let shared =
            self.trunk.iter().zip(&path).take_while(|(committed, wanted)| committed == wanted).count();
        if shared < self.trunk.len() {
            self.trunk.truncate(shared);
            self.session.truncate(self.base + shared);
            assert_eq!(shared, path.len(), "where branches part is committed");
        } else {
            let offsets: Vec<u32> = path[shared..].iter().map(|above| self.offsets[above.index()]).collect();
            assert!(!offsets.contains(&NOWHERE), "what is above the next node is committed or in scratch");
            self.session.commit(&offsets);
            self.trunk = path;
        }
        for node in self.scratch.drain(..) {
            self.offsets[node.index()] = NOWHERE;
        }
        self.done = 0;
        Ok(true)
    }

    /// Runs the rows that were placed and not run yet, and notes what they say of the tokens after them; whether it was
    /// not cancelled.
    fn forward(&mut self, is_cancelled: &dyn Fn() -> bool) -> Result<bool, SpeculateError> {
        let rows = &self.scratch[self.done..];
        if rows.is_empty() {
            return Ok(true);
        }
        if is_cancelled() {
            return Ok(false);
        }
        let Self { session, tree, trunk, offsets, log_probs, .. } = self;
        let mut forward = session.forward(rows.len())?;
        for node in rows {
            let depth = tree.depth(*node) as usize - trunk.len();
            let row_depth = u32::try_from(depth).expect("contexts are far below 2^32");
            let offset = offsets[node.index()];
            forward.push(tree.token(*node), row_depth, offset, |tail| {
                tail[depth] = offset;
                for (slot, above) in tail[..depth].iter_mut().rev().zip(tree.ancestors(*node)) {
                    *slot = offsets[above.index()];
                }
                depth + 1
            });
        }
        let logits = forward.run(None);
        for (row, node) in rows.iter().enumerate() {
            let logits = logits.row(row);
            let normaliser = LogNormaliser::new(logits);
            for child in tree.children(*node) {
                log_probs[child.index()] = normaliser.nats(logits[tree.token(child) as usize]);
            }
        }
        // Results of a failed device are invalid.
        session.check_device()?;
        self.forwards += 1;
        self.done = self.scratch.len();
        Ok(true)
    }
}
