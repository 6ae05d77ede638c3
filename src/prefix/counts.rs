//! What a store did, counted.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a store did since it was opened, and what it holds. Plain data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrefixCounts {
    /// Requests that were served at least one block.
    pub hits: u64,
    /// Tokens served from memory.
    pub memory_tokens: u64,
    /// Tokens served from files.
    pub disk_tokens: u64,
    /// Blocks that left memory for others.
    pub memory_evictions: u64,
    /// Blocks that left a file for others.
    pub disk_evictions: u64,
    /// Blocks that were found damaged in a file, and dropped.
    pub damaged: u64,
    /// Blocks that were not kept, as everything there was room for was in use.
    pub refused: u64,
    /// Bytes of memory that it holds.
    pub memory_bytes: u64,
    /// Bytes of the files of this store.
    pub disk_bytes: u64,
}

/// Tokens that were served, by where they were. Plain data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// Tokens from memory.
    pub memory: usize,
    /// Tokens from a file.
    pub disk: usize,
}

/// Counters of a store, which any thread adds to.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) hits: AtomicU64,
    pub(super) memory_tokens: AtomicU64,
    pub(super) disk_tokens: AtomicU64,
    pub(super) memory_evictions: AtomicU64,
    pub(super) disk_evictions: AtomicU64,
    pub(super) damaged: AtomicU64,
    pub(super) refused: AtomicU64,
}

impl Counters {
    pub(super) fn add(counter: &AtomicU64, more: usize) {
        counter.fetch_add(more as u64, Ordering::Relaxed);
    }

    /// The counts, with what is held now.
    pub(super) fn counts(&self, memory_bytes: u64, disk_bytes: u64) -> PrefixCounts {
        let Self { hits, memory_tokens, disk_tokens, memory_evictions, disk_evictions, damaged, refused } =
            self;
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        PrefixCounts {
            hits: of(hits),
            memory_tokens: of(memory_tokens),
            disk_tokens: of(disk_tokens),
            memory_evictions: of(memory_evictions),
            disk_evictions: of(disk_evictions),
            damaged: of(damaged),
            refused: of(refused),
            memory_bytes,
            disk_bytes,
        }
    }
}
