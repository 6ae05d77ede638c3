//! What can go wrong with executables and sessions.

use crate::{
    backend::{BackendError, Tier},
    compile::CompileError,
    ir::{BudgetError, HeadTokensError},
};

/// Why a set or a session refuses.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The graph could not be compiled: a fault of this program, not of the user.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// The device refused.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// A budget below what always stays in memory.
    #[error(transparent)]
    Budget(#[from] BudgetError),
    /// A device that streams no weights.
    #[error(
        "`{tier}` streams no weights: expected a GPU, or another tier of the processor; leave the budget out, or run \
         there"
    )]
    NotStreamed {
        /// The device.
        tier: Tier,
    },
    /// The device failed while it ran forwards.
    #[error(
        "the device failed while it decoded, and what it held is lost: {reason}; open the model again to go on"
    )]
    DeviceFailed {
        /// Its word.
        reason: String,
    },
    /// More tokens than the context holds.
    #[error(
        "the sequence needs {needed} tokens but the context holds {context}: shorten the prompt or ask for a longer \
         context (the model allows {model_context})"
    )]
    ContextFull {
        /// Tokens that would have to fit.
        needed: usize,
        /// The session's context.
        context: usize,
        /// The model's longest context.
        model_context: usize,
    },
    /// A context the model or the cache cannot have.
    #[error(
        "a context of {found} tokens is out of range: expected 2 to {model_context}, the model's longest"
    )]
    ContextRange {
        /// Asked for.
        found: usize,
        /// The model's longest.
        model_context: usize,
    },
    /// A width no executable was made for.
    #[error("no executable holds {rows} rows: expected at most {largest}, the widest planned one")]
    Width {
        /// Rows asked for.
        rows: usize,
        /// Widest executable.
        largest: usize,
    },
    /// A tuning that the kernels of a linear have not got.
    #[error("no tuning `{found}` for {shape}: expected {expected}; make the plan again with `yggc plan`")]
    Tuning {
        /// The linear.
        shape: String,
        /// Asked for.
        found: String,
        /// What there is.
        expected: String,
    },
    /// A sub-layer to skip that the model does not have.
    #[error(
        "cannot skip sub-layer {found}: expected one below {groups}, the model's; profile and plan again for this model"
    )]
    SkipSet {
        /// The group.
        found: u32,
        /// How many there are.
        groups: u32,
    },
    /// Tokens that no head of the model can keep.
    #[error(transparent)]
    Head(#[from] HeadTokensError),
    /// Bits of which there is no substitute.
    #[error("no substitute has {bits} bits an element: expected 2, 3 or 4; profile and plan again")]
    Substitute {
        /// What was asked for.
        bits: u32,
    },
    /// A variant that was not made.
    #[error("no executable has {}: make it before drafting with it", variant(*tokens, *bits))]
    MissingVariant {
        /// How many tokens its head keeps, if it is trimmed.
        tokens: Option<usize>,
        /// Bits of its substitute, if it has one.
        bits: Option<u32>,
    },
    /// Hidden rows of committed tokens that no executable keeps.
    #[error("no executable keeps the hidden rows of a prompt: make those that do before drafting with them")]
    NoHiddenRows,
    /// A drafter model that was not loaded.
    #[error("the drafter model {digest} was not loaded: load it before drafting with it")]
    MissingDraft {
        /// Its digest.
        digest: String,
    },
    /// A token id the model does not have.
    #[error(
        "token id {found} is out of range: expected one below {vocabulary}, the vocabulary's size; encode the text \
         with this model's tokenizer"
    )]
    Token {
        /// The id.
        found: u32,
        /// Vocabulary size.
        vocabulary: usize,
    },
}

fn variant(tokens: Option<usize>, bits: Option<u32>) -> String {
    let head = tokens.map(|tokens| format!("the head of these {tokens} tokens"));
    let substitute = bits.map(|bits| format!("the substitute of {bits} bits"));
    head.into_iter().chain(substitute).collect::<Vec<_>>().join(" over ")
}
