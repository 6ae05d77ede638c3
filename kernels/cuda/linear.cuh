// Skinny products: W token rows, 1 to 64, by a matrix that is read once.
//
// The floor is reading the weights. So they lie in memory as tensor cores take them (`ygg_kernels::cuda::packing`): a lane's part
// of a tile is 16 bytes that are next to its neighbours', no shared memory is passed through, and dequantisation happens in
// registers. Weights are the left operand (16 outputs), token rows the right one (8 at a time).
//
// Row invariance: the inputs are split into YGG_SPLIT_K parts by tile number modulo, one for each warp of a block; a warp adds its
// tiles in order, and the parts are joined in order. None of it knows W. A column of an mma does not depend on the others.
#pragma once

#include "rows.cuh"

namespace ygg {

constexpr u32 SPLIT_K = YGG_SPLIT_K;
constexpr u32 TILE_K = YGG_TILE_K;
static_assert(YGG_LINEAR_THREADS == SPLIT_K * WARP, "a warp for each part of the inputs");

// A format of packed weights: `Loaded` is a lane's part of a tile of 16 outputs and 64 inputs as it lies in memory, `fragment` the
// left operand of the multiplication with inputs 16 k .. 16 k + 16 of it. Tile t of row tile n is number n * tiles_k + t.
//
// Where weights have scales, fragments are codes, with a constant beside them that spares their conversion: exact as bf16, so that nothing
// of a weight is rounded. The products of SCALED fragments are summed, and a sum is made one of weights in f32: `scale * sum + offset * sum
// of inputs`. Sums of inputs are products with ones. `ahead` says how many tiles of inputs are loaded together, where a warp sums so many
// 16 x 8 results: what registers have room for.

// What makes weights of codes, of one output.
struct Scale {
    float scale, offset;
};

template <bool HALF> struct Sixteen {
    static constexpr bool IS_HALF = HALF;
    static constexpr u32 SCALED = 0;
    static constexpr bool HAS_OFFSET = false;
    YGG_DEVICE static constexpr u32 ahead(u32 sums) { return sums == 8 ? 1 : 2; }
    struct Loaded {
        Words4 words[4];
    };
    YGG_DEVICE static void load(Loaded& to, const void* codes, const void*, u64 tile) {
        const Words4* from = static_cast<const Words4*>(codes) + tile * (4 * WARP) + lane();
        for (u32 k = 0; k < 4; ++k) to.words[k] = load_streamed(from + k * WARP);
    }
    YGG_DEVICE static void fragment(u32 (&a)[4], const Loaded& from, u32 k) {
        a[0] = from.words[k].x;
        a[1] = from.words[k].y;
        a[2] = from.words[k].z;
        a[3] = from.words[k].w;
    }
    YGG_DEVICE static Scale scale(const Loaded&, u32, u32) { return {1.0f, 0.0f}; }
};

// The fragment of a word of nibbles, of which r and r + 4 are the pair of register r: 128 + code, in the mantissa of a bf16 of 128.
YGG_DEVICE void nibble_fragment(u32 (&a)[4], u32 word) {
#pragma unroll
    for (u32 r = 0; r < 4; ++r) a[r] = masked_xor(word >> (4 * r), 0x000F000Fu, 0x43004300u);
}
// Bytes i and i + 1 of a word in the low bytes of two halves.
YGG_DEVICE u32 spread_bytes(u32 word, u32 i) { return select_bytes(word, 0, 0x4040u + i + ((i + 1) << 8)); }
// The sums of two words' bf16, which are exact here.
YGG_DEVICE u32 exact_sum(u32 a, u32 b) { return fma_bf16(a, 0x3F803F80u, b); }
// value = code * d + m, where a fragment has 128 + code.
YGG_DEVICE Scale nibble_scale(float d, float m) { return {d, fma_rn(-128.0f, d, m)}; }

// Nibbles with a scale per output and 32 inputs, as a half: value = (code - 8) * scale. A lane's 32 nibbles are 4 words, one for each 16
// inputs.
struct Centred {
    static constexpr bool IS_HALF = false;
    static constexpr u32 SCALED = 2;
    static constexpr bool HAS_OFFSET = false;
    YGG_DEVICE static constexpr u32 ahead(u32) { return 4; }
    struct Loaded {
        Words4 codes;
        Words2 scales; // of outputs g and g + 8: inputs below 32 in the low half, the others in the high one
    };
    YGG_DEVICE static void load(Loaded& to, const void* codes, const void* scales, u64 tile) {
        to.codes = load_streamed(static_cast<const Words4*>(codes) + tile * WARP + lane());
        to.scales = load_streamed(static_cast<const Words2*>(scales) + tile * (WARP / 4) + lane() / 4);
    }
    YGG_DEVICE static void fragment(u32 (&a)[4], const Loaded& from, u32 k) {
        nibble_fragment(a, word_of(from.codes, k));
#pragma unroll
        for (u32 r = 0; r < 4; ++r) a[r] = exact_sum(a[r], 0xC308C308u);
    }
    // Of inputs 32 i .. 32 i + 32 and output g + 8 half.
    YGG_DEVICE static Scale scale(const Loaded& from, u32 i, u32 half) {
        return {half_to_float(static_cast<u16>((half == 0 ? from.scales.x : from.scales.y) >> (i * 16))), 0.0f};
    }
};

// The same with scale and minimum: value = code * scale + minimum.
struct Nibbles {
    static constexpr bool IS_HALF = false;
    static constexpr u32 SCALED = 2;
    static constexpr bool HAS_OFFSET = true;
    YGG_DEVICE static constexpr u32 ahead(u32 sums) { return sums == 4 || sums == 16 ? 2 : 4; }
    struct Loaded {
        Words4 codes;
        Words4 scales; // outputs g, g + 8; of each, inputs below 32, then the others
    };
    YGG_DEVICE static void load(Loaded& to, const void* codes, const void* scales, u64 tile) {
        to.codes = load_streamed(static_cast<const Words4*>(codes) + tile * WARP + lane());
        to.scales = load_streamed(static_cast<const Words4*>(scales) + tile * (WARP / 4) + lane() / 4);
    }
    YGG_DEVICE static void fragment(u32 (&a)[4], const Loaded& from, u32 k) { nibble_fragment(a, word_of(from.codes, k)); }
    YGG_DEVICE static Scale scale(const Loaded& from, u32 i, u32 half) {
        const u32 scale = word_of(from.scales, 2 * half + i);
        return nibble_scale(half_to_float(static_cast<u16>(scale)), half_to_float(static_cast<u16>(scale >> 16)));
    }
};

// The same with scale and minimum as f32: of formats whose scales are products.
struct NibblesWide {
    static constexpr bool IS_HALF = false;
    static constexpr u32 SCALED = 2;
    static constexpr bool HAS_OFFSET = true;
    YGG_DEVICE static constexpr u32 ahead(u32) { return 2; }
    struct Loaded {
        Words4 codes;
        Words4 scales[2]; // of outputs g and g + 8: scale and minimum of inputs below 32, then of the others
    };
    YGG_DEVICE static void load(Loaded& to, const void* codes, const void* scales, u64 tile) {
        to.codes = load_streamed(static_cast<const Words4*>(codes) + tile * WARP + lane());
        const Words4* from = static_cast<const Words4*>(scales) + tile * (WARP / 2) + lane() / 4 * 2;
        to.scales[0] = load_streamed(from);
        to.scales[1] = load_streamed(from + 1);
    }
    YGG_DEVICE static void fragment(u32 (&a)[4], const Loaded& from, u32 k) { nibble_fragment(a, word_of(from.codes, k)); }
    YGG_DEVICE static Scale scale(const Loaded& from, u32 i, u32 half) {
        const Words4& scales = from.scales[half];
        return nibble_scale(bits_to_float(i == 0 ? scales.x : scales.z), bits_to_float(i == 0 ? scales.y : scales.w));
    }
};

// Signed bytes with a scale per output and 32 inputs, as halves. A lane's 32 bytes are 8 words, two for each 16 inputs: registers 0
// and 1, then 2 and 3.
struct Bytes {
    static constexpr bool IS_HALF = false;
    static constexpr u32 SCALED = 2;
    static constexpr bool HAS_OFFSET = false;
    YGG_DEVICE static constexpr u32 ahead(u32) { return 2; }
    struct Loaded {
        Words4 codes[2];
        u32 scales[2]; // of outputs g and g + 8: inputs below 32 in the low half, the others in the high one
    };
    YGG_DEVICE static void load(Loaded& to, const void* codes, const void* scales, u64 tile) {
        const Words4* from = static_cast<const Words4*>(codes) + tile * (2 * WARP) + lane();
        to.codes[0] = load_streamed(from);
        to.codes[1] = load_streamed(from + WARP);
        const Words2 both = load_streamed(static_cast<const Words2*>(scales) + tile * (WARP / 4) + lane() / 4);
        to.scales[0] = both.x;
        to.scales[1] = both.y;
    }
    // The low 7 bits in the mantissa of a bf16 of 128, less 128, or less 256 where the sign is set.
    YGG_DEVICE static void fragment(u32 (&a)[4], const Loaded& from, u32 k) {
#pragma unroll
        for (u32 r = 0; r < 4; ++r) {
            const u32 bytes = spread_bytes(word_of(from.codes[k / 2], k % 2 * 2 + r / 2), r % 2 * 2);
            a[r] = exact_sum(masked_xor(bytes, 0x007F007Fu, 0x43004300u), masked_xor(bytes, 0x00800080u, 0xC300C300u));
        }
    }
    YGG_DEVICE static Scale scale(const Loaded& from, u32 i, u32 half) {
        return {half_to_float(static_cast<u16>(from.scales[half] >> (i * 16))), 0.0f};
    }
};

// Signed bytes of 6 bits with a scale per output and 16 inputs, as f32.
struct BytesWide {
    static constexpr bool IS_HALF = false;
    static constexpr u32 SCALED = 1;
    static constexpr bool HAS_OFFSET = false;
    YGG_DEVICE static constexpr u32 ahead(u32) { return 1; }
    struct Loaded {
        Words4 codes[2];
        Words4 scales[2]; // of outputs g and g + 8: one for each 16 inputs
    };
    YGG_DEVICE static void load(Loaded& to, const void* codes, const void* scales, u64 tile) {
        const Words4* from = static_cast<const Words4*>(codes) + tile * (2 * WARP) + lane();
        to.codes[0] = load_streamed(from);
        to.codes[1] = load_streamed(from + WARP);
        const Words4* of = static_cast<const Words4*>(scales) + tile * (WARP / 2) + lane() / 4 * 2;
        to.scales[0] = load_streamed(of);
        to.scales[1] = load_streamed(of + 1);
    }
    // The code and 64 are 7 bits, in the mantissa of a bf16 of 128.
    YGG_DEVICE static void fragment(u32 (&a)[4], const Loaded& from, u32 k) {
#pragma unroll
        for (u32 r = 0; r < 4; ++r) {
            const u32 bytes = spread_bytes(word_of(from.codes[k / 2], k % 2 * 2 + r / 2), r % 2 * 2);
            a[r] = exact_sum(masked_xor(bytes, 0x007F007Fu, 0x43404340u), 0xC340C340u);
        }
    }
    YGG_DEVICE static Scale scale(const Loaded& from, u32 i, u32 half) {
        return {bits_to_float(word_of(from.scales[half], i)), 0.0f};
    }
};

// A warp's part of the weights that it multiplies next: AHEAD tiles of inputs.
template <class Format, u32 TILES, u32 AHEAD> struct LoadedTiles {
    typename Format::Loaded parts[AHEAD][TILES];
};

// Row tiles of a block: `TILES` behind each other, or those of gate and up. The inputs' tiles from `first` on.
template <class Format, u32 TILES, bool GATED, u32 AHEAD>
YGG_DEVICE void load_tiles(LoadedTiles<Format, TILES, AHEAD>& to, const YggLinear& p, u32 first) {
    const u32 row_tiles = ceil_div(p.out.columns, YGG_TILE_N);
    const u32 first_tile = GATED ? blockIdx.x : blockIdx.x * TILES;
#pragma unroll
    for (u32 i = 0; i < AHEAD; ++i) {
        const u32 t = first + i * SPLIT_K;
        if (t >= p.tiles_k) continue;
#pragma unroll
        for (u32 m = 0; m < TILES; ++m) {
            const u32 tile = smaller(GATED ? first_tile : first_tile + m, row_tiles - 1);
            const bool is_up = GATED && m == 1;
            Format::load(to.parts[i][m], is_up ? p.up_codes : p.codes, is_up ? p.up_scales : p.scales,
                         index(static_cast<u64>(tile) * p.tiles_k + t));
        }
    }
}

// Leaves an output of a product of queries, keys and values where attention and the cache want it. `product(row)` is the sum of an output
// of the tile. Queries, keys and values have the bits that the rotation and the storage of rows of their own give them (`turned`, `append`).
template <class Product> YGG_DEVICE void leave_projection(const YggLinear& p, u32 w, u32 tile, u32 row, Product product) {
    const YggProjection& to = p.projection;
    const YggRope& rope = to.rope;
    const u32 head_dim = to.kv.head_dim, tiles = head_dim / YGG_TILE_N, pairs = rope.rotated / 2;
    const u32 head = tile / tiles, t = tile % tiles;
    const bool is_query = head < to.heads, is_value = head >= to.heads + to.kv.heads;
    const bool is_turned = rope.cosines != nullptr && t * YGG_TILE_N < rope.rotated;
    const u32 natural = t * YGG_TILE_N + row;
    const u32 i = is_turned && !rope.adjacent ? row / 8 * pairs + t * 8 + row % 8 : natural;
    float x = product(row);
    if (is_turned && !is_value) {
        const u32 pair = rope.adjacent ? i / 2 : i % pairs;
        const bool is_first = rope.adjacent ? i % 2 == 0 : i < pairs;
        const float other = product(rope.adjacent ? row ^ 1u : row ^ 8u);
        const u64 at = static_cast<u64>(to.positions[index(w)]) * pairs + index(pair);
        const float c = rope.cosines[at], s = rope.sines[at];
        x = is_first ? add_rn(mul_rn(x, c), -mul_rn(other, s)) : add_rn(mul_rn(other, s), mul_rn(x, c));
    }
    if (is_query) {
        row_of(p.out, w)[index(head * head_dim + i)] = x;
        return;
    }
    const u32 slot = to.slots[index(w)];
    if (slot == YGG_NO_SLOT) return;
    const u32 kv_head = head - to.heads - (is_value ? to.kv.heads : 0);
    const u64 at = (static_cast<u64>(kv_head) * to.kv.slots + slot) * head_dim + index(i);
    void* kept = is_value ? to.kv.values : to.kv.keys;
    if (to.halves)
        static_cast<u16*>(kept)[at] = F16::write(x);
    else
        static_cast<float*>(kept)[at] = F32::write(x);
}

// Adds the products of 32 inputs: the first or the second half of loaded tiles with `b`.
template <class Format, u32 NT, u32 TILES>
YGG_DEVICE void multiply_half(float (&sums)[TILES][NT][4], const typename Format::Loaded (&parts)[TILES], const Words4 (&b)[NT], u32 half) {
    constexpr u32 TOGETHER = Format::SCALED == 0 ? 1 : Format::SCALED;
    // A product with these sums inputs.
    const u32 ones[4] = {0x3F803F80u, 0x3F803F80u, 0x3F803F80u, 0x3F803F80u};
#pragma unroll
    for (u32 first = 0; first < 2; first += TOGETHER) {
        u32 a[TILES][TOGETHER][4];
        Scale scales[TILES][2];
#pragma unroll
        for (u32 m = 0; m < TILES; ++m) {
#pragma unroll
            for (u32 k = 0; k < TOGETHER; ++k) Format::fragment(a[m][k], parts[m], index(2 * half + first + k) % 4);
#pragma unroll
            for (u32 i = 0; i < 2; ++i) scales[m][i] = Format::scale(parts[m], (2 * half + first) / TOGETHER, index(i) % 2);
        }
#pragma unroll
        for (u32 n = 0; n < NT; ++n) {
            auto add = [&](float (&to)[4], const u32 (&of)[4], u32 k) {
                const u32 b0 = first + k == 0 ? b[n].x : b[n].z, b1 = first + k == 0 ? b[n].y : b[n].w;
                if (Format::IS_HALF)
                    mma_f16(to, of, b0, b1);
                else if (Format::SCALED != 0 && k == 0)
                    mma_bf16_first(to, of, b0, b1);
                else
                    mma_bf16(to, of, b0, b1);
            };
            float inputs[4];
            if (Format::HAS_OFFSET)
#pragma unroll
                for (u32 k = 0; k < TOGETHER; ++k) add(inputs, ones, k);
#pragma unroll
            for (u32 m = 0; m < TILES; ++m) {
                if constexpr (Format::SCALED == 0) {
                    add(sums[m][n], a[m][0], 0);
                } else {
                    float part[4];
#pragma unroll
                    for (u32 k = 0; k < TOGETHER; ++k) add(part, a[m][k], k);
#pragma unroll
                    for (u32 e = 0; e < 4; ++e) {
                        const Scale& scale = scales[m][e / 2];
                        sums[m][n][e] = fma_rn(part[e], scale.scale, sums[m][n][e]);
                        if (Format::HAS_OFFSET) sums[m][n][e] = fma_rn(inputs[e % 2], scale.offset, sums[m][n][e]);
                    }
                }
            }
        }
    }
}

// `NT` tiles of 8 token rows.
template <class Format, u32 NT, u32 TILES, bool GATED> YGG_DEVICE void linear(const YggLinear& p) {
    constexpr u32 AHEAD = Format::ahead(NT * TILES);
    // No kernel writes weights or the mask: the first tiles are on their way while the kernels before still run.
    const bool is_left_out = is_skipped(p.step);
    LoadedTiles<Format, TILES, AHEAD> loaded;
    const u32 part = of_warp(warp());
    if (!is_left_out) load_tiles<Format, TILES, GATED, AHEAD>(loaded, p, part);
    wait_for_kernels_before();
    let_next_kernel_begin();
    if (is_left_out) return;
    const u32 first_tile = GATED ? blockIdx.x : blockIdx.x * TILES;
    float sums[TILES][NT][4];
    for (u32 m = 0; m < TILES; ++m)
        for (u32 n = 0; n < NT; ++n)
            for (u32 e = 0; e < 4; ++e) sums[m][n][e] = 0.0f;

    const Words4* rows = static_cast<const Words4*>(p.fragments) + lane();
    for (u32 first = part; first < p.tiles_k; first += AHEAD * SPLIT_K) {
        if (first != part) load_tiles<Format, TILES, GATED, AHEAD>(loaded, p, index(first));
#pragma unroll
        for (u32 i = 0; i < AHEAD; ++i) {
            const u32 t = first + i * SPLIT_K;
            if (t >= p.tiles_k) continue;
#pragma unroll
            for (u32 half = 0; half < 2; ++half) {
                Words4 b[NT];
#pragma unroll
                for (u32 n = 0; n < NT; ++n) b[n] = load_words(rows + ((static_cast<u64>(index(t)) * NT + n) * 2 + half) * WARP);
                multiply_half<Format, NT, TILES>(sums, loaded.parts[i], b, half);
            }
        }
    }

    // The warps' parts, joined in order: one tile of outputs at a time, so that they fit.
    constexpr u32 ELEMENTS = NT * YGG_TILE_W * YGG_TILE_N;
    constexpr u32 EACH = (ELEMENTS + YGG_LINEAR_THREADS - 1) / YGG_LINEAR_THREADS;
    YGG_SHARED(float[SPLIT_K][NT * 4][WARP], parts);
    float gate[EACH];
#pragma unroll
    for (u32 m = 0; m < TILES; ++m) {
#pragma unroll
        for (u32 n = 0; n < NT; ++n)
#pragma unroll
            for (u32 e = 0; e < 4; ++e) parts[warp()][n * 4 + e][lane()] = sums[m][n][e];
        barrier();
        const u32 tile = GATED ? first_tile : first_tile + m;
#pragma unroll
        for (u32 i = 0; i < EACH; ++i) {
            const u32 element = i * YGG_LINEAR_THREADS + threadIdx.x;
            const u32 row = element % YGG_TILE_N, w = element / YGG_TILE_N;
            const u32 output = tile * YGG_TILE_N + row;
            if (w >= p.out.rows || output >= p.out.columns) continue;
            auto product = [&](u32 row) {
                const u32 at = w / 8 * 4 + row / 8 * 2 + w % 2, of = row % 8 * 4 + w % 8 / 2;
                float total = parts[0][at][of];
                for (u32 part = 1; part < SPLIT_K; ++part) total = add_rn(total, parts[part][at][index(of) % WARP]);
                return p.bias == nullptr ? total : add_rn(total, p.bias[index(tile * YGG_TILE_N + row)]);
            };
            if (!GATED && p.projection.positions != nullptr) {
                leave_projection(p, w, tile, row, product);
                continue;
            }
            float total = product(row);
            float* out = row_of(p.out, w) + index(output);
            if (GATED && m == 0) {
                gate[i] = total;
                continue;
            }
            if (GATED)
                total = mul_rn(gated(p.function, gate[i]), total);
            else if (p.residual)
                total = add_rn(*out, total);
            *out = total;
            store_fragment(p.next, w, output, total);
        }
        barrier();
    }
}

// Matrices of f32, for models that are stored so: a warp for each output, rows one after the other.
YGG_DEVICE float dot_f32(const float* x, const float* row, u32 columns) {
    float sum = 0.0f;
    for (u32 i = lane(); i < columns; i += WARP) sum = fma_rn(x[i], row[index(i)], sum);
    return warp_sum(sum);
}

} // namespace ygg

// grid: token rows, padding included
YGG_KERNEL(ygg_prepare, YggPrepare, YGG_ROW_THREADS) {
    wait_for_kernels_before();
    let_next_kernel_begin();
    if (ygg::is_skipped(p.step)) return;
    const u32 w = blockIdx.x;
    const u32 columns = w < p.x.rows ? p.x.columns : 0;
    const ygg::BlockRow row(ygg::row_of(p.x, w), columns);
    const bool is_normed = columns > 0 && p.gain != nullptr;
    const float factor = is_normed ? row.rms_factor(p.eps) : 1.0f;
    auto prepared = [&](u32 i, const ygg::Quad& quad) {
        return is_normed ? ygg::BlockRow::normed(quad, factor, ygg::quad_of(p.gain, i, columns)) : quad;
    };
    if (p.out.format == YGG_FRAGMENT_F32) {
        float* out = static_cast<float*>(p.out.data) + static_cast<u64>(w) * columns;
        row.each(columns, [&](u32 i, const ygg::Quad& quad) { ygg::store_quad(out, i, columns, prepared(i, quad)); });
        return;
    }
    u32* out = static_cast<u32*>(p.out.data);
    row.each(ygg::ceil_div(p.x.columns, YGG_TILE_K) * YGG_TILE_K, [&](u32 i, const ygg::Quad& quad) {
        const ygg::Quad four = prepared(i, quad);
        out[ygg::fragment_word(p.out.row_tiles, w, i)] = ygg::fragment_pair(p.out.format, four.of[0], four.of[1]);
        out[ygg::fragment_word(p.out.row_tiles, w, i + 2)] = ygg::fragment_pair(p.out.format, four.of[2], four.of[3]);
    });
}

// grid: outputs / 8
YGG_KERNEL(ygg_linear_f32, YggLinear, YGG_LINEAR_THREADS) {
    wait_for_kernels_before();
    let_next_kernel_begin();
    if (ygg::is_skipped(p.step)) return;
    const u32 output = blockIdx.x * ygg::SPLIT_K + ygg::warp();
    if (output >= p.out.columns) return;
    const float* x = static_cast<const float*>(p.fragments);
    const float* weights = static_cast<const float*>(p.codes) + static_cast<u64>(output) * p.columns;
    const float* up = static_cast<const float*>(p.up_codes) + static_cast<u64>(output) * p.columns;
    for (u32 w = 0; w < p.out.rows; ++w, x += p.columns) {
        float product = ygg::dot_f32(x, weights, p.columns);
        if (p.bias != nullptr) product = add_rn(product, p.bias[output]);
        const float beside = p.up_codes ? ygg::dot_f32(x, up, p.columns) : 0.0f;
        float* out = ygg::row_of(p.out, w) + output;
        if (ygg::lane() == 0) {
            if (p.up_codes)
                *out = mul_rn(ygg::gated(p.function, product), beside);
            else
                *out = p.residual ? add_rn(*out, product) : product;
        }
    }
}

// `blocks` of width 32 fit a multiprocessor. grid: row tiles / 1 where there are few token rows, / 2 where there are many; of a gated pair, row tiles
#define YGG_LINEARS(name, Format, blocks) \
    YGG_KERNEL(ygg_linear_##name##_w8, YggLinear, YGG_LINEAR_THREADS) { ygg::linear<Format, 1, 1, false>(p); } \
    YGG_KERNEL_OF_BLOCKS(ygg_linear_##name##_w16, YggLinear, YGG_LINEAR_THREADS, 2) { ygg::linear<Format, 2, 1, false>(p); } \
    YGG_KERNEL_OF_BLOCKS(ygg_linear_##name##_w32, YggLinear, YGG_LINEAR_THREADS, blocks) { ygg::linear<Format, 4, 2, false>(p); } \
    YGG_KERNEL(ygg_linear_##name##_w64, YggLinear, YGG_LINEAR_THREADS) { ygg::linear<Format, 8, 2, false>(p); } \
    YGG_KERNEL_OF_BLOCKS(ygg_gated_##name##_w8, YggLinear, YGG_LINEAR_THREADS, 2) { ygg::linear<Format, 1, 2, true>(p); } \
    YGG_KERNEL_OF_BLOCKS(ygg_gated_##name##_w16, YggLinear, YGG_LINEAR_THREADS, 1) { ygg::linear<Format, 2, 2, true>(p); } \
    YGG_KERNEL_OF_BLOCKS(ygg_gated_##name##_w32, YggLinear, YGG_LINEAR_THREADS, blocks) { ygg::linear<Format, 4, 2, true>(p); } \
    YGG_KERNEL(ygg_gated_##name##_w64, YggLinear, YGG_LINEAR_THREADS) { ygg::linear<Format, 8, 2, true>(p); }

// Which layouts kernels are wanted for: bits as in ygg_kernels::cuda::packing. All, where nothing else is said.
#ifndef YGG_LAYOUTS
#define YGG_LAYOUTS 127
#endif

#if YGG_LAYOUTS & 1
YGG_LINEARS(bf16, ygg::Sixteen<false>, 2)
#endif
#if YGG_LAYOUTS & 2
YGG_LINEARS(f16, ygg::Sixteen<true>, 2)
#endif
#if YGG_LAYOUTS & 4
YGG_LINEARS(nibbles, ygg::Nibbles, 1)
#endif
#if YGG_LAYOUTS & 64
YGG_LINEARS(centred, ygg::Centred, 1)
#endif
#if YGG_LAYOUTS & 8
YGG_LINEARS(nibbles_wide, ygg::NibblesWide, 1)
#endif
#if YGG_LAYOUTS & 16
YGG_LINEARS(bytes, ygg::Bytes, 1)
#endif
#if YGG_LAYOUTS & 32
YGG_LINEARS(bytes_wide, ygg::BytesWide, 1)
#endif
