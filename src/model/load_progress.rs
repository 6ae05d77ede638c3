//! Reports the progress of loading weights.

use std::sync::Mutex;

use crate::ir::{Graph, WeightId, WeightSource};

/// Told of every weight that lies where forwards read it, perhaps more than once.
pub type Watch = Box<dyn Fn(WeightId) + Send + Sync>;

/// Calls `report` with the bytes of weights of the graph that are loaded, and of all, whenever another one is.
pub(super) fn counting(
    graph: &Graph,
    weights: &dyn WeightSource,
    report: impl Fn(u64, u64) + Send + Sync + 'static,
) -> Watch {
    let ids = (0..).map(WeightId).take(graph.weights().len());
    let sizes: Vec<u64> = ids.map(|id| weights.bytes(id).len() as u64).collect();
    let total = sizes.iter().sum();
    // Bytes that are left to be counted of every weight, and those that were.
    let seen = Mutex::new((sizes, 0));
    Box::new(move |weight| {
        // The lock is held during the report, so that reports arrive in order.
        let (left, loaded) = &mut *seen.lock().expect("reports do not panic");
        let bytes = std::mem::take(&mut left[weight.0 as usize]);
        if bytes > 0 {
            *loaded += bytes;
            report(*loaded, total);
        }
    })
}
