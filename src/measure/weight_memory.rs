//! What a model with streamed weights takes in memory, by how many of its matrices stay there.

use ygg_profiler::{Split, SubstituteBytes, WeightMemory};

use crate::{
    engine::{Error, Loaded},
    runtime::{Pinning, SessionOptions},
};

/// The memory of a model that reads weights from a file; `None` of one that reads none, or from memory of the host, or
/// of which experts share places: what it reads depends on its text, so nothing follows for other divisions.
///
/// # Errors
/// [`Error`] of kind `Internal` if the model does not compile again.
pub(super) fn weight_memory(loaded: &Loaded) -> Result<Option<WeightMemory>, Error> {
    let set = loaded.set();
    let shares_places = set.graph().expert_places().is_some();
    if loaded.has_own_memory() || !set.graph().streams() || shares_places {
        return Ok(None);
    }
    let Some((splits, placed)) = set.weight_splits()?.zip(set.placed()) else { return Ok(None) };
    let measured = splits.all.iter().position(|split| split.placed == placed);
    let measured = measured.expect("weights are divided in one of all ways");
    let widest = *set.widths().last().expect("width 1 is always planned");
    let session_bytes = |context| {
        let (threads, pinning) = (loaded.threads(), Pinning::Floating);
        set.memory(&SessionOptions { context, tree_nodes: widest, threads, pinning }).session_bytes
    };
    // Between two lengths that are multiples of any alignment.
    let (short, long) = (1 << 10, 1 << 12);
    let slot_bytes = (session_bytes(long) - session_bytes(short)) / (long - short);
    let substitute = |(bits, bytes): &(u32, usize)| SubstituteBytes { bits: *bits, bytes: *bytes as u64 };
    let all = splits.all.iter().map(|split| Split {
        budget_bytes: split.budget as u64,
        resident_bytes: split.placed.resident as u64,
        streamed_bytes: split.placed.streamed as u64,
        staging_bytes: split.placed.staging as u64,
        substitutes: split.substitutes.iter().map(substitute).collect(),
    });
    Ok(Some(WeightMemory {
        fixed_bytes: splits.fixed as u64,
        whole_bytes: splits.all[measured].whole as u64,
        splits: all.collect(),
        measured: u32::try_from(measured).expect("few matrices"),
        slot_bytes: slot_bytes as u64,
        session_bytes: (session_bytes(short) - short * slot_bytes) as u64,
        model_context: u32::try_from(set.model_context()).unwrap_or(u32::MAX),
    }))
}
