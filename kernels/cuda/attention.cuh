// Attention of tree rows over a cache of slots, and what moves slots about.
//
// A row sees its committed prefix, where slot equals position, and then the slots of its ancestors: position i of its *logical sequence* is
// the i-th of these. What a row gets depends on that sequence alone, so work is cut by logical position: into partitions of YGG_PARTITION,
// and within them into tiles of YGG_SLOT_TILE, whatever the width and whatever other rows see. A block takes one partition of one key/value
// head for up to YGG_QUERY_TILE query vectors. Tiles that lie in the prefix go through shared memory, read once for all of them; the tile or
// two in which a row's ancestors lie, its lanes gather by slot, with the same operations in the same order. Every partition leaves its
// largest score, its sum of weights and its weighted values; a last kernel joins them in order. Lengths are read from device memory: the
// launch is the same for every length.
#pragma once

#include "common.cuh"

namespace ygg {

constexpr u32 SLOT_TILE = YGG_SLOT_TILE;
constexpr u32 QUERIES = YGG_QUERY_TILE;
constexpr u32 WARPS = YGG_ATTENTION_THREADS / YGG_WARP;
constexpr u32 QUERIES_EACH = QUERIES / WARPS;
static_assert(SLOT_TILE == WARP, "a lane for each slot of a tile");

// Running softmax of one query vector in a warp: lane l has elements 2 (l + 32 i) and the next of the values.
template <u32 PAIRS> struct Softmax {
    float largest, sum;
    float low[PAIRS], high[PAIRS];

    YGG_DEVICE void clear() {
        largest = -infinity();
        sum = 0.0f;
        for (u32 i = 0; i < PAIRS; ++i) low[i] = high[i] = 0.0f;
    }

    // Takes a tile's scores, one for each lane, minus infinity where there is none; returns the lane's weight. At least one lane has
    // a score.
    YGG_DEVICE float take(float score) {
        const float before = largest;
        largest = larger(largest, warp_max(score));
        const float kept = exp_fast(add_rn(before, -largest));
        const float weight = exp_fast(add_rn(score, -largest));
        sum = add_rn(mul_rn(sum, kept), warp_sum(weight));
        for (u32 i = 0; i < PAIRS; ++i) {
            low[i] = mul_rn(low[i], kept);
            high[i] = mul_rn(high[i], kept);
        }
        return weight;
    }
};

// The first place that a row with a logical sequence of this length sees.
YGG_DEVICE u32 first_seen(const YggAttention& p, u32 length) { return length > p.window ? length - p.window : 0; }

// The score of a place from the product of query and key; of one before the window, none.
YGG_DEVICE float score_of(const YggAttention& p, float dot, bool is_seen) {
    if (!is_seen) return -infinity();
    const float score = mul_rn(dot, p.scale);
    return p.softcap > 0.0f ? softcapped(score, p.softcap) : score;
}

// Where the partition's results of a query vector go.
template <u32 PAIRS>
YGG_DEVICE void leave(const YggAttention& p, u32 w, u32 head, u32 partition, const Softmax<PAIRS>& softmax) {
    const u32 head_dim = p.kv.head_dim;
    const u64 at = (static_cast<u64>(w) * p.heads + head) * p.partitions + partition;
    if (lane() == 0) {
        p.partial_max[index(at)] = softmax.largest;
        p.partial_sum[index(at)] = softmax.sum;
    }
    for (u32 i = 0; i < PAIRS; ++i) {
        const u32 d = 2 * (lane() + WARP * i);
        if (d < head_dim) p.partial[at * head_dim + d] = softmax.low[i];
        if (d + 1 < head_dim) p.partial[at * head_dim + d + 1] = softmax.high[i];
    }
}

template <class Element, u32 PAIRS> YGG_DEVICE void attention(const YggAttention& p) {
    wait_for_kernels_before();
    let_next_kernel_begin();
    if (is_skipped(p.step)) return;
    using Bits = typename Element::Bits;
    const u32 head_dim = p.kv.head_dim;
    // Keys of neighbouring slots start in neighbouring banks.
    const u32 key_stride = head_dim + (sizeof(Bits) == 2 ? 2 : 1);
    YGG_DYNAMIC_SHARED(float, shared);
    float* queries = shared;                                             // [QUERIES][D]
    Bits* keys = reinterpret_cast<Bits*>(queries + QUERIES * head_dim);  // [SLOT_TILE][key_stride]
    Bits* values = keys + SLOT_TILE * key_stride;                        // [SLOT_TILE][D]

    const u32 partition = blockIdx.x, kv_head = blockIdx.y;
    const u32 group = p.heads / p.kv.heads, vectors = p.queries.rows * group;
    const u32 first_vector = blockIdx.z * QUERIES;
    const u32 here = smaller(QUERIES, vectors - first_vector);
    const u64 plane = static_cast<u64>(kv_head) * p.kv.slots * head_dim;
    const Bits* cached_keys = static_cast<const Bits*>(p.kv.keys) + plane;
    const Bits* cached_values = static_cast<const Bits*>(p.kv.values) + plane;

    const u32 begin = partition * YGG_PARTITION;
    // Of all vectors of the block: the longest prefix, the longest sequence, and the first place that is seen.
    u32 longest_prefix = 0, end = 0, seen_from = 0xffffffffu;
    for (u32 i = 0; i < here; ++i) {
        const u32 w = (first_vector + i) / group;
        const u32 prefix = p.prefix[w], length = prefix + p.tail_len[w];
        longest_prefix = prefix > longest_prefix ? prefix : longest_prefix;
        end = length > end ? length : end;
        seen_from = smaller(seen_from, first_seen(p, length));
    }
    end = smaller(end, begin + YGG_PARTITION);
    if (end <= begin || seen_from >= begin + YGG_PARTITION) return;

    for (u32 i = threadIdx.x; i < here * head_dim; i += blockDim.x) {
        const u32 vector = first_vector + i / head_dim, w = vector / group;
        const float* query = row_of(p.queries, w) + static_cast<u64>(kv_head * group + vector % group) * head_dim;
        queries[i] = turned(query, i % head_dim, p.positions[index(w)], p.rope);
    }
    Softmax<PAIRS> softmax[QUERIES_EACH];
#pragma unroll
    for (u32 q = 0; q < QUERIES_EACH; ++q) softmax[q].clear();
    barrier();

    const float* mine = queries + warp() * QUERIES_EACH * head_dim;
    for (u32 from = begin; from < end; from += SLOT_TILE) {
        if (seen_from >= from + SLOT_TILE) continue;
        if (longest_prefix >= from + SLOT_TILE) {
            for (u32 i = threadIdx.x; i < SLOT_TILE * head_dim; i += blockDim.x) {
                const u64 at = static_cast<u64>(from) * head_dim + i;
                keys[i / head_dim * key_stride + i % head_dim] = cached_keys[index(at)];
                values[i] = cached_values[index(at)];
            }
            barrier();
            float dots[QUERIES_EACH], weights[QUERIES_EACH];
#pragma unroll
            for (u32 q = 0; q < QUERIES_EACH; ++q) dots[q] = weights[q] = 0.0f;
            for (u32 d = 0; d < head_dim; ++d) {
                const float key = Element::read(keys[index(lane()) * key_stride + d]);
#pragma unroll
                for (u32 q = 0; q < QUERIES_EACH; ++q)
                    if (warp() * QUERIES_EACH + q < here) dots[q] = fma_rn(mine[index(q) * head_dim + d], key, dots[q]);
            }
#pragma unroll
            for (u32 q = 0; q < QUERIES_EACH; ++q) {
                const u32 local = warp() * QUERIES_EACH + q;
                if (local >= here) continue;
                const u32 w = (first_vector + local) / group, prefix = p.prefix[w];
                const u32 first = first_seen(p, prefix + p.tail_len[w]);
                if (prefix >= from + SLOT_TILE && first < from + SLOT_TILE)
                    weights[q] = softmax[q].take(score_of(p, dots[q], from + lane() >= first));
            }
            for (u32 j = 0; j < SLOT_TILE; ++j) {
                float each[QUERIES_EACH];
#pragma unroll
                for (u32 q = 0; q < QUERIES_EACH; ++q) each[q] = shuffle(weights[q], index(j));
#pragma unroll
                for (u32 i = 0; i < PAIRS; ++i) {
                    const u32 d = 2 * (lane() + WARP * i);
                    const float low = d < head_dim ? Element::read(values[j * head_dim + d]) : 0.0f;
                    const float high = d + 1 < head_dim ? Element::read(values[j * head_dim + d + 1]) : 0.0f;
#pragma unroll
                    for (u32 q = 0; q < QUERIES_EACH; ++q) {
                        softmax[q].low[i] = fma_rn(each[q], low, softmax[q].low[i]);
                        softmax[q].high[i] = fma_rn(each[q], high, softmax[q].high[i]);
                    }
                }
            }
            barrier();
        }
        // Vectors whose prefix ends before the tile does.
#pragma unroll
        for (u32 q = 0; q < QUERIES_EACH; ++q) {
            const u32 local = warp() * QUERIES_EACH + q;
            if (local >= here) continue;
            const u32 w = (first_vector + local) / group;
            const u32 prefix = p.prefix[w], length = prefix + p.tail_len[w];
            const u32 first = first_seen(p, length);
            if (prefix >= from + SLOT_TILE || length <= from || first >= from + SLOT_TILE) continue;
            const u32* tail = p.tails + static_cast<u64>(w) * p.tail_capacity;
            auto slot_of = [&](u32 position) { return position < prefix ? position : tail[index(position - prefix)]; };
            const u32 count = smaller(SLOT_TILE, length - from);
            float score = -infinity();
            if (lane() < count) {
                const Bits* key = cached_keys + static_cast<u64>(slot_of(from + lane())) * head_dim;
                float dot = 0.0f;
                for (u32 d = 0; d < head_dim; ++d) dot = fma_rn(mine[q * head_dim + d], Element::read(key[d]), dot);
                score = score_of(p, dot, from + lane() >= first);
            }
            const float weight = softmax[q].take(score);
            for (u32 j = 0; j < count; ++j) {
                const float each = shuffle(weight, j);
                const Bits* value = cached_values + static_cast<u64>(slot_of(index(from + j))) * head_dim;
#pragma unroll
                for (u32 i = 0; i < PAIRS; ++i) {
                    const u32 d = 2 * (lane() + WARP * i);
                    if (d < head_dim) softmax[q].low[i] = fma_rn(each, Element::read(value[d]), softmax[q].low[i]);
                    if (d + 1 < head_dim) softmax[q].high[i] = fma_rn(each, Element::read(value[d + 1]), softmax[q].high[i]);
                }
            }
        }
    }
#pragma unroll
    for (u32 q = 0; q < QUERIES_EACH; ++q) {
        const u32 local = warp() * QUERIES_EACH + q;
        if (local >= here) continue;
        const u32 vector = first_vector + local, w = vector / group;
        const u32 length = p.prefix[w] + p.tail_len[w];
        if (length <= begin || first_seen(p, length) >= begin + YGG_PARTITION) continue;
        leave<PAIRS>(p, w, kv_head * group + vector % group, partition, softmax[q]);
    }
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

// grid: partitions, key/value heads, tiles of query vectors
#define YGG_ATTENTIONS(name, Element) \
    YGG_KERNEL_OF_BLOCKS(ygg_attention_##name##_d64, YggAttention, YGG_ATTENTION_THREADS, 4) { ygg::attention<Element, 1>(p); } \
    YGG_KERNEL_OF_BLOCKS(ygg_attention_##name##_d128, YggAttention, YGG_ATTENTION_THREADS, 4) { ygg::attention<Element, 2>(p); } \
    YGG_KERNEL_OF_BLOCKS(ygg_attention_##name##_d256, YggAttention, YGG_ATTENTION_THREADS, 4) { ygg::attention<Element, 4>(p); }

YGG_ATTENTIONS(f16, ygg::F16)
YGG_ATTENTIONS(f32, ygg::F32)

// grid: query heads, rows
YGG_KERNEL(ygg_attention_join, YggAttention, YGG_ATTENTION_THREADS) {
    wait_for_kernels_before();
    let_next_kernel_begin();
    if (ygg::is_skipped(p.step)) return;
    const u32 head = blockIdx.x, w = blockIdx.y, head_dim = p.kv.head_dim;
    const u32 length = p.prefix[w] + p.tail_len[w], unseen = ygg::first_seen(p, length) / YGG_PARTITION;
    const u64 first = (static_cast<u64>(w) * p.heads + head) * p.partitions + unseen;
    const u32 count = ygg::ceil_div(length, YGG_PARTITION) - unseen;
    float largest = -ygg::infinity();
    for (u32 i = 0; i < count; ++i) largest = ygg::larger(largest, p.partial_max[first + i]);
    float sum = 0.0f;
    for (u32 i = 0; i < count; ++i)
        sum = fma_rn(p.partial_sum[first + i], ygg::exp_fast(add_rn(p.partial_max[first + i], -largest)), sum);
    float* out = ygg::row_of(p.out, w) + static_cast<u64>(head) * head_dim;
    for (u32 d = threadIdx.x; d < head_dim; d += blockDim.x) {
        float total = 0.0f;
        for (u32 i = 0; i < count; ++i) {
            const float weight = ygg::exp_fast(add_rn(p.partial_max[first + i], -largest));
            total = fma_rn(p.partial[index(first + i) * head_dim + d], weight, total);
        }
        // A row that sees nothing gets zeros.
        total = count == 0 ? 0.0f : divide(total, sum);
        out[d] = total;
        ygg::store_fragment(p.next, w, head * head_dim + d, total);
    }
}

// grid: planes. A thread moves its bytes of every slot in order, so sources may lie among the destinations behind them.
YGG_KERNEL(ygg_move_slots, YggMoves, YGG_ROW_THREADS) {
    u8* plane = p.cache + static_cast<u64>(blockIdx.x) * p.slots * p.slot_bytes;
    for (u32 i = threadIdx.x; i < p.slot_bytes / 2; i += blockDim.x)
        for (u32 m = 0; m < p.count; ++m) {
            const u16* from = reinterpret_cast<const u16*>(plane + static_cast<u64>(p.from[index(m)]) * p.slot_bytes);
            reinterpret_cast<u16*>(plane + static_cast<u64>(p.first + m) * p.slot_bytes)[i] = from[i];
        }
}

// grid: planes
YGG_KERNEL(ygg_poison_slots, YggPoison, YGG_ROW_THREADS) {
    const u64 count = static_cast<u64>(p.count) * p.head_dim;
    const u64 start = (static_cast<u64>(blockIdx.x) * p.slots + p.first) * p.head_dim;
    for (u64 i = threadIdx.x; i < count; i += blockDim.x) {
        u64 state = (start + i) * 6364136223846793005ull + (p.seed | 1) * 1442695040888963407ull;
        state ^= state >> 33;
        state *= 0xff51afd7ed558ccdull;
        const float noise = static_cast<float>(static_cast<u32>(state >> 40)) / 1048576.0f - 8.0f;
        if (p.halves)
            static_cast<u16*>(p.cache)[start + i] = ygg::F16::write(noise);
        else
            static_cast<float*>(p.cache)[start + i] = noise;
    }
}
