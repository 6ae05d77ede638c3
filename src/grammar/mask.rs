//! The tokens that may follow, as a set over the vocabulary.

use toktrie::SimpleVob;

/// The tokens that may come next.
#[derive(Clone, Debug)]
pub struct Mask(SimpleVob);

impl Mask {
    pub(super) fn new(allowed: SimpleVob) -> Self {
        Self(allowed)
    }

    /// Whether `token` may.
    pub fn allows(&self, token: u32) -> bool {
        (token as usize) < self.0.len() && self.0.is_allowed(token)
    }

    /// How many may.
    pub fn count(&self) -> usize {
        self.0.num_set()
    }

    /// The lowest id that may; `None` if none may.
    pub fn first(&self) -> Option<u32> {
        self.0.first_bit_set().map(|id| u32::try_from(id).expect("ids have 32 bits"))
    }

    /// Sets the logits of all others in the row `[V]` to negative infinity.
    pub fn apply(&self, row: &mut [f32]) {
        for (bits, logits) in self.0.as_slice().iter().zip(row.chunks_mut(u32::BITS as usize)) {
            if *bits == u32::MAX {
                continue;
            }
            for (place, logit) in logits.iter_mut().enumerate() {
                if bits >> place & 1 == 0 {
                    *logit = f32::NEG_INFINITY;
                }
            }
        }
    }
}
