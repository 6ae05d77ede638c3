//! What the files of an EAGLE-3 head say in addition to the sizes of its layer.

use super::{ModelError, family::Naming};

/// An EAGLE-3 head, whatever file it came from.
#[derive(Debug)]
pub(super) struct Eagle3 {
    /// How its tensors are called.
    pub(super) naming: Naming,
    /// The verifier's layers whose rows it is given, if its files name them: what comes out of the first so many.
    pub(super) layers: Option<Vec<usize>>,
    /// Elements of the verifier's rows, if its files say.
    pub(super) target_width: Option<usize>,
    /// Rows of its head.
    pub(super) draft_vocabulary: usize,
    /// The verifier's token of every row of its head, if these are some of its vocabulary.
    pub(super) tokens: Option<Vec<u32>>,
    /// Whether the residual stream begins with the normalised row.
    pub(super) norm_before_residual: bool,
    /// Norms in front of the product that joins rows.
    pub(super) norms: JoiningNorms,
    /// Whether nodes are given the normalised rows of their parents.
    pub(super) gives_normed: bool,
    /// Tensors that were read in addition to weights.
    pub(super) read_tensors: Vec<&'static str>,
}

/// Norms in front of the product that joins rows of several layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JoiningNorms {
    /// None.
    None,
    /// One of all rows together.
    Whole,
    /// One for each row.
    Each,
}

impl Eagle3 {
    /// The layers whose rows it is given of a verifier of `count` layers. By default a low, a middle and a high one, as
    /// the authors' own program has them (<https://github.com/SafeAILab/EAGLE>).
    ///
    /// # Errors
    /// [`ModelError`] if the verifier has too few.
    pub(super) fn layers_of(&self, count: usize) -> Result<Vec<usize>, ModelError> {
        let default = || vec![2, count / 2, count.saturating_sub(3)];
        let layers = self.layers.clone().unwrap_or_else(default);
        let least = layers.iter().max().copied().unwrap_or(0).max(if self.layers.is_none() { 3 } else { 0 });
        if least > count {
            let found = format!("{count}; give the verifier that the head was trained for");
            return Err(ModelError::invalid("the verifier", format!("at least {least} layers"), found));
        }
        Ok(layers)
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
            if self.draft_vocabulary == vocabulary {
                return Ok(());
            }
            return Err(ModelError::MissingTensor {
                name: "d2t".to_owned(),
                shape: vec![self.draft_vocabulary],
            });
        };
        let sized = |name: &str, expected: usize, found: usize| match expected == found {
            true => Ok(()),
            false => {
                let expected = format!("{expected} elements");
                Err(ModelError::invalid(format_args!("tensor `{name}`"), expected, found))
            }
        };
        sized("d2t", self.draft_vocabulary, d2t.len())?;
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
