// Skinny products: W token rows, 1 to 64, by a matrix that is read once.
//
// The floor is reading the weights. So they lie in memory as tensor cores take them (`ygg_kernels::cuda::packing`): a lane's part
// of a tile is 16 bytes that are next to its neighbours', no shared memory is passed through, and dequantisation happens in
// registers. Weights are the left operand (16 outputs), token rows the right one (8 at a time).
//
// Up to 8 rows, a block has one or two tiles of outputs and its warps a part of the inputs each. Of more rows (`wide_linear`) every
// block would read more activations than weights: there a block has 8 tiles of outputs and two parts of the inputs at a time, whose
// activations it copies to shared memory once.
//
// Row invariance: the inputs are split into YGG_SPLIT_K parts by tile number modulo; a warp adds the tiles of a part in order, and the
// parts are joined in pairs, the pairs in order. None of it knows W. A column of an mma does not depend on the others.
#pragma once

#include "packed.cuh"
#include "rows.cuh"

namespace ygg {

constexpr u32 SPLIT_K = YGG_SPLIT_K;
constexpr u32 TILE_K = YGG_TILE_K;
static_assert(YGG_LINEAR_THREADS == SPLIT_K * WARP, "a warp for each part of the inputs");
// Of a block of many rows: tiles of outputs, pairs of parts, warps that have two of the tiles each, and stages of activations.
constexpr u32 TILES_N = YGG_WIDE_TILES, PAIRS = SPLIT_K / 2, COLUMNS = TILES_N / 2, STAGES = YGG_WIDE_STAGES;
static_assert(YGG_LINEAR_THREADS == 2 * COLUMNS * WARP, "two parts of the inputs side by side");

// Weights of one tile of inputs: of `TILES` tiles of outputs behind each other, or of those of gate and up. What is not there stays as it is.
template <class Format, u32 TILES, bool GATED>
YGG_DEVICE void load_tiles(typename Format::Loaded (&to)[TILES], const YggLinear& p, u32 first_tile, u32 t) {
    const u32 row_tiles = ceil_div(p.out.columns, YGG_TILE_N);
    if (t >= p.tiles_k) return;
#pragma unroll
    for (u32 m = 0; m < TILES; ++m) {
        const u32 tile = GATED ? first_tile : first_tile + m;
        if (tile >= row_tiles) continue;
        const bool is_up = GATED && m == 1;
        Format::load(to[m], is_up ? p.up_codes : p.codes, is_up ? p.up_scales : p.scales, index(static_cast<u64>(tile) * p.tiles_k + t));
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

// Adds the products of 32 inputs: the first or the second half of loaded tiles with what `inputs_of` has of every tile of token rows. `then` is
// run when nobody needs the loaded tiles: as soon as that is, where no others are on their way.
template <class Format, u32 NT, u32 TILES, class Inputs, class Then>
YGG_DEVICE void multiply_half(float (&sums)[TILES][NT][4], const typename Format::Loaded (&parts)[TILES], u32 half, Inputs inputs_of, Then then) {
    constexpr u32 TOGETHER = Format::SCALED == 0 ? 1 : Format::SCALED;
    constexpr bool IS_EARLY = NT > 1 && Format::ahead(NT) == 1;
    // A product with these sums inputs.
    const u32 ones[4] = {0x3F803F80u, 0x3F803F80u, 0x3F803F80u, 0x3F803F80u};
    u32 a[TILES][2][4];
    Scale scales[TILES][2 / TOGETHER][2];
#pragma unroll
    for (u32 m = 0; m < TILES; ++m) {
#pragma unroll
        for (u32 k = 0; k < 2; ++k) Format::fragment(a[m][k], parts[m], index(2 * half + k) % 4);
#pragma unroll
        for (u32 k = 0; k < 2; k += TOGETHER)
#pragma unroll
            for (u32 i = 0; i < 2; ++i) scales[m][k / TOGETHER][i] = Format::scale(parts[m], (2 * half + k) / TOGETHER, index(i) % 2);
    }
    if (IS_EARLY) then();
#pragma unroll
    for (u32 n = 0; n < NT; ++n) {
        const Words4 b = inputs_of(n);
        auto add = [&](float (&to)[4], const u32 (&of)[4], u32 k, bool is_first) {
            const u32 b0 = k == 0 ? b.x : b.z, b1 = k == 0 ? b.y : b.w;
            if (Format::IS_HALF)
                mma_f16(to, of, b0, b1);
            else if (is_first)
                mma_bf16_first(to, of, b0, b1);
            else
                mma_bf16(to, of, b0, b1);
        };
#pragma unroll
        for (u32 first = 0; first < 2; first += TOGETHER) {
            float inputs[4];
            if (Format::HAS_OFFSET)
#pragma unroll
                for (u32 k = 0; k < TOGETHER; ++k) add(inputs, ones, first + k, k == 0);
#pragma unroll
            for (u32 m = 0; m < TILES; ++m) {
                if constexpr (Format::SCALED == 0) {
                    add(sums[m][n], a[m][first], first, false);
                } else {
                    float part[4];
#pragma unroll
                    for (u32 k = 0; k < TOGETHER; ++k) add(part, a[m][first + k], first + k, k == 0);
#pragma unroll
                    for (u32 e = 0; e < 4; ++e) {
                        const Scale& scale = scales[m][first / TOGETHER][e / 2];
                        sums[m][n][e] = fma_rn(part[e], scale.scale, sums[m][n][e]);
                        if (Format::HAS_OFFSET) sums[m][n][e] = fma_rn(inputs[e % 2], scale.offset, sums[m][n][e]);
                    }
                }
            }
        }
    }
    if (!IS_EARLY) then();
}

// Adds the products of 64 inputs, as above. `inputs_of(half, n)`.
template <class Format, u32 NT, u32 TILES, class Inputs, class Then>
YGG_DEVICE void multiply(float (&sums)[TILES][NT][4], const typename Format::Loaded (&parts)[TILES], Inputs inputs_of, Then then) {
    multiply_half<Format, NT, TILES>(sums, parts, 0, [&](u32 n) { return inputs_of(0, n); }, [] {});
    multiply_half<Format, NT, TILES>(sums, parts, 1, [&](u32 n) { return inputs_of(1, n); }, then);
}

// Leaves what a block has of `tiles` tiles of outputs from `first_tile` on, or of so many of gate and up, and token rows from `first_row` on.
// `product(m, row, w)` is the sum of output `row` of the block's tile m: of a gated pair, gates have the even ones.
template <bool GATED, class Product>
YGG_DEVICE void leave_outputs(const YggLinear& p, u32 first_tile, u32 tiles, u32 first_row, u32 rows, Product product) {
    const u32 outputs = tiles * YGG_TILE_N;
    for (u32 element = threadIdx.x; element < outputs * rows; element += YGG_LINEAR_THREADS) {
        const u32 m = element % outputs / YGG_TILE_N, row = element % YGG_TILE_N, in_block = element / outputs;
        const u32 w = first_row + in_block, tile = first_tile + m, output = tile * YGG_TILE_N + row;
        if (w >= p.out.rows || output >= p.out.columns) continue;
        auto biased = [&](u32 row) {
            const float total = product(GATED ? 2 * m : m, row, in_block);
            return p.bias == nullptr ? total : add_rn(total, p.bias[index(tile * YGG_TILE_N + row)]);
        };
        if (!GATED && p.projection.positions != nullptr) {
            leave_projection(p, w, tile, row, biased);
            continue;
        }
        float total = biased(row);
        float* out = row_of(p.out, w) + index(output);
        if (GATED)
            total = mul_rn(gated(p.function, total), product(2 * m + 1, row, in_block));
        else if (p.residual)
            total = add_rn(*out, total);
        *out = total;
        store_fragment(p.next, w, output, total);
    }
}

// Where an output and a token row of a tile are in the results of a warp: the lane, and which of its 4 numbers.
YGG_DEVICE u32 lane_of(u32 row, u32 w) { return row % 8 * 4 + w % 8 / 2; }
YGG_DEVICE u32 number_of(u32 row, u32 w) { return row / 8 * 2 + w % 2; }

// Up to 8 token rows.
template <class Format, u32 TILES, bool GATED> YGG_DEVICE void linear(const YggLinear& p) {
    constexpr u32 AHEAD = Format::ahead(1);
    // No kernel writes weights or the mask: the first tiles are on their way while the kernels before still run.
    const bool is_left_out = is_skipped(p.step);
    const u32 first_tile = GATED ? blockIdx.x : blockIdx.x * TILES, part = of_warp(warp());
    typename Format::Loaded loaded[AHEAD][TILES] = {};
    if (!is_left_out)
#pragma unroll
        for (u32 i = 0; i < AHEAD; ++i) load_tiles<Format, TILES, GATED>(loaded[i], p, first_tile, part + i * SPLIT_K);
    wait_for_kernels_before();
    let_next_kernel_begin();
    if (is_left_out) return;
    float sums[TILES][1][4] = {};
    const Words4* rows = static_cast<const Words4*>(p.fragments) + lane();
    const bool has_row = lane() / 4 < p.out.rows;
    for (u32 first = part; first < p.tiles_k; first += AHEAD * SPLIT_K) {
#pragma unroll
        for (u32 i = 0; i < AHEAD; ++i) {
            const u32 t = first + i * SPLIT_K;
            if (t >= p.tiles_k) continue;
            auto inputs_of = [&](u32 half, u32) {
                return has_row ? load_words(rows + (static_cast<u64>(index(t)) * 2 + half) * WARP) : Words4{0, 0, 0, 0};
            };
            multiply<Format, 1, TILES>(sums, loaded[i], inputs_of, [&] { load_tiles<Format, TILES, GATED>(loaded[i], p, first_tile, index(t) + AHEAD * SPLIT_K); });
        }
    }

    YGG_SHARED(float[SPLIT_K][TILES][4][WARP], parts);
#pragma unroll
    for (u32 m = 0; m < TILES; ++m)
#pragma unroll
        for (u32 e = 0; e < 4; ++e) parts[warp()][m][e][lane()] = sums[m][0][e];
    barrier();
    leave_outputs<GATED>(p, first_tile, GATED ? 1 : TILES, 0, YGG_TILE_W, [&](u32 m, u32 row, u32 w) {
        auto of_part = [&](u32 part) { return parts[part][m][number_of(row, w)][index(lane_of(row, w)) % WARP]; };
        float total = add_rn(of_part(0), of_part(1));
        for (u32 part = 2; part < SPLIT_K; part += 2) total = add_rn(total, add_rn(of_part(part), of_part(part + 1)));
        return total;
    });
}

// Where a warp is among its tiles of inputs, in order: those of a part, rounded up to whole trips, then those of the next pair's.
struct TileCursor {
    const u32 steps, last;
    u32 step, tile, number;
    // The tile so many steps on, at most those of a part.
    YGG_DEVICE u32 ahead(u32 by) const { return tile + by * SPLIT_K - (step + by < steps ? 0 : steps * SPLIT_K - 2); }
    YGG_DEVICE bool has(u32 by) const { return number + by < last; }
    YGG_DEVICE void advance() {
        tile = ahead(1);
        step = step + 1 < steps ? step + 1 : 0;
        number += 1;
    }
};

// `NT` tiles of 8 token rows. Where the grid has one block for each pair of parts, it leaves what its pair gives for the join of them.
template <class Format, u32 NT, bool GATED> YGG_DEVICE void wide_linear(const YggLinear& p) {
    constexpr u32 AHEAD = Format::ahead(NT), OF_TILE = NT * 2 * WARP;
    // A part has at least as many steps as are copied ahead.
    constexpr u32 TRIP = AHEAD < STAGES - 1 ? STAGES - 1 : AHEAD;
    const bool is_left_out = is_skipped(p.step);
    const u32 group = of_warp(warp() / COLUMNS), column = of_warp(warp() % COLUMNS);
    const u32 tiles = GATED ? COLUMNS : TILES_N, block_tile = blockIdx.x * index(tiles), first_tile = block_tile + column * (tiles / COLUMNS);
    const u32 pairs = gridDim.y == 1 ? PAIRS : 1, steps = ceil_div(p.tiles_k, SPLIT_K * TRIP) * TRIP;
    TileCursor at{steps, pairs * steps, 0, 2 * blockIdx.y + group, 0};
    typename Format::Loaded loaded[AHEAD][2] = {};
    auto load = [&](typename Format::Loaded (&to)[2], u32 by) {
        if (at.has(by)) load_tiles<Format, 2, GATED>(to, p, first_tile, index(at.ahead(by)));
    };
    if (!is_left_out)
#pragma unroll
        for (u32 i = 0; i < AHEAD; ++i) load(loaded[i], i);
    wait_for_kernels_before();
    let_next_kernel_begin();
    if (is_left_out) return;

    YGG_DYNAMIC_SHARED(Words4, shared);
    Words4* results = shared + STAGES * 2 * OF_TILE; // [TILES_N][NT][lanes]
    Words4* given = results + TILES_N * NT * WARP; // [TILES_N][NT / 2][lanes]
    const Words4* rows = static_cast<const Words4*>(p.fragments);
    // [STAGES][2 parts][NT][2 halves][lanes]
    auto stage_of = [&](u32 number) { return shared + (number % STAGES * 2 + group) * OF_TILE; };
    auto copy = [&](u32 by) {
        // Inputs behind the last are zeros, and the last weights stay where none are behind them.
        const u32 t = at.ahead(by), first = column * WARP + lane();
        const bool is_there = t < p.tiles_k;
        Words4* to = stage_of(at.number + by) + first;
        const Words4* from = rows + static_cast<u64>(is_there ? index(t) : 0) * OF_TILE + first;
        if (at.has(by))
#pragma unroll
            for (u32 i = 0; i < OF_TILE; i += COLUMNS * WARP) copy_async(to + i, from + i, is_there);
        commit_copies();
    };
    for (u32 i = 0; i + 1 < STAGES; ++i) copy(i);

    // A warp ends with one of its two tiles of outputs.
    const u32 mine = (2 * column + group) * NT * WARP + lane();
    Words4* parts = reinterpret_cast<Words4*>(p.parts) + (static_cast<u64>(blockIdx.x) * PAIRS + blockIdx.y) * TILES_N * NT * WARP;
    float sums[2][NT][4] = {};
    for (u32 pair = 0; pair < pairs; ++pair) {
        for (u32 first = 0; first < steps; first += AHEAD) {
#pragma unroll
            for (u32 i = 0; i < AHEAD; ++i) {
                wait_for_copies<STAGES - 2>();
                barrier();
                copy(STAGES - 1);
                const Words4* stage = stage_of(at.number) + lane();
                auto inputs_of = [&](u32 half, u32 n) { return stage[(n * 2 + index(half)) * WARP]; };
                multiply<Format, NT, 2>(sums, loaded[i], inputs_of, [&] { load(loaded[i], AHEAD); });
                at.advance();
            }
        }
        // Those of the two parts give each other one, half of its token rows at a time, and join it.
        constexpr u32 HALF = NT / 2;
#pragma unroll
        for (u32 first = 0; first < NT; first += HALF) {
            const u32 to = (2 * column + 1 - group) * HALF * WARP + lane(), from = (2 * column + group) * HALF * WARP + lane();
#pragma unroll
            for (u32 i = 0; i < HALF; ++i) {
                auto bits = [&](u32 e) { return float_to_bits(group == 0 ? sums[1][first + i][e] : sums[0][first + i][e]); };
                given[to + index(i) * WARP] = Words4{bits(0), bits(1), bits(2), bits(3)};
            }
            barrier();
#pragma unroll
            for (u32 i = 0; i < HALF; ++i) {
                const u32 n = first + i, place = mine + n * WARP;
                const Words4 received = given[from + i * WARP], before = results[place];
                auto bits = [&](u32 e) {
                    const float of_pair = add_rn(group == 0 ? sums[0][n][e] : sums[1][n][e], bits_to_float(word_of(received, e)));
                    return float_to_bits(pair == 0 ? of_pair : add_rn(bits_to_float(word_of(before, e)), of_pair));
                };
                (pairs == 1 ? parts : results)[place] = Words4{bits(0), bits(1), bits(2), bits(3)};
            }
            barrier();
        }
#pragma unroll
        for (u32 n = 0; n < NT; ++n)
#pragma unroll
            for (u32 e = 0; e < 4; ++e) sums[0][n][e] = sums[1][n][e] = 0.0f;
    }
    if (pairs == 1) return;
    leave_outputs<GATED>(p, block_tile, tiles, 0, NT * YGG_TILE_W, [&](u32 m, u32 row, u32 w) {
        return bits_to_float(word_of(results[(m * NT + w / 8) * WARP + index(lane_of(row, w))], number_of(row, w)));
    });
}

// Pairs of parts of 8 token rows, joined in order.
template <bool GATED> YGG_DEVICE void join_linear(const YggLinear& p) {
    wait_for_kernels_before();
    let_next_kernel_begin();
    if (is_skipped(p.step)) return;
    YGG_SHARED(float[TILES_N][4][WARP], joined);
    const u32 row_tiles = gridDim.y;
    const Words4* parts = reinterpret_cast<const Words4*>(p.parts) + ((static_cast<u64>(blockIdx.x) * PAIRS * TILES_N + warp()) * row_tiles + blockIdx.y) * WARP + lane();
    Words4 of_pair[PAIRS];
#pragma unroll
    for (u32 pair = 0; pair < PAIRS; ++pair) of_pair[pair] = load_words(parts + index(pair) * TILES_N * row_tiles * WARP);
#pragma unroll
    for (u32 e = 0; e < 4; ++e) {
        float total = bits_to_float(word_of(of_pair[0], e));
#pragma unroll
        for (u32 pair = 1; pair < PAIRS; ++pair) total = add_rn(total, bits_to_float(word_of(of_pair[pair], e)));
        joined[warp()][e][lane()] = total;
    }
    barrier();
    const u32 tiles = GATED ? COLUMNS : TILES_N;
    leave_outputs<GATED>(p, blockIdx.x * tiles, tiles, blockIdx.y * index<u32>(YGG_TILE_W), YGG_TILE_W,
                         [&](u32 m, u32 row, u32 w) { return joined[m][number_of(row, w)][index(lane_of(row, w)) % WARP]; });
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

// grid: tiles of outputs / `tiles`; of a gated pair, tiles. Of wide ones: tiles / TILES_N, or of a gated pair / COLUMNS; pairs of parts, or 1
#define YGG_LINEARS(name, Format, tiles) \
    YGG_KERNEL(ygg_linear_##name##_w8, YggLinear, YGG_LINEAR_THREADS) { ygg::linear<Format, tiles, false>(p); } \
    YGG_KERNEL_OF_BLOCKS(ygg_linear_##name##_w16, YggLinear, YGG_LINEAR_THREADS, 1) { ygg::wide_linear<Format, 2, false>(p); } \
    YGG_KERNEL(ygg_linear_##name##_w32, YggLinear, YGG_LINEAR_THREADS) { ygg::wide_linear<Format, 4, false>(p); } \
    YGG_KERNEL(ygg_linear_##name##_w64, YggLinear, YGG_LINEAR_THREADS) { ygg::wide_linear<Format, 8, false>(p); } \
    YGG_KERNEL_OF_BLOCKS(ygg_gated_##name##_w8, YggLinear, YGG_LINEAR_THREADS, 2) { ygg::linear<Format, 2, true>(p); } \
    YGG_KERNEL_OF_BLOCKS(ygg_gated_##name##_w16, YggLinear, YGG_LINEAR_THREADS, 1) { ygg::wide_linear<Format, 2, true>(p); } \
    YGG_KERNEL(ygg_gated_##name##_w32, YggLinear, YGG_LINEAR_THREADS) { ygg::wide_linear<Format, 4, true>(p); } \
    YGG_KERNEL(ygg_gated_##name##_w64, YggLinear, YGG_LINEAR_THREADS) { ygg::wide_linear<Format, 8, true>(p); }

// Behind a wide product of several blocks along its inputs. grid: as it; tiles of 8 token rows
YGG_KERNEL(ygg_linear_join, YggLinear, YGG_LINEAR_THREADS) { ygg::join_linear<false>(p); }
YGG_KERNEL(ygg_gated_join, YggLinear, YGG_LINEAR_THREADS) { ygg::join_linear<true>(p); }

// Which layouts kernels are wanted for: bits as in ygg_kernels::cuda::packing. All, where nothing else is said.
#ifndef YGG_LAYOUTS
#define YGG_LAYOUTS 127
#endif

#if YGG_LAYOUTS & 1
YGG_LINEARS(bf16, ygg::Sixteen<false>, 1)
#endif
#if YGG_LAYOUTS & 2
YGG_LINEARS(f16, ygg::Sixteen<true>, 1)
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
