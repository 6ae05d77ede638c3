// States of rows: gated delta rules and selective scans along the logical sequence of every row. Meaning: ygg_kernels::Recurrence.
//
// What a row does to a state depends on its sequence alone: it is made once, when the row is forwarded (`ygg_state_rows`), and kept with what went
// in, so that a later forward only lets the states follow it. A state is far larger than that: none is kept for a row. The rows of a forward are
// walked in the order of their sequences (`ygg_state_order`, once for all layers), each going on from the state that another ended with, as far as both
// agree; where sequences part, the state is saved, or made again from the committed one, if there is no room (`ygg_state_walk`). The same operations in
// the same order give the same bits, however often they are done.
#pragma once

#include "common.cuh"

namespace ygg {

constexpr u32 STATE_COLUMNS = YGG_STATE_COLUMNS, STATE_PARTS = YGG_STATE_PARTS;
static_assert(STATE_COLUMNS == WARP, "a lane has a column of a state");

// Where things are in a row of what goes in, and in what is kept of it.
struct StateRow {
    const YggStates& s;

    YGG_DEVICE u32 channels() const { return 2 * s.key_heads * s.key_dim + s.value_heads * s.value_dim; }
    YGG_DEVICE u32 floats() const { return 2 * channels() + 2 * s.value_heads; }
    YGG_DEVICE float* kept(u32 slot) const { return s.kept + static_cast<u64>(slot % s.ring) * floats(); }
    YGG_DEVICE float* made(u32 slot) const { return kept(slot) + channels(); }
    YGG_DEVICE u32 query(u32 key_head) const {
        const u32 before = s.is_scan ? s.value_heads * s.value_dim + s.key_heads * s.key_dim : 0;
        return before + key_head * s.key_dim;
    }
    YGG_DEVICE u32 key(u32 key_head) const {
        const u32 before = s.is_scan ? s.value_heads * s.value_dim : s.key_heads * s.key_dim;
        return before + key_head * s.key_dim;
    }
    YGG_DEVICE u32 value(u32 head) const { return (s.is_scan ? 0 : 2 * s.key_heads * s.key_dim) + head * s.value_dim; }
    YGG_DEVICE u32 group() const { return s.value_heads / s.key_heads; }
    // The value head of a number among those of a key head, and the key head of a value head.
    YGG_DEVICE u32 head(u32 key_head, u32 member) const { return s.is_grouped ? key_head * group() + member : member * s.key_heads + key_head; }
    YGG_DEVICE u32 key_head(u32 head) const { return s.is_grouped ? head / group() : head % s.key_heads; }
};

// The slot of a row's sequence at a position.
template <class Params> YGG_DEVICE u32 slot_at(const Params& p, u32 w, u32 position) {
    const u32 prefix = p.prefix[w];
    return position < prefix ? position : p.tails[static_cast<u64>(w) * p.tail_capacity + index(position - prefix)];
}

// ln(1 + e^x), as ygg_kernels has it: max(x, 0) + ln(1 + t) with t = e^-|x|, by the series of 2 atanh(t / (2 + t)).
YGG_DEVICE float softplus(float x) {
    const float t = exp_fast(x > 0.0f ? -x : x), z = divide(t, add_rn(2.0f, t)), square = mul_rn(z, z);
    float sum = 1.0f / 17.0f;
    for (i32 term = 15; term > 0; term -= 2) sum = fma_rn(sum, square, divide(1.0f, static_cast<float>(term)));
    return fma_rn(add_rn(z, z), sum, larger(x, 0.0f));
}

} // namespace ygg

// grid: key heads, rows. A block makes what its key head and the value heads that read it do.
YGG_KERNEL(ygg_state_rows, YggStateRows, YGG_ROW_THREADS) {
    using namespace ygg;
    wait_for_kernels_before();
    let_next_kernel_begin();
    if (is_skipped(p.step)) return;
    const StateRow at{p.states};
    const u32 key_head = blockIdx.x, w = blockIdx.y, slot = p.slots[index(w)], key_dim = p.states.key_dim, value_dim = p.states.value_dim;
    const u32 values = at.group() * value_dim;
    auto value_channel = [&](u32 i) { return at.value(at.head(key_head, i / value_dim)) + i % value_dim; };
    if (slot == YGG_NO_SLOT) {
        const u32 first = at.value(0);
        for (u32 i = threadIdx.x; i < values; i += blockDim.x) row_of(p.out, w)[value_channel(i) - first] = 0.0f;
        return;
    }
    // What the taps read, from the row backwards: rows of this forward where they are, as other blocks may be keeping them now.
    YGG_SHARED(const float*[YGG_MOST_TAPS], sources);
    const u32 len = p.prefix[w] + p.tail_len[index(w)], count = smaller(p.tap_count, len);
    if (threadIdx.x < count) sources[threadIdx.x] = at.kept(slot_at(p, w, len - 1 - threadIdx.x));
    barrier();
    for (u32 i = threadIdx.x; i < count * p.x.rows; i += blockDim.x) {
        const u32 back = i / p.x.rows, row = i % p.x.rows;
        if (p.slots[row] == slot_at(p, w, len - 1 - back)) sources[back] = row_of(p.x, row);
    }
    barrier();
    const float* x = row_of(p.x, w);
    float *kept = at.kept(slot), *made = at.made(slot);
    for (u32 i = threadIdx.x; i < 2 * key_dim + values; i += blockDim.x) {
        const u32 c = i < key_dim ? at.query(key_head) + i : i < 2 * key_dim ? at.key(key_head) + i - key_dim : value_channel(i - 2 * key_dim);
        const float* taps = p.taps + static_cast<u64>(c) * p.tap_count;
        float sum = p.channel_biases == nullptr ? 0.0f : p.channel_biases[index(c)];
        for (u32 back = 0; back < count; ++back) sum = fma_rn(taps[index(p.tap_count - 1 - back)], sources[index(back)][c], sum);
        kept[c] = x[c];
        made[c] = swish(sum, sum);
    }
    barrier();
    // Queries and keys of a delta rule are divided by their length.
    if (!p.states.is_scan && warp() < 2) {
        float* part = made + (warp() == 0 ? at.query(key_head) : at.key(key_head));
        float squares = 0.0f;
        for (u32 i = lane(); i < key_dim; i += WARP) squares = fma_rn(part[index(i)], part[i], squares);
        const float by = warp() == 0 ? static_cast<float>(key_dim) : 1.0f;
        const float factor = inverse_sqrt(mul_rn(add_rn(warp_sum(squares), 1e-6f), by));
        for (u32 i = lane(); i < key_dim; i += WARP) part[index(i)] = mul_rn(part[i], factor);
    }
    for (u32 member = threadIdx.x; member < at.group(); member += blockDim.x) {
        const u32 head = at.head(key_head, member);
        const float stored = p.decays[index(head)], speed = p.is_logarithm ? exp2_fast(mul_rn(stored, 1.44269504f)) : -stored;
        float step = softplus(add_rn(row_of(p.steps, w)[index(head)], p.step_biases[index(head)]));
        step = step < p.shortest ? p.shortest : step;
        step = step > p.longest ? p.longest : step;
        float* said = made + at.channels();
        said[head] = exp_fast(-mul_rn(speed, step));
        said[p.states.value_heads + head] = p.states.is_scan ? step : sigmoid(row_of(p.rates, w)[index(head)]);
    }
}

// grid: one block. A thread has a row.
YGG_KERNEL(ygg_state_order, YggStateOrder, YGG_MOST_WIDTH) {
    using namespace ygg;
    wait_for_kernels_before();
    let_next_kernel_begin();
    YGG_SHARED(u32[YGG_MOST_WIDTH], firsts);
    YGG_SHARED(u32[YGG_MOST_WIDTH], order);
    YGG_SHARED(u32[YGG_MOST_WIDTH], depths);
    YGG_SHARED(u32[YGG_MOST_WIDTH], shared);
    YGG_SHARED(u64[YGG_MOST_WIDTH], partings);
    YGG_SHARED(u32[YGG_SAVED_STATES], saved);
    const u32 own = threadIdx.x;
    auto is_row = [&](u32 w) { return p.slots[w] != YGG_NO_SLOT; };
    auto length = [&](u32 w) { return p.prefix[w] + p.tail_len[index(w)]; };
    firsts[own] = own < p.rows && is_row(own) ? p.prefix[index(own)] : YGG_NO_SLOT;
    barrier();
    u32 from = YGG_NO_SLOT, count = 0;
    for (u32 w = 0; w < YGG_MOST_WIDTH; ++w) {
        from = smaller(from, firsts[w]);
        count += firsts[index(w)] != YGG_NO_SLOT;
    }
    // Positions from `from` on that two sequences begin with alike.
    auto common = [&](u32 a, u32 b) {
        const u32 end = smaller(length(a), length(b));
        u32 at = from;
        while (at < end && slot_at(p, a, at) == slot_at(p, b, at)) ++at;
        return at - from;
    };
    // By their sequences, then by their numbers.
    if (firsts[own] != YGG_NO_SLOT) {
        u32 place = 0;
        for (u32 w = 0; w < p.rows; ++w) {
            if (w == own || firsts[w] == YGG_NO_SLOT) continue;
            const u32 at = from + common(own, w);
            const bool ends = at == length(w), own_ends = at == length(own);
            place += ends && own_ends ? w < own : ends || (!own_ends && slot_at(p, w, at) < slot_at(p, own, at));
        }
        order[index(place)] = own;
    }
    barrier();
    if (own < count) {
        depths[own] = length(order[own]) - from;
        shared[own] = own == 0 ? 0 : common(order[own - 1], order[own]);
    }
    barrier();
    // Depths at which later rows part from the path to this one: those that later rows share, each less than all before it.
    if (own < count) {
        u64 depths_of = 0;
        u32 least = YGG_NO_SLOT;
        for (u32 place = own + 1; place < count; ++place)
            if (shared[place] < least) {
                least = shared[index(place)];
                if (least < 64) depths_of |= 1ull << least;
            }
        partings[own] = depths_of;
    }
    barrier();
    if (own != 0) return;
    u32 saved_count = 0, steps = 0;
    for (u32 place = 0; place < count; ++place) {
        const u32 row = order[index(place)], end = depths[place];
        u32 at = shared[place], load = YGG_NO_SLOT;
        if (place > 0 && at < depths[index(place) - 1]) {
            while (saved_count > 0 && saved[saved_count - 1] > at) --saved_count;
            // What lies between is made again.
            load = saved_count > 0 ? saved_count - 1 : YGG_COMMITTED;
            at = saved_count > 0 ? saved[saved_count - 1] : 0;
        }
        // The sequence of the row before it.
        if (at == end) p.steps[steps++] = {order[place - 1], YGG_NO_SLOT, YGG_NO_SLOT, row};
        for (; at < end; ++at) {
            u32 save = YGG_NO_SLOT;
            const bool is_saved = saved_count > 0 && saved[saved_count - 1] >= at;
            if (at > 0 && at < 64 && !is_saved && saved_count < YGG_SAVED_STATES && (partings[place] >> at & 1) != 0) {
                save = saved_count;
                saved[saved_count++] = at;
            }
            p.steps[index(steps)] = {load, save, slot_at(p, row, from + at), at + 1 == end ? row : YGG_NO_SLOT};
            ++steps;
            load = YGG_NO_SLOT;
        }
    }
    p.counts[0] = from;
    p.counts[1] = steps;
}

// grid: value heads, tiles of columns of their states. Shared: the tile, a key, a query, and what threads give each other.
YGG_KERNEL(ygg_state_walk, YggStateWalk, YGG_STATE_COLUMNS * YGG_STATE_PARTS) {
    using namespace ygg;
    wait_for_kernels_before();
    let_next_kernel_begin();
    if (is_skipped(p.step) || p.counts[1] == 0) return;
    const StateRow at{p.states};
    const u32 head = blockIdx.x, key_head = at.key_head(head), key_dim = p.states.key_dim, value_dim = p.states.value_dim;
    const u32 part = warp(), column = blockIdx.y * STATE_COLUMNS + lane();
    const bool is_there = column < value_dim;
    YGG_DYNAMIC_SHARED(float, state); // [A][STATE_COLUMNS]
    float *key = state + key_dim * STATE_COLUMNS, *query = key + key_dim;
    float(*known)[STATE_COLUMNS] = reinterpret_cast<float(*)[STATE_COLUMNS]>(query + key_dim);
    float(*results)[STATE_COLUMNS] = known + STATE_PARTS;
    // A thread has every so manieth row of its column.
    auto each = [&](auto body) {
        for (u32 i = part; i < key_dim; i += STATE_PARTS) body(i, state[i * STATE_COLUMNS + lane()]);
    };
    auto place = [&](float* matrices, u32 which) { return matrices + (static_cast<u64>(which) * p.states.value_heads + head) * key_dim * value_dim + column; };
    auto load = [&](const float* from) { each([&](u32 i, float& s) { s = is_there ? from[static_cast<u64>(index(i)) * value_dim] : 0.0f; }); };
    auto store = [&](float* to) {
        if (is_there) each([&](u32 i, float& s) { to[static_cast<u64>(index(i)) * value_dim] = s; });
    };
    auto joined = [&](const float(*of)[STATE_COLUMNS]) { return add_rn(add_rn(of[0][lane()], of[2][lane()]), add_rn(of[1][lane()], of[3][index(lane())])); };
    // The states follow what is kept of a slot, whose results go to a row, if one is given.
    auto follow = [&](u32 slot, u32 row) {
        const float* made = at.made(slot);
        const bool is_wanted = row != YGG_NO_SLOT;
        barrier();
        for (u32 i = threadIdx.x; i < key_dim; i += blockDim.x) {
            key[i] = made[at.key(key_head) + index(i)];
            if (is_wanted) query[i] = made[at.query(key_head) + index(i)];
        }
        barrier();
        const float* said = made + at.channels();
        const float decay = said[index(head)], amount = said[p.states.value_heads + index(head)];
        const float value = is_there ? made[at.value(head) + index(column)] : 0.0f;
        float change = mul_rn(amount, value);
        if (!p.states.is_scan) {
            float sum = 0.0f;
            each([&](u32 i, float& s) { sum = fma_rn(key[i], mul_rn(s, decay), sum); });
            known[part][lane()] = sum;
            barrier();
            change = mul_rn(amount, add_rn(value, -joined(known)));
        }
        float sum = 0.0f;
        each([&](u32 i, float& s) {
            s = fma_rn(key[index(i)], change, mul_rn(s, decay));
            if (is_wanted) sum = fma_rn(query[index(i)], s, sum);
        });
        if (!is_wanted) return;
        results[part][lane()] = sum;
        barrier();
        if (part != 0 || !is_there) return;
        float total = joined(results);
        if (p.states.is_scan) total = fma_rn(p.skips[index(head)], value, total);
        row_of(p.out, row)[head * value_dim + index(column)] = total;
    };

    // The committed rows.
    enum { NEWEST, NEWER, OLDER };
    u32* held = p.held + (static_cast<u64>(head) * gridDim.y + blockIdx.y) * 3;
    u32 newest = held[NEWEST], newer = held[NEWER], older = held[OLDER];
    const u32 from = p.counts[0];
    bool has_changed = newest != from;
    if (newest > from) {
        const u32 which = newer <= from ? NEWER : OLDER;
        load(place(p.matrices, which));
        newest = which == NEWER ? newer : older;
    } else {
        load(place(p.matrices, NEWEST));
    }
    for (; newest < from; ) {
        follow(newest++, YGG_NO_SLOT);
        if (newest % YGG_STATE_STRIDE != 0 || (newer != YGG_NO_SLOT && newest <= newer)) continue;
        if (newer != YGG_NO_SLOT) {
            const float* before = place(p.matrices, NEWER);
            float* to = place(p.matrices, OLDER);
            if (is_there) each([&](u32 i, float&) { to[static_cast<u64>(i) * value_dim] = before[static_cast<u64>(index(i)) * value_dim]; });
            older = newer;
        }
        store(place(p.matrices, NEWER));
        newer = newest;
    }
    if (has_changed) {
        store(place(p.matrices, NEWEST));
        // All threads have read what is held.
        barrier();
        if (threadIdx.x == 0) {
            held[NEWEST] = newest;
            held[NEWER] = newer;
            held[OLDER] = older;
        }
    }

    const u32 steps = p.counts[index(1)];
    for (u32 i = 0; i < steps; ++i) {
        const YggStateStep step = p.steps[index(i)];
        if (step.slot == YGG_NO_SLOT) {
            // A row with the sequence of the one before it.
            if (part == 0 && is_there) row_of(p.out, step.row)[head * value_dim + column] = row_of(p.out, step.load)[head * value_dim + index(column)];
            continue;
        }
        if (step.load != YGG_NO_SLOT) load(step.load == YGG_COMMITTED ? place(p.matrices, NEWEST) : place(p.saved, step.load));
        if (step.save != YGG_NO_SLOT) store(place(p.saved, step.save));
        follow(step.slot, step.row);
    }
}
