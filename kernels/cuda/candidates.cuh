// The best tokens of rows of logits: `ygg_kernels::candidates` says what, to the last bit.
#pragma once

#include "common.cuh"

namespace ygg {

constexpr u32 RANGE = YGG_RANGE;
constexpr u32 RANGE_LANES = YGG_RANGE_LANES;
constexpr u32 NONE = 0xffffffffu;

// The higher logit, then the lower id. An id of NONE loses.
YGG_DEVICE bool is_better(float a, u32 id, float b, u32 other) {
    if (other == NONE) return id != NONE;
    if (id == NONE) return false;
    return a > b || (a == b && id < other);
}

YGG_DEVICE void warp_best(float& value, u32& id) {
    for (u32 mask = WARP / 2; mask > 0; mask /= 2) {
        const float other = shuffle_xor(value, mask);
        const u32 other_id = shuffle_xor(id, mask);
        if (is_better(other, other_id, value, id)) {
            value = other;
            id = other_id;
        }
    }
}

YGG_DEVICE float scaled(float logit, float largest, float inverse) {
    return logit == largest ? 0.0f : mul_rn(add_rn(logit, -largest), inverse);
}

} // namespace ygg

// grid: ranges, rows; a warp each
YGG_KERNEL(ygg_candidates_of_ranges, YggCandidates, YGG_WARP) {
    wait_for_kernels_before();
    let_next_kernel_begin();
    if (ygg::is_skipped(p.step)) return;
    using namespace ygg;
    const u32 range = blockIdx.x, row = blockIdx.y;
    const u32 first = range * RANGE, len = smaller(RANGE, p.logits.columns - first);
    const float* logits = row_of(p.logits, row) + first;
    const u64 at = static_cast<u64>(row) * p.ranges + range;
    const u32 k = p.choice->k;
    const float inverse = p.choice->inverse;
    constexpr u32 EACH = RANGE / WARP;
    float values[EACH];
    u32 numbers = 0;
    bool is_left[EACH];
    float largest = -infinity();
#pragma unroll
    for (u32 i = 0; i < EACH; ++i) {
        const u32 id = lane() + i * WARP;
        values[i] = id < len ? logits[index(id)] : -infinity();
        is_left[i] = id < len && values[i] == values[i];
        if (is_left[i]) {
            numbers += 1;
            largest = larger(largest, values[i]);
        }
    }
    largest = warp_max(largest);
    for (u32 mask = WARP / 2; mask > 0; mask /= 2) numbers += shuffle_xor(numbers, mask);
    const u32 count = smaller(smaller(k, p.most), numbers);
    for (u32 place = 0; place < count; ++place) {
        float best = -infinity();
        u32 id = NONE;
#pragma unroll
        for (u32 i = 0; i < EACH; ++i)
            if (is_left[i] && is_better(values[i], lane() + i * WARP, best, id)) {
                best = values[i];
                id = lane() + i * WARP;
            }
        warp_best(best, id);
#pragma unroll
        for (u32 i = 0; i < EACH; ++i)
            if (id == lane() + i * WARP) is_left[i] = false;
        if (lane() == 0) {
            p.range_values[at * p.most + place] = best;
            p.range_ids[at * p.most + place] = index(first + id);
        }
    }
    float sum = 0.0f;
    if (inverse != 0.0f) {
        if (lane() < RANGE_LANES)
            for (u32 id = lane(); id < len; id += RANGE_LANES)
                sum = add_rn(sum, exp_nonpositive(scaled(logits[index(id)], largest, inverse)));
        for (u32 half = RANGE_LANES / 2; half > 0; half /= 2) sum = add_rn(sum, shuffle_xor(sum, half));
    }
    if (lane() == 0) {
        p.range_max[at] = largest;
        p.range_sum[index(at)] = sum;
        p.range_count[at] = count;
    }
}

// grid: rows. Shared: [ranges] how many of a range are taken, [ranges] its weighted sum.
YGG_KERNEL(ygg_candidates_of_rows, YggCandidates, YGG_MERGE_THREADS) {
    wait_for_kernels_before();
    let_next_kernel_begin();
    if (ygg::is_skipped(p.step)) return;
    using namespace ygg;
    YGG_DYNAMIC_SHARED(u32, taken);
    float* sums = reinterpret_cast<float*>(taken + p.ranges);
    YGG_SHARED(float[YGG_MERGE_THREADS / YGG_WARP], best_values);
    YGG_SHARED(u32[YGG_MERGE_THREADS / YGG_WARP], best_ids);
    YGG_SHARED(float, first_value);
    YGG_SHARED(float, log_sum);
    constexpr u32 WARPS_HERE = YGG_MERGE_THREADS / YGG_WARP;
    const u32 row = blockIdx.x, k = smaller(p.choice->k, p.most);
    const u64 first = static_cast<u64>(row) * p.ranges;
    float* out = row_of(p.out, row);
    // A range is one thread's from here to the end.
    for (u32 range = threadIdx.x; range < p.ranges; range += blockDim.x) taken[range] = 0;
    u32 count = 0;
    for (; count < k; ++count) {
        float best = -infinity();
        u32 id = NONE;
        for (u32 range = threadIdx.x; range < p.ranges; range += blockDim.x) {
            if (taken[range] == p.range_count[first + range]) continue;
            const u64 at = (first + range) * p.most + taken[range];
            if (is_better(p.range_values[at], p.range_ids[at], best, id)) {
                best = p.range_values[at];
                id = p.range_ids[at];
            }
        }
        warp_best(best, id);
        if (lane() == 0) {
            best_values[warp()] = best;
            best_ids[warp()] = id;
        }
        barrier();
        best = best_values[0];
        id = best_ids[0];
        for (u32 i = 1; i < WARPS_HERE; ++i)
            if (is_better(best_values[i], best_ids[i], best, id)) {
                best = best_values[i];
                id = best_ids[i];
            }
        barrier();
        if (id == NONE) break;
        // Whoever has the range takes it from it.
        if (id / RANGE % blockDim.x == threadIdx.x) taken[index(id / RANGE)] += 1;
        if (threadIdx.x == 0) {
            out[1 + count] = bits_to_float(p.names ? p.names[id] : id);
            out[1 + p.most + index(count)] = best;
            if (count == 0) first_value = best;
        }
    }
    if (threadIdx.x == 0) out[0] = bits_to_float(count);
    const float inverse = p.choice->inverse;
    if (inverse == 0.0f || count == 0) return;
    barrier();
    for (u32 range = threadIdx.x; range < p.ranges; range += blockDim.x) {
        const float weight = exp_nonpositive(scaled(p.range_max[index(first + range)], first_value, inverse));
        sums[range] = mul_rn(p.range_sum[first + range], weight);
    }
    barrier();
    if (threadIdx.x == 0) {
        float sum = 0.0f;
        for (u32 range = 0; range < p.ranges; ++range) sum = add_rn(sum, sums[index(range)]);
        log_sum = ln_positive(sum);
    }
    barrier();
    for (u32 i = threadIdx.x; i < count; i += blockDim.x) {
        float* value = out + 1 + p.most + i;
        *value = add_rn(scaled(*value, first_value, inverse), -log_sum);
    }
}
