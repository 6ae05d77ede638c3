//! Block drafters: their executables, the rows of a block, and their Markov heads.

use std::sync::Arc;

use crate::ir::{BlockRows, Graph, HeadTokens, WeightSource};

use super::{ExecutableSet, Forward, RuntimeError};

/// What the token before adds to a token's logit: a product of low rank (DSpark, <https://arxiv.org/abs/2607.05147>,
/// equation 5). Elements are kept as BF16.
#[derive(Debug)]
pub struct MarkovHead {
    rank: usize,
    /// `[V, rank]`, by the token before.
    previous: Vec<u16>,
    /// `[rows, rank]`, by the row of the token's logit.
    next: Vec<u16>,
    /// The tokens of the rows, if these are some of the vocabulary.
    tokens: Option<HeadTokens>,
}

/// Sums that a product is made of, so that it can be computed by vectors with the same bits everywhere.
const SUMS: usize = 8;

fn element(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

impl MarkovHead {
    /// A head of these tables, in BF16: `previous` by the token before, `[V, rank]`; `next` by the row of a token's
    /// logit, `[rows, rank]`, whose tokens are `tokens`, or all in order.
    ///
    /// # Panics
    /// If the tables have no whole rows, or there are not as many tokens as rows.
    pub fn new(rank: usize, previous: Vec<u16>, next: Vec<u16>, tokens: Option<HeadTokens>) -> Self {
        assert!(
            rank > 0 && previous.len().is_multiple_of(rank) && next.len().is_multiple_of(rank),
            "whole rows"
        );
        let rows = next.len() / rank;
        assert!(tokens.as_ref().is_none_or(|tokens| tokens.len() == rows), "a token for each of {rows} rows");
        Self { rank, previous, next, tokens }
    }

    /// Elements of a row of its tables.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Bytes of its tables.
    pub fn bytes(&self) -> usize {
        size_of_val(&self.previous[..]) + size_of_val(&self.next[..])
    }

    /// Writes the row `[rank]` of the token before; zeros for one that it does not know.
    ///
    /// # Panics
    /// If `row` is not as long.
    pub fn write_row(&self, previous: u32, row: &mut [f32]) {
        assert_eq!(row.len(), self.rank, "a row of the table");
        match self.previous.chunks_exact(self.rank).nth(previous as usize) {
            Some(stored) => row.iter_mut().zip(stored).for_each(|(to, bits)| *to = element(*bits)),
            None => row.fill(0.0),
        }
    }

    /// What is added to the logit of `token`, which the head proposes, after the token of `row`; 0 for a token that it
    /// does not know.
    pub fn logit(&self, row: &[f32], token: u32) -> f32 {
        let place = match &self.tokens {
            None => Some(token as usize),
            Some(tokens) => tokens.as_slice().binary_search(&token).ok(),
        };
        let Some(stored) = place.and_then(|place| self.next.chunks_exact(self.rank).nth(place)) else {
            return 0.0;
        };
        let mut sums = [0.0_f32; SUMS];
        for (row, stored) in row.chunks(SUMS).zip(stored.chunks(SUMS)) {
            for ((sum, a), b) in sums.iter_mut().zip(row).zip(stored) {
                *sum += a * element(*b);
            }
        }
        sums.iter().sum()
    }
}

impl ExecutableSet {
    /// Executables of a block drafter over the weights of this set, as [`beside`](Self::beside) makes others: of the
    /// width of its block, and of narrower ones for what a step adds to the text.
    ///
    /// # Errors
    /// As [`build`](Self::build).
    ///
    /// # Panics
    /// If the graph is of no blocks.
    pub fn block_beside(
        &self,
        graph: &Graph,
        weights: &dyn WeightSource,
        model_context: usize,
    ) -> Result<Self, RuntimeError> {
        let size = graph.block_rows().expect("a graph of blocks").size;
        let narrower =
            std::iter::successors(Some(1), |width| Some(2 * width)).take_while(|width| *width < size);
        let widths = narrower.chain([size]).collect();
        self.beside_of_widths(graph, weights, model_context, widths)
    }

    /// The same executables with a Markov head, or without one.
    #[must_use]
    pub fn with_markov(mut self, markov: Option<MarkovHead>) -> Self {
        self.markov = markov.map(Arc::new);
        self
    }

    /// The rows of a block, of executables of a block drafter.
    pub fn block_rows(&self) -> Option<BlockRows> {
        self.graph().block_rows()
    }

    /// The Markov head of a block drafter that has one.
    pub fn markov(&self) -> Option<&Arc<MarkovHead>> {
        self.markov.as_ref()
    }
}

impl Forward<'_> {
    /// Adds the rows of a block after the committed tokens: `root`, and then mask tokens. Each sees the text and all of
    /// them, whose keys and values are written before any is read; none is committed.
    ///
    /// # Panics
    /// If the forward has too few rows left, or the session no room for the block in its tails.
    pub fn push_block(&mut self, root: u32, rows: BlockRows) {
        let places = u32::try_from(rows.size).expect("blocks are small");
        for place in 0..places {
            let token = if place == 0 { root } else { rows.mask_token };
            self.push(token, place, place, |tail| {
                tail.iter_mut().zip(0..places).for_each(|(slot, place)| *slot = place);
                rows.size
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bits(values: &[f32]) -> Vec<u16> {
        values.iter().map(|value| (value.to_bits() >> 16) as u16).collect()
    }

    #[test]
    fn what_is_added_is_the_product_of_two_rows() {
        let previous = bits(&[1.0, 2.0, -1.0, 0.5]);
        let next = bits(&[4.0, 1.0, 0.0, -2.0, 8.0, 8.0]);
        let tokens = HeadTokens::new(&[3, 7, 9], 10).expect("tokens");
        let head = MarkovHead::new(2, previous, next, Some(tokens));
        let mut row = [0.0; 2];
        head.write_row(1, &mut row);
        assert_eq!(row, [-1.0, 0.5]);
        let all = [3, 7, 9, 8].map(|token| head.logit(&row, token));
        assert_eq!(all, [-3.5, -1.0, -4.0, 0.0], "a token without a row keeps its logit");
        head.write_row(2, &mut row);
        assert_eq!(row, [0.0; 2], "a token that the table does not have adds nothing");
        assert_eq!((head.rank(), head.bytes()), (2, 20));
    }
}
