//! Attention: whole units, or in two halves that threads share by partitions of the logical sequence.

use super::Kernels;
use crate::{
    Attention, Rows, RowsMut,
    cpu::{
        activations::floats_mut,
        attention::{self, Join, Partials, WholeUnits},
    },
};
use std::ops::Range;

impl Kernels {
    /// Attention of the given units ([`Attention::units`]) into their heads of `out` (`[W, H * D]`); zeros for a row
    /// that sees nothing. Equal bits in every tier.
    ///
    /// # Panics
    /// If shapes disagree, a slot is outside the cache, or `scratch` is smaller than [`attention_scratch_bytes`] or not
    /// aligned to 64.
    pub fn attention(self, args: &Attention<'_>, units: Range<usize>, scratch: &mut [u8], out: RowsMut<'_>) {
        args.check(&out);
        assert!(units.end <= args.units(), "units {units:?} of {}", args.units());
        let scratch = attention_scratch(args, scratch);
        self.call(WholeUnits { args, units, scratch, out });
    }

    /// The first half of attention that is shared by partitions of the logical sequence: what
    /// [`Kernels::attention_join`] makes the result of. Writes the rows of the given items ([`Attention::items`]) in
    /// `out`, of [`Attention::partial_rows`] rows and [`Attention::partial_columns`] columns.
    ///
    /// # Panics
    /// As [`Kernels::attention`].
    pub fn attention_partials(
        self,
        args: &Attention<'_>,
        items: Range<usize>,
        scratch: &mut [u8],
        out: RowsMut<'_>,
    ) {
        args.check_partials(out.width(), out.columns());
        assert!(items.end <= args.items(), "items {items:?} of {}", args.items());
        let scratch = attention_scratch(args, scratch);
        self.call(Partials { args, items, scratch, out });
    }

    /// The second half: with the partial results of all items, the bits of [`Kernels::attention`].
    ///
    /// # Panics
    /// If shapes disagree.
    pub fn attention_join(
        self,
        args: &Attention<'_>,
        units: Range<usize>,
        partials: Rows<'_>,
        out: RowsMut<'_>,
    ) {
        args.check(&out);
        args.check_partials(partials.width(), partials.columns());
        assert!(units.end <= args.units(), "units {units:?} of {}", args.units());
        self.call(Join { args, units, partials, out });
    }
}

/// Scratch for [`Kernels::attention`] and its first half, bytes, whatever the tier.
pub const fn attention_scratch_bytes(head_dim: usize) -> usize {
    4 * attention::scratch_len(head_dim)
}

fn attention_scratch<'s>(args: &Attention<'_>, scratch: &'s mut [u8]) -> &'s mut [f32] {
    let bytes = attention_scratch_bytes(args.kv.head_dim());
    assert!(scratch.len() >= bytes, "scratch of {} bytes, {bytes} needed", scratch.len());
    assert!(scratch.as_ptr().addr().is_multiple_of(64), "scratch must be aligned to 64");
    floats_mut(&mut scratch[..bytes])
}
