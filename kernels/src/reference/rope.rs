//! Rotary position embedding, straight from its definition.

use crate::{Rope, RopePairing, Rows, RowsMut};

/// Turns every head of row `w` of `x` (`[W, heads * D]`) to `positions[w]`.
pub fn rope(x: Rows<'_>, head_dim: usize, positions: &[u32], rope: Rope<'_>, mut out: RowsMut<'_>) {
    assert!(
        x.columns().is_multiple_of(head_dim) && x.columns() == out.columns() && positions.len() == x.width()
    );
    for (w, &position) in positions.iter().enumerate() {
        let heads = x.row(w).chunks_exact(head_dim).zip(out.row(w).chunks_exact_mut(head_dim));
        heads.for_each(|(head, out)| turn_head(head, position as usize, rope, out));
    }
}

/// Turns one head.
pub(super) fn turn_head(head: &[f32], position: usize, rope: Rope<'_>, out: &mut [f32]) {
    let pairs = rope.table.rotated() / 2;
    out.copy_from_slice(head);
    for i in 0..pairs {
        let (a, b) = match rope.pairing {
            RopePairing::Adjacent => (2 * i, 2 * i + 1),
            RopePairing::Halves => (i, i + pairs),
        };
        let (cos, sin) = rope.table.angle(position, i);
        let (x, y) = (f64::from(head[a]), f64::from(head[b]));
        out[a] = (x * f64::from(cos) - y * f64::from(sin)) as f32;
        out[b] = (x * f64::from(sin) + y * f64::from(cos)) as f32;
    }
}
