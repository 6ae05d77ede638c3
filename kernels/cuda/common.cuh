// What several kernels need.
#pragma once

#include "ops.cuh"

namespace ygg {

constexpr u32 WARP = YGG_WARP;

YGG_DEVICE u32 lane() { return threadIdx.x % WARP; }
YGG_DEVICE u32 warp() { return threadIdx.x / WARP; }

// Whether the step is left out. All threads of a kernel agree.
YGG_DEVICE bool is_skipped(const YggStep& step) { return step.group != YGG_NO_GROUP && step.skipped[step.group] != 0; }

YGG_DEVICE float* row_of(const YggRows& rows, u32 row) { return rows.data + static_cast<u64>(row) * rows.stride; }

YGG_DEVICE float infinity() { return bits_to_float(0x7f800000u); }
YGG_DEVICE float larger(float a, float b) { return a > b ? a : b; }
YGG_DEVICE u32 smaller(u32 a, u32 b) { return a < b ? a : b; }
YGG_DEVICE u32 ceil_div(u32 a, u32 b) { return (a + b - 1) / b; }

// Every lane gets the same bits: both partners of an exchange add the same two numbers.
YGG_DEVICE float warp_sum(float x) {
    for (u32 mask = WARP / 2; mask > 0; mask /= 2) x = add_rn(x, shuffle_xor(x, mask));
    return x;
}
YGG_DEVICE float warp_max(float x) {
    for (u32 mask = WARP / 2; mask > 0; mask /= 2) x = larger(x, shuffle_xor(x, mask));
    return x;
}

// The sum over a block of at most 32 whole warps, in a fixed order; every thread gets it. Once in a kernel: another would need a barrier
// in between.
YGG_DEVICE float block_sum(float x) {
    YGG_SHARED(float[WARP], sums);
    x = warp_sum(x);
    if (lane() == 0) sums[warp()] = x;
    barrier();
    const u32 warps = blockDim.x / WARP;
    float total = 0.0f;
    for (u32 i = 0; i < warps; ++i) total = add_rn(total, sums[index(i)]);
    return total;
}

YGG_DEVICE u32 word_of(const Words4& words, u32 i) { return i == 0 ? words.x : i == 1 ? words.y : i == 2 ? words.z : words.w; }

// GPUs have an instruction for powers of 2: the constants below are log2(e), 2 log2(e) and 2 sqrt(2 / pi).

// exp(x) for x <= 0 or minus infinity, as attention takes it.
YGG_DEVICE float exp_fast(float x) { return exp2_fast(mul_rn(x, 1.44269504f)); }

// x sigmoid(slope).
YGG_DEVICE float swish(float x, float slope) { return divide(x, add_rn(1.0f, exp2_fast(mul_rn(slope, -1.44269504f)))); }
YGG_DEVICE float sigmoid(float x) { return swish(1.0f, x); }
YGG_DEVICE float within(float bound, float x) {
    x = x > bound ? bound : x;
    return x < -bound ? -bound : x;
}

// What a gate leaves of the product beside it. GELU is x sigmoid(2 sqrt(2 / pi) (x + 0.044715 x^3)). One division for all: it is long, and
// products have the next weights in their registers.
YGG_DEVICE float combined(u32 function, float gate, float up) {
    float slope = gate;
    if (function == YGG_GELU) slope = mul_rn(mul_rn(1.59576912f, gate), fma_rn(mul_rn(0.044715f, gate), gate, 1.0f));
    if (function == YGG_CLAMPED_SILU) {
        gate = gate > 7.0f ? 7.0f : gate;
        slope = mul_rn(1.702f, gate);
        up = add_rn(within(7.0f, up), 1.0f);
    }
    if (function == YGG_SIGMOID) gate = 1.0f;
    return mul_rn(swish(gate, slope), up);
}

// cap tanh(x / cap).
YGG_DEVICE float softcapped(float x, float cap) {
    const float grown = exp2_fast(mul_rn(divide(x, cap), 2.88539008f));
    return add_rn(cap, -divide(mul_rn(2.0f, cap), add_rn(1.0f, grown)));
}

// exp(x) for x <= 0 in the bits of ygg_kernels::candidates::exp_nonpositive.
YGG_DEVICE float exp_nonpositive(float x) {
    const float round = 12582912.0f; // 1.5 * 2^23
    const float rounded = add_rn(mul_rn(x, 1.44269504088896340736f), round);
    const float n = add_rn(rounded, -round);
    const float r = add_rn(add_rn(x, -mul_rn(n, bits_to_float(0x3F317200u))), -mul_rn(n, bits_to_float(0x35BFBE8Eu)));
    float sum = 1.0f / 5040.0f;
    sum = add_rn(mul_rn(sum, r), 1.0f / 720.0f);
    sum = add_rn(mul_rn(sum, r), 1.0f / 120.0f);
    sum = add_rn(mul_rn(sum, r), 1.0f / 24.0f);
    sum = add_rn(mul_rn(sum, r), 1.0f / 6.0f);
    sum = add_rn(mul_rn(sum, r), 0.5f);
    sum = add_rn(mul_rn(sum, r), 1.0f);
    sum = add_rn(mul_rn(sum, r), 1.0f);
    const float scale = bits_to_float((float_to_bits(rounded) - float_to_bits(round) + 127u) << 23);
    return x >= -87.0f ? mul_rn(sum, scale) : 0.0f;
}

// ln(x) of a sum of weights in the bits of ygg_kernels::candidates::ln_positive.
YGG_DEVICE float ln_positive(float x) {
    const u32 bits = float_to_bits(x);
    double exponent = static_cast<double>(bits >> 23 & 0xffu) - 127.0;
    double mantissa = static_cast<double>(bits_to_float((bits & 0x007fffffu) | 0x3f800000u));
    if (mantissa > 1.41421356237309504880) {
        mantissa = mul_rn(mantissa, 0.5);
        exponent = add_rn(exponent, 1.0);
    }
    const double s = divide(add_rn(mantissa, -1.0), add_rn(mantissa, 1.0)), square = mul_rn(s, s);
    double sum = 1.0 / 17.0;
    for (i32 i = 15; i > 0; i -= 2) sum = add_rn(mul_rn(sum, square), divide(1.0, static_cast<double>(i)));
    return static_cast<float>(add_rn(mul_rn(exponent, 0.693147180559945309417), mul_rn(add_rn(s, s), sum)));
}

// Element `i` of a head turned to a position; products and sums are rounded apart, as on every tier.
YGG_DEVICE float turned(const float* head, u32 i, u32 position, const YggRope& rope) {
    if (rope.cosines == nullptr || i >= rope.rotated) return head[i];
    const u32 pairs = rope.rotated / 2;
    const u32 pair = rope.adjacent ? i / 2 : i % pairs;
    const u32 a = rope.adjacent ? 2 * pair : pair;
    const u32 b = rope.adjacent ? 2 * pair + 1 : pair + pairs;
    const u64 at = static_cast<u64>(position) * pairs + index(pair);
    const float c = rope.cosines[at], s = rope.sines[at];
    return i == a ? add_rn(mul_rn(head[a], c), -mul_rn(head[b], s)) : add_rn(mul_rn(head[a], s), mul_rn(head[b], c));
}

// Number of the word of a row's inputs k and k + 1 (k even) in fragments.
YGG_DEVICE u64 fragment_word(u32 row_tiles, u32 w, u32 k) {
    const u32 in_16 = k % 16;
    const u64 tile = (static_cast<u64>(k / YGG_TILE_K) * row_tiles + w / YGG_TILE_W) * 2 + k % YGG_TILE_K / 32;
    return (tile * WARP + w % YGG_TILE_W * 4 + in_16 % 8 / 2) * 4 + k % 32 / 16 * 2 + in_16 / 8;
}

// The nearest that a half has: beyond its range, the largest finite value; NaN stays.
YGG_DEVICE float in_half(float x) { return within(static_cast<float>(32 * index(2047u)), x); }

// Two inputs as a product reads them.
YGG_DEVICE u32 fragment_pair(u32 format, float low, float high) {
    return format == YGG_FRAGMENT_F16 ? pack_f16(in_half(low), in_half(high)) : pack_bf16(low, high);
}

// Writes one input of a row where the product that reads it next will look. Rows that are padding are left as they are: no other row
// depends on them.
YGG_DEVICE void store_fragment(const YggFragments& to, u32 w, u32 k, float x) {
    if (to.data == nullptr) return;
    const u32 word = fragment_pair(to.format, x, 0.0f);
    static_cast<u16*>(to.data)[fragment_word(to.row_tiles, w, k - k % 2) * 2 + index(k) % 2] = static_cast<u16>(word);
}

// Elements of the cache.
struct F16 {
    using Bits = u16;
    YGG_DEVICE static float read(Bits bits) { return half_to_float(bits); }
    YGG_DEVICE static Bits write(float x) { return float_to_half(in_half(x)); }
    // Those of 16 bytes, and two neighbours.
    YGG_DEVICE static void unpack(float (&to)[8], const Words4& from) {
        for (u32 i = 0; i < 8; ++i) to[i] = half_to_float(static_cast<u16>(word_of(from, i / 2) >> (i % 2 * 16)));
    }
    YGG_DEVICE static void unpack_pair(float& low, float& high, const Bits* from) {
        const u32 both = *reinterpret_cast<const u32*>(from);
        low = half_to_float(static_cast<u16>(both));
        high = half_to_float(static_cast<u16>(both >> 16));
    }
};
struct F32 {
    using Bits = float;
    YGG_DEVICE static float read(Bits bits) { return bits; }
    YGG_DEVICE static Bits write(float x) { return x; }
    YGG_DEVICE static void unpack(float (&to)[4], const Words4& from) {
        for (u32 i = 0; i < 4; ++i) to[i] = bits_to_float(word_of(from, i));
    }
    YGG_DEVICE static void unpack_pair(float& low, float& high, const Bits* from) {
        low = from[0];
        high = from[1];
    }
};

} // namespace ygg
