// What a block of attention does with one partition at a time: of the prefix, for all query vectors of the block, or of the places that a row sees
// for itself. Their slots are gathered, and then all is the same. Keys and values go to shared memory by 16-byte copies, all of them begun before
// the first is waited for. Halves are multiplied by tensor cores, whatever the number of query vectors: queries and weights are each two halves,
// whose sum is off by 2^-22 of a number. A row of a product of tensor cores does not depend on the others, and neither does a column.
#pragma once

#include "rows.cuh"

namespace ygg {

constexpr u32 PARTITION = YGG_PARTITION;
constexpr u32 QUERIES = YGG_QUERY_TILE;
constexpr u32 SCORES_APART = YGG_SCORES_APART;
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

// The first of a head's elements that a block has: it has all, or some of a wider head.
struct WholeHead {
    // No member, since one that is always 0 made a seventh more instructions (heads of 128, sm_90a).
    static constexpr u32 from_element = 0;
};
struct PartOfHead {
    u32 from_element;
};

// A block of attention over heads of at most WIDEST elements, or over so many of a wider head's.
template <class Element, u32 WIDEST, class Part = WholeHead> struct AttentionBlock : Part {
    using Part::from_element;
    using Bits = typename Element::Bits;
    // Elements of a copy, and copies of the longest slot.
    static constexpr u32 CHUNK = 16 / sizeof(Bits);
    static constexpr u32 MOST_CHUNKS = WIDEST / CHUNK;
    // Whether shared memory has room for keys and values at once.
    static constexpr bool IS_TOGETHER = WIDEST * sizeof(Bits) <= 512;
    // A thread adds two elements of the values of so many places; the sums of such spans are joined in order.
    static constexpr u32 PAIRS = WIDEST / 2;
    static constexpr u32 SPANS = YGG_ATTENTION_THREADS / PAIRS;
    static constexpr u32 SPAN = PARTITION / SPANS;

    static constexpr bool IS_HALF = sizeof(Bits) == 2;
    static constexpr bool TAKES_ROWS_AT_ONCE = IS_HALF;
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
            if (q < end) fours[i] = quad_of(query_of(q), index(from_element + d), head_dim);
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
                const bool is_turned = p.rope.cosines != nullptr && from_element + d + e < head_dim;
                keep_query(q, d + e, is_turned ? turned(query_of(q), from_element + d + e, position, p.rope) : fours[i].of[e]);
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

    // Begins to copy a partition's keys or values. Places past the last become zeros.
    template <class SlotOf> YGG_DEVICE void fetch(Bits* to, const void* cache, u32 count, const u32 (&slots)[PLACES], SlotOf slot_of) const {
        const Bits* plane = static_cast<const Bits*>(cache) + static_cast<u64>(kv_head) * p.kv.slots * head_dim;
        if (head_dim % CHUNK != 0) {
            // Slots are no whole chunks: an odd head of a small model.
            for (u32 i = threadIdx.x; i < PARTITION * wide; i += blockDim.x) {
                const u32 place = i / wide, d = i % wide;
                const bool is_there = place < count && from_element + d < head_dim;
                to[place * stride + d] = is_there ? plane[static_cast<u64>(slot_of(place)) * head_dim + from_element + index(d)] : Element::write(0.0f);
            }
            return;
        }
        const u32 chunk = threadIdx.x % MOST_CHUNKS;
        if (chunk >= chunks) return;
        const bool is_of_head = from_element + chunk * CHUNK < head_dim;
#pragma unroll
        for (u32 i = 0; i < PLACES; ++i)
            copy_async(to + place_of(i) * stride + chunk * CHUNK, plane + static_cast<u64>(slots[i]) * head_dim + (is_of_head ? from_element + chunk * CHUNK : 0), is_of_head && place_of(i) < count);
    }

    // Two neighbours in shared memory.
    YGG_DEVICE static u32 pair_at(const Bits* from) { return *reinterpret_cast<const u32*>(from); }

    // Products of vectors `from` to `end`, and of others of their tiles, with 16 keys from `first` on: those of both halves of a query are added
    // apart, so that half as many multiplications wait for each other. In the order of a tensor core's results.
    YGG_DEVICE void products_of(float (&products)[QUERIES / 8][4], const Bits* first, u32 from, u32 end) const {
        const u32 row = lane() / 4, column = lane() % 4 * 2;
        const Bits* key = first + row * stride + column;
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
            for (u32 e = 0; e < 4; ++e) products[n][e] = add_rn(sums[n][0][e], sums[n][1][e]);
    }
    // Leaves products with the 16 keys of tile `tile`, `apart` numbers from a vector to the next.
    YGG_DEVICE static void leave_products(float* to, u32 apart, u32 tile, const float (&products)[QUERIES / 8][4]) {
        const u32 row = lane() / 4, column = lane() % 4 * 2;
#pragma unroll
        for (u32 n = 0; n < QUERIES / 8; ++n)
#pragma unroll
            for (u32 e = 0; e < 4; ++e) to[(n * 8 + column + e % 2) * apart + tile * 16 + row + index(e) / 2 * 8] = products[n][e];
    }

    // Weighted values of all vectors, in the warp's elements of 16 that lie together: of vectors of weights that lie `apart`, and of
    // `values`, where place `place` has number `number_of(place)`. `leaves(q)` says whether and `at(q)` where.
    template <class NumberOf, class Leaves, class At>
    YGG_DEVICE void add_halves(const float* weights_of, u32 apart, const Bits* values, NumberOf number_of, Leaves leaves, At at) const {
        const u32 row = lane() / 4, column = lane() % 4 * 2;
        float sums[SIXTEENS][2][4] = {};
#pragma unroll
        for (u32 place = 0; place < PARTITION; place += 16) {
            u32 weights[2][4];
#pragma unroll
            for (u32 r = 0; r < 4; ++r) {
                const float* two = weights_of + (row + r % 2 * 8) * apart + place + column + r / 2 * 8;
                const u32 low = float_to_bits(two[0]), high = float_to_bits(two[index(1u)]);
                weights[0][r] = select_bytes(low, high, 0x5410u);
                weights[1][r] = select_bytes(low, high, 0x7632u);
            }
            const u32 first = place + column, numbers[4] = {number_of(first), number_of(first + 1), number_of(first + 8), number_of(first + index(9u))};
#pragma unroll
            for (u32 i = 0; i < SIXTEENS; ++i) {
                const u32 d = (i * WARPS + warp()) * 16;
                if (d >= wide) continue;
                // Elements 2 row and 2 row + 1 of four places: columns of two products.
                u32 v[4];
#pragma unroll
                for (u32 r = 0; r < 4; ++r) v[r] = pair_at(values + numbers[r] * stride + d + 2 * row);
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
                const u32 d = from_element + (i * WARPS + warp()) * 16 + 2 * column;
                auto bits = [&](u32 e) { return float_to_bits(sums[i][e % 2][half * 2 + e / 2]); };
                if (d < head_dim) *reinterpret_cast<Words4*>(to + index(d)) = {bits(0), bits(1), bits(2), bits(3)};
            }
        }
    }

    // Products of the vectors from `from` on with the key of the thread's place, added to those with the elements of a head before these.
    template <u32 TOGETHER> YGG_DEVICE void multiply(u32 from, u32 end) const {
        const u32 place = threadIdx.x % PARTITION, part = threadIdx.x / PARTITION, each = ceil_div(chunks, PARTS);
        float sums[TOGETHER];
#pragma unroll
        for (u32 n = 0; n < TOGETHER; ++n) sums[n] = from_element > 0 && from + n < end ? dots[(part * QUERIES + index(from + n)) * PARTITION + place] : 0.0f;
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
        leave_weights(row, a, b, at, is_left);
    }
    // Makes weights of the scores of a partition's places `lane` and `lane + 32`, and leaves what the join needs in addition to values.
    YGG_DEVICE void leave_weights(float* row, float a, float b, u64 at, bool is_left) const {
        const float largest = warp_max(larger(a, b));
        const float of_a = exp_fast(add_rn(a, -largest)), of_b = exp_fast(add_rn(b, -largest));
        const float sum = warp_sum(add_rn(of_a, of_b));
        row[lane()] = IS_HALF ? bits_to_float(two_halves(of_a)) : of_a;
        row[lane() + WARP] = IS_HALF ? bits_to_float(two_halves(of_b)) : of_b;
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
            float* to = p.partial + at(n) * partial_stride(head_dim) + from_element;
            if (from_element + d < head_dim) to[index(d)] = low[n];
            if (from_element + d + 1 < head_dim) to[d + 1] = high[n];
        }
    }

    // Where what a vector gets of a partition is left.
    YGG_DEVICE u64 place_of_partial(u32 q, u32 partition) const {
        const u32 vector = first_vector + q;
        return (static_cast<u64>(vector / group) * p.heads + kv_head * group + vector % group) * p.partitions + partition;
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

    // The vectors of a row that the block has.
    YGG_DEVICE u32 first_of(u32 row) const { return row * group > first_vector ? row * group - first_vector : 0; }
    YGG_DEVICE u32 end_of(u32 row) const { return smaller(here, (row + 1) * group - first_vector); }
    // The first partition that the vector's row sees beyond whole ones of its prefix.
    YGG_DEVICE u32 first_own(u32 q) const {
        const u32 prefix = prefixes[q] / PARTITION, seen = first_seen_by(q) / PARTITION;
        return prefix > seen ? prefix : seen;
    }

    // The first partition from `partition` on of places that row `row` sees beyond whole ones of its prefix; then those of the rows after it.
    YGG_DEVICE Work of_rows(u32 row, u32 partition, u32 rows) const {
        for (; row < rows; ++row, partition = 0) {
            const u32 from = first_of(row), end = end_of(row), own = first_own(from), length = lengths[from];
            partition = partition > own ? partition : own;
            if (partition * PARTITION < length) return {partition, row, from, end, smaller(PARTITION, length - partition * PARTITION)};
        }
        return {};
    }

    // The slot of a place of what is done at once.
    template <bool IS_OWN> YGG_DEVICE u32 slot_of(const Work& of, u32 place) const {
        const u32 position = of.partition * PARTITION + place, prefix = IS_OWN ? prefixes[of.from] : 0;
        return !IS_OWN || position < prefix ? position : p.tails[static_cast<u64>(of.row) * p.tail_capacity + index(position) - prefix];
    }

    // Does all work from `work` on: its part of the results. What is to be copied for the next is begun as soon as there is room for it.
    template <bool IS_OWN, class Following> YGG_DEVICE void run(Work work, Following following) const {
        constexpr bool IS_EARLY = IS_HALF && IS_TOGETHER;
        auto is_left = [&](u32 q) { return IS_OWN || takes(q, work.partition * PARTITION); };
        auto at = [&](u32 q) { return place_of_partial(q, work.partition); };
        u32 slots[PLACES];
        auto find = [&](const Work& of) { find_slots(slots, of.count, [&](u32 place) { return slot_of<IS_OWN>(of, place); }); };
        auto copy = [&](Bits* to, const void* cache, const Work& of) {
            if (of.end > 0) fetch(to, cache, of.count, slots, [&](u32 place) { return slot_of<IS_OWN>(of, place); });
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
            if constexpr (IS_HALF) {
                float products[QUERIES / 8][4];
                products_of(products, keys + warp() * 16 * stride, from, end);
                leave_products(dots, DOTS, warp(), products);
            } else if (is_one)
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
                add_halves(dots, DOTS, values, [](u32 place) { return place; }, [&](u32 q) { return q >= from && q < end && is_left(q); }, at);
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

} // namespace ygg
