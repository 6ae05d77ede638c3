//! Grammars of structured answers: which tokens may come next.
//!
//! [`GrammarTokens`] knows a model's tokens by their bytes; [`GrammarTokens::matcher`] compiles a [`Constraint`] to a
//! [`Matcher`], the state of one answer. The mask of a state says which tokens may follow. It depends on the tokens
//! accepted so far and on nothing else, so speculation with a tree asks for the same masks as plain decoding. Where the
//! grammar leaves one text only, the mask leaves one token only: the first of that text as the tokenizer encodes it.
//! Such tokens are *forced*.
//!
//! JSON schemas become grammars here (`schema`); parsing and masks are the `llguidance` crate's. Work is bounded by
//! counts, not by the clock (`limits.rs`), on every machine alike. A grammar that takes too long to compile is refused.
//! One that takes too long for a mask is *slow*: from then on its masks may take longer, and whoever speculates stops.
//! One that exceeds that too ends its answer with an error that says so. Constraints come from users: they give errors,
//! never panics.
//!
//! Compiling recurses and cannot be interrupted. What is nested, referred to and listed is counted before
//! (`counts.rs`); then it runs on a thread of its own with a stated stack (`compiling.rs`). As a backstop there is a
//! clock: a constraint or a mask (`watch.rs`) that takes more than some seconds, or is needed by no request any more,
//! is abandoned.
#![forbid(unsafe_code)]

mod compiling;
mod constraint;
mod counts;
mod error;
mod limits;
mod mask;
mod matcher;
mod schema;
#[cfg(test)]
pub(crate) mod tests;
mod tokens;
mod watch;

pub use constraint::Constraint;
pub use error::GrammarError;
pub use mask::Mask;
pub use matcher::Matcher;
pub use tokens::GrammarTokens;
