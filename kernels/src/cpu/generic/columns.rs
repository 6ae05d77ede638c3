//! Tokens under noise by columns: bounds of sixteen at once, in vectors, so that single tokens are seldom looked at.

use crate::{
    candidates::RANGE,
    noise::{NoiseKey, most_of},
};

/// Columns of a block: a vector of the widest instruction set.
const COLUMNS: usize = 16;

/// Tokens of a block. Of fewer, bounds would be computed more often; of more, a column's would be higher and its tokens
/// be looked at more often; and candidates come in ranges of as many.
pub(super) const BLOCK: usize = RANGE;

/// Of the tokens `i` of a block with the same `i % COLUMNS`: their largest logit that is not NaN, negative infinity if
/// all are, and the least upper half of their random bits.
pub(super) struct Columns {
    largest: [f32; COLUMNS],
    least: [u32; COLUMNS],
}

impl Columns {
    /// Of logits whose token at each place of the block is `token` of it.
    #[inline(always)]
    pub(super) fn of(block: &[f32; BLOCK], key: NoiseKey, token: impl Fn(usize) -> u32) -> Self {
        let (mut largest, mut least) = ([f32::NEG_INFINITY; COLUMNS], [u32::MAX; COLUMNS]);
        for (row, at) in block.as_chunks::<COLUMNS>().0.iter().zip((0..).step_by(COLUMNS)) {
            for i in 0..COLUMNS {
                largest[i] = if row[i] > largest[i] { row[i] } else { largest[i] };
                least[i] = least[i].min(key.upper(token(at + i)));
            }
        }
        Self { largest, least }
    }

    /// The places, ascending, of all columns of which a token may reach `level` with its logit's difference from
    /// `from`, times `inverse`, and its noise. None of the others does.
    #[inline(always)]
    pub(super) fn reaching(
        &self,
        level: f64,
        from: f32,
        inverse: f32,
    ) -> impl Iterator<Item = usize> + use<> {
        // Where a sum comes near the level its parts are at most as large as the level and the most noise, 45.1,
        // together, and rounded four times by 2^-24 of that.
        let level = (level - 1e-6 * (level.abs() + 64.0)) as f32;
        let mut bits = 0_u32;
        for i in 0..COLUMNS {
            let reached = (self.largest[i] - from) * inverse + most_of(self.least[i]);
            // Not below, so that what is no number is looked at.
            let is_below = reached < level;
            bits |= u32::from(!is_below) << i;
        }
        let columns = move || {
            let mut left = bits;
            std::iter::from_fn(move || {
                let column = (left != 0).then(|| left.trailing_zeros() as usize);
                left &= left.wrapping_sub(1);
                column
            })
        };
        let rows = if bits == 0 { 0..0 } else { 0..BLOCK };
        rows.step_by(COLUMNS).flat_map(move |row| columns().map(move |column| row + column))
    }
}
