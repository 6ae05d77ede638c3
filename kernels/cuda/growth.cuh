// Growth of draft trees where the candidates are: between two forwards of a drafter nothing of the host is needed.
#pragma once

#include "candidates.cuh"

namespace ygg {

// Makes a row of a forward one of a node, or padding where there is none. A node's slot is its number after the committed tokens.
YGG_DEVICE void write_row(const YggNodeRows& rows, u32 w, const YggTree& tree, u32 node, u32 committed) {
    const bool is_row = node != NONE;
    const u32 depth = is_row ? tree.depths[index(node)] : 0;
    rows.tokens[w] = is_row ? tree.tokens[index(node)] : 0;
    rows.positions[w] = is_row ? committed + depth : 0;
    rows.slots[w] = is_row ? committed + node : YGG_NO_SLOT;
    rows.prefix[w] = is_row ? committed : 0;
    rows.tail_len[w] = is_row ? depth + 1 : 0;
    u32* tail = rows.tails + static_cast<u64>(w) * rows.tail_capacity;
    u32 ancestor = node;
    for (u32 i = 0; is_row && i <= depth; ++i) {
        tail[index(depth - i)] = committed + ancestor;
        ancestor = tree.parents[ancestor];
    }
}

} // namespace ygg

// grid: rows; a warp each. Before a growth under noise.
YGG_KERNEL(ygg_value_candidates, YggValues, YGG_WARP) {
    using namespace ygg;
    YGG_SHARED(u32[YGG_MOST_CANDIDATES], tokens);
    YGG_SHARED(float[YGG_MOST_CANDIDATES], values);
    YGG_SHARED(float[YGG_MOST_CANDIDATES], weights);
    YGG_SHARED(float, log_total);
    wait_for_kernels_before();
    let_next_kernel_begin();
    float* row = row_of(p.candidates, blockIdx.x);
    const u32 found = smaller(float_to_bits(row[0]), p.most);
    const float sharpness = p.noise->sharpness;
    u32 known = 0;
    for (u32 i = 0; i < found; ++i) {
        const u32 token = float_to_bits(row[1 + index(i)]);
        if (token >= p.vocabulary) continue;
        if (known % WARP == lane()) {
            tokens[known] = token;
            values[known] = mul_rn(row[1 + p.most + index(i)], sharpness);
        }
        known += 1;
    }
    barrier();
    const float best = known > 0 ? values[0] : 0.0f;
    for (u32 i = lane(); i < known; i += WARP) weights[i] = exp_nonpositive(add_rn(values[i], -best));
    barrier();
    if (lane() == 0 && known > 0) {
        float total = 0.0f;
        for (u32 i = 0; i < known; ++i) total = add_rn(total, weights[i]);
        log_total = ln_positive(total);
    }
    barrier();
    const u32 kept = smaller(known, p.kept);
    for (u32 i = lane(); i < kept; i += WARP) {
        row[1 + index(i)] = bits_to_float(tokens[i]);
        row[1 + p.most + index(i)] = add_rn(add_rn(values[i], -best), -log_total);
    }
    if (lane() == 0) row[0] = bits_to_float(kept);
}

// grid: 1. Equal growth (Yggdrasil, arXiv 2512.23858): the meaning is the crate's `tree::growth`, whose trees these are to the bit.
YGG_KERNEL(ygg_grow, YggGrow, YGG_MERGE_THREADS) {
    using namespace ygg;
    constexpr u32 WARPS_HERE = YGG_MERGE_THREADS / YGG_WARP;
    YGG_SHARED(float[WARPS_HERE], best_scores);
    YGG_SHARED(u32[WARPS_HERE], best_offers);
    const YggTree& tree = p.tree;
    wait_for_kernels_before();
    let_next_kernel_begin();
    if (p.is_first && threadIdx.x == 0) {
        tree.counts[0] = tree.counts[1] = 1;
        tree.counts[2] = 0;
        tree.tokens[0] = p.root[0];
        tree.parents[0] = tree.ranks[0] = tree.depths[0] = 0;
        tree.scores[0] = 0.0f;
    }
    barrier();
    const u32 nodes = tree.counts[0], forwarded = tree.counts[1];
    // Offers are in the order of their parents, and of one parent by rank: of equal scores the first is the better.
    for (u32 i = threadIdx.x; i < forwarded * p.kept; i += blockDim.x) {
        const u32 row = i / p.kept, rank = i % p.kept, node = nodes - forwarded + row;
        const float* candidates = row_of(p.candidates, p.is_first ? p.root[2] : row);
        const u64 at = static_cast<u64>(node) * p.kept + rank;
        // Ranks are among the tokens that count.
        const u32 found = float_to_bits(candidates[0]) < p.kept ? float_to_bits(candidates[0]) : p.kept;
        u32 place = 0;
        for (u32 before = 0; place < found; ++place)
            if (float_to_bits(candidates[1 + index(place)]) < p.vocabulary && before++ == rank) break;
        const bool is_there = place < found;
        const float score = is_there ? add_rn(tree.scores[index(node)], candidates[1 + p.most + place]) : 0.0f;
        tree.offered[at] = score;
        tree.offers[at] = is_there && score == score ? float_to_bits(candidates[1 + index(place)]) : YGG_NO_TOKEN;
    }
    u32 added = 0;
    for (; added < p.width; ++added) {
        barrier();
        float best = -infinity();
        u32 offer = NONE;
        for (u32 i = threadIdx.x; i < nodes * p.kept; i += blockDim.x)
            if (tree.offers[i] != YGG_NO_TOKEN && is_better(tree.offered[i], i, best, offer)) {
                best = tree.offered[index(i)];
                offer = i;
            }
        warp_best(best, offer);
        if (lane() == 0) {
            best_scores[warp()] = best;
            best_offers[warp()] = offer;
        }
        barrier();
        best = best_scores[0];
        offer = best_offers[0];
        for (u32 i = 1; i < WARPS_HERE; ++i)
            if (is_better(best_scores[i], best_offers[i], best, offer)) {
                best = best_scores[i];
                offer = best_offers[i];
            }
        if (offer == NONE) break;
        if (threadIdx.x == 0) {
            const u32 node = nodes + added, parent = offer / p.kept;
            tree.tokens[node] = tree.offers[offer];
            tree.parents[node] = parent;
            tree.ranks[node] = offer % p.kept;
            tree.depths[node] = tree.depths[parent] + 1;
            tree.scores[node] = best;
            tree.offers[offer] = YGG_NO_TOKEN;
        }
    }
    barrier();
    if (threadIdx.x == 0) {
        tree.counts[0] = nodes + added;
        tree.counts[1] = added;
        tree.counts[2] = forwarded;
    }
    const u32 committed = p.root[1];
    for (u32 w = threadIdx.x; w < p.next.rows; w += blockDim.x) write_row(p.next, w, tree, w < added ? nodes + index(w) : NONE, committed);
}

// grid: rows of the next forward, no fewer than a growth has nodes. A parent was forwarded last, or earlier: then its row was kept.
YGG_KERNEL(ygg_hand_down, YggHandDown, YGG_ROW_THREADS) {
    using namespace ygg;
    wait_for_kernels_before();
    let_next_kernel_begin();
    const u32 w = blockIdx.x, columns = p.hidden.columns;
    const u32 added = p.tree.counts[1], forwarded = p.tree.counts[2];
    const u32 grown = p.tree.counts[0] - added, first = grown - forwarded;
    const bool is_row = w < added;
    const u32 parent = is_row ? p.tree.parents[grown + index(w)] : 0;
    const float* last = row_of(p.hidden, p.is_first ? p.root[2] : is_row && parent >= first ? parent - first : 0);
    const float* from = is_row && parent < first ? p.kept + static_cast<u64>(parent) * columns : last;
    for (u32 i = threadIdx.x; i < columns; i += blockDim.x) {
        p.given[static_cast<u64>(w) * columns + i] = is_row ? from[index(i)] : 0.0f;
        if (w < forwarded)
            p.kept[static_cast<u64>(first + w) * columns + i] = row_of(p.hidden, p.is_first ? p.root[2] : w)[index(i)];
    }
}
