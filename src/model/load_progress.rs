//! Reports the progress of loading weights.

use std::{
    borrow::Cow,
    sync::{Arc, Mutex},
};

use crate::ir::{Graph, KeptBytes, PackedDigest, PackedFile, PackedParts, WeightId, WeightSource};

/// A source of weights that counts how many bytes backends have loaded from it.
pub(super) struct LoadProgress<F> {
    weights: Arc<dyn WeightSource>,
    seen: Mutex<Seen>,
    total: u64,
    report: F,
}

/// What has been loaded so far.
struct Seen {
    /// Whether each weight was counted; a weight may be loaded several times.
    counted: Vec<bool>,
    bytes: u64,
}

impl<F: Fn(u64, u64) + Send + Sync> LoadProgress<F> {
    /// The same weights; `report` is called with the bytes loaded so far and the total.
    pub(super) fn new(weights: Arc<dyn WeightSource>, graph: &Graph, report: F) -> Self {
        let ids = (0..).map(WeightId).take(graph.weights().len());
        let total = ids.map(|id| weights.bytes(id).len() as u64).sum();
        let seen = Seen { counted: vec![false; graph.weights().len()], bytes: 0 };
        Self { weights, seen: Mutex::new(seen), total, report }
    }
}

impl<F: Fn(u64, u64) + Send + Sync> WeightSource for LoadProgress<F> {
    fn bytes(&self, weight: WeightId) -> Cow<'_, [u8]> {
        self.weights.bytes(weight)
    }

    fn kept_packed(&self, digest: &PackedDigest) -> Option<KeptBytes> {
        self.weights.kept_packed(digest)
    }

    fn keep_packed(&self, digest: &PackedDigest, parts: &mut dyn PackedParts) {
        self.weights.keep_packed(digest, parts);
    }

    fn packed_file(&self, digest: &PackedDigest, parts: &mut dyn PackedParts) -> Result<PackedFile, String> {
        self.weights.packed_file(digest, parts)
    }

    fn note_loaded(&self, weight: WeightId) {
        // The lock is held during the report, so that reports arrive in order.
        let mut seen = self.seen.lock().expect("reports do not panic");
        if std::mem::replace(&mut seen.counted[weight.0 as usize], true) {
            return;
        }
        seen.bytes += self.bytes(weight).len() as u64;
        (self.report)(seen.bytes, self.total);
    }
}
