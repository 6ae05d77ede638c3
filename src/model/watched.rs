//! Weights that are told of as they are loaded.

use std::sync::{Arc, Mutex};

use crate::ir::{Graph, KeptBytes, PackedDigest, WeightId, WeightSource};

/// A source of weights that counts the bytes of those that lie where forwards read them.
pub(super) struct Watched<F> {
    weights: Arc<dyn WeightSource>,
    seen: Mutex<Seen>,
    total: u64,
    told: F,
}

/// What has been loaded so far.
struct Seen {
    /// Whether each weight was noted: one may be loaded for several uses.
    noted: Vec<bool>,
    bytes: u64,
}

impl<F: Fn(u64, u64) + Send + Sync> Watched<F> {
    /// The same weights, with `told` being told how many of their bytes are loaded, and how many there are.
    pub(super) fn new(weights: Arc<dyn WeightSource>, graph: &Graph, told: F) -> Self {
        let ids = (0..).map(WeightId).take(graph.weights().len());
        let total = ids.map(|id| weights.bytes(id).len() as u64).sum();
        let seen = Seen { noted: vec![false; graph.weights().len()], bytes: 0 };
        Self { weights, seen: Mutex::new(seen), total, told }
    }
}

impl<F: Fn(u64, u64) + Send + Sync> WeightSource for Watched<F> {
    fn bytes(&self, weight: WeightId) -> &[u8] {
        self.weights.bytes(weight)
    }

    fn kept_packed(&self, digest: &PackedDigest) -> Option<KeptBytes> {
        self.weights.kept_packed(digest)
    }

    fn keep_packed(&self, digest: &PackedDigest, parts: &[&[u8]]) {
        self.weights.keep_packed(digest, parts);
    }

    fn note_loaded(&self, weight: WeightId) {
        // Told while it is held, so that nobody is told of less after more.
        let mut seen = self.seen.lock().expect("nobody who is told panics");
        if std::mem::replace(&mut seen.noted[weight.0 as usize], true) {
            return;
        }
        seen.bytes += self.bytes(weight).len() as u64;
        (self.told)(seen.bytes, self.total);
    }
}
