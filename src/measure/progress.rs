//! What is told while something is measured.

/// How far a measurement is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What is being done.
    pub what: &'static str,
    /// Parts done of it.
    pub done: usize,
    /// Parts in all.
    pub total: usize,
}
