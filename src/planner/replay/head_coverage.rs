//! How many of the tokens that are needed a trimmed head knows, on texts that did not choose its tokens.
//!
//! A head that no corpus chose keeps tokens that several texts of the calibration hold, and the recorded answers are
//! among these texts. So a token of an answer counts as known only if the head would have kept it without that answer:
//! of the recorded texts it is cross-validation by leaving one out (Stone 1974), and where further texts chose tokens, a
//! bound from below. Both suppose that texts share fewer tokens than they may choose: where they share more, a head
//! without one text also ranks the others' tokens anew.
use std::collections::{BTreeMap, BTreeSet};

use ygg_profiler::{TokenTrace, Trace};

/// How many texts must hold a token for a head to keep it for them: as `measure/trimming.rs` ranks tokens.
const HOLDERS: usize = 2;

/// The tokens of a trimmed head, and which of the recorded texts it owes them to.
#[derive(Debug)]
pub(in crate::planner) struct HeadCoverage<'a> {
    /// Ascending.
    tokens: &'a [u32],
    /// The first token that it leaves out: what comes before needs no text to be kept.
    first_unknown: u32,
    /// Whether it owes other tokens to the texts of the calibration: these choose half of a head at most, and the lowest
    /// ids are the rest (`measure/trimming.rs`).
    is_of_texts: bool,
    /// Of every text, the tokens that are kept for texts.
    texts: BTreeMap<&'a [u32], BTreeSet<u32>>,
    holders: BTreeMap<u32, usize>,
}

impl<'a> HeadCoverage<'a> {
    /// Of a head of these ascending `tokens`, by the texts that are `recorded`. A text is a prompt with all its answers.
    pub(in crate::planner) fn new(tokens: &'a [u32], recorded: &'a [TokenTrace]) -> Self {
        let first_unknown = (0..).zip(tokens).find(|(id, token)| id != *token).map(|(id, _)| id);
        let first_unknown = first_unknown.unwrap_or(u32::try_from(tokens.len()).unwrap_or(u32::MAX));
        let mut texts: BTreeMap<&[u32], BTreeSet<u32>> = BTreeMap::new();
        for TokenTrace { prompt, output, .. } in recorded {
            let held = prompt.iter().chain(output).filter(|token| **token >= first_unknown);
            texts.entry(prompt).or_default().extend(held);
        }
        let mut holders: BTreeMap<u32, usize> = BTreeMap::new();
        texts.values().flatten().for_each(|token| *holders.entry(*token).or_default() += 1);
        let is_of_texts = first_unknown as usize >= tokens.len() / 2;
        Self { tokens, first_unknown, is_of_texts, texts, holders }
    }

    /// Whether the head would know a token without the text of `prompt`.
    pub(in crate::planner) fn knows(&self, prompt: &[u32], token: u32) -> bool {
        if token < self.first_unknown {
            return true;
        }
        if !self.is_of_texts {
            return self.tokens.binary_search(&token).is_ok();
        }
        let own = self.texts.get(prompt).is_some_and(|text| text.contains(&token));
        let others = self.holders.get(&token).map_or(0, |holders| holders - usize::from(own));
        others >= HOLDERS && self.tokens.binary_search(&token).is_ok()
    }

    /// The share of tokens known in all answers of `requests`, relative to that at the places of `trace`, whose prompts
    /// are the first of them; 1 if the places are not the easier ones.
    ///
    /// A model's trees are recorded at few places, and whether the head knows the next token can be told of every
    /// place of every answer.
    pub(in crate::planner) fn relative_share(&self, requests: &[TokenTrace], trace: &Trace) -> f64 {
        let mut of_all = Share::default();
        for TokenTrace { prompt, output, .. } in requests {
            output.iter().for_each(|token| of_all.count(self.knows(prompt, *token)));
        }
        let mut of_places = Share::default();
        for (request, prompt) in requests.iter().zip(&trace.prompts) {
            let next = prompt.steps.iter().filter_map(|step| step.verified.first());
            next.for_each(|token| of_places.count(self.knows(&request.prompt, *token)));
        }
        match (of_all.known(), of_places.known()) {
            (Some(all), Some(places)) if all < places => all / places,
            _ => 1.0,
        }
    }
}

#[derive(Debug, Default)]
struct Share {
    known: u64,
    all: u64,
}

impl Share {
    fn count(&mut self, is_known: bool) {
        self.known += u64::from(is_known);
        self.all += 1;
    }

    /// `None` of nothing.
    fn known(&self) -> Option<f64> {
        (self.all > 0).then(|| self.known as f64 / self.all as f64)
    }
}

/// The share of its tokens that a step keeps, given the shares of steps that accepted 1, 2, ... drafted tokens where the
/// head knew all that it usually does, and the `share` of these that it knows elsewhere: an unknown one ends the walk.
pub(in crate::planner) fn tokens_kept(by_depth: &[f64], share: f64) -> f64 {
    let (mut known, mut left, mut all) = (1.0, 1.0, 1.0);
    for accepted in by_depth {
        known *= share;
        left += accepted * known;
        all += accepted;
    }
    left / all
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;

    use proptest::prelude::*;

    use super::*;

    fn request(prompt: &[u32], output: &[u32]) -> TokenTrace {
        let (prompt, output) = (prompt.to_vec(), output.to_vec());
        TokenTrace { kind: "chat".to_owned(), temperature: 0.0, seed: 0, prompt, output }
    }

    /// The head of a calibration of these texts, chosen by counting.
    fn head(texts: &[&TokenTrace], size: usize) -> Vec<u32> {
        let holding = |token: &u32| {
            let of = |text: &&&TokenTrace| text.prompt.contains(token) || text.output.contains(token);
            let count = texts.iter().filter(of).count();
            if count < HOLDERS { 0 } else { count }
        };
        let mut tokens: Vec<u32> = (0..40).filter(|token| holding(token) > 0).collect();
        tokens.sort_by_key(|token| Reverse(holding(token)));
        tokens.truncate(size / 2);
        let lowest: Vec<u32> =
            (0..40).filter(|token| !tokens.contains(token)).take(size - tokens.len()).collect();
        tokens.extend(lowest);
        tokens.sort_unstable();
        tokens
    }

    /// Whether the texts share no more tokens than they may choose of a head of this size.
    fn all_shared_are_chosen(texts: &[TokenTrace], size: usize) -> bool {
        let holders = |token: u32| {
            texts.iter().filter(|text| text.prompt.contains(&token) || text.output.contains(&token)).count()
        };
        (0..40).filter(|token| holders(*token) >= HOLDERS).count() <= size / 2
    }

    proptest! {
        #[test]
        fn what_is_known_a_head_of_the_other_texts_keeps(
            texts in prop::collection::vec((0u32..40, prop::collection::vec(0u32..40, 0..12)), 1..6),
            size in 30usize..40,
        ) {
            let prompt_of = |number: usize, first: u32| [first, number as u32];
            let texts: Vec<TokenTrace> =
                texts.iter().enumerate().map(|(n, (first, text))| request(&prompt_of(n, *first), text)).collect();
            prop_assume!(all_shared_are_chosen(&texts, size));
            let tokens = head(&texts.iter().collect::<Vec<_>>(), size);
            let coverage = HeadCoverage::new(&tokens, &texts);
            for text in &texts {
                let others: Vec<&TokenTrace> = texts.iter().filter(|other| other.prompt != text.prompt).collect();
                let without = head(&others, size);
                for token in 0..40 {
                    let known = coverage.knows(&text.prompt, token);
                    prop_assert!(!known || without.contains(&token), "{token} of {tokens:?}, {without:?}");
                    let owed = others.iter().filter(|other| {
                        other.prompt.contains(&token) || other.output.contains(&token)
                    });
                    let is_kept = tokens.contains(&token) && owed.count() >= HOLDERS;
                    prop_assert!(known || !is_kept, "{token} of {tokens:?}");
                }
            }
        }
    }

    #[test]
    fn places_that_are_easier_than_the_answers_are_told() {
        // Tokens 0 to 9 need no text, 20 has two holders beside the first text, 30 only one.
        let tokens: Vec<u32> = (0..10).chain([20, 30]).collect();
        let texts = [request(&[1], &[2, 20, 30, 4]), request(&[2], &[20, 30]), request(&[3], &[20, 5])];
        let coverage = HeadCoverage::new(&tokens, &texts);
        let of = |prompt: u32, token: u32| coverage.knows(&[prompt], token);
        assert!(of(1, 20) && !of(1, 30) && !of(2, 30) && of(2, 20) && of(9, 30) && !of(9, 31) && of(1, 9));
        let step = |next: u32| ygg_profiler::StepTrace {
            context: 0,
            parents: vec![0],
            tokens: vec![0],
            expanded: Vec::new(),
            verified: vec![next],
            predicted: Vec::new(),
        };
        let trace = |next: &[u32]| Trace {
            drafter: ygg_profiler::DrafterName::new("of_a_head").unwrap(),
            depth: 1,
            width: 1,
            top_k: 1,
            temperature: 0.0,
            draft_temperature: 1.0,
            prompts: vec![ygg_profiler::PromptTrace {
                kind: "chat".to_owned(),
                steps: next.iter().map(|next| step(*next)).collect(),
            }],
        };
        // Of eight tokens of answers 30 is unknown twice.
        assert_eq!(coverage.relative_share(&texts, &trace(&[2, 20])), 0.75);
        assert_eq!(coverage.relative_share(&texts, &trace(&[2, 4, 20, 30])), 1.0);
        assert_eq!(coverage.relative_share(&texts, &trace(&[30])), 1.0, "no more than what is recorded");
        assert_eq!(coverage.relative_share(&texts, &trace(&[])), 1.0);
    }

    #[test]
    fn a_head_of_a_corpus_owes_the_texts_nothing() {
        let texts = [request(&[1], &[2, 20, 31])];
        let tokens = [0, 2, 20, 21, 22];
        let coverage = HeadCoverage::new(&tokens, &texts);
        let known: Vec<u32> = (0..40).filter(|token| coverage.knows(&[1], *token)).collect();
        assert_eq!(known, tokens);
        let of_texts = HeadCoverage::new(&[0, 1, 2, 20, 21], &texts);
        assert!(of_texts.knows(&[1], 2) && !of_texts.knows(&[1], 20));
    }

    #[test]
    fn a_token_that_is_not_known_ends_the_walk() {
        assert_eq!(tokens_kept(&[1.0, 1.0, 0.5], 1.0), 1.0);
        // 1 + 0.8 + 0.64 + 0.5 * 0.512 of 3.5 tokens.
        assert!((tokens_kept(&[1.0, 1.0, 0.5], 0.8) - 2.696 / 3.5).abs() < 1e-12);
        assert_eq!(tokens_kept(&[], 0.5), 1.0);
    }
}
