//! Vocabularies of SentencePiece, as GGUF files carry them: pieces with scores, in which `▁` stands for a space.

use std::collections::HashMap;

use tokenizers::normalizers::replace::ReplacePattern;
use tokenizers::normalizers::{NormalizerWrapper, Precompiled, Prepend, Replace, Sequence, Strip};
use tokenizers::pre_tokenizers::metaspace::{Metaspace, PrependScheme};

use super::words::Steps;
use super::{TextError, charsmap};

/// Stands for a space in pieces.
pub(super) const MARK: char = '▁';

/// The steps of a byte-pair model: spaces become marks, and a mark is put before every piece of text between special
/// tokens if the vocabulary wants a `space_prefix`.
pub(super) fn merging_steps(space_prefix: bool) -> Steps {
    let marks: NormalizerWrapper = Replace::new(" ", MARK.to_string()).expect("a string is a pattern").into();
    let normalizer = if space_prefix {
        Sequence::new(vec![Prepend::new(MARK.to_string()).into(), marks]).into()
    } else {
        marks
    };
    Steps { normalizer: Some(normalizer), pre_tokenizer: None }
}

/// The steps of a unigram model: its own table of characters, spaces collapsed where it wants that, words cut at marks.
///
/// # Errors
/// [`TextError::Unsupported`] for a damaged table.
pub(super) fn unigram_steps(
    table: Option<&[u8]>,
    space_prefix: bool,
    removes_extra_spaces: bool,
) -> Result<Steps, TextError> {
    let mut steps: Vec<NormalizerWrapper> = Vec::new();
    if let Some(table) = table {
        charsmap::check(table)?;
        let table = Precompiled::from(table).map_err(|fault| charsmap::damaged(&fault.to_string()))?;
        steps.push(table.into());
    }
    if removes_extra_spaces {
        steps.push(Strip::new(true, true).into());
        let spaces = Replace::new(ReplacePattern::Regex(" {2,}".into()), " ");
        steps.push(spaces.expect("the pattern is a regular expression").into());
    }
    let prepend = if space_prefix { PrependScheme::Always } else { PrependScheme::Never };
    Ok(Steps {
        normalizer: (!steps.is_empty()).then(|| Sequence::new(steps).into()),
        pre_tokenizer: Some(Metaspace::new(MARK, prepend, true).into()),
    })
}

/// The merges that make every piece out of two others, the piece of the highest score first.
///
/// Ties are ordered as transformers orders them (`generate_merges` in `convert_slow_tokenizer.py`): longer first parts,
/// then longer second parts, then lower ids.
pub(super) fn merges_by_score(pieces: &[(u32, &str)], scores: &[f32]) -> Vec<(String, String)> {
    struct Merge<'p> {
        score: f32,
        parts: (&'p str, &'p str),
        lengths: (usize, usize),
    }
    let ids: HashMap<&str, u32> = pieces.iter().map(|&(id, piece)| (piece, id)).collect();
    let mut merges = Vec::new();
    for &(id, piece) in pieces {
        let cuts = piece.char_indices().skip(1).enumerate();
        let length = piece.chars().count();
        let mut local: Vec<((u32, u32), Merge<'_>)> = cuts
            .filter_map(|(before, (cut, _))| {
                let (left, right) = piece.split_at(cut);
                let order = (*ids.get(left)?, *ids.get(right)?);
                let lengths = (before + 1, length - before - 1);
                Some((order, Merge { score: scores[id as usize], parts: (left, right), lengths }))
            })
            .collect();
        local.sort_by_key(|(order, _)| *order);
        merges.extend(local.into_iter().map(|(_, merge)| merge));
    }
    merges.sort_by(|one, other| {
        let by_score = other.score.partial_cmp(&one.score).expect("scores are checked to be finite");
        by_score.then_with(|| other.lengths.cmp(&one.lengths))
    });
    merges.into_iter().map(|merge| (merge.parts.0.to_owned(), merge.parts.1.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_piece_is_made_first_and_ties_prefer_long_first_parts() {
        let pieces = ["a", "b", "ab", "ba", "aba", "▁"];
        let pieces: Vec<(u32, &str)> = (0..).zip(pieces).collect();
        let merges = merges_by_score(&pieces, &[-9.0, -9.0, -2.0, -1.0, -3.0, -9.0]);
        let expected = [("b", "a"), ("a", "b"), ("ab", "a"), ("a", "ba")];
        assert_eq!(merges, expected.map(|(left, right)| (left.to_owned(), right.to_owned())));
    }
}
