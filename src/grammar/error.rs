//! What is wrong with a constraint, or went wrong under one.

/// Most characters of what the parser says.
const MOST_SAID: usize = 400;

/// What the parser says of a fault, in one line, without what it appends of itself.
pub(super) fn one_line(said: &str) -> String {
    let appended = ["<backtrace>", "<state>", "<grammar>", "<non-verbose"];
    let end = appended.iter().filter_map(|tag| said.find(tag)).min().unwrap_or(said.len());
    let line = said[..end].split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().take(MOST_SAID).collect()
}

/// Why an answer cannot be constrained.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrammarError {
    /// A constraint that is longer than any may be.
    #[error("{what}: expected at most {most} bytes, found {found}; shorten it")]
    TooLong {
        /// What kind of constraint.
        what: &'static str,
        /// Bytes allowed.
        most: usize,
        /// Bytes found.
        found: usize,
    },
    /// Brackets within brackets, deeper than any parser should go.
    #[error("{what}: expected brackets nested at most {most} deep, found {found}; flatten it")]
    TooDeep {
        /// What kind of constraint.
        what: &'static str,
        /// Levels allowed.
        most: usize,
        /// Levels found.
        found: usize,
    },
    /// A constraint that is malformed, or asks for what is not supported; `fault` names it.
    #[error("{what}: {fault}; correct it, or leave that part out")]
    Refused {
        /// What kind of constraint.
        what: &'static str,
        /// What is wrong with it.
        fault: String,
    },
    /// A vocabulary that grammars cannot be written in.
    #[error("the model's tokens cannot be constrained: {fault}; ask without a constraint")]
    Tokens {
        /// What is wrong with them.
        fault: String,
    },
    /// An answer that cannot go on: the grammar's limits are exceeded, or the vocabulary has no token for what must follow.
    #[error(
        "the grammar cannot be followed behind {tokens} tokens of the answer: {fault}; simplify the grammar"
    )]
    Stuck {
        /// Tokens of the answer.
        tokens: usize,
        /// Why.
        fault: String,
    },
}
