// Kernels over rows: embedding, normalisation, sums, products, rotation, gather.
//
// A block works on one row; no row knows of another.
#pragma once

#include "common.cuh"

namespace ygg {

YGG_DEVICE u16 half_at(const u8* at) { return static_cast<u16>(at[0] | at[1] << 8); }

// Code i of a block of 32 nibbles: the first 16 in the low halves, the last 16 in the high halves.
YGG_DEVICE float nibble(const u8* codes, u32 i) {
    return static_cast<float>(i < 16 ? codes[i] & 15 : codes[i - 16] >> 4);
}

// Element `i` of a row of a model file: exactly what ygg_kernels::WeightFormat::dequantise_row says.
YGG_DEVICE float embedding_element(u32 format, const u8* row, u32 i) {
    switch (format) {
    case YGG_EMBEDDING_F16: return half_to_float(half_at(row + 2 * static_cast<u64>(i)));
    case YGG_EMBEDDING_BF16: return bits_to_float(static_cast<u32>(half_at(row + 2 * static_cast<u64>(i))) << 16);
    case YGG_EMBEDDING_Q8_0: {
        const u8* block = row + static_cast<u64>(i / 32) * 34;
        return mul_rn(static_cast<float>(static_cast<signed char>(block[2 + i % 32])), half_to_float(half_at(block)));
    }
    case YGG_EMBEDDING_Q4_0: {
        const u8* block = row + static_cast<u64>(i / 32) * 18;
        return mul_rn(nibble(block + 2, i % 32) - 8.0f, half_to_float(half_at(block)));
    }
    case YGG_EMBEDDING_Q5_0: {
        const u8* block = row + static_cast<u64>(i / 32) * 22;
        const u32 at = i % 32;
        const float high = static_cast<float>((block[2 + at / 8] >> (at % 8) & 1) * 16);
        return mul_rn(nibble(block + 6, at) + high - 16.0f, half_to_float(half_at(block)));
    }
    case YGG_EMBEDDING_Q4_1: {
        const u8* block = row + static_cast<u64>(i / 32) * 20;
        const float d = half_to_float(half_at(block)), m = half_to_float(half_at(block + 2));
        return add_rn(mul_rn(nibble(block + 4, i % 32), d), m);
    }
    case YGG_EMBEDDING_Q4_K:
    case YGG_EMBEDDING_Q5_K: {
        // A fifth bit of every code lies before the nibbles.
        const u32 fifths = format == YGG_EMBEDDING_Q5_K ? 32 : 0;
        const u8* block = row + static_cast<u64>(i / 256) * (144 + fifths);
        const u8* packed = block + 4;
        const u32 at = i % 256, s = at / 32;
        u32 scale, min;
        if (s < 4) {
            scale = packed[s] & 63;
            min = packed[s + 4] & 63;
        } else {
            scale = (packed[s + 4] & 15) | (packed[s - 4] >> 6 << 4);
            min = (packed[s + 4] >> 4) | (packed[s] >> 6 << 4);
        }
        const u32 fifth = fifths == 0 ? 0 : block[16 + at % 32] >> s & 1;
        const u32 code = fifth << 4 | (block[16 + fifths + at / 64 * 32 + at % 32] >> (at / 32 % 2 * 4) & 15);
        const float d = mul_rn(half_to_float(half_at(block)), static_cast<float>(scale));
        const float m = mul_rn(half_to_float(half_at(block + 2)), static_cast<float>(min));
        return add_rn(mul_rn(static_cast<float>(code), d), -m);
    }
    case YGG_EMBEDDING_Q6_K: {
        const u8* block = row + static_cast<u64>(i / 256) * 210;
        const u32 at = i % 256, half = at / 128, quarter = at / 32 % 4, place = at % 32;
        const u32 low = block[64 * half + 32 * (quarter % 2) + place] >> (quarter / 2 * 4) & 15;
        const u32 high = block[128 + 32 * half + place] >> (2 * quarter) & 3;
        const float scale = static_cast<float>(static_cast<signed char>(block[192 + at / 16]));
        const float d = mul_rn(half_to_float(half_at(block + 208)), scale);
        return mul_rn(static_cast<float>(static_cast<i32>(high << 4 | low) - 32), d);
    }
    default: {
        const u8* at = row + 4 * static_cast<u64>(i);
        return bits_to_float(static_cast<u32>(at[0]) | static_cast<u32>(at[1]) << 8 | static_cast<u32>(at[2]) << 16 |
                             static_cast<u32>(at[3]) << 24);
    }
    }
}

struct Quad {
    float of[4];
};

// Elements i .. i + 4 of a row, i a multiple of 4; zeros past its last.
YGG_DEVICE Quad quad_of(const float* x, u32 i, u32 columns) {
    Quad quad;
    if (i + 4 <= columns && reinterpret_cast<u64>(x) % 16 == 0) {
        const Words4 words = load_words(reinterpret_cast<const Words4*>(x + index(i)));
#pragma unroll
        for (u32 e = 0; e < 4; ++e) quad.of[e] = bits_to_float(word_of(words, e));
    } else {
#pragma unroll
        for (u32 e = 0; e < 4; ++e) quad.of[e] = i + e < columns ? load_number(x + index(i) + e) : 0.0f;
    }
    return quad;
}

YGG_DEVICE void store_quad(float* x, u32 i, u32 columns, const Quad& quad) {
    if (i + 4 <= columns && reinterpret_cast<u64>(x) % 16 == 0) {
        *reinterpret_cast<Words4*>(x + index(i)) = {float_to_bits(quad.of[0]), float_to_bits(quad.of[1]), float_to_bits(quad.of[2]), float_to_bits(quad.of[3])};
        return;
    }
#pragma unroll
    for (u32 e = 0; e < 4; ++e)
        if (i + e < columns) x[index(i) + e] = quad.of[e];
}

// A row in the registers of a block's threads, as far as they reach: all loads are begun before the first is waited for. A thread has
// every so manieth four elements, whatever reads them, so that sums have the same bits.
struct BlockRow {
    static constexpr u32 KEPT = 8;
    const float* x;
    u32 columns;
    Quad kept[KEPT];

    YGG_DEVICE BlockRow(const float* x, u32 columns) : x(x), columns(columns) {
#pragma unroll
        for (u32 i = 0; i < KEPT; ++i) kept[i] = quad_of(x, 4 * (threadIdx.x + i * blockDim.x), columns);
    }
    // What the thread has of elements below `end`: the number of the first of four, and the four.
    template <class Body> YGG_DEVICE void each(u32 end, Body body) const {
#pragma unroll
        for (u32 i = 0; i < KEPT; ++i) {
            const u32 at = 4 * (threadIdx.x + i * blockDim.x);
            if (at < end) body(at, kept[i]);
        }
#pragma unroll 4
        for (u32 at = 4 * (threadIdx.x + KEPT * blockDim.x); at < end; at += 4 * blockDim.x) body(at, quad_of(x, index(at), columns));
    }
    // The same, with what another row has in the same places.
    template <class Body> YGG_DEVICE void each_beside(const BlockRow& other, u32 end, Body body) const {
#pragma unroll
        for (u32 i = 0; i < KEPT; ++i) {
            const u32 at = 4 * (threadIdx.x + i * blockDim.x);
            if (at < end) body(at, kept[i], other.kept[i]);
        }
#pragma unroll 4
        for (u32 at = 4 * (threadIdx.x + KEPT * blockDim.x); at < end; at += 4 * blockDim.x) body(at, quad_of(x, index(at), columns), quad_of(other.x, at, other.columns));
    }
    // 1 / sqrt(mean of squares + eps), for all threads of the block.
    YGG_DEVICE float rms_factor(float eps) const {
        float squares = 0.0f;
        each(columns, [&](u32, const Quad& quad) {
#pragma unroll
            for (u32 e = 0; e < 4; ++e) squares = fma_rn(quad.of[e], quad.of[e], squares);
        });
        return inverse_sqrt(add_rn(divide(block_sum(squares), static_cast<float>(columns)), eps));
    }
    // The four, normalised.
    YGG_DEVICE static Quad normed(const Quad& quad, float factor, const Quad& gain) {
        Quad normed;
#pragma unroll
        for (u32 e = 0; e < 4; ++e) normed.of[e] = mul_rn(mul_rn(quad.of[e], factor), gain.of[e]);
        return normed;
    }
};

} // namespace ygg

// grid: rows. The first of a forward, begun when all before it has ended: there is nothing to wait for.
YGG_KERNEL(ygg_embed, YggEmbed, YGG_ROW_THREADS) {
    // A second matrix is embedded after other kernels.
    wait_for_kernels_before();
    let_next_kernel_begin();
    const u32 w = blockIdx.x;
    const u8* row = p.matrix + p.tokens[index(w)] * p.row_bytes;
    for (u32 i = threadIdx.x; i < p.out.columns; i += blockDim.x)
        ygg::row_of(p.out, w)[i] = ygg::embedding_element(p.format, row, i);
}

// grid: rows, groups of a row
YGG_KERNEL(ygg_rms_norm, YggNormRows, YGG_ROW_THREADS) {
    wait_for_kernels_before();
    let_next_kernel_begin();
    if (ygg::is_skipped(p.step)) return;
    const u32 first = blockIdx.y * p.columns;
    const ygg::BlockRow row(ygg::row_of(p.x, blockIdx.x) + first, p.columns);
    const float factor = row.rms_factor(p.eps);
    row.each(p.columns, [&](u32 i, const ygg::Quad& quad) {
        const ygg::Quad gain = ygg::quad_of(p.gain, i, p.columns);
        ygg::store_quad(ygg::row_of(p.out, blockIdx.x) + first, i, p.columns, ygg::BlockRow::normed(quad, factor, gain));
    });
}

// grid: rows
YGG_KERNEL(ygg_elementwise, YggElementwise, YGG_ROW_THREADS) {
    wait_for_kernels_before();
    let_next_kernel_begin();
    if (ygg::is_skipped(p.step)) return;
    const float* a = ygg::row_of(p.a, blockIdx.x);
    const float* b = ygg::row_of(p.b, blockIdx.x);
    float* out = ygg::row_of(p.out, blockIdx.x);
    for (u32 i = threadIdx.x; i < p.out.columns; i += blockDim.x)
        out[i] = p.function == YGG_ADD ? add_rn(a[i], b[index(i)]) : ygg::combined(p.function, a[i], b[i]);
}

// grid: rows
YGG_KERNEL(ygg_scale, YggScale, YGG_ROW_THREADS) {
    wait_for_kernels_before();
    let_next_kernel_begin();
    if (ygg::is_skipped(p.step)) return;
    for (u32 i = threadIdx.x; i < p.out.columns; i += blockDim.x)
        ygg::row_of(p.out, blockIdx.x)[i] = mul_rn(ygg::row_of(p.x, blockIdx.x)[index(i)], p.factor);
}

// grid: rows
YGG_KERNEL(ygg_softcap, YggScale, YGG_ROW_THREADS) {
    wait_for_kernels_before();
    let_next_kernel_begin();
    if (ygg::is_skipped(p.step)) return;
    for (u32 i = threadIdx.x; i < p.out.columns; i += blockDim.x)
        ygg::row_of(p.out, blockIdx.x)[i] = ygg::softcapped(ygg::row_of(p.x, blockIdx.x)[index(i)], p.factor);
}

// grid: rows. The result lies elsewhere than x: only residual sums are in place.
YGG_KERNEL(ygg_rope, YggRopeRows, YGG_ROW_THREADS) {
    wait_for_kernels_before();
    let_next_kernel_begin();
    if (ygg::is_skipped(p.step)) return;
    const u32 w = blockIdx.x;
    const float* x = ygg::row_of(p.x, w);
    for (u32 i = threadIdx.x; i < p.x.columns; i += blockDim.x)
        ygg::row_of(p.out, w)[i] = ygg::turned(x + i / p.head_dim * p.head_dim, i % p.head_dim, p.positions[index(w)], p.rope);
}

// grid: rows of the result
YGG_KERNEL(ygg_select_rows, YggSelectRows, YGG_ROW_THREADS) {
    wait_for_kernels_before();
    let_next_kernel_begin();
    if (ygg::is_skipped(p.step)) return;
    const float* x = ygg::row_of(p.x, p.indices[index(blockIdx.x)]);
    for (u32 i = threadIdx.x; i < p.out.columns; i += blockDim.x) ygg::row_of(p.out, blockIdx.x)[i] = x[i];
}
