//! Metrics of kept prefixes, read from their store when they are asked for.

use std::{fmt, sync::Arc};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
};
use yggc::prefix::{PrefixCounts, PrefixStore};

/// The metrics of a store.
#[derive(Debug)]
pub(super) struct PrefixMetrics(pub(super) Arc<PrefixStore>);

impl Collector for PrefixMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let PrefixCounts {
            hits,
            memory_tokens,
            disk_tokens,
            memory_evictions,
            disk_evictions,
            damaged,
            refused,
            memory_bytes,
            disk_bytes,
        } = self.0.counts();
        let counters = [
            ("kept_prefix_hits", "Requests that took a part of their prompt from kept prefixes", hits),
            ("kept_prefix_memory_tokens", "Tokens of prompts taken from memory", memory_tokens),
            ("kept_prefix_disk_tokens", "Tokens of prompts taken from disk", disk_tokens),
            ("kept_prefix_memory_evictions", "Blocks that left memory for others", memory_evictions),
            ("kept_prefix_disk_evictions", "Blocks that left the disk for others", disk_evictions),
            ("kept_prefix_damaged", "Blocks that were found damaged on disk and dropped", damaged),
            ("kept_prefix_refused", "Blocks that were not kept for want of room", refused),
        ];
        for (name, help, count) in counters {
            let counter = ConstCounter::new(count);
            counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
        }
        let gauges = [
            ("kept_prefix_memory_bytes", "Bytes of memory that kept prefixes take", memory_bytes),
            ("kept_prefix_disk_bytes", "Bytes of files that kept prefixes take", disk_bytes),
        ];
        for (name, help, bytes) in gauges {
            let gauge = ConstGauge::new(i64::try_from(bytes).unwrap_or(i64::MAX));
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        Ok(())
    }
}
