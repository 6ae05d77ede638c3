//! Proposals of drafters that need no model: how large they may be, and what makes them.
use crate::{sample::Coupling, tree::TokenTree};

/// A drafter that is a pure function of the committed tokens, and of the requests before them if it remembers any.
pub trait ReplayDrafter: std::fmt::Debug + Send {
    /// Forgets all requests: it is as it was opened.
    fn forget(&mut self) {}

    /// Another request begins with these tokens.
    fn begin(&mut self, _history: &[u32]) {}

    /// Adds a proposal to `tree`, whose root carries the last token of `history`; `coupling` is the noise that decides
    /// the request's tokens, if any does.
    fn propose(
        &mut self,
        history: &[u32],
        limits: &ProposalLimits,
        coupling: Option<&Coupling>,
        tree: &mut TokenTree,
    );

    /// The drafters that it is made of, each of which is trusted by itself, where it shares a tree with one that runs a
    /// model.
    fn parts(&mut self) -> &mut [Box<dyn ReplayDrafter>] {
        &mut []
    }
}

/// How large a proposal may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProposalLimits {
    /// Tokens along a path, Dd.
    pub depth: u32,
    /// Branches, Wd: as the drafter understands them.
    pub width: u32,
    /// Nodes in the tree, the root among them, Wv.
    pub nodes: u32,
}
