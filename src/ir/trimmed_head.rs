//! A trimmed head: a graph whose logits are those of some tokens only, because it was trimmed, or was made for those
//! alone.

use std::sync::Arc;

use super::{Graph, GraphError, Op, ValueId, WeightId, WeightSpec};

/// The tokens that a trimmed head keeps: at least one, ascending, each below the vocabulary's size.
///
/// Row `i` of the head is that of the `i`-th token, so equal logits keep the order of their ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadTokens(Arc<[u32]>);

/// A head that was made for some tokens of a larger vocabulary: logit `i` is that of the `i`-th.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReducedHead {
    /// The tokens.
    pub tokens: HeadTokens,
    /// Tokens of the vocabulary.
    pub vocabulary: usize,
}

impl ReducedHead {
    /// Of some tokens those that the head has, and the rows of their logits.
    ///
    /// # Errors
    /// [`HeadTokensError`] if it has none of them.
    pub fn of(&self, tokens: &HeadTokens) -> Result<(HeadTokens, HeadTokens), HeadTokensError> {
        let row = |token: &u32| self.tokens.as_slice().binary_search(token).ok();
        let both =
            tokens.as_slice().iter().filter_map(|token| Some((*token, u32::try_from(row(token)?).ok()?)));
        let (kept, rows): (Vec<u32>, Vec<u32>) = both.unzip();
        if kept.is_empty() {
            let found = format!("none of the {} that the head was made for", self.tokens.len());
            return Err(HeadTokensError { vocabulary: self.vocabulary, found });
        }
        Ok((HeadTokens(kept.into()), HeadTokens(rows.into())))
    }
}

/// Token ids that no head can keep.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no head of these tokens: expected one or more ascending ids below {vocabulary}, the vocabulary's size, found \
     {found}; profile and plan again for this model"
)]
pub struct HeadTokensError {
    /// Tokens of the model.
    pub vocabulary: usize,
    /// The first breach.
    pub found: String,
}

impl HeadTokens {
    /// Checks the ids of a head that is trimmed for a model of `vocabulary` tokens.
    ///
    /// # Errors
    /// [`HeadTokensError`] names the first id that is out of order or out of range, or says that there is none.
    pub fn new(tokens: &[u32], vocabulary: usize) -> Result<Self, HeadTokensError> {
        let refuse = |found| Err(HeadTokensError { vocabulary, found });
        if tokens.is_empty() {
            return refuse("none".to_owned());
        }
        if let Some(pair) = tokens.windows(2).find(|pair| pair[0] >= pair[1]) {
            return refuse(format!("{} before {}", pair[0], pair[1]));
        }
        match tokens.iter().find(|token| **token as usize >= vocabulary) {
            Some(token) => refuse(token.to_string()),
            None => Ok(Self(tokens.into())),
        }
    }

    /// The ids.
    pub fn as_slice(&self) -> &[u32] {
        &self.0
    }

    /// How many there are.
    #[expect(clippy::len_without_is_empty, reason = "there is always one")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The token of a row of the head.
    ///
    /// # Panics
    /// If the head has no such row.
    pub fn token(&self, row: usize) -> u32 {
        self.0[row]
    }

    /// Makes candidates that name rows of the head name tokens: `[count, ids, values]`, as [`ygg_kernels::candidates`]
    /// lays them out.
    ///
    /// # Panics
    /// If the candidates are of another head.
    pub fn name_candidates(&self, row: &mut [f32]) {
        let (count, rest) = row.split_first_mut().expect("a row of candidates starts with their number");
        for id in &mut rest[..count.to_bits() as usize] {
            *id = f32::from_bits(self.token(id.to_bits() as usize));
        }
    }
}

impl Graph {
    /// Declares that the logits are those of some tokens only.
    pub fn set_reduced_head(&mut self, head: ReducedHead) {
        self.reduced = Some(head);
    }

    /// The tokens whose logits the graph shows, if they are some of a larger vocabulary.
    pub fn reduced_head(&self) -> Option<&ReducedHead> {
        self.reduced.as_ref()
    }

    /// The matrix `[V, K]` whose product is the logits that the graph shows.
    ///
    /// # Errors
    /// [`GraphError::Law`] if what is shown is no product with one matrix, or something reads it: no head can be
    /// trimmed then.
    pub fn head(&self) -> Result<WeightId, GraphError> {
        let refuse = |place: String, found: String| GraphError::Law {
            place,
            expected: "logits that are the product with one matrix, bounded or not, and that nothing reads"
                .to_owned(),
            found,
        };
        let Some(logits) = self.shown() else {
            return Err(refuse("a trimmed head".to_owned(), "none declared".to_owned()));
        };
        if !self.readers(logits).is_empty() {
            return Err(refuse(
                logits.to_string(),
                format!("`{}` with a reader", self.node(logits).op.name()),
            ));
        }
        let product = self.product_of(logits);
        let alone = product == logits || self.readers(product).len() == 1;
        match &self.node(product).op {
            Op::Linear { weights, biases, residual: false, .. } if biases.is_empty() && alone => {
                match weights[..] {
                    [head] => Ok(head),
                    ref several => Err(refuse(logits.to_string(), format!("{} matrices", several.len()))),
                }
            }
            op => Err(refuse(logits.to_string(), format!("`{}`", op.name()))),
        }
    }

    /// The product that shown logits are made of: itself, or what their bound reads.
    fn product_of(&self, logits: ValueId) -> ValueId {
        if let Op::Softcap { .. } = self.node(logits).op { self.operands(logits)[0] } else { logits }
    }

    /// Registers the rows of the head that `tokens` name as another matrix, which only [`trim_head`](Self::trim_head)
    /// reads.
    ///
    /// # Errors
    /// As [`head`](Self::head).
    pub fn add_trimmed_head(&mut self, tokens: &HeadTokens) -> Result<WeightId, GraphError> {
        let whole = self.weight(self.head()?);
        let name = format!("{} of {} tokens", whole.name, tokens.len());
        let trimmed = WeightSpec { name, rows: tokens.len(), ..whole.clone() };
        Ok(self.add_weight(trimmed))
    }

    /// Makes a graph that shows logits show candidates among those of `tokens`, at most `most` of a row; `head` has
    /// their rows of the matrix that made the logits.
    ///
    /// # Errors
    /// As [`head`](Self::head); if `head` has other rows or columns, or no candidate is asked for.
    pub fn trim_head(&mut self, head: WeightId, tokens: HeadTokens, most: usize) -> Result<(), GraphError> {
        self.head()?;
        let shown = self.shown().expect("its head was found");
        let whole = self.product_of(shown);
        let group = self.node(whole).group;
        let x = self.operands(whole)[0];
        let mut product = self.node(whole).op.clone();
        if let Op::Linear { weights, .. } = &mut product {
            *weights = vec![head];
        }
        let mut logits = self.add(product, &[x], group)?;
        if shown != whole {
            let bound = self.node(shown).op.clone();
            logits = self.add(bound, &[logits], group)?;
        }
        let candidates = Op::Candidates { head: None, most, tokens: Some(tokens) };
        let candidates = self.add(candidates, &[logits], None)?;
        self.show(candidates);
        self.remove(shown);
        if shown != whole {
            self.remove(whole);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_head_can_keep_is_refused_by_name() {
        for (tokens, found) in [
            (&[][..], "found none"),
            (&[3, 2], "found 3 before 2"),
            (&[1, 4, 4], "found 4 before 4"),
            (&[0, 9, 10, 11], "found 10"),
        ] {
            let error = HeadTokens::new(tokens, 10).unwrap_err().to_string();
            assert!(error.contains(found) && error.contains("ascending ids below 10"), "{error}");
        }
        assert_eq!(HeadTokens::new(&[0, 9], 10).unwrap().as_slice(), [0, 9]);
    }

    #[test]
    fn candidates_are_named_by_their_tokens() {
        let tokens = HeadTokens::new(&[2, 5, 7], 10).unwrap();
        let bits = f32::from_bits;
        let mut row = [bits(2), bits(2), bits(0), bits(99), 0.5, -1.0, 0.0];
        tokens.name_candidates(&mut row);
        assert_eq!(row.map(f32::to_bits)[..4], [2, 7, 2, 99], "what is past the count is nobody's");
        assert_eq!(row[4..], [0.5, -1.0, 0.0]);
    }
}
