//! How many blocks a launch of attention has, and how much shared memory each: what the kernel counts by itself.

use ygg_kernels::{
    KvFormat,
    cuda::abi::{YGG_ATTENTION_THREADS, YGG_PARTITION, YGG_QUERY_TILE},
};

/// Blocks that share the partitions of a prefix among them, and blocks that share the rows, of `beside` such groups of blocks: the former as
/// many as the device runs at a time, the latter half as many.
pub(super) fn blocks_of_group(
    at_once: usize,
    beside: usize,
    partitions: usize,
    rows: usize,
) -> (usize, usize) {
    let blocks = at_once.div_ceil(beside);
    (blocks.min(partitions), blocks.div_ceil(2).min(rows))
}

/// Rows that the query vectors of a block of attention may be of.
pub(super) fn rows_of_block(rows: usize, group: usize) -> usize {
    rows.min((YGG_QUERY_TILE as usize + group - 2) / group + 1)
}

/// Shared memory of a block of attention, for a kernel of heads up to `widest`: queries, products, and keys and values of a partition, whose
/// slots are whole 16 elements and 16 bytes more. Values take the place of keys where a slot has more than 512 bytes. Queries of a cache of
/// halves are two halves, as far apart as slots; products of f32 are of two parts.
pub(super) fn attention_shared(format: KvFormat, head_dim: usize, widest: usize) -> usize {
    let element = format.bytes();
    let wide = head_dim.next_multiple_of(16);
    let stride = wide * element + 16;
    let (queries, places) = (YGG_QUERY_TILE as usize, YGG_PARTITION as usize);
    let planes = if widest * element <= 512 { 2 } else { 1 };
    let of_query = match format {
        KvFormat::F16 => 2 * stride + (places + 8) * size_of::<f32>(),
        KvFormat::F32 | KvFormat::Q8 => (wide + YGG_ATTENTION_THREADS as usize) * size_of::<f32>(),
    };
    queries * of_query + planes * places * stride
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_head_fits_the_smallest_multiprocessor() {
        const MOST: usize = 99 << 10;
        for format in [KvFormat::F16, KvFormat::F32] {
            for head_dim in 1..=256 {
                let widest =
                    [64, 128, 256].into_iter().find(|d| *d >= head_dim).expect("no wider head is taken");
                // Beside it, the lengths of the rows of a block.
                let shared = attention_shared(format, head_dim, widest) + 2 * 4 * YGG_QUERY_TILE as usize;
                assert!(shared <= MOST, "{format}, heads of {head_dim}: {shared} bytes");
            }
        }
    }

    #[test]
    fn blocks_follow_the_device_and_never_exceed_the_context() {
        assert_eq!(blocks_of_group(528, 32, 64, 1), (17, 1));
        assert_eq!(blocks_of_group(528, 32, 3, 16), (3, 9));
        assert_eq!(blocks_of_group(528, 128, 64, 16), (5, 3));
        assert_eq!(blocks_of_group(8, 512, 64, 16), (1, 1));
        // A tile of query vectors may begin within a row.
        let group = |group: usize| rows_of_block(64, group);
        assert_eq!([group(1), group(3), group(4), group(16)], [16, 6, 5, 2]);
        assert_eq!(rows_of_block(1, 4), 1);
    }
}
