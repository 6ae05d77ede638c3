//! What steps recorded with a whole head say of one that is trimmed: the candidates that it knows.
//!
//! A trimmed head gives the logits that the whole one gives of its tokens, so its candidates are those of the whole
//! head that it knows, in their order, noise included. Recorded answers, places and trees are the same for both heads,
//! so what the trimmed one loses is told apart from luck with places.
use ygg_profiler::{Candidate, DrafterName, Expansion, PromptTrace, StepTrace, TokenTrace, Trace};

use super::head_coverage::HeadCoverage;

/// The trace of the drafter `name`, whose head has this coverage, from that of the whole head along `requests`.
///
/// A node that the trimmed head would have expanded in place of one that it does not know may lack its candidates.
/// Taken for one that drafts nothing, it makes the price a bound: the head is at least as fast.
pub(in crate::planner) fn trimmed(
    whole: &Trace,
    name: &DrafterName,
    coverage: &HeadCoverage<'_>,
    requests: &[TokenTrace],
) -> Trace {
    let prompt = |(place, prompt): (usize, &PromptTrace)| {
        let text = requests.get(place).map_or(&[][..], |request| &request.prompt);
        let expanded = |expansion: &Expansion| Expansion {
            node: expansion.node,
            candidates: known(&expansion.candidates, |token| coverage.knows(text, token)),
        };
        let step = |step: &StepTrace| StepTrace {
            expanded: step.expanded.iter().map(expanded).collect(),
            // How deep the whole head's drafts are accepted.
            predicted: Vec::new(),
            ..step.clone()
        };
        PromptTrace { kind: prompt.kind.clone(), steps: prompt.steps.iter().map(step).collect() }
    };
    let prompts = whole.prompts.iter().enumerate().map(prompt).collect();
    Trace { drafter: name.clone(), prompts, ..*whole }
}

/// The candidates that are known, with probabilities that sum to 1 again if as much of what is not recorded is known as
/// of what is.
fn known(candidates: &[Candidate], knows: impl Fn(u32) -> bool) -> Vec<Candidate> {
    let is_known = |candidate: &&Candidate| knows(candidate.token);
    let sum = |sum: f64, candidate: &Candidate| sum + f64::from(candidate.log_prob).exp();
    let share = candidates.iter().filter(is_known).fold(0.0, sum) / candidates.iter().fold(0.0, sum);
    let of_known = |candidate: &Candidate| Candidate {
        log_prob: (f64::from(candidate.log_prob) - share.ln()).min(0.0) as f32,
        ..*candidate
    };
    candidates.iter().filter(is_known).map(of_known).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_candidates_leave_their_probability_to_the_others() {
        let of = |list: &[(u32, f32)]| -> Vec<Candidate> {
            list.iter().map(|(token, p)| Candidate { token: *token, log_prob: p.ln() }).collect()
        };
        let close = |found: &[Candidate], expected: &[(u32, f32)]| {
            assert_eq!(found.len(), expected.len(), "{found:?}");
            for (found, (token, p)) in found.iter().zip(expected) {
                assert!(found.token == *token && (found.log_prob.exp() - p).abs() < 1e-6, "{found:?}");
            }
        };
        let among = |tokens: &'static [u32]| |token: u32| tokens.contains(&token);
        let candidates = of(&[(7, 0.4), (3, 0.2), (9, 0.2)]);
        close(&known(&candidates, among(&[3, 7, 9])), &[(7, 0.4), (3, 0.2), (9, 0.2)]);
        // Three quarters of what is recorded: three quarters of the last fifth, too.
        close(&known(&candidates, among(&[1, 3, 7])), &[(7, 0.4 / 0.75), (3, 0.2 / 0.75)]);
        close(&known(&candidates, among(&[1, 9])), &[(9, 0.8)]);
        close(&known(&candidates, among(&[1, 2])), &[]);
    }
}
