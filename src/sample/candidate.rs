//! A candidate for drafting, as a drafter ranks its continuations.

/// A continuation that a drafter offers.
///
/// Its log-probability is of the drafter's distribution at the plan's draft temperature and not the request's:
/// candidates scored with a greedy request's one-hot distribution would make every tree a chain (Yggdrasil,
/// <https://arxiv.org/abs/2512.23858>).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// The token.
    pub token: u32,
    /// Its log-probability under the drafter.
    pub log_prob: f32,
}

impl From<Candidate> for (u32, f32) {
    fn from(candidate: Candidate) -> Self {
        (candidate.token, candidate.log_prob)
    }
}
