// Attention to heads of which shared memory holds no whole partition, neither of keys nor of values: a partition is read in sections of its slots.
// Products with the sections of keys are added in order, and every section of values gives its own elements of the result. Copies run ahead of
// what is computed, in a ring, from the keys of one partition to its values and on to the next partition.
#pragma once

#include "attention_block.cuh"

namespace ygg {

template <class Element> struct AttentionInSections {
    using Bits = typename Element::Bits;
    // Elements of a section.
    static constexpr u32 SECTION = YGG_SECTION_BYTES / sizeof(Bits);
    // What has the functions of one section.
    using Block = AttentionBlock<Element, SECTION, PartOfHead>;
    using Work = typename Block::Work;
    static constexpr bool IS_HALF = Block::IS_HALF;
    static constexpr u32 STRIDE = SECTION + Block::CHUNK;
    // A vector's elements of a section: two halves of each, or floats.
    static constexpr u32 QUERY = IS_HALF ? 2 * STRIDE : SECTION;
    // Sections that are copied ahead of the one that is used.
    static constexpr u32 AHEAD = YGG_SECTIONS_HELD - 1;
    // Every row gathers its own places: stretches of several rows' would take the room of the ring.
    static constexpr bool TAKES_ROWS_AT_ONCE = false;

    const YggAttention& p;
    const u32 kv_head, head_dim, group, first_vector, here;
    float* const shared; // query vectors [sections][QUERIES][QUERY]; products [PARTS][QUERIES][PARTITION], or of halves [QUERIES][DOTS]; the ring
    u32* const prefixes;
    u32* const lengths;

    YGG_DEVICE u32 sections() const { return ceil_div(head_dim, SECTION); }
    YGG_DEVICE float* dots() const { return reinterpret_cast<float*>(reinterpret_cast<Bits*>(shared) + sections() * QUERIES * QUERY); }
    YGG_DEVICE Bits* place(u32 number) const {
        const u32 products = QUERIES * (IS_HALF ? Block::DOTS : PARTS * PARTITION);
        return reinterpret_cast<Bits*>(dots() + products) + number % YGG_SECTIONS_HELD * (PARTITION * STRIDE);
    }

    // A section whose keys or values are in a place of the ring. What spans of values join lies where weights do not.
    YGG_DEVICE Block of(u32 section, bool is_of_keys, Bits* held) const {
        const u32 begin = section * SECTION, wide = smaller(SECTION, ceil_div(head_dim, 16) * 16 - begin);
        Bits* queries = reinterpret_cast<Bits*>(shared) + section * QUERIES * QUERY;
        Bits* keys = is_of_keys ? held : reinterpret_cast<Bits*>(dots() + QUERIES * PARTITION);
        return {{begin}, p, kv_head, head_dim, group, first_vector, here, wide / Block::CHUNK, wide, STRIDE, queries, dots(), keys, held, prefixes, lengths};
    }
    // What has the functions of rows and of partitions.
    YGG_DEVICE Block any() const { return of(0, true, place(0)); }
    YGG_DEVICE Work in_prefix(u32 partition, u32 by, u32 longest) const { return any().in_prefix(partition, by, longest); }
    YGG_DEVICE Work of_rows(u32 row, u32 partition, u32 rows) const { return any().of_rows(row, partition, rows); }

    YGG_DEVICE void ask(u32 from, u32 end) const {
        for (u32 section = 0; section < sections(); ++section) of(section, true, place(0)).ask(from, end);
    }

    // Does all work from `work` on: its part of the results. A stage has a section of the keys of a partition, or then of its values.
    template <bool IS_OWN, class Following> YGG_DEVICE void run(Work work, Following following) const {
        const u32 count = sections(), stages = 2 * count;
        u32 slots[Block::PLACES], next_slots[Block::PLACES];
        auto find = [&](u32 (&slots)[Block::PLACES], const Work& of) {
            Block::find_slots(slots, of.count, [&](u32 place) { return any().template slot_of<IS_OWN>(of, place); });
        };
        auto copy = [&](u32 number, u32 stage, const Work& of_work, const u32 (&slots)[Block::PLACES]) {
            const bool is_of_keys = stage < count;
            if (of_work.end > 0) {
                const Block block = of(is_of_keys ? stage : index(stage) - count, is_of_keys, place(number));
                block.fetch(place(index(number)), is_of_keys ? p.kv.keys : p.kv.values, of_work.count, slots, [&](u32 place) { return block.template slot_of<IS_OWN>(of_work, place); });
            }
            commit_copies();
        };
        find(slots, work);
        u32 number = 0;
        for (u32 stage = 0; stage < AHEAD; ++stage) copy(stage, stage, work, slots);
        while (work.end > 0) {
            const u32 from = work.from, end = work.end;
            const Work next = following(work);
            find(next_slots, next);
            auto is_left = [&](u32 q) { return IS_OWN || any().takes(q, work.partition * PARTITION); };
            auto at = [&](u32 q) { return any().place_of_partial(q, work.partition); };
            float products[QUERIES / 8][4] = {};
            for (u32 stage = 0; stage < stages; ++stage, ++number) {
                wait_for_copies<AHEAD - 1>();
                // The stage before has been used, so that its place is free.
                barrier();
                if (stage + AHEAD < stages)
                    copy(number + AHEAD, stage + AHEAD, work, slots);
                else
                    copy(number + AHEAD, stage + AHEAD - stages, next, next_slots);
                const bool is_of_keys = stage < count;
                const Block block = of(is_of_keys ? stage : stage - count, is_of_keys, place(number));
                if (is_of_keys) {
                    if constexpr (IS_HALF) {
                        float more[QUERIES / 8][4];
                        block.products_of(more, block.keys + warp() * 16 * STRIDE, from, end);
#pragma unroll
                        for (u32 n = 0; n < QUERIES / 8; ++n)
#pragma unroll
                            for (u32 e = 0; e < 4; ++e) products[n][e] = add_rn(products[n][e], more[n][e]);
                        if (stage + 1 == count) Block::leave_products(dots(), Block::DOTS, warp(), products);
                    } else {
                        for (u32 q = from; q < end; q += 4) block.template multiply<4>(q, end);
                    }
                    if (stage + 1 < count) continue;
                    barrier();
                    for (u32 q = from + warp(); q < end; q += WARPS) block.weigh(q, work.partition * PARTITION, work.count, at(q), is_left(q));
                } else if constexpr (IS_HALF) {
                    block.add_halves(dots(), Block::DOTS, block.values, [](u32 place) { return place; }, [&](u32 q) { return q >= from && q < end && is_left(q); }, at);
                } else {
                    for (u32 q = from; q < end; q += 4)
                        block.template add_values<4>(q, [&](u32 n) { return q + n < end && is_left(q + n); }, [&](u32 n) { return at(q + n); });
                }
            }
            work = next;
#pragma unroll
            for (u32 i = 0; i < Block::PLACES; ++i) slots[i] = next_slots[i];
        }
    }
};

} // namespace ygg
