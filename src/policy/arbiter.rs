//! The arbiter's policy: what a drafter's values are worth now, where several drafters share the rows of a step. Pure.
//!
//! Drafters value their nodes by rules of their own, and a text suits one better than another. So each is trusted by
//! what came of the nodes it proposed, verified or not: the tokens of the step tell. The same steps always give the
//! same trust: no clock is asked.
use super::NodeOutcome;

/// Values of one range are judged together: half an octave each, and all smaller ones.
const RANGES: usize = 16;
/// Accepted tokens, and as many promised, that a range begins with, so that a few nodes decide nothing.
const PRIOR_OF_RANGE: f64 = 2.0;
/// Accepted tokens, and as many promised, that the recent share begins with and tends to.
const PRIOR_OF_RECENT: f64 = 3.0;
/// Steps with nodes in a range after which one counts about a third there.
const MEMORY_OF_RANGE: f64 = 1024.0;
/// Steps with nodes after which one counts about a third in the recent share.
const MEMORY_OF_RECENT: f64 = 32.0;

/// Tokens that values promised, and those that came.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Account {
    promised: f64,
    accepted: f64,
}

impl Account {
    const fn new(prior: f64) -> Self {
        Account { promised: prior, accepted: prior }
    }

    fn share(self) -> f64 {
        self.accepted / self.promised
    }

    /// With one more entry; older ones count less, and what they lose is made up for by none or by a part of the prior.
    fn with(self, promised: f64, accepted: f64, memory: f64, prior: f64) -> Self {
        let keep = 1.0 - 1.0 / memory;
        let believed = (1.0 - keep) * prior;
        Account {
            promised: keep * self.promised + believed + promised,
            accepted: keep * self.accepted + believed + accepted,
        }
    }
}

/// What one drafter's values are worth: by what values of that size came to in the long run, and by how the drafter
/// does lately.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trust {
    ranges: [Account; RANGES],
    recent: Account,
}

impl Trust {
    /// A drafter is taken at its word at first.
    pub fn new() -> Self {
        Trust { ranges: [Account::new(PRIOR_OF_RANGE); RANGES], recent: Account::new(PRIOR_OF_RECENT) }
    }

    /// The probability that a node is accepted to which the drafter gives `value`: 1 at most. A larger value may be
    /// worth less, if values of its size came to less.
    pub fn worth(&self, value: f32) -> f32 {
        ((self.in_the_long_run(value) * self.recent.share()) as f32).min(1.0)
    }

    fn in_the_long_run(&self, value: f32) -> f64 {
        (f64::from(value) * self.ranges[range(value)].share()).min(1.0)
    }

    /// Takes note of a step: of the values of a proposal's nodes and of their outcomes, both by id and with the root. A
    /// proposal of whose nodes nothing is known changes nothing.
    pub fn learn(&mut self, values: &[f32], outcomes: &[NodeOutcome]) {
        let mut by_range = [(0.0, 0.0); RANGES];
        let (mut promised, mut accepted) = (0.0, 0.0);
        for (value, outcome) in values.iter().zip(outcomes).skip(1) {
            let came = match outcome {
                NodeOutcome::Accepted => 1.0,
                NodeOutcome::Rejected => 0.0,
                NodeOutcome::Unknown => continue,
            };
            let of_range = &mut by_range[range(*value)];
            *of_range = (of_range.0 + f64::from(*value), of_range.1 + came);
            promised += self.in_the_long_run(*value);
            accepted += came;
        }
        if promised > 0.0 {
            self.recent = self.recent.with(promised, accepted, MEMORY_OF_RECENT, PRIOR_OF_RECENT);
        }
        for (account, (promised, accepted)) in self.ranges.iter_mut().zip(by_range) {
            if promised > 0.0 {
                *account = account.with(promised, accepted, MEMORY_OF_RANGE, PRIOR_OF_RANGE);
            }
        }
    }
}

impl Default for Trust {
    fn default() -> Self {
        Self::new()
    }
}

/// Where values of this size are judged.
fn range(value: f32) -> usize {
    let halves_of_octaves = -2.0 * value.max(f32::MIN_POSITIVE).log2();
    (halves_of_octaves.max(0.0) as usize).min(RANGES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Trust after `steps` chains of `values`, of which `accepted` says how many tokens came.
    fn after(mut trust: Trust, steps: usize, values: &[f32], accepted: impl Fn(usize) -> usize) -> Trust {
        let all = [&[1.0], values].concat();
        for step in 0..steps {
            let outcome =
                |node| if node <= accepted(step) { NodeOutcome::Accepted } else { NodeOutcome::Rejected };
            let outcomes: Vec<NodeOutcome> = (0..all.len()).map(outcome).collect();
            trust.learn(&all, &outcomes);
        }
        trust
    }

    #[test]
    fn a_drafter_that_keeps_its_word_is_taken_at_it() {
        assert_eq!(Trust::new().worth(0.25), 0.25);
        let honest = after(Trust::new(), 2000, &[0.5, 0.25], |step| [2, 0, 1, 0][step % 4]);
        assert!((honest.worth(0.5) - 0.5).abs() < 0.05, "{honest:?}");
        assert!((honest.worth(0.25) - 0.25).abs() < 0.05, "{honest:?}");
        assert_eq!(after(Trust::new(), 9, &[], |_| 0), Trust::new(), "no proposal tells nothing");
    }

    #[test]
    fn each_size_of_value_has_its_own_worth() {
        let odd = after(Trust::new(), 4000, &[0.9, 0.1], |step| usize::from(step % 3 == 0) * (1 + step % 2));
        assert!((0.28..0.40).contains(&odd.worth(0.9)), "a third of them came: {odd:?}");
        assert!((0.12..0.22).contains(&odd.worth(0.1)), "a sixth of them came: {odd:?}");
    }

    #[test]
    fn what_happened_lately_counts_and_is_forgiven() {
        let honest = after(Trust::new(), 2000, &[0.5], |step| step % 2);
        let unlucky = after(honest, 40, &[0.5], |_| 0);
        assert!(unlucky.worth(0.5) < 0.25, "{unlucky:?}");
        let again = after(unlucky, 200, &[0.5], |step| step % 2);
        assert!(again.worth(0.5) > 0.42, "{again:?}");
        let modest = after(Trust::new(), 500, &[0.25], |_| 1);
        assert!(modest.worth(0.25) > 0.9 && modest.worth(0.3) <= 1.0, "{modest:?}");
    }

    #[test]
    fn a_node_of_unknown_fate_tells_nothing() {
        let mut trust = Trust::new();
        trust.learn(&[1.0, 0.5], &[NodeOutcome::Accepted, NodeOutcome::Unknown]);
        assert_eq!(trust, Trust::new());
        let (mut with, mut without) = (trust, trust);
        with.learn(&[1.0, 0.5, 0.4], &[NodeOutcome::Accepted, NodeOutcome::Accepted, NodeOutcome::Unknown]);
        without.learn(&[1.0, 0.5], &[NodeOutcome::Accepted, NodeOutcome::Accepted]);
        assert_eq!(with, without);
        assert!(with.worth(0.5) > 0.5);
    }
}
