//! How many blocks a launch of attention has, and how much shared memory each: what the kernel counts by itself.

use ygg_kernels::{
    KvFormat,
    cuda::abi::{YGG_ATTENTION_THREADS, YGG_PARTITION, YGG_QUERY_TILE},
};

/// Blocks of attention that a multiprocessor runs at a time.
const ATTENTION_BLOCKS: usize = 4;

/// Blocks that share the partitions of a prefix among them, of `beside` such groups of blocks: as many as the device runs at a time.
pub(super) fn spread_blocks(processors: usize, beside: usize, partitions: usize) -> usize {
    (ATTENTION_BLOCKS * processors).div_ceil(beside).min(partitions)
}

/// Rows that the query vectors of a block of attention may be of: `rows_of_block` of the kernel.
pub(super) fn rows_of_block(rows: usize, group: usize) -> usize {
    rows.min((YGG_QUERY_TILE as usize + group - 2) / group + 1)
}

/// Shared memory of a block of attention, for a kernel of heads up to `widest`: queries, products in two parts, and keys and values of a
/// partition, whose slots are whole 16 bytes and 16 more. Values take the place of keys where a slot has more than 512 bytes.
pub(super) fn attention_shared(format: KvFormat, head_dim: usize, widest: usize) -> usize {
    let element = format.bytes();
    let slot = (head_dim * element).next_multiple_of(16);
    let (queries, places) = (YGG_QUERY_TILE as usize, YGG_PARTITION as usize);
    let planes = if widest * element <= 512 { 2 } else { 1 };
    let products = YGG_ATTENTION_THREADS as usize * queries;
    (queries * slot / element + products) * size_of::<f32>() + planes * places * (slot + 16)
}
