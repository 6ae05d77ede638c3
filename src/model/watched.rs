//! Weights that are told of as they are loaded.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use crate::ir::{Graph, WeightId, WeightSource};

/// A source of weights that counts the bytes of those that lie where forwards read them.
pub(super) struct Watched<F> {
    weights: Arc<dyn WeightSource>,
    /// Whether each weight was noted: one may be loaded for several uses.
    noted: Vec<AtomicBool>,
    loaded: AtomicU64,
    total: u64,
    told: F,
}

impl<F: Fn(u64, u64) + Send + Sync> Watched<F> {
    /// The same weights, with `told` being told how many of their bytes are loaded, and how many there are.
    pub(super) fn new(weights: Arc<dyn WeightSource>, graph: &Graph, told: F) -> Self {
        let ids = (0..).map(WeightId).take(graph.weights().len());
        let total = ids.map(|id| weights.bytes(id).len() as u64).sum();
        let noted = graph.weights().iter().map(|_| AtomicBool::new(false)).collect();
        Self { weights, noted, loaded: AtomicU64::new(0), total, told }
    }
}

impl<F: Fn(u64, u64) + Send + Sync> WeightSource for Watched<F> {
    fn bytes(&self, weight: WeightId) -> &[u8] {
        self.weights.bytes(weight)
    }

    fn note_loaded(&self, weight: WeightId) {
        if self.noted[weight.0 as usize].swap(true, Ordering::Relaxed) {
            return;
        }
        let bytes = self.bytes(weight).len() as u64;
        let loaded = self.loaded.fetch_add(bytes, Ordering::Relaxed) + bytes;
        (self.told)(loaded, self.total);
    }
}
