//! Rotary position embedding: tables made once per model, and the rotation every implementation shares.
//!
//! RoFormer, section 3.2 (arXiv 2104.09864). The rotation is two products and a sum per element, none of them fused,
//! so that every tier gives equal bits.

/// Which two elements of a head turn together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RopePairing {
    /// `(2i, 2i + 1)`: GGUF files of the Llama family.
    Adjacent,
    /// `(i, i + D/2)`: Hugging Face checkpoints, and GGUF files of the Qwen family.
    Halves,
}

/// Cosines and sines, each `[positions, rotated / 2]`.
#[derive(Clone, Debug)]
pub struct RopeTable {
    pairs: usize,
    positions: usize,
    cos: Vec<f32>,
    sin: Vec<f32>,
}

impl RopeTable {
    /// Angles `position * inv_freq[i]` for positions `0..positions`, computed in f64. Cosines and sines are multiplied
    /// with `magnitude`, which is 1 but for models whose turned heads grow.
    ///
    /// # Panics
    /// If either size is 0.
    pub fn new(inv_freq: &[f32], magnitude: f32, positions: usize) -> Self {
        assert!(!inv_freq.is_empty() && positions > 0, "a rope table needs frequencies and positions");
        let angles = (0..positions)
            .flat_map(|position| inv_freq.iter().map(move |&f| (position as f64 * f64::from(f)).sin_cos()));
        let scaled = |x: f64| (x * f64::from(magnitude)) as f32;
        let (sin, cos) = angles.map(|(sin, cos)| (scaled(sin), scaled(cos))).unzip();
        Self { pairs: inv_freq.len(), positions, cos, sin }
    }

    /// Elements of a head that turn; the rest pass through.
    pub fn rotated(&self) -> usize {
        2 * self.pairs
    }

    /// Positions covered.
    pub fn positions(&self) -> usize {
        self.positions
    }

    /// Cosine and sine of pair `i` at `position`.
    pub fn angle(&self, position: usize, i: usize) -> (f32, f32) {
        let (cos, sin) = self.at(position);
        (cos[i], sin[i])
    }

    /// Cosines and sines at `position`.
    #[inline]
    fn at(&self, position: usize) -> (&[f32], &[f32]) {
        assert!(position < self.positions, "position {position} in a rope table of {}", self.positions);
        let span = position * self.pairs..(position + 1) * self.pairs;
        (&self.cos[span.clone()], &self.sin[span])
    }
}

/// A rotation to apply to heads.
#[derive(Clone, Copy, Debug)]
pub struct Rope<'a> {
    /// Angles.
    pub table: &'a RopeTable,
    /// Pairing of a head's elements.
    pub pairing: RopePairing,
}

impl Rope<'_> {
    /// Writes `head` (`[D]`) turned to `position` into `out`.
    ///
    /// # Panics
    /// If the head is narrower than the table or the lengths differ.
    #[inline(always)]
    pub(crate) fn rotate(&self, position: usize, head: &[f32], out: &mut [f32]) {
        let rotated = self.table.rotated();
        assert!(
            rotated <= head.len() && head.len() == out.len(),
            "head of {} turned by {rotated}",
            head.len()
        );
        let (cos, sin) = self.table.at(position);
        let (head, rest) = head.split_at(rotated);
        let (out, out_rest) = out.split_at_mut(rotated);
        out_rest.copy_from_slice(rest);
        match self.pairing {
            RopePairing::Adjacent => {
                for (((out, x), c), s) in out.chunks_exact_mut(2).zip(head.chunks_exact(2)).zip(cos).zip(sin)
                {
                    (out[0], out[1]) = turn(x[0], x[1], *c, *s);
                }
            }
            RopePairing::Halves => {
                let (a, b) = head.split_at(rotated / 2);
                let (out_a, out_b) = out.split_at_mut(rotated / 2);
                for i in 0..rotated / 2 {
                    (out_a[i], out_b[i]) = turn(a[i], b[i], cos[i], sin[i]);
                }
            }
        }
    }
}

#[inline(always)]
fn turn(a: f32, b: f32, cos: f32, sin: f32) -> (f32, f32) {
    (a * cos - b * sin, a * sin + b * cos)
}
