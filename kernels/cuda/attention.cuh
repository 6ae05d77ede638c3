// Attention of tree rows over a cache of slots, and what moves slots about.
//
// A row sees its committed prefix, where slot equals position, and then the slots of its ancestors: position i of its *logical sequence* is
// the i-th of these. What a row gets depends on that sequence alone: it is cut by logical position, into partitions of YGG_PARTITION, whose
// numbers are made in an order that does not know of widths or of other rows. A partition that lies in the prefix is fetched once for all
// query vectors of a block, up to YGG_QUERY_TILE of one key/value head; blocks take such partitions in turn, so that their number follows
// the context and not the longest one. Partitions in which a row's ancestors lie are the row's own, and other blocks take these, a few rows each
// (attention_block.cuh, attention_rows.cuh; of wide heads attention_sections.cuh). A partition leaves its largest score, its sum of weights and its weighted values; a last kernel joins
// them in order. Lengths are read from device memory: the launch is the same for every length.
#pragma once

#include "attention_rows.cuh"
#include "attention_sections.cuh"

namespace ygg {

// What a block does: its part of the partitions of prefixes, or of the rows.
template <class Block> YGG_DEVICE void share(const YggAttention& p, const Block& block) {
    const u32 here = block.here, group = block.group, first_vector = block.first_vector;
    if (blockIdx.x < p.spread) {
        block.ask(0, here);
        u32 longest = 0;
        for (u32 q = 0; q < here; ++q) longest = block.prefixes[q] > longest ? block.prefixes[q] : longest;
        block.template run<false>(block.in_prefix(blockIdx.x, p.spread, longest),
                                  [&](const typename Block::Work& work) { return block.in_prefix(work.partition + p.spread, p.spread, longest); });
        return;
    }
    // Rows of the block, of which it needs no other's vectors.
    const u32 first_row = first_vector / group, of_tile = ceil_div(first_vector + here, group) - first_row;
    const u32 each = ceil_div(of_tile, gridDim.x - p.spread), row = first_row + (blockIdx.x - p.spread) * each;
    const u32 rows = smaller(row + each, first_row + of_tile);
    if (row >= rows) return;
    block.ask(row * group > first_vector ? row * group - first_vector : 0, smaller(here, rows * group - first_vector));
    // One row alone has no more places than it would gather.
    if constexpr (Block::TAKES_ROWS_AT_ONCE)
        if (rows - row > 1 && RowsAtOnce<Block>{block, row, rows}.run()) return;
    block.template run<true>(block.of_rows(row, 0, rows), [&](const typename Block::Work& work) { return block.of_rows(work.row, work.partition + 1, rows); });
}

// Places of a block's shared memory, as the launch counts them.
template <class Element, u32 WIDEST> YGG_DEVICE void attention(const YggAttention& p) {
    wait_for_kernels_before();
    let_next_kernel_begin();
    if (is_skipped(p.step)) return;
    using Block = AttentionBlock<Element, WIDEST>;
    using Bits = typename Element::Bits;
    const u32 kv_head = blockIdx.y, head_dim = p.kv.head_dim, group = p.heads / p.kv.heads;
    const u32 first_vector = blockIdx.z * QUERIES, here = smaller(QUERIES, p.queries.rows * group - first_vector);
    constexpr bool IS_HALF = Block::IS_HALF;
    const u32 chunks = ceil_div(head_dim, 16) * 16 / Block::CHUNK, wide = chunks * Block::CHUNK, stride = wide + Block::CHUNK;
    YGG_SHARED(u32[QUERIES], prefixes);
    YGG_SHARED(u32[QUERIES], lengths);
    YGG_DYNAMIC_SHARED(float, shared);
    Bits* queries = reinterpret_cast<Bits*>(shared);
    float* dots = reinterpret_cast<float*>(queries + QUERIES * (IS_HALF ? 2 * stride : wide));
    // Query vectors and products of halves make room for what rows at once have.
    const u32 of_halves = stride + Block::DOTS > SCORES_APART ? stride + Block::DOTS : SCORES_APART;
    Bits* keys = IS_HALF ? reinterpret_cast<Bits*>(shared + QUERIES * of_halves) : reinterpret_cast<Bits*>(dots + QUERIES * PARTS * PARTITION);
    Bits* values = Block::IS_TOGETHER ? keys + PARTITION * stride : keys;
    const Block block{{}, p, kv_head, head_dim, group, first_vector, here, chunks, wide, stride, queries, dots, keys, values, prefixes, lengths};
    share(p, block);
}

// The same for heads of more than 256 elements.
template <class Element> YGG_DEVICE void attention_in_sections(const YggAttention& p) {
    wait_for_kernels_before();
    let_next_kernel_begin();
    if (is_skipped(p.step)) return;
    using Sections = AttentionInSections<Element>;
    const u32 group = p.heads / p.kv.heads, first_vector = blockIdx.z * QUERIES;
    YGG_SHARED(u32[QUERIES], prefixes);
    YGG_SHARED(u32[QUERIES], lengths);
    YGG_DYNAMIC_SHARED(float, shared);
    const Sections block{p, blockIdx.y, p.kv.head_dim, group, first_vector, smaller(QUERIES, p.queries.rows * group - first_vector), shared, prefixes, lengths};
    share(p, block);
}

// grid: key/value heads, rows
template <class Element> YGG_DEVICE void append(const YggAppend& p) {
    wait_for_kernels_before();
    let_next_kernel_begin();
    if (is_skipped(p.step)) return;
    using Bits = typename Element::Bits;
    const u32 head = blockIdx.x, w = blockIdx.y, slot = p.slots[index(w)], head_dim = p.kv.head_dim;
    if (slot == YGG_NO_SLOT) return;
    const float* key = row_of(p.keys, w) + static_cast<u64>(head) * head_dim;
    const float* value = row_of(p.values, w) + static_cast<u64>(head) * head_dim;
    const u64 at = (static_cast<u64>(head) * p.kv.slots + slot) * head_dim;
    for (u32 i = threadIdx.x; i < head_dim; i += blockDim.x) {
        static_cast<Bits*>(p.kv.keys)[at + i] = Element::write(turned(key, i, p.positions[w], p.rope));
        static_cast<Bits*>(p.kv.values)[at + i] = Element::write(value[index(i)]);
    }
}

} // namespace ygg

YGG_KERNEL(ygg_append_f16, YggAppend, YGG_ROW_THREADS) { ygg::append<ygg::F16>(p); }
YGG_KERNEL(ygg_append_f32, YggAppend, YGG_ROW_THREADS) { ygg::append<ygg::F32>(p); }

// grid: blocks that share the partitions of prefixes, then those that share the rows of a tile; key/value heads; tiles of query vectors. Shared:
// queries, products, keys and, where 512 bytes hold a slot's, values as well.
#define YGG_ATTENTIONS(name, Element, blocks_of_64, blocks) \
    YGG_KERNEL_OF_BLOCKS(ygg_attention_##name##_d64, YggAttention, YGG_ATTENTION_THREADS, blocks_of_64) { ygg::attention<Element, 64>(p); } \
    YGG_KERNEL_OF_BLOCKS(ygg_attention_##name##_d128, YggAttention, YGG_ATTENTION_THREADS, blocks) { ygg::attention<Element, 128>(p); } \
    YGG_KERNEL_OF_BLOCKS(ygg_attention_##name##_d256, YggAttention, YGG_ATTENTION_THREADS, 2) { ygg::attention<Element, 256>(p); } \
    YGG_KERNEL_OF_BLOCKS(ygg_attention_##name##_d512, YggAttention, YGG_ATTENTION_THREADS, 2) { ygg::attention_in_sections<Element>(p); }

YGG_ATTENTIONS(f16, ygg::F16, 5, 4)
YGG_ATTENTIONS(f32, ygg::F32, 2, 2)

// grid: query heads, rows. Groups of threads add every so manieth partition, 4 elements a thread; their sums are joined in order.
YGG_KERNEL(ygg_attention_join, YggAttention, YGG_ATTENTION_THREADS) {
    using namespace ygg;
    wait_for_kernels_before();
    let_next_kernel_begin();
    if (is_skipped(p.step)) return;
    YGG_SHARED(float[YGG_ATTENTION_THREADS * 4], parts);
    const u32 head = blockIdx.x, w = blockIdx.y, head_dim = p.kv.head_dim, stride = partial_stride(head_dim);
    const u32 length = p.prefix[w] + p.tail_len[w], unseen = first_seen(p, length) / PARTITION;
    const u64 first = (static_cast<u64>(w) * p.heads + head) * p.partitions + unseen;
    const u32 count = ceil_div(length, PARTITION) - unseen;
    const float* maxima = p.partial_max + first;
    const float* sums = p.partial_sum + first;
    const u32 threads = head_dim <= 64 ? 16 : head_dim <= 128 ? 32 : head_dim <= 256 ? 64 : 128, groups = YGG_ATTENTION_THREADS / threads;
    const u32 group = threadIdx.x / threads, d = threadIdx.x % threads * 4;
    const float* values = p.partial + first * stride + d;
    // Loads that need none of the weights are begun before these are made.
    constexpr u32 EARLY = 4;
    Words4 early[EARLY] = {};
#pragma unroll
    for (u32 i = 0; i < EARLY; ++i)
        if (d < head_dim && group + i * groups < count) early[i] = load_words(reinterpret_cast<const Words4*>(values + static_cast<u64>(group + i * groups) * stride));
    // Every warp makes them for itself.
    float largest = -infinity(), sum = 0.0f;
    for (u32 i = lane(); i < count; i += WARP) largest = larger(largest, load_number(maxima + index(i)));
    largest = warp_max(largest);
    if (p.sinks != nullptr) largest = larger(largest, p.sinks[head]);
    for (u32 i = lane(); i < count; i += WARP) sum = fma_rn(load_number(sums + index(i)), exp_fast(add_rn(load_number(maxima + i), -largest)), sum);
    sum = warp_sum(sum);
    if (p.sinks != nullptr) sum = add_rn(sum, exp_fast(add_rn(p.sinks[index(head)], -largest)));
    float total[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    auto add = [&](u32 i, const Words4& four) {
        const float weight = exp_fast(add_rn(load_number(maxima + i), -largest));
#pragma unroll
        for (u32 e = 0; e < 4; ++e) total[e] = fma_rn(bits_to_float(word_of(four, e)), weight, total[e]);
    };
    if (d < head_dim) {
#pragma unroll
        for (u32 i = 0; i < EARLY; ++i)
            if (group + i * groups < count) add(group + i * groups, early[i]);
#pragma unroll 4
        for (u32 i = group + EARLY * groups; i < count; i += groups) add(i, load_words(reinterpret_cast<const Words4*>(values + static_cast<u64>(index(i)) * stride)));
    }
#pragma unroll
    for (u32 e = 0; e < 4; ++e) parts[threadIdx.x * 4 + index(e)] = total[e];
    barrier();
    float* out = row_of(p.out, w) + static_cast<u64>(head) * head_dim;
    for (u32 i = threadIdx.x; i < head_dim; i += YGG_ATTENTION_THREADS) {
        float all = 0.0f;
        for (u32 of = 0; of < groups; ++of) all = add_rn(all, parts[of * threads * 4 + index(i)]);
        // A row that sees nothing gets zeros.
        all = count == 0 ? 0.0f : divide(all, sum);
        out[i] = all;
        store_fragment(p.next, w, head * head_dim + i, all);
    }
}

// grid: planes. A thread moves its bytes of every slot in order, so sources may lie among later destinations.
YGG_KERNEL(ygg_move_slots, YggMoves, YGG_ROW_THREADS) {
    u8* plane = p.cache + static_cast<u64>(blockIdx.x) * p.slots * p.slot_bytes;
    for (u32 i = threadIdx.x; i < p.slot_bytes / 2; i += blockDim.x)
        for (u32 m = 0; m < p.count; ++m) {
            const u16* from = reinterpret_cast<const u16*>(plane + static_cast<u64>(p.from[index(m)] % p.slots) * p.slot_bytes);
            reinterpret_cast<u16*>(plane + static_cast<u64>((p.first + m) % p.slots) * p.slot_bytes)[i] = from[i];
        }
}

// grid: planes
YGG_KERNEL(ygg_poison_slots, YggPoison, YGG_ROW_THREADS) {
    const u64 count = static_cast<u64>(p.count) * p.head_dim;
    for (u64 i = threadIdx.x; i < count; i += blockDim.x) {
        const u64 slot = (p.first + i / p.head_dim) % p.slots, at = (static_cast<u64>(blockIdx.x) * p.slots + slot) * p.head_dim + i % p.head_dim;
        u64 state = at * 6364136223846793005ull + (p.seed | 1) * 1442695040888963407ull;
        state ^= state >> 33;
        state *= 0xff51afd7ed558ccdull;
        const float noise = static_cast<float>(static_cast<u32>(state >> 40)) / 1048576.0f - 8.0f;
        if (p.halves)
            static_cast<u16*>(p.cache)[at] = ygg::F16::write(noise);
        else
            static_cast<float*>(p.cache)[at] = noise;
    }
}
