//! The most probable snippets within limits of number and tokens, in memory bounded by the number.

use std::collections::BinaryHeap;

/// A snippet's score and place; ordered by score, then by place.
#[derive(Clone, Copy, Debug)]
struct Scored {
    nll: f64,
    number: u64,
    tokens: usize,
}

impl PartialEq for Scored {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Scored {}

impl PartialOrd for Scored {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scored {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.nll.total_cmp(&other.nll).then(self.number.cmp(&other.number))
    }
}

/// The best snippets so far: of all that were offered, in the order of their scores, as many as the limits allow.
#[derive(Clone, Debug)]
pub(super) struct Selection {
    most_snippets: usize,
    most_tokens: usize,
    kept: BinaryHeap<Scored>,
    kept_tokens: usize,
    /// The best that had to go: nothing worse can be in, whatever is offered later.
    first_out: Option<Scored>,
}

impl Selection {
    pub(super) fn new(most_snippets: usize, most_tokens: usize) -> Self {
        Self { most_snippets, most_tokens, kept: BinaryHeap::new(), kept_tokens: 0, first_out: None }
    }

    /// Takes note of snippet `number` of `tokens` tokens; one whose score is no number is not kept.
    pub(super) fn offer(&mut self, nll: f64, number: u64, tokens: usize) {
        let scored = Scored { nll, number, tokens };
        if nll.is_nan() || self.first_out.is_some_and(|out| out < scored) {
            return;
        }
        self.kept.push(scored);
        self.kept_tokens += tokens;
        while self.kept.len() > self.most_snippets || self.kept_tokens > self.most_tokens {
            let worst = self.kept.pop().expect("limits are not exceeded by nothing");
            self.kept_tokens -= worst.tokens;
            self.first_out = Some(worst);
        }
    }

    /// The score of the least probable snippet kept.
    pub(super) fn highest(&self) -> Option<f64> {
        self.kept.peek().map(|scored| scored.nll)
    }

    /// The numbers of the kept snippets, ascending.
    pub(super) fn ascending(self) -> Vec<u64> {
        let mut numbers: Vec<u64> = self.kept.into_iter().map(|scored| scored.number).collect();
        numbers.sort_unstable();
        numbers
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn keeps_the_best_that_fit_whatever_their_order(
            offered in proptest::collection::vec((0u8..6, 1usize..9), 0..30),
            most_snippets in 0usize..12,
            most_tokens in 0usize..60,
        ) {
            let mut selection = Selection::new(most_snippets, most_tokens);
            let mut all = Vec::new();
            for (number, (score, tokens)) in offered.into_iter().enumerate() {
                selection.offer(f64::from(score), number as u64, tokens);
                all.push((score, number as u64, tokens));
            }
            all.sort_unstable();
            let mut left = most_tokens;
            let fits = |(_, _, tokens): &&(u8, u64, usize)| match left.checked_sub(*tokens) {
                Some(rest) => { left = rest; true }
                None => false,
            };
            let best: Vec<_> = all.iter().take(most_snippets).take_while(fits).copied().collect();
            prop_assert_eq!(selection.highest(), best.last().map(|(score, ..)| f64::from(*score)));
            let mut numbers: Vec<u64> = best.iter().map(|(_, number, _)| *number).collect();
            numbers.sort_unstable();
            prop_assert_eq!(selection.ascending(), numbers);
        }
    }

    #[test]
    fn what_is_no_number_is_not_kept() {
        let mut selection = Selection::new(3, 100);
        selection.offer(f64::NAN, 0, 1);
        selection.offer(2.0, 1, 1);
        assert_eq!(selection.ascending(), [1]);
    }
}
