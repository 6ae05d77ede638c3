//! Drafters: whatever proposes tokens, behind one trait.

mod layer_skip;
mod lookup;

pub use layer_skip::LayerSkip;
pub use lookup::Lookup;

use crate::{
    runtime::Session,
    sample::Candidate,
    tree::{NodeId, TokenTree},
};

use super::{SpeculateError, Stats};

/// What a drafter may use for one proposal.
#[derive(Debug)]
pub struct Budget<'a> {
    /// The verifier's session: drafters that share its cache write scratch slots only.
    pub session: &'a mut Session,
    /// The sequence so far; the last token is the tree's root and is not yet in the cache.
    pub history: &'a [u32],
    /// Deepest useful node.
    pub depth: usize,
    /// Where the drafter's times go.
    pub stats: &'a mut Stats,
    /// Whoever wants to see the candidates of each expanded node.
    pub observer: Option<&'a mut dyn Observer>,
}

/// Sees what a model drafter offered: for recording traces.
pub trait Observer: std::fmt::Debug {
    /// `node` was forwarded and these are its best continuations, most probable first.
    fn expanded(&mut self, node: NodeId, candidates: &[Candidate]);
}

/// Proposes continuations into a tree whose root is set.
pub trait Drafter: std::fmt::Debug + Send {
    /// Adds nodes to the tree, within its capacity and the budget's depth. None is a proposal too.
    ///
    /// # Errors
    /// [`SpeculateError`] when the session refuses a forward.
    fn propose(&mut self, tree: &mut TokenTree, budget: Budget<'_>) -> Result<(), SpeculateError>;
}
