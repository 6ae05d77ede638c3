//! Drafters with trimmed heads: which tokens a head keeps, counted in the texts of the calibration.

use std::cmp::Reverse;

use ygg_profiler::{DrafterName, TokenTrace};

use crate::{
    engine::{Error, Loaded},
    plan::DrafterKind,
};

use super::calibration::CalibrationPrompt;

/// The drafters of `whole` that run a model, each with trimmed heads of the given numbers of tokens, named after them.
/// A head that would keep half of the vocabulary or more is left out: it would save little.
///
/// # Errors
/// [`Error`] of kind `Input` if a prompt cannot be laid out.
pub(super) fn trimmed_drafters(
    loaded: &Loaded,
    whole: &[(DrafterName, DrafterKind)],
    sizes: &[usize],
    prompts: &[&CalibrationPrompt],
    answers: &[TokenTrace],
) -> Result<Vec<(DrafterName, DrafterKind)>, Error> {
    let vocabulary = loaded.set().vocabulary();
    let mut texts = Vec::with_capacity(prompts.len());
    for prompt in prompts {
        let mut text = prompt.token_ids(loaded)?;
        if let Some(answer) = answers.iter().find(|answer| answer.prompt == text) {
            text.extend(&answer.output);
        }
        texts.push(text);
    }
    let ranked = ranked_tokens(&texts, loaded.end_ids(), vocabulary);
    let mut trimmed = Vec::new();
    for (name, kind) in whole {
        for size in sizes_below_half(sizes, vocabulary) {
            let mut tokens = ranked[..size].to_vec();
            tokens.sort_unstable();
            let name = DrafterName::new(format!("{name}_v{size}")).expect("a name and digits");
            trimmed.extend(kind.trimmed_to(tokens).map(|kind| (name, kind)));
        }
    }
    Ok(trimmed)
}

/// The sizes of heads worth trying, ascending, each once.
fn sizes_below_half(sizes: &[usize], vocabulary: usize) -> Vec<usize> {
    let mut sizes: Vec<usize> =
        sizes.iter().copied().filter(|size| (1..vocabulary.div_ceil(2)).contains(size)).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// All token ids, those most worth keeping first: `always`, then by the number of texts that hold the token, then by
/// id.
///
/// A token of a single text counts as one of none: it is the same texts that say how well a head drafts, and what only
/// one of them knows would be kept for it alone. Lower ids come first because vocabularies of merges number frequent
/// merges first.
fn ranked_tokens(texts: &[Vec<u32>], always: &[u32], vocabulary: usize) -> Vec<u32> {
    let mut others = vec![0_usize; vocabulary];
    let mut last_seen = vec![None; vocabulary];
    for (number, text) in texts.iter().enumerate() {
        for token in text {
            let last = &mut last_seen[*token as usize];
            if *last != Some(number) {
                others[*token as usize] += usize::from(last.is_some());
                *last = Some(number);
            }
        }
    }
    let mut ids: Vec<u32> = (0..u32::try_from(vocabulary).expect("token ids are 32 bits")).collect();
    ids.sort_by_key(|id| (!always.contains(id), Reverse(others[*id as usize])));
    ids
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn tokens_are_ranked_by_the_texts_that_hold_them(
            texts in prop::collection::vec(prop::collection::vec(0u32..30, 0..40), 0..8),
            always in prop::collection::btree_set(0u32..30, 0..3),
        ) {
            let always: Vec<u32> = always.into_iter().collect();
            let found = ranked_tokens(&texts, &always, 30);
            let all: BTreeSet<u32> = found.iter().copied().collect();
            prop_assert_eq!((found.len(), all.len()), (30, 30), "every token once");
            let holding = |token: u32| {
                let count = texts.iter().filter(|text| text.contains(&token)).count();
                if count == 1 { 0 } else { count }
            };
            for pair in found.windows(2) {
                let [a, b] = [pair[0], pair[1]];
                match (always.contains(&a), always.contains(&b)) {
                    (false, true) => prop_assert!(false, "{b} is always kept, {a} is not"),
                    (true, false) => {}
                    (true, true) | (false, false) => {
                        let (more, fewer) = (holding(a), holding(b));
                        prop_assert!(more > fewer || (more == fewer && a < b), "{a} before {b}: {texts:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn heads_of_half_the_vocabulary_are_not_tried() {
        assert_eq!(sizes_below_half(&[8192, 2048, 2048, 0], 49_152), [2048, 8192]);
        assert_eq!(sizes_below_half(&[150, 149], 300), [149]);
        assert_eq!(sizes_below_half(&[2048], 300), [0; 0]);
    }
}
