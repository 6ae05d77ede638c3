//! The tokens that a published head drafts: all of its verifier's, or some of them.

use super::ModelError;
use crate::ir::HeadTokens;

/// What the rows of a head are for.
#[derive(Debug)]
pub(super) struct DraftVocabulary {
    /// Rows of the head.
    pub(super) rows: usize,
    /// The verifier's token of every row, if these are some of its vocabulary.
    pub(super) tokens: Option<Vec<u32>>,
}

impl DraftVocabulary {
    /// A head of so many rows, whose tokens are not [noted](Self::map) yet.
    pub(super) fn of(rows: usize) -> Self {
        Self { rows, tokens: None }
    }

    /// Its rows in ascending order of their tokens, with these; `None` of a head for the whole vocabulary in its order.
    ///
    /// # Errors
    /// [`ModelError`] for a token twice.
    pub(super) fn in_order(&self, vocabulary: usize) -> Result<Option<(Vec<u32>, HeadTokens)>, ModelError> {
        let Some(tokens) = &self.tokens else { return Ok(None) };
        let mut order: Vec<u32> = (0..).take(tokens.len()).collect();
        order.sort_by_key(|row| tokens[*row as usize]);
        let sorted: Vec<u32> = order.iter().map(|row| tokens[*row as usize]).collect();
        let kept = HeadTokens::new(&sorted, vocabulary);
        let kept =
            kept.map_err(|error| ModelError::invalid("tensor `d2t`", "other ids for all rows", error))?;
        Ok(Some((order, kept)))
    }

    /// Notes the verifier's token of every row of the head: `d2t[i]` is what is added to `i`. `t2d` marks these tokens
    /// among all, and must agree.
    ///
    /// # Errors
    /// [`ModelError`], which names the tensor.
    pub(super) fn map(
        &mut self,
        vocabulary: usize,
        d2t: Option<Vec<i64>>,
        t2d: Option<Vec<i64>>,
    ) -> Result<(), ModelError> {
        let Some(d2t) = d2t else {
            if self.rows == vocabulary {
                return Ok(());
            }
            return Err(ModelError::MissingTensor { name: "d2t".to_owned(), shape: vec![self.rows] });
        };
        let sized = |name: &str, expected: usize, found: usize| match expected == found {
            true => Ok(()),
            false => {
                let expected = format!("{expected} elements");
                Err(ModelError::invalid(format_args!("tensor `{name}`"), expected, found))
            }
        };
        sized("d2t", self.rows, d2t.len())?;
        let token = |(row, offset): (i64, &i64)| {
            let token = row.checked_add(*offset).and_then(|token| u32::try_from(token).ok());
            token.filter(|token| (*token as usize) < vocabulary).ok_or_else(|| {
                let expected = format!("offsets to ids below {vocabulary}");
                ModelError::invalid("tensor `d2t`", expected, format_args!("{offset} in row {row}"))
            })
        };
        let tokens = (0..).zip(&d2t).map(token).collect::<Result<Vec<u32>, _>>()?;
        let mut sorted = tokens.clone();
        sorted.sort_unstable();
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            let found = format!("token {} twice", pair[0]);
            return Err(ModelError::invalid("tensor `d2t`", "other ids for all rows", found));
        }
        if let Some(t2d) = t2d {
            sized("t2d", vocabulary, t2d.len())?;
            let marked = (0..).zip(&t2d).filter(|(_, mark)| **mark != 0).map(|(token, _)| token);
            if !marked.eq(sorted) {
                let found = "others";
                return Err(ModelError::invalid("tensor `t2d`", "marks of the tokens of `d2t`", found));
            }
        }
        let is_whole = tokens.len() == vocabulary && tokens.is_sorted();
        self.tokens = (!is_whole).then_some(tokens);
        Ok(())
    }
}
