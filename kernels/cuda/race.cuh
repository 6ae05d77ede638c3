// Draws of tokens where the logits are: `ygg_kernels::noise` says what wins, and these are the tokens that the host
// draws, to the bit.
#pragma once

#include "noise.cuh"

namespace ygg {

// The larger score under noise, then the lower id. An id of NONE loses.
YGG_DEVICE bool leads(double a, u32 id, double b, u32 other) {
    if (other == NONE) return id != NONE;
    return id != NONE && (a > b || (a == b && id < other));
}

YGG_DEVICE void warp_leader(double& noisy, u32& id) {
    for (u32 mask = WARP / 2; mask > 0; mask /= 2) {
        const u64 bits = double_to_bits(noisy);
        const u64 high = shuffle_xor(static_cast<u32>(bits >> 32), mask), low = shuffle_xor(static_cast<u32>(bits), mask);
        const u32 other_id = shuffle_xor(id, mask);
        const double other = bits_to_double(high << 32 | low);
        if (leads(other, other_id, noisy, id)) {
            noisy = other;
            id = other_id;
        }
    }
}

// What most tokens of a row cannot reach, in single precision, so that few take double.
struct Bound {
    float largest, inverse, least;
    bool is_usual;

    // Of a row in which a token has `noisy`. Extreme temperatures leave no digits to compare.
    YGG_DEVICE Bound(float largest, const YggNoise& noise, double noisy)
        : largest(largest), inverse(noise.inverse), least(add_rn(static_cast<float>(noisy), -0.001f)),
          is_usual(noise.temperature >= 1e-4f && noise.temperature <= 1e4f) {}

    // Whether a token with this upper half of bits cannot win: with z leading zeros its noise is below (z + 1) ln 2.
    // The factor, and a thousandth in `least`, are more than what rounding adds.
    YGG_DEVICE bool excludes(float logit, u32 upper) const {
        const float score = mul_rn(mul_rn(add_rn(logit, -largest), inverse), 0.999999f);
        const u32 zeros = upper == 0 ? 64 : leading_zeros(upper);
        return is_usual && add_rn(score, mul_rn(static_cast<float>(zeros + 1), 0.6931472f)) < least;
    }
};

} // namespace ygg

// grid: ranges, rows; a warp each. After the candidates, of which the first has the largest logit.
YGG_KERNEL(ygg_race_of_ranges, YggRace, YGG_WARP) {
    wait_for_kernels_before();
    let_next_kernel_begin();
    using namespace ygg;
    const u32 row = blockIdx.y, end = smaller((blockIdx.x + 1) * RANGE, p.logits.columns);
    const float *logits = row_of(p.logits, row), *best = row_of(p.candidates, row);
    const YggNoise& noise = *p.noise;
    const NoiseKey key = noise_key(noise, p.positions[index(row)]);
    // Where there is nothing but NaN, all of it is.
    const u32 favourite = float_to_bits(best[0]) == 0 ? 0 : float_to_bits(best[index(1)]);
    const float largest = logits[favourite];
    const Bound bound(largest, noise, gumbel(noise_bits(key, favourite)));
    double leading = 0.0;
    u32 leader = NONE;
    for (u32 token = blockIdx.x * RANGE + lane(); token < end; token += WARP) {
        const float logit = logits[index(token)];
        if (bound.excludes(logit, noise_upper(key, token))) continue;
        const double x = score(logit, largest, noise.temperature);
        // Neither NaN nor negative infinity.
        if (!(x > -static_cast<double>(infinity()))) continue;
        const double noisy = add_rn(x, gumbel(noise_bits(key, token)));
        if (leads(noisy, token, leading, leader)) {
            leading = noisy;
            leader = token;
        }
    }
    warp_leader(leading, leader);
    if (lane() == 0) p.leaders[static_cast<u64>(row) * p.ranges + blockIdx.x] = leader;
}

// grid: rows. The winner becomes the first candidate.
YGG_KERNEL(ygg_race_of_rows, YggRace, YGG_MERGE_THREADS) {
    wait_for_kernels_before();
    let_next_kernel_begin();
    using namespace ygg;
    constexpr u32 WARPS_HERE = YGG_MERGE_THREADS / YGG_WARP;
    YGG_SHARED(double[WARPS_HERE], leading_of_warps);
    YGG_SHARED(u32[WARPS_HERE], leaders_of_warps);
    const u32 row = blockIdx.x;
    const float* logits = row_of(p.logits, row);
    float* best = row_of(p.candidates, row);
    const YggNoise& noise = *p.noise;
    const NoiseKey key = noise_key(noise, p.positions[index(row)]);
    const u32 count = float_to_bits(best[0]);
    const float largest = logits[count == 0 ? 0 : float_to_bits(best[index(1)])];
    double leading = 0.0;
    u32 leader = NONE;
    for (u32 range = threadIdx.x; range < p.ranges; range += blockDim.x) {
        const u32 token = p.leaders[static_cast<u64>(row) * p.ranges + index(range)];
        if (token == NONE) continue;
        const double noisy = add_rn(score(logits[token], largest, noise.temperature), gumbel(noise_bits(key, token)));
        if (leads(noisy, token, leading, leader)) {
            leading = noisy;
            leader = token;
        }
    }
    warp_leader(leading, leader);
    if (lane() == 0) {
        leading_of_warps[warp()] = leading;
        leaders_of_warps[warp()] = leader;
    }
    barrier();
    if (threadIdx.x != 0 || count == 0) return;
    for (u32 i = 1; i < WARPS_HERE; ++i)
        if (leads(leading_of_warps[i], leaders_of_warps[i], leading, leader)) {
            leading = leading_of_warps[i];
            leader = leaders_of_warps[i];
        }
    best[index(1)] = bits_to_float(leader);
}
