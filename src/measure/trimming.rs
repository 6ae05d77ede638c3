//! Drafters with trimmed heads: which tokens a head keeps. A distilled drafter says which the verifier says most often,
//! counted in the corpus that it learned from; without one they are counted in the texts of the calibration, which are
//! few.

use std::{cmp::Reverse, collections::BTreeSet, fs, io, path::Path};

use ygg_profiler::{DrafterName, TokenTrace};

use crate::{
    engine::{Error, Loaded},
    plan::{DrafterFile, DrafterKind},
};

use super::calibration::CalibrationPrompt;

/// The file in the folder of a distilled drafter that says which tokens its verifier says: a JSON list of ids, the most
/// frequent first.
const FREQUENT_TOKENS: &str = "frequent_tokens.json";

/// Which trimmed heads drafters are given.
#[derive(Debug)]
pub(super) struct Heads {
    /// How many tokens each keeps, ascending.
    sizes: Vec<usize>,
    /// The tokens that the verifier says, the most frequent first; none where no drafter lists them.
    said: Vec<u32>,
}

impl Heads {
    /// Heads of the given numbers of tokens. One that would keep half of the vocabulary or more is left out: it would
    /// save little.
    ///
    /// # Errors
    /// [`Error`] of kind `Input` if the folder of one of these drafters lists what are no tokens of the vocabulary.
    pub(super) fn open(
        loaded: &Loaded,
        drafters: &[(DrafterName, DrafterKind)],
        sizes: &[usize],
    ) -> Result<Self, Error> {
        let vocabulary = loaded.set().vocabulary();
        let sizes = sizes_below_half(sizes, vocabulary);
        let files = drafters.iter().filter_map(|(_, kind)| kind.draft_model()).filter(|_| !sizes.is_empty());
        // What the verifier says is the same for all that draft for it.
        let said = files.map(|file| said_tokens(file, vocabulary)).find_map(Result::transpose).transpose()?;
        Ok(Self { sizes, said: said.unwrap_or_default() })
    }

    /// The drafters of `whole` that run a model, each with every head, named after these.
    ///
    /// # Errors
    /// [`Error`] of kind `Input` if a prompt cannot be laid out.
    pub(super) fn drafters(
        self,
        loaded: &Loaded,
        whole: &[(DrafterName, DrafterKind)],
        prompts: &[&CalibrationPrompt],
        answers: &[TokenTrace],
    ) -> Result<Vec<(DrafterName, DrafterKind)>, Error> {
        let mut texts = Vec::with_capacity(prompts.len());
        for prompt in prompts {
            let mut text = prompt.token_ids(loaded)?;
            if let Some(answer) = answers.iter().find(|answer| answer.prompt == text) {
                text.extend(&answer.output);
            }
            texts.push(text);
        }
        let Self { sizes, said } = self;
        let kept = Kept { said, held: held_tokens(&texts, loaded.set().vocabulary()) };
        let mut trimmed = Vec::new();
        for (name, kind) in whole {
            for size in &sizes {
                let tokens = kept.head(loaded.end_ids(), *size);
                let name = DrafterName::new(format!("{name}_v{size}")).expect("a name and digits");
                trimmed.extend(kind.trimmed_to(tokens).map(|kind| (name, kind)));
            }
        }
        Ok(trimmed)
    }
}

/// The sizes of heads worth trying, ascending, each once.
fn sizes_below_half(sizes: &[usize], vocabulary: usize) -> Vec<usize> {
    let mut sizes: Vec<usize> =
        sizes.iter().copied().filter(|size| (1..vocabulary.div_ceil(2)).contains(size)).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// The tokens that the folder of a drafter lists, the most frequent first; `None` if it lists none.
fn said_tokens(drafter: &DrafterFile, vocabulary: usize) -> Result<Option<Vec<u32>>, Error> {
    let file = Path::new(&drafter.path).join(FREQUENT_TOKENS);
    let text = match fs::read_to_string(&file) {
        Ok(text) => text,
        // A drafter in one file has no folder.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(Error::input(format!("cannot read `{}`: {error}", file.display()))),
    };
    let wrong = |found: String| {
        Error::input(format!(
            "`{}`: expected a JSON list of token ids below {vocabulary}, each once, found {found}; give the file that `yggc \
             distill` wrote, or remove it",
            file.display()
        ))
    };
    let tokens: Vec<u32> = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    let mut seen = BTreeSet::new();
    match tokens.iter().find(|token| **token as usize >= vocabulary || !seen.insert(**token)) {
        Some(token) => Err(wrong(format!("{token}"))),
        None => Ok(Some(tokens)),
    }
}

/// Tokens worth keeping, those that are worth most first.
#[derive(Debug)]
struct Kept {
    /// That the verifier said in a corpus; none without one.
    said: Vec<u32>,
    /// That several texts of the calibration hold.
    held: Vec<u32>,
}

impl Kept {
    /// The `size` tokens of a head, ascending: those of `always`, then what is said, then what is held, then the lowest
    /// ids, since vocabularies of merges number frequent merges first.
    ///
    /// What is held fills it to the half at most. So of a head that lacks one of the lowest ids before its half the
    /// planner knows that it owes nothing to the texts that say how well it drafts (`head_coverage.rs`).
    fn head(&self, always: &[u32], size: usize) -> Vec<u32> {
        let mut head: BTreeSet<u32> = always.iter().copied().take(size).collect();
        let lowest = Vec::from_iter(0..u32::try_from(size).expect("token ids are 32 bits"));
        for (tokens, most) in [(&self.said, size), (&self.held, size / 2), (&lowest, size)] {
            for token in tokens {
                if head.len() >= most {
                    break;
                }
                head.insert(*token);
            }
        }
        head.into_iter().collect()
    }
}

/// The token ids that two texts hold or more, those of most texts first, then by id.
///
/// What only one text holds is left out: it is the same texts that say how well a head drafts, and it would be kept for
/// that one alone.
fn held_tokens(texts: &[Vec<u32>], vocabulary: usize) -> Vec<u32> {
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
    let ids = 0..u32::try_from(vocabulary).expect("token ids are 32 bits");
    let mut held: Vec<u32> = ids.filter(|id| others[*id as usize] > 0).collect();
    held.sort_by_key(|id| Reverse(others[*id as usize]));
    held
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn heads_keep_the_tokens_that_most_texts_hold(
            texts in prop::collection::vec(prop::collection::vec(0u32..30, 0..40), 0..8),
            always in prop::collection::btree_set(0u32..30, 0..3),
            size in 8usize..30,
        ) {
            let always: Vec<u32> = always.into_iter().collect();
            let held = held_tokens(&texts, 30);
            let holding = |token: u32| texts.iter().filter(|text| text.contains(&token)).count();
            prop_assert_eq!(held.len(), (0..30).filter(|token| holding(*token) > 1).count());
            for pair in held.windows(2) {
                let [a, b] = [pair[0], pair[1]];
                prop_assert!(holding(a) > holding(b) || (holding(a) == holding(b) && a < b), "{a} before {b}: {texts:?}");
            }
            let head = Kept { said: Vec::new(), held: held.clone() }.head(&always, size);
            prop_assert!(head.len() == size && head.is_sorted_by(|a, b| a < b), "{head:?}");
            prop_assert!(always.iter().all(|token| head.contains(token)));
            let best: BTreeSet<u32> = always.iter().chain(&held).copied().collect();
            let lowest = (0..).take_while(|id| head.contains(id)).count();
            prop_assert!(best.len() < size / 2 || lowest * 2 >= size, "{head:?}");
            prop_assert!(best.len() > size / 2 || best.iter().all(|token| head.contains(token)));
            // What is said comes first, and what is held only before the half.
            let said: Vec<u32> = held.iter().rev().copied().collect();
            let first: BTreeSet<u32> = always.iter().chain(&said).copied().take(size).collect();
            let head = Kept { said, held: (0..30).rev().collect() }.head(&always, size);
            prop_assert!(head.len() == size && head.is_sorted_by(|a, b| a < b), "{head:?}");
            prop_assert!(first.iter().all(|token| head.contains(token)), "{head:?} of {first:?}");
            let lowest = (0..).take_while(|id| head.contains(id)).count();
            prop_assert!(first.len() >= size / 2 || lowest * 2 >= size, "{head:?}");
        }
    }

    #[test]
    fn heads_of_half_the_vocabulary_are_not_tried() {
        assert_eq!(sizes_below_half(&[8192, 2048, 2048, 0], 49_152), [2048, 8192]);
        assert_eq!(sizes_below_half(&[150, 149], 300), [149]);
        assert_eq!(sizes_below_half(&[2048], 300), [0; 0]);
    }

    #[test]
    fn what_is_no_list_of_tokens_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap().to_owned();
        let drafter = DrafterFile { path, digest: String::new() };
        assert_eq!(said_tokens(&drafter, 10).unwrap(), None);
        let file = folder.path().join(FREQUENT_TOKENS);
        fs::write(&file, "[7, 2, 9]").unwrap();
        assert_eq!(said_tokens(&drafter, 10).unwrap(), Some(vec![7, 2, 9]));
        let of_file = DrafterFile { path: file.to_str().unwrap().to_owned(), digest: String::new() };
        assert_eq!(said_tokens(&of_file, 10).unwrap(), None, "a drafter that is a file");
        for (text, found) in [
            ("[7, 2, 10]", "found 10;"),
            ("[7, 7]", "found 7;"),
            ("{}", "found invalid type"),
            ("[-1]", "found invalid value"),
        ] {
            fs::write(&file, text).unwrap();
            let error = said_tokens(&drafter, 10).unwrap_err().to_string();
            assert!(
                error.contains(found) && error.contains(FREQUENT_TOKENS) && error.contains("remove it"),
                "{error}"
            );
        }
    }
}
