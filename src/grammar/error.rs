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
    /// A constraint with more of something than may be compiled; counted before anything is compiled.
    #[error("{what}: expected at most {most} {of}, found {found}; {advice}")]
    TooMuch {
        /// What kind of constraint.
        what: &'static str,
        /// What is counted.
        of: &'static str,
        /// How many are allowed.
        most: u64,
        /// How many were found.
        found: u64,
        /// What to do.
        advice: &'static str,
    },
    /// A constraint that was not compiled within the time that any may take.
    #[error("{what}: expected it compiled within {most_s} s, found that it takes longer; simplify it")]
    TooSlow {
        /// What kind of constraint.
        what: &'static str,
        /// Seconds allowed.
        most_s: u64,
    },
    /// As many constraints are compiled as may be at once, among them some that nobody waits for any more.
    #[error("{what}: {most} others are being compiled, as many as may be at once; try again in some seconds")]
    Busy {
        /// What kind of constraint.
        what: &'static str,
        /// How many may be.
        most: usize,
    },
    /// A constraint whose request was cancelled before it was compiled.
    #[error("{what}: its request was cancelled")]
    Cancelled {
        /// What kind of constraint.
        what: &'static str,
    },
    /// A thread to compile on that the system does not give.
    #[error(
        "{what}: expected a thread with {stack_bytes} bytes of stack to compile on, found {fault}; raise the limits \
         of the process"
    )]
    Thread {
        /// What kind of constraint.
        what: &'static str,
        /// Its stack.
        stack_bytes: usize,
        /// What the system says.
        fault: String,
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
    /// An answer that cannot go on: the grammar's limits are exceeded, or the vocabulary has no token for what must
    /// follow.
    #[error(
        "the grammar cannot be followed after {tokens} tokens of the answer: {fault}; simplify the grammar"
    )]
    Stuck {
        /// Tokens of the answer.
        tokens: usize,
        /// Why.
        fault: String,
    },
}
