//! The candidates of a model's forwards, as the request will choose among them.

use crate::{
    runtime::{Choice, ExecutableSet},
    sample::{Candidate, Coupling},
};

/// What a drafter asks of a forward for a request, and how it ranks what comes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ranking {
    /// What its trees grow by: so many candidates of a node, valued at the draft temperature.
    grown: Choice,
    coupling: Option<Coupling>,
}

impl Ranking {
    pub(super) fn new(grown: Choice, coupling: Option<Coupling>) -> Self {
        Self { grown, coupling }
    }

    /// What is chosen of every row. Noise may choose any token, so as many as there may be are looked at.
    pub(super) fn choice(&self) -> Choice {
        match &self.coupling {
            None => self.grown,
            Some(coupling) => {
                Choice { k: ExecutableSet::MOST_CANDIDATES, temperature: Some(coupling.temperature()) }
            }
        }
    }

    /// Makes the candidates of a row, for the token at `place` of the sequence, those of a node.
    pub(super) fn rank(&self, place: usize, candidates: &mut Vec<Candidate>) {
        if let (Some(coupling), Choice { k, temperature: Some(draft_temperature) }) =
            (&self.coupling, self.grown)
        {
            coupling.rank(place, draft_temperature, k, candidates);
        }
    }
}

/// How likely the verifier says a token at `place` to which a drafter gives the probability `p`.
pub(super) fn chance(coupling: Option<&Coupling>, place: usize, token: u32, p: f32) -> f32 {
    coupling.map_or(p, |coupling| coupling.chance(place, token, p))
}
