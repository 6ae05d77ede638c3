//! Attention: how many blocks a launch has, and how much shared memory each, as the kernel counts by itself.

use ygg_kernels::{KvFormat, Scoring, cuda::abi::*};

use super::{
    super::BackendError,
    device::Launch,
    launches::{Launches, float_mut},
    layout::number,
    scratch::partitions,
};

/// The widest heads that each kernel of attention takes.
pub(super) const HEADS_TO: [usize; 4] = [64, 128, 256, 512];
/// Heads of more elements are read in sections.
const WHOLE_TO: usize = HEADS_TO[2];

/// The kernel of heads of a size, by the widest ones that it takes; `None` if they are too wide for any.
pub(super) fn widest(head_dim: usize) -> Option<usize> {
    HEADS_TO.into_iter().find(|most| *most >= head_dim)
}

/// The grid of a launch for `rows` rows, `group` of whose query heads share each of `kv_heads` key/value heads, and how
/// many of its first blocks share the partitions of prefixes: those of one group as many as the device runs at a time,
/// of all groups together. The blocks after them, half as many, share the rows.
pub(super) fn attention_grid(
    at_once: usize,
    kv_heads: usize,
    (rows, group): (usize, usize),
    partitions: usize,
) -> ([usize; 3], usize) {
    let tile = YGG_QUERY_TILE as usize;
    let tiles = (rows * group).div_ceil(tile);
    let blocks = at_once.div_ceil(kv_heads * tiles);
    // Rows that the query vectors of a block may be of.
    let rows_of_tile = rows.min((tile + group - 2) / group + 1);
    let (spread, own) = (blocks.min(partitions), blocks.div_ceil(2).min(rows_of_tile));
    ([spread + own, kv_heads, tiles], spread)
}

/// Shared memory of a block of attention, for a kernel of heads up to `widest`: queries, products, and keys and values
/// of a partition, whose slots are whole 16 elements and 16 bytes more. Values take the place of keys where a slot has
/// more than 512 bytes. Queries of a cache of halves are two halves, as far apart as slots, and they and products make
/// room for the scores of rows at once; products of f32 are of two parts. Of wide heads it has sections.
pub(super) fn attention_shared(format: KvFormat, head_dim: usize, widest: usize) -> usize {
    let element = format.bytes();
    if widest > WHOLE_TO {
        return attention_in_sections(format, head_dim);
    }
    let wide = head_dim.next_multiple_of(16);
    let stride = wide * element + 16;
    let (queries, places) = (YGG_QUERY_TILE as usize, YGG_PARTITION as usize);
    let planes = if widest * element <= 512 { 2 } else { 1 };
    let of_query = match format {
        KvFormat::F16 => {
            (2 * stride + (places + 8) * size_of::<f32>()).max(YGG_SCORES_APART as usize * size_of::<f32>())
        }
        KvFormat::F32 | KvFormat::Q8 => (wide + YGG_ATTENTION_THREADS as usize) * size_of::<f32>(),
    };
    queries * of_query + planes * places * stride
}

/// Shared memory of a block of attention to wide heads: queries in sections, each of its own vectors, products, and the
/// sections of a partition that are held.
fn attention_in_sections(format: KvFormat, head_dim: usize) -> usize {
    let (queries, places) = (YGG_QUERY_TILE as usize, YGG_PARTITION as usize);
    let section = YGG_SECTION_BYTES as usize;
    let stride = section + 16;
    let sections = (head_dim * format.bytes()).div_ceil(section);
    let (of_query, dots) = match format {
        KvFormat::F16 => (2 * stride, places + 8),
        KvFormat::F32 | KvFormat::Q8 => (section, YGG_ATTENTION_THREADS as usize),
    };
    queries * (sections * of_query + dots * size_of::<f32>()) + YGG_SECTIONS_HELD as usize * places * stride
}

impl Launches<'_> {
    /// Attention, and the join of its partitions.
    pub(super) fn attention(
        &self,
        step: YggStep,
        queries: YggRows,
        (layer, heads, scoring, sinks): (usize, usize, Scoring, *const f32),
        rope: YggRope,
        out: YggRows,
        next: YggFragments,
    ) -> Result<Vec<Launch>, BackendError> {
        let [kv_heads, head_dim] = self.program.kv.heads(layer);
        let [partial, partial_max, partial_sum] = self.at.scratch.partial.map(float_mut);
        let widest = widest(head_dim).expect("`CudaExecutables::load` has refused wider heads");
        let name = format!("ygg_attention_{}_d{widest}", self.kv_format.name());
        let shared = attention_shared(self.kv_format, head_dim, widest);
        let rows = queries.rows as usize;
        let partitions = partitions(self.at.context);
        let at_once = self.device.blocks_at_once(&name, YGG_ATTENTION_THREADS, shared)?;
        let (grid, spread) = attention_grid(at_once, kv_heads, (rows, heads / kv_heads), partitions);
        let params = YggAttention {
            step,
            queries,
            positions: self.input(self.at.words.positions),
            prefix: self.input(self.at.words.prefix),
            tail_len: self.input(self.at.words.tail_len),
            tails: self.input(self.at.words.tails),
            tail_capacity: number(self.at.words.tail_capacity),
            heads: number(heads),
            partitions: number(partitions),
            scale: scoring.scale,
            softcap: scoring.softcap.unwrap_or(0.0),
            window: scoring.window.unwrap_or(u32::MAX),
            spread: number(spread),
            sinks,
            rope,
            kv: self.kv(layer),
            partial,
            partial_max,
            partial_sum,
            out,
            next,
        };
        Ok(vec![
            self.launch(&name, grid, YGG_ATTENTION_THREADS, shared, params)?,
            self.launch("ygg_attention_join", [heads, rows, 1], YGG_ATTENTION_THREADS, 0, params)?,
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_head_fits_the_smallest_multiprocessor() {
        const MOST: usize = 99 << 10;
        for format in [KvFormat::F16, KvFormat::F32] {
            for head_dim in 1..=HEADS_TO[3] {
                let widest = widest(head_dim).expect("no wider head is taken");
                // In addition, the lengths of the rows of a block.
                let shared = attention_shared(format, head_dim, widest) + 2 * 4 * YGG_QUERY_TILE as usize;
                assert!(shared <= MOST, "{format}, heads of {head_dim}: {shared} bytes");
            }
        }
    }

    #[test]
    fn blocks_follow_the_device_and_never_exceed_the_context() {
        assert_eq!(attention_grid(528, 32, (1, 1), 64), ([18, 32, 1], 17));
        assert_eq!(attention_grid(528, 32, (16, 1), 3), ([12, 32, 1], 3));
        assert_eq!(attention_grid(528, 32, (64, 1), 64), ([8, 32, 4], 5));
        assert_eq!(attention_grid(8, 512, (16, 1), 64), ([2, 512, 1], 1));
        // A tile of query vectors may begin within a row.
        let own = |group: usize| {
            let ([blocks, ..], spread) = attention_grid(10_000, 1, (64, group), 64);
            blocks - spread
        };
        assert_eq!([own(1), own(3), own(4), own(16)], [16, 6, 5, 2]);
    }
}
