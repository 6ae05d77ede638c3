// Attention of tree rows over a cache of slots, and what moves slots about.
//
// A row sees its committed prefix, where slot equals position, and then the slots of its ancestors: position i of its *logical sequence* is
// the i-th of these. What a row gets depends on that sequence alone: it is cut by logical position, into partitions of YGG_PARTITION, whose
// numbers are made in an order that does not know of widths or of other rows. A partition that lies in the prefix is fetched once for all
// query vectors of a block, up to YGG_QUERY_TILE of one key/value head; blocks take such partitions in turn, so that their number follows
// the context and not the longest one. Partitions in which a row's ancestors lie are the row's own, and other blocks take these, a few rows each:
// their slots are gathered, and then all is the same. Keys and values go to shared memory by 16-byte copies, all of them begun before the
// first is waited for. Halves are multiplied by tensor cores, whatever the number of query vectors: queries and weights are each two halves,
// whose sum is off by 2^-22 of a number. A row of a product of tensor cores does not depend on the others, and neither does a column. A partition leaves its largest score, its sum of weights and its weighted values; a last kernel joins them in order.
// Lengths are read from device memory: the launch is the same for every length.
#pragma once

#include "rows.cuh"

namespace ygg {

constexpr u32 PARTITION = YGG_PARTITION;
constexpr u32 QUERIES = YGG_QUERY_TILE;
constexpr u32 WARPS = YGG_ATTENTION_THREADS / YGG_WARP;
// A key of f32 is multiplied in so many parts, by as many threads.
constexpr u32 PARTS = YGG_ATTENTION_THREADS / YGG_PARTITION;
static_assert(PARTITION == 2 * WARP && PARTS == 2, "a lane weighs two places, and a place has two threads");
static_assert(PARTITION == 16 * WARPS && QUERIES == 16, "a warp multiplies 16 keys, and 16 rows of weights");

// The first place that a row with a logical sequence of this length sees.
YGG_DEVICE u32 first_seen(const YggAttention& p, u32 length) { return length > p.window ? length - p.window : 0; }

// The score of a place from the product of query and key; of one that is not seen, none.
YGG_DEVICE float score_of(const YggAttention& p, float dot, bool is_seen) {
    if (!is_seen) return -infinity();
    const float score = mul_rn(dot, p.scale);
    return p.softcap > 0.0f ? softcapped(score, p.softcap) : score;
}

// Floats from one query vector's partial result to the next one's: whole loads.
YGG_DEVICE u32 partial_stride(u32 head_dim) { return ceil_div(head_dim, 4) * 4; }

// The nearest half and, in the high bits, the half that is nearest to what it lacks.
YGG_DEVICE u32 two_halves(float x) {
    const u16 near = float_to_half(in_half(x));
    return near | static_cast<u32>(float_to_half(add_rn(x, -half_to_float(near)))) << 16;
}

// A block of attention over heads of at most WIDEST elements.
template <class Element, u32 WIDEST> struct AttentionBlock {
    using Bits = typename Element::Bits;
    // Elements of a copy, and copies of the longest slot.
    static constexpr u32 CHUNK = 16 / sizeof(Bits);
    static constexpr u32 MOST_CHUNKS = WIDEST / CHUNK;
    // Whether shared memory has room for keys beside values.
    static constexpr bool IS_TOGETHER = WIDEST * sizeof(Bits) <= 512;
    // A thread adds two elements of the values of so many places; the sums of such spans are joined in order.
    static constexpr u32 PAIRS = WIDEST / 2;
    static constexpr u32 SPANS = YGG_ATTENTION_THREADS / PAIRS;
    static constexpr u32 SPAN = PARTITION / SPANS;

    static constexpr bool IS_HALF = sizeof(Bits) == 2;
    // Vectors of products and weights lie so far apart that those of tensor cores' lanes are in other banks.
    static constexpr u32 DOTS = IS_HALF ? PARTITION + 8 : PARTITION;
    // 16 elements of every row of results; a warp has every so manieth.
    static constexpr u32 SIXTEENS = (WIDEST / 16 + WARPS - 1) / WARPS;

    const YggAttention& p;
    const u32 kv_head, head_dim, group, first_vector, here;
    // Chunks of a slot, its elements with what fills the last chunk or 16 halves, and what lies between slots in shared memory: one chunk more,
    // so that neighbours start in other banks.
    const u32 chunks, wide, stride;
    Bits* const queries; // [QUERIES][wide]; of halves [2][QUERIES][stride]: the nearest halves, and what they lack
    float* const dots;   // [PARTS][QUERIES][PARTITION]; weights lie where the first part was. Of halves [QUERIES][DOTS], weights as two halves
    Bits* const keys;    // [PARTITION][stride]; then what spans join
    Bits* const values;  // [PARTITION][stride]
    u32* const prefixes; // of every vector that is asked for
    u32* const lengths;

    YGG_DEVICE u32 first_seen_by(u32 q) const { return first_seen(p, lengths[q]); }
    // Whether the vector's row sees something of a partition that lies in its prefix.
    YGG_DEVICE bool takes(u32 q, u32 begin) const { return prefixes[q] >= begin + PARTITION && first_seen_by(q) < begin + PARTITION; }

    YGG_DEVICE void keep_query(u32 q, u32 d, float x) const {
        if constexpr (IS_HALF) {
            const u32 both = two_halves(x);
            queries[q * stride + d] = static_cast<Bits>(both);
            queries[(QUERIES + q) * stride + d] = static_cast<Bits>(both >> 16);
        } else {
            queries[q * wide + d] = x;
        }
    }

    // Brings vectors `from` to `end` and the lengths of their rows to shared memory. All loads are begun before the first is waited for.
    YGG_DEVICE void ask(u32 from, u32 end) const {
        auto query_of = [&](u32 q) {
            const u32 vector = first_vector + q;
            return row_of(p.queries, vector / group) + static_cast<u64>(kv_head * group + vector % group) * head_dim;
        };
        // Four elements of so many vectors a thread.
        constexpr u32 FOURS = WIDEST / 4, EACH = QUERIES * FOURS / YGG_ATTENTION_THREADS;
        const u32 d = threadIdx.x % FOURS * 4;
        Quad fours[EACH];
#pragma unroll
        for (u32 i = 0; i < EACH; ++i) {
            const u32 q = from + threadIdx.x / FOURS + i * (YGG_ATTENTION_THREADS / FOURS);
            if (q < end) fours[i] = quad_of(query_of(q), index(d), head_dim);
        }
        if (threadIdx.x >= from && threadIdx.x < end) {
            const u32 w = (first_vector + threadIdx.x) / group, prefix = p.prefix[w], tail = p.tail_len[index(w)];
            prefixes[threadIdx.x] = prefix;
            lengths[threadIdx.x] = prefix + tail;
        }
#pragma unroll
        for (u32 i = 0; i < EACH; ++i) {
            const u32 q = from + threadIdx.x / FOURS + i * (YGG_ATTENTION_THREADS / FOURS);
            if (q >= end) continue;
            const u32 position = p.rope.cosines == nullptr ? 0 : p.positions[(first_vector + q) / group];
#pragma unroll
            for (u32 e = 0; e < 4; ++e) {
                if (d + e >= wide) continue;
                // Elements that turn have partners elsewhere.
                const bool is_turned = p.rope.cosines != nullptr && d + e < head_dim;
                keep_query(q, d + e, is_turned ? turned(query_of(q), d + e, position, p.rope) : fours[i].of[e]);
            }
        }
        barrier();
    }

    // Slots of the places of which a thread copies a chunk, all asked for before the first is waited for.
    static constexpr u32 PLACES = PARTITION * MOST_CHUNKS / YGG_ATTENTION_THREADS;
    YGG_DEVICE static u32 place_of(u32 i) { return threadIdx.x / MOST_CHUNKS + i * (YGG_ATTENTION_THREADS / MOST_CHUNKS); }
    template <class SlotOf> YGG_DEVICE static void find_slots(u32 (&slots)[PLACES], u32 count, SlotOf slot_of) {
#pragma unroll
        for (u32 i = 0; i < PLACES; ++i) slots[i] = place_of(i) < count ? slot_of(index(place_of(i))) : 0;
    }

    // Begins to copy a partition's keys or values. Places behind the last become zeros.
    template <class SlotOf> YGG_DEVICE void fetch(Bits* to, const void* cache, u32 count, const u32 (&slots)[PLACES], SlotOf slot_of) const {
        const Bits* plane = static_cast<const Bits*>(cache) + static_cast<u64>(kv_head) * p.kv.slots * head_dim;
        if (head_dim % CHUNK != 0) {
            // Slots are no whole chunks: an odd head of a small model.
            for (u32 i = threadIdx.x; i < PARTITION * wide; i += blockDim.x) {
                const u32 place = i / wide, d = i % wide;
                const bool is_there = place < count && d < head_dim;
                to[place * stride + d] = is_there ? plane[static_cast<u64>(slot_of(place)) * head_dim + index(d)] : Element::write(0.0f);
            }
            return;
        }
        const u32 chunk = threadIdx.x % MOST_CHUNKS;
        if (chunk >= chunks) return;
        const bool is_of_head = chunk * CHUNK < head_dim;
#pragma unroll
        for (u32 i = 0; i < PLACES; ++i)
            copy_async(to + place_of(i) * stride + chunk * CHUNK, plane + static_cast<u64>(slots[i]) * head_dim + (is_of_head ? chunk * CHUNK : 0), is_of_head && place_of(i) < count);
    }

    // Two neighbours in shared memory.
    YGG_DEVICE static u32 pair_at(const Bits* from) { return *reinterpret_cast<const u32*>(from); }

    // Products of vectors `from` to `end`, and of others of their tiles, with the 16 keys of the warp: those of both halves of a query are added
    // apart, so that half as many multiplications wait for each other.
    YGG_DEVICE void multiply_halves(u32 from, u32 end) const {
        const u32 row = lane() / 4, column = lane() % 4 * 2;
        const Bits* key = keys + (warp() * 16 + row) * stride + column;
        float sums[QUERIES / 8][2][4] = {};
#pragma unroll
        for (u32 d = 0; d < WIDEST; d += 16) {
            if (d >= wide) continue;
            const u32 a[4] = {pair_at(key + index(d)), pair_at(key + 8 * stride + d), pair_at(key + d + 8), pair_at(key + 8 * stride + d + 8)};
#pragma unroll
            for (u32 n = 0; n < QUERIES / 8; ++n) {
                if (n * 8 >= end || n * 8 + 8 <= from) continue;
#pragma unroll
                for (u32 half = 0; half < 2; ++half) {
                    const Bits* query = queries + (half * QUERIES + n * 8 + row) * stride + index(d) + column;
                    mma_f16(sums[n][half], a, pair_at(query), pair_at(query + 8));
                }
            }
        }
#pragma unroll
        for (u32 n = 0; n < QUERIES / 8; ++n)
#pragma unroll
            for (u32 e = 0; e < 4; ++e) dots[(n * 8 + column + e % 2) * DOTS + warp() * 16 + row + index(e) / 2 * 8] = add_rn(sums[n][0][e], sums[n][1][e]);
    }

    // Weighted values of all vectors, in the warp's elements of 16 that lie together. `leaves(q)` says whether and `at(q)` where.
    template <class Leaves, class At> YGG_DEVICE void add_halves(Leaves leaves, At at) const {
        const u32 row = lane() / 4, column = lane() % 4 * 2;
        float sums[SIXTEENS][2][4] = {};
#pragma unroll
        for (u32 place = 0; place < PARTITION; place += 16) {
            u32 weights[2][4];
#pragma unroll
            for (u32 r = 0; r < 4; ++r) {
                const float* two = dots + (row + r % 2 * 8) * DOTS + place + column + r / 2 * 8;
                const u32 low = float_to_bits(two[0]), high = float_to_bits(two[index(1u)]);
                weights[0][r] = select_bytes(low, high, 0x5410u);
                weights[1][r] = select_bytes(low, high, 0x7632u);
            }
#pragma unroll
            for (u32 i = 0; i < SIXTEENS; ++i) {
                const u32 d = (i * WARPS + warp()) * 16;
                if (d >= wide) continue;
                // Elements 2 row and 2 row + 1 of four places: columns of two products.
                const Bits* value = values + (place + column) * stride + d + 2 * row;
                const u32 v[4] = {pair_at(value), pair_at(value + stride), pair_at(value + 8 * stride), pair_at(value + index(9u) * stride)};
#pragma unroll
                for (u32 odd = 0; odd < 2; ++odd) {
                    const u32 of = odd == 0 ? 0x5410u : 0x7632u, b0 = select_bytes(v[0], v[1], of), b1 = select_bytes(v[2], v[3], of);
#pragma unroll
                    for (u32 half = 0; half < 2; ++half) mma_f16(sums[i][odd], weights[half], b0, b1);
                }
            }
        }
#pragma unroll
        for (u32 half = 0; half < 2; ++half) {
            const u32 q = row + half * 8;
            if (!leaves(q)) continue;
            float* to = p.partial + at(q) * partial_stride(head_dim);
#pragma unroll
            for (u32 i = 0; i < SIXTEENS; ++i) {
                const u32 d = (i * WARPS + warp()) * 16 + 2 * column;
                auto bits = [&](u32 e) { return float_to_bits(sums[i][e % 2][half * 2 + e / 2]); };
                if (d < head_dim) *reinterpret_cast<Words4*>(to + index(d)) = {bits(0), bits(1), bits(2), bits(3)};
            }
        }
    }

    // Products of the vectors from `from` on with the key of the thread's place.
    template <u32 TOGETHER> YGG_DEVICE void multiply(u32 from, u32 end) const {
        const u32 place = threadIdx.x % PARTITION, part = threadIdx.x / PARTITION, each = ceil_div(chunks, PARTS);
        float sums[TOGETHER];
#pragma unroll
        for (u32 n = 0; n < TOGETHER; ++n) sums[n] = 0.0f;
        for (u32 c = part * each; c < smaller(chunks, (part + 1) * each); ++c) {
            float key[CHUNK];
            Element::unpack(key, *reinterpret_cast<const Words4*>(keys + place * stride + index(c) * CHUNK));
#pragma unroll
            for (u32 n = 0; n < TOGETHER; ++n) {
                const Words4* query = reinterpret_cast<const Words4*>(queries + smaller(from + n, QUERIES - 1) * wide + c * CHUNK);
#pragma unroll
                for (u32 i = 0; i < CHUNK / 4; ++i) {
                    const Words4 four = query[i];
                    sums[n] = fma_rn(bits_to_float(four.x), key[4 * i], sums[n]);
                    sums[n] = fma_rn(bits_to_float(four.y), key[4 * i + 1], sums[n]);
                    sums[n] = fma_rn(bits_to_float(four.z), key[4 * i + 2], sums[n]);
                    sums[n] = fma_rn(bits_to_float(four.w), key[4 * i + 3], sums[n]);
                }
            }
        }
#pragma unroll
        for (u32 n = 0; n < TOGETHER; ++n)
            if (from + n < end) dots[(part * QUERIES + index(from + n)) * PARTITION + place] = sums[n];
    }

    // Weights of all places, for one vector in each warp.
    YGG_DEVICE void weigh(u32 q, u32 begin, u32 count, u64 at, bool is_left) const {
        float* row = dots + q * DOTS;
        const u32 first = first_seen_by(q), low = lane(), high = lane() + WARP;
        auto dot = [&](u32 place) { return IS_HALF ? row[place] : add_rn(row[place], row[QUERIES * PARTITION + index(place)]); };
        const float a = score_of(p, dot(low), low < count && begin + low >= first);
        const float b = score_of(p, dot(high), high < count && begin + high >= first);
        const float largest = warp_max(larger(a, b));
        const float of_a = exp_fast(add_rn(a, -largest)), of_b = exp_fast(add_rn(b, -largest));
        const float sum = warp_sum(add_rn(of_a, of_b));
        row[low] = IS_HALF ? bits_to_float(two_halves(of_a)) : of_a;
        row[high] = IS_HALF ? bits_to_float(two_halves(of_b)) : of_b;
        if (lane() != 0 || !is_left) return;
        p.partial_max[index(at)] = largest;
        p.partial_sum[index(at)] = sum;
    }

    // Weighted values of the vectors from `from` on. `leaves(n)` says whether and `at(n)` where.
    template <u32 TOGETHER, class Leaves, class At> YGG_DEVICE void add_values(u32 from, Leaves leaves, At at) const {
        const u32 d = 2 * (threadIdx.x % PAIRS), span = threadIdx.x / PAIRS;
        float* joined = reinterpret_cast<float*>(keys); // [SPANS - 1][TOGETHER][wide]
        float low[TOGETHER], high[TOGETHER];
#pragma unroll
        for (u32 n = 0; n < TOGETHER; ++n) low[n] = high[n] = 0.0f;
        if (d < wide) {
#pragma unroll 2
            for (u32 place = span * SPAN; place < (span + 1) * SPAN; place += 4) {
                Words4 weights[TOGETHER];
#pragma unroll
                for (u32 n = 0; n < TOGETHER; ++n)
                    weights[n] = *reinterpret_cast<const Words4*>(dots + smaller(from + n, QUERIES - 1) * PARTITION + place);
#pragma unroll
                for (u32 i = 0; i < 4; ++i) {
                    float a, b;
                    Element::unpack_pair(a, b, values + index(place + i) * stride + d);
#pragma unroll
                    for (u32 n = 0; n < TOGETHER; ++n) {
                        const float weight = bits_to_float(word_of(weights[n], i));
                        low[n] = fma_rn(weight, a, low[n]);
                        high[n] = fma_rn(weight, b, high[n]);
                    }
                }
            }
        }
        if (SPANS > 1) {
            barrier();
#pragma unroll
            for (u32 n = 0; n < TOGETHER; ++n) {
                if (span == 0 || d >= wide) continue;
                joined[((span - 1) * TOGETHER + index(n)) * wide + d] = low[n];
                joined[((span - 1) * TOGETHER + n) * wide + d + 1] = high[n];
            }
            barrier();
        }
        if (span != 0) return;
#pragma unroll
        for (u32 n = 0; n < TOGETHER; ++n) {
            if (!leaves(n)) continue;
#pragma unroll
            for (u32 other = 0; other + 1 < SPANS; ++other) {
                if (d >= wide) continue;
                low[n] = add_rn(low[n], joined[(index(other) * TOGETHER + n) * wide + d]);
                high[n] = add_rn(high[n], joined[(other * TOGETHER + n) * wide + d + 1]);
            }
            float* to = p.partial + at(n) * partial_stride(head_dim);
            if (d < head_dim) to[index(d)] = low[n];
            if (d + 1 < head_dim) to[d + 1] = high[n];
        }
    }

    // What a block does at once: a partition of the prefix, or of a row's own places, and the vectors that see it. No vectors: nothing is left.
    struct Work {
        u32 partition, row, from, end, count;
    };

    // The first partition of the prefix from `partition` on, `by` further each, that a row takes.
    YGG_DEVICE Work in_prefix(u32 partition, u32 by, u32 longest) const {
        for (; partition < longest / PARTITION; partition += by)
            for (u32 q = 0; q < here; ++q)
                if (takes(q, partition * PARTITION)) return {partition, 0, 0, here, PARTITION};
        return {};
    }

    // The first partition from `partition` on of places that row `row` sees beyond whole ones of its prefix; then those of the rows behind it.
    YGG_DEVICE Work of_rows(u32 row, u32 partition, u32 rows) const {
        for (; row < rows; ++row, partition = 0) {
            const u32 from = row * group > first_vector ? row * group - first_vector : 0, end = smaller(here, (row + 1) * group - first_vector);
            const u32 prefix = prefixes[from] / PARTITION, seen = first_seen_by(from) / PARTITION, length = lengths[from];
            partition = partition > prefix ? partition : prefix;
            partition = partition > seen ? partition : seen;
            if (partition * PARTITION < length) return {partition, row, from, end, smaller(PARTITION, length - partition * PARTITION)};
        }
        return {};
    }

    // Does all work from `work` on: its part of the results. What is to be copied for the next is begun as soon as there is room for it.
    template <bool IS_OWN, class Following> YGG_DEVICE void run(Work work, Following following) const {
        constexpr bool IS_EARLY = IS_HALF && IS_TOGETHER;
        auto slot_of = [&](const Work& of, u32 place) {
            const u32 position = of.partition * PARTITION + place, prefix = IS_OWN ? prefixes[of.from] : 0;
            return !IS_OWN || position < prefix ? position : p.tails[static_cast<u64>(of.row) * p.tail_capacity + index(position) - prefix];
        };
        auto is_left = [&](u32 q) { return IS_OWN || takes(q, work.partition * PARTITION); };
        auto at = [&](u32 q) {
            const u32 vector = first_vector + q;
            return (static_cast<u64>(vector / group) * p.heads + kv_head * group + vector % group) * p.partitions + work.partition;
        };
        u32 slots[PLACES];
        auto find = [&](const Work& of) { find_slots(slots, of.count, [&](u32 place) { return slot_of(of, place); }); };
        auto copy = [&](Bits* to, const void* cache, const Work& of) {
            if (of.end > 0) fetch(to, cache, of.count, slots, [&](u32 place) { return slot_of(of, place); });
            commit_copies();
        };
        find(work);
        copy(keys, p.kv.keys, work);
        if (IS_TOGETHER) copy(values, p.kv.values, work);
        while (work.end > 0) {
            const u32 from = work.from, end = work.end;
            const Work next = following(work);
            wait_for_copies<IS_TOGETHER ? 1 : 0>();
            barrier();
            const bool is_one = end - from == 1;
            if constexpr (IS_HALF)
                multiply_halves(from, end);
            else if (is_one)
                multiply<1>(from, end);
            else
                for (u32 q = from; q < end; q += 4) multiply<4>(q, end);
            barrier();
            if (!IS_TOGETHER) copy(values, p.kv.values, work);
            if (IS_EARLY) {
                find(next);
                copy(keys, p.kv.keys, next);
            }
            for (u32 q = from + warp(); q < end; q += WARPS) weigh(q, work.partition * PARTITION, work.count, at(q), is_left(q));
            wait_for_copies<IS_EARLY ? 1 : 0>();
            barrier();
            if constexpr (IS_HALF)
                add_halves([&](u32 q) { return q >= from && q < end && is_left(q); }, at);
            else if (is_one)
                add_values<1>(from, [&](u32) { return is_left(from); }, [&](u32) { return at(from); });
            else
                for (u32 q = from; q < end; q += 4)
                    add_values<4>(q, [&](u32 n) { return q + n < end && is_left(q + n); }, [&](u32 n) { return at(q + n); });
            barrier();
            if (!IS_EARLY) {
                find(next);
                copy(keys, p.kv.keys, next);
            }
            if (IS_TOGETHER) copy(values, p.kv.values, next);
            work = next;
        }
    }
};

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
    Bits* keys = reinterpret_cast<Bits*>(dots + QUERIES * (IS_HALF ? Block::DOTS : PARTS * PARTITION));
    Bits* values = Block::IS_TOGETHER ? keys + PARTITION * stride : keys;
    const Block block{p, kv_head, head_dim, group, first_vector, here, chunks, wide, stride, queries, dots, keys, values, prefixes, lengths};

    if (blockIdx.x < p.spread) {
        block.ask(0, here);
        u32 longest = 0;
        for (u32 q = 0; q < here; ++q) longest = prefixes[q] > longest ? prefixes[q] : longest;
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
    block.template run<true>(block.of_rows(row, 0, rows), [&](const typename Block::Work& work) { return block.of_rows(work.row, work.partition + 1, rows); });
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
// queries, products, keys and, where 512 bytes hold a slot's, values beside them.
#define YGG_ATTENTIONS(name, Element, blocks) \
    YGG_KERNEL_OF_BLOCKS(ygg_attention_##name##_d64, YggAttention, YGG_ATTENTION_THREADS, blocks) { ygg::attention<Element, 64>(p); } \
    YGG_KERNEL_OF_BLOCKS(ygg_attention_##name##_d128, YggAttention, YGG_ATTENTION_THREADS, blocks) { ygg::attention<Element, 128>(p); } \
    YGG_KERNEL_OF_BLOCKS(ygg_attention_##name##_d256, YggAttention, YGG_ATTENTION_THREADS, 2) { ygg::attention<Element, 256>(p); }

YGG_ATTENTIONS(f16, ygg::F16, 4)
YGG_ATTENTIONS(f32, ygg::F32, 2)

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
    const u32 threads = head_dim <= 64 ? 16 : head_dim <= 128 ? 32 : 64, groups = YGG_ATTENTION_THREADS / threads;
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
    for (u32 i = lane(); i < count; i += WARP) sum = fma_rn(load_number(sums + index(i)), exp_fast(add_rn(load_number(maxima + i), -largest)), sum);
    sum = warp_sum(sum);
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
