// What a block of attention does with the places that several rows see for themselves.
//
// The rows of a tree, or of a stretch of a prompt, have the same prefix, and their ancestors lie in slots side by side: so what they see beyond
// whole partitions of the prefix is one stretch of slots. It is copied once for all rows of the block, where every row apart would gather its own places, most
// of them those of others too. Products are those of the stretch's keys with all query vectors. A row then takes its scores, and its values, in the
// order of its logical sequence and cut into its own partitions: the same numbers in the same order as if it were alone, thus the same bits.
#pragma once

#include "attention_block.cuh"

namespace ygg {

// Of a block over halves, rows `first` to `end`, in whose query vectors it has asked already.
template <class Block> struct RowsAtOnce {
    using Bits = typename Block::Bits;
    // Slots of shared memory. Those past the stretch are zeros, and at least one is.
    static constexpr u32 REACH = 2 * PARTITION;
    static constexpr u32 TILES = REACH / 16 / WARPS;
    // Ancestors of a row. A thread reads so many of all rows'.
    static constexpr u32 MOST_TAIL = PARTITION;
    static constexpr u32 EACH = QUERIES * MOST_TAIL / YGG_ATTENTION_THREADS;
    // From a vector's scores to the next one's are a score of every slot and, after those of vector i, a byte for every ancestor of row `first + i`.
    static_assert(EACH * YGG_ATTENTION_THREADS + 2 * WARPS <= QUERIES * Block::DOTS, "ancestors lie where products of a partition would");
    static_assert(SCORES_APART == REACH + MOST_TAIL / 4 && REACH <= 256, "a byte names a slot");

    const Block& block;
    const u32 first, end;
    // Which they are, and how many.
    u32 first_slot = 0, count = 0;

    YGG_DEVICE float* scores_of(u32 q) const { return reinterpret_cast<float*>(block.queries) + q * SCORES_APART; }
    YGG_DEVICE u8* tail_of(u32 row) const { return reinterpret_cast<u8*>(scores_of(row - first) + REACH); }
    // Of what all threads read of the rows' ancestors, the i-th: its row, and which of them it is.
    YGG_DEVICE u32 row_of_tail(u32 i) const { return first + threadIdx.x / MOST_TAIL + i * (YGG_ATTENTION_THREADS / MOST_TAIL); }
    YGG_DEVICE static u32 in_tail() { return threadIdx.x % MOST_TAIL; }

    // The slot of the i-th ancestor that the thread reads, until scores take its place.
    YGG_DEVICE u32* slot_of_tail(u32 i) const { return reinterpret_cast<u32*>(block.dots) + i * YGG_ATTENTION_THREADS + threadIdx.x; }

    // Finds the slots that the rows see beyond whole partitions of their prefixes. Whether all are within reach.
    YGG_DEVICE bool find() {
        // The lowest, and what the highest lacks to the largest number.
        u32 bounds[2] = {~0u, ~0u};
        auto include = [&](u32 slot) {
            bounds[0] = smaller(bounds[0], slot);
            bounds[1] = smaller(bounds[1], ~slot);
        };
#pragma unroll
        for (u32 i = 0; i < EACH; ++i) {
            const u32 row = row_of_tail(i);
            if (row >= end) continue;
            const u32 q = block.first_of(row), prefix = block.prefixes[q], tail = block.lengths[q] - prefix, begin = block.first_own(q) * PARTITION;
            if (begin < prefix) {
                include(begin);
                include(prefix - 1);
            }
            // Out of reach.
            if (tail > MOST_TAIL) include(0), include(~0u);
            if (in_tail() >= tail) continue;
            const u32 slot = block.p.tails[static_cast<u64>(row) * block.p.tail_capacity + index(in_tail())];
            *slot_of_tail(i) = slot;
            include(slot);
        }
        u32* of_warps = reinterpret_cast<u32*>(block.dots) + EACH * YGG_ATTENTION_THREADS;
#pragma unroll
        for (u32 bound = 0; bound < 2; ++bound) {
            for (u32 mask = WARP / 2; mask > 0; mask /= 2) bounds[bound] = smaller(bounds[bound], shuffle_xor(bounds[bound], mask));
            if (lane() == 0) of_warps[2 * warp() + bound] = bounds[bound];
        }
        barrier();
        for (u32 other = 0; other < WARPS; ++other)
#pragma unroll
            for (u32 bound = 0; bound < 2; ++bound) bounds[bound] = smaller(bounds[bound], of_warps[2 * index(other) + bound]);
        first_slot = bounds[0];
        const u32 last_slot = ~bounds[1];
        // No slot at all: no row sees more than its prefix.
        if (first_slot > last_slot) return true;
        if (last_slot - first_slot >= REACH - 1) return false;
        count = last_slot - first_slot + 1;
        return true;
    }

    // Begins to copy the stretch's keys or values.
    YGG_DEVICE void copy(Bits* to, const void* cache, u32 reach) const {
        for (u32 before = 0; before < reach; before += PARTITION) {
            const u32 here = count > before ? smaller(count - before, PARTITION) : 0;
            auto slot_of = [&](u32 place) { return first_slot + before + place; };
            u32 slots[Block::PLACES];
            Block::find_slots(slots, here, slot_of);
            block.fetch(to + before * block.stride, cache, here, slots, slot_of);
        }
    }

    // Where a row keeps what it sees at a position, from the stretch's first slot on; `unseen` for a position that it does not see.
    YGG_DEVICE u32 at_position(u32 row, u32 position, u32 prefix, u32 length, u32 unseen) const {
        if (position >= length) return unseen;
        return position < prefix ? position - first_slot : tail_of(row)[index(position) - prefix];
    }

    // The weights of a vector's partitions, by one warp, where its scores were.
    YGG_DEVICE void weigh(u32 q) const {
        const u32 row = (block.first_vector + q) / block.group, prefix = block.prefixes[q], length = block.lengths[q];
        const u32 partition = block.first_own(q), seen = block.first_seen_by(q);
        float* const own = scores_of(q);
        float scores[REACH / WARP];
#pragma unroll
        for (u32 i = 0; i < REACH / WARP; ++i) {
            const u32 position = partition * PARTITION + i * WARP + lane();
            const float dot = own[at_position(row, position, prefix, length, 0)];
            scores[i] = score_of(block.p, dot, position < length && position >= seen);
        }
        // Nobody writes what another lane still reads.
        warp_barrier();
#pragma unroll
        for (u32 i = 0; i < REACH / PARTITION; ++i)
            if ((partition + i) * PARTITION < length)
                block.leave_weights(own + i * PARTITION, scores[2 * i], scores[2 * i + 1], block.place_of_partial(q, index(partition) + i), true);
    }

    // The weighted values of a row's vectors.
    YGG_DEVICE void add_values(u32 row, const Bits* values, u32 zeros) const {
        const u32 from = block.first_of(row), to = block.end_of(row), prefix = block.prefixes[from], length = block.lengths[from];
        for (u32 i = 0, partition = block.first_own(from); partition * PARTITION < length; ++i, ++partition)
            block.add_halves(
                scores_of(0) + i * PARTITION, SCORES_APART,
                values, [&](u32 place) { return at_position(row, partition * PARTITION + place, prefix, length, zeros); },
                [&](u32 q) { return q >= from && q < to; }, [&](u32 q) { return block.place_of_partial(q, partition); });
    }

    // Leaves all parts of the results, if the rows' places are within reach. All threads agree.
    YGG_DEVICE bool run() {
        if (!find()) return false;
        // Values lie after the keys where both have room, with a slot of zeros at the end; else in their place.
        const bool is_short = count < PARTITION;
        const u32 reach = is_short ? PARTITION : REACH;
        Bits* const values = is_short ? block.values : block.keys;
        copy(block.keys, block.p.kv.keys, reach);
        commit_copies();
        if (is_short) copy(values, block.p.kv.values, reach);
        commit_copies();
        const u32 from = block.first_of(first), to = block.end_of(end - 1);
        float products[TILES][QUERIES / 8][4];
        wait_for_copies<1>();
        barrier();
#pragma unroll
        for (u32 t = 0; t < TILES; ++t)
            if ((t * WARPS + warp()) * 16 < count) block.products_of(products[t], block.keys + (t * WARPS + warp()) * 16 * block.stride, from, to);
        // Four in a word.
        u32 tails[EACH / 4] = {};
#pragma unroll
        for (u32 i = 0; i < EACH; ++i) tails[i / 4] |= ((*slot_of_tail(i) - first_slot) & 0xffu) << (i % 4 * 8);
        // Scores take the place of query vectors and of ancestors, and values that of keys.
        barrier();
        if (!is_short) copy(values, block.p.kv.values, reach);
        commit_copies();
#pragma unroll
        for (u32 t = 0; t < TILES; ++t)
            if ((t * WARPS + warp()) * 16 < count) Block::leave_products(scores_of(0), SCORES_APART, t * WARPS + warp(), products[t]);
#pragma unroll
        for (u32 i = 0; i < EACH; ++i) {
            const u32 row = row_of_tail(i), q = row < end ? block.first_of(row) : 0;
            if (row < end && in_tail() < block.lengths[q] - block.prefixes[q]) tail_of(row)[in_tail()] = static_cast<u8>(tails[i / 4] >> (i % 4 * 8));
        }
        barrier();
        for (u32 q = from + warp(); q < to; q += WARPS) weigh(q);
        wait_for_copies<0>();
        barrier();
        for (u32 row = first; row < end; ++row) add_values(row, values, reach - 1);
        return true;
    }
};

} // namespace ygg
