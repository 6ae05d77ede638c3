//! The candidates of a model's forwards, as the request will choose among them.

use crate::{
    runtime::{Choice, ExecutableSet, Forward, Noise, Session},
    sample::{Candidate, Coupling},
};

/// Candidates that are looked at under noise. The odds of the j-th best fall about as `1 / j`, to the power of the
/// request's temperature over the draft temperature: from a power of 2 on, all beyond these share some 3 % of the
/// first one's.
const LISTED: usize = 32;

/// What a drafter asks of a forward for a request, and how it ranks what comes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ranking {
    /// What its trees grow by: so many candidates of a node, valued at the draft temperature.
    grown: Choice,
    order: Order,
}

/// In which order candidates of a row come.
#[derive(Clone, Copy, Debug)]
enum Order {
    /// By the model's probabilities, and no noise decides.
    Probable,
    /// By the model's probabilities: filters need the most probable tokens, or the backend knows no noise.
    ProbableFirst(Coupling),
    /// By the noise of the token at their row's place.
    Likely(Coupling),
}

impl Ranking {
    /// For a request whose tokens are decided by the noise of `coupling`, if any does, by forwards of `session`.
    pub(super) fn new(grown: Choice, coupling: Option<Coupling>, session: &Session) -> Self {
        let order = match coupling {
            None => Order::Probable,
            Some(coupling) if session.ranks_by_noise() && coupling.admits_all() => Order::Likely(coupling),
            Some(coupling) => Order::ProbableFirst(coupling),
        };
        Self { grown, order }
    }

    /// What is chosen of every row of a forward all of whose rows were added, in a session that leaves out the first
    /// `skipped` tokens of the text.
    pub(super) fn asked<'s>(&self, forward: Forward<'s>, skipped: usize) -> (Forward<'s>, Choice) {
        self.asked_at(forward, 1 + skipped)
    }

    /// The same, where the token that the logits of position 0 are for has the place `first` in the text.
    pub(super) fn asked_at<'s>(&self, forward: Forward<'s>, first: usize) -> (Forward<'s>, Choice) {
        match &self.order {
            Order::Probable => (forward, self.grown),
            Order::ProbableFirst(coupling) => {
                // As many as there may be: noise may choose any.
                let (k, temperature) = (ExecutableSet::MOST_CANDIDATES, Some(coupling.temperature()));
                (forward, Choice { k, temperature })
            }
            Order::Likely(coupling) => {
                let choice = Choice { k: LISTED.max(self.grown.k), temperature: None };
                (forward.under_noise(noise_at(coupling, first)), choice)
            }
        }
    }

    /// Whether a device that grows trees by itself ranks as this does.
    pub(super) fn suits_devices(&self) -> bool {
        match self.order {
            Order::Probable | Order::Likely(_) => true,
            Order::ProbableFirst(_) => false,
        }
    }

    /// As [`asked`](Self::asked), of the first forward of a tree that the device grows, which values candidates too.
    ///
    /// # Panics
    /// If it does not [suit](Self::suits_devices) that.
    pub(super) fn asked_of_growth<'s>(&self, forward: Forward<'s>, skipped: usize) -> (Forward<'s>, Choice) {
        assert!(self.suits_devices(), "the host ranks");
        let (forward, choice) = self.asked(forward, skipped);
        (forward, Choice { temperature: self.grown.temperature, ..choice })
    }

    /// Adds to what the candidates of a row are worth what `added` gives for the logit of each, and brings them into
    /// their new order. What is not among them keeps its probability.
    pub(super) fn correct(&self, candidates: &mut [Candidate], added: impl Fn(u32) -> f32) {
        let (temperature, are_probabilities) = match &self.order {
            Order::Probable => (self.grown.temperature.unwrap_or(1.0), true),
            Order::ProbableFirst(coupling) => (coupling.temperature(), true),
            Order::Likely(coupling) => (coupling.temperature(), false),
        };
        let share = |candidates: &[Candidate], of: f32| -> f32 {
            candidates.iter().map(|candidate| (candidate.log_prob - of).exp()).sum()
        };
        let others = (1.0 - share(candidates, 0.0)).max(0.0);
        for candidate in &mut *candidates {
            candidate.log_prob += added(candidate.token) / temperature;
        }
        candidates.sort_unstable_by(|a, b| b.log_prob.total_cmp(&a.log_prob).then(a.token.cmp(&b.token)));
        let Some(best) = candidates.first().map(|best| best.log_prob) else { return };
        if are_probabilities {
            let total = best + (share(candidates, best) + others * (-best).exp()).ln();
            candidates.iter_mut().for_each(|candidate| candidate.log_prob -= total);
        }
    }

    /// Makes the candidates of a row, for the token at `place` of the sequence, those of a node.
    pub(super) fn rank(&self, place: usize, candidates: &mut Vec<Candidate>) {
        let Choice { k, temperature: Some(draft_temperature) } = self.grown else { return };
        match &self.order {
            Order::Probable => candidates.truncate(k),
            Order::ProbableFirst(coupling) => coupling.rank(place, draft_temperature, k, candidates),
            Order::Likely(coupling) => coupling.value(draft_temperature, k, candidates),
        }
    }
}

/// The noise of forwards of a session that leaves out the first `skipped` tokens of the text.
pub(in crate::speculate) fn noise_of(coupling: &Coupling, skipped: usize) -> Noise {
    noise_at(coupling, 1 + skipped)
}

/// The noise of forwards whose logits of position 0 are for the token at the place `first`.
fn noise_at(coupling: &Coupling, first: usize) -> Noise {
    Noise { seed: coupling.seed(), temperature: coupling.temperature(), first }
}

/// How likely the verifier says a token at `place` to which a drafter gives the probability `p`.
pub(super) fn chance(coupling: Option<&Coupling>, place: usize, token: u32, p: f32) -> f32 {
    coupling.map_or(p, |coupling| coupling.chance(place, token, p))
}
