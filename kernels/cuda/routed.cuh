// Experts: which rows use which, and the products of rows with the matrices of theirs.
//
// Rows with the same expert are grouped into pieces of up to 8, and a piece is multiplied as any product of so few rows (`linear`): a matrix
// is read once for 8 rows, and a row has the bits that it has by itself, whatever other rows chose. Rows lie where they are: a lane
// reads those of its piece. What a row's experts give is summed in order of their numbers.
#pragma once

#include "candidates.cuh"
#include "linear.cuh"

namespace ygg {

constexpr u32 EXPERTS = YGG_MOST_EXPERTS;

// The weight of a score, before it is divided.
YGG_DEVICE float weighed(const YggRoute& p, float score, float largest) { return p.is_sigmoid ? sigmoid(score) : exp_fast(add_rn(score, -largest)); }

// The pieces of experts, each with all tiles of its outputs.
struct Routed {
    struct Piece {
        u32 tile;   // of outputs; past the last where there is no piece
        u32 place;  // among the tiles of all pieces
        u32 expert;
        u32 row; // the lane's, of the prepared ones; the first of the piece where there is none: nobody reads its results
    };
    static constexpr bool IS_KNOWN_EARLY = false;
    const YggRouted& routed;
    const YggLinear& p;

    YGG_DEVICE u32 tiles() const { return ceil_div(p.out.columns, YGG_TILE_N); }
    YGG_DEVICE Piece at(u32 number) const {
        const u32 row_tiles = tiles(), piece = number / row_tiles;
        if (piece >= *routed.count) return {row_tiles, number, 0, 0};
        const YggPiece& of = routed.pieces[index(piece)];
        const u32 part = of.parts[lane() / 4];
        return {number % row_tiles, number, of.expert, (part == YGG_NO_PART ? of.parts[0] : part) / routed.sharing};
    }
    YGG_DEVICE Piece after(const Piece& piece) const { return at(piece.place + gridDim.x); }
    YGG_DEVICE u32 matrix(const Piece& piece, bool is_up) const { return piece.expert + (is_up ? routed.ups : 0); }
    YGG_DEVICE const void* codes(const Piece& piece, bool is_up) const { return static_cast<const u8*>(p.codes) + matrix(piece, is_up) * routed.matrix_bytes; }
    YGG_DEVICE const void* scales(const Piece& piece, bool is_up) const { return static_cast<const u8*>(p.scales) + matrix(piece, is_up) * routed.matrix_bytes; }
    YGG_DEVICE float biased(const Piece& piece, bool is_up, u32 output, float sum) const {
        return p.bias == nullptr ? sum : add_rn(sum, p.bias[static_cast<u64>(matrix(piece, is_up)) * p.out.columns + index(output)]);
    }
    YGG_DEVICE const Words4* rows(const Piece& piece) const {
        return static_cast<const Words4*>(p.fragments) + piece.row / YGG_TILE_W * (2 * WARP) + piece.row % YGG_TILE_W * 4 + lane() % 4;
    }
    YGG_DEVICE u32 row_words() const { return routed.row_tiles * 2 * WARP; }
    YGG_DEVICE bool has_row(const Piece&, u32) const { return true; }
    YGG_DEVICE u32 row(const Piece& piece, u32 w) const { return routed.pieces[piece.place / tiles()].parts[index(w)]; }
    YGG_DEVICE bool is_there(u32 part) const { return part != YGG_NO_PART; }
    YGG_DEVICE float* out(u32 part) const { return row_of(p.out, part / routed.used) + static_cast<u64>(part % routed.used) * p.out.columns; }
};

} // namespace ygg

// grid: rows; a warp each
YGG_KERNEL(ygg_route, YggRoute, YGG_WARP) {
    using namespace ygg;
    wait_for_kernels_before();
    let_next_kernel_begin();
    if (is_skipped(p.step)) return;
    constexpr u32 EACH = EXPERTS / WARP;
    YGG_SHARED(u32[YGG_MOST_USED], chosen);
    const u32 experts = p.scores.columns;
    const float* scores = row_of(p.scores, blockIdx.x);
    float values[EACH];
    float largest = -infinity(), mass = 0.0f;
#pragma unroll
    for (u32 i = 0; i < EACH; ++i) {
        const u32 expert = lane() + i * WARP;
        values[i] = expert < experts ? scores[index(expert)] : -infinity();
        largest = larger(largest, values[i]);
    }
    largest = warp_max(largest);
#pragma unroll
    for (u32 i = 0; i < EACH; ++i)
        if (lane() + i * WARP < experts) mass = add_rn(mass, weighed(p, values[i], largest));
    mass = p.is_sigmoid ? 1.0f : warp_sum(mass);
    u32 left = 0; // a bit for each that is not chosen
#pragma unroll
    for (u32 i = 0; i < EACH; ++i) {
        const u32 expert = lane() + i * WARP;
        if (expert >= experts) continue;
        if (p.bias != nullptr) values[i] = add_rn(divide(weighed(p, values[i], largest), mass), p.bias[index(expert)]);
        // What is no number comes last.
        if (values[i] != values[i]) values[i] = -infinity();
        left |= 1u << i;
    }
    for (u32 place = 0; place < p.used; ++place) {
        float best = -infinity();
        u32 expert = NONE;
#pragma unroll
        for (u32 i = 0; i < EACH; ++i)
            if ((left >> i & 1u) != 0 && is_better(values[i], lane() + i * WARP, best, expert)) {
                best = values[i];
                expert = lane() + i * WARP;
            }
        warp_best(best, expert);
        if (expert % WARP == lane()) left &= ~(1u << expert / WARP);
        if (lane() == 0) chosen[index(place)] = expert;
    }
    warp_barrier();
    float sum = 0.0f;
    for (u32 i = lane(); i < p.used; i += WARP) sum = add_rn(sum, weighed(p, scores[chosen[index(i)]], largest));
    sum = warp_sum(sum);
    const float divisor = p.is_normalised ? fma_rn(mass, p.least, sum) : mass;
    float* out = row_of(p.out, blockIdx.x);
    for (u32 i = lane(); i < p.used; i += WARP) {
        const u32 expert = chosen[i];
        u32 place = 0;
        for (u32 other = 0; other < p.used; ++other) place += chosen[index(other)] < expert;
        out[place] = static_cast<float>(expert);
        const float weight = mul_rn(divide(weighed(p, scores[expert], largest), divisor), p.scale);
        out[p.used + place] = p.factors == nullptr ? weight : mul_rn(weight, p.factors[index(expert)]);
    }
}

// grid: one block
YGG_KERNEL(ygg_group, YggGroup, YGG_ROW_THREADS) {
    using namespace ygg;
    wait_for_kernels_before();
    let_next_kernel_begin();
    if (is_skipped(p.step)) return;
    constexpr u32 EACH = EXPERTS / YGG_ROW_THREADS, WARPS = YGG_ROW_THREADS / WARP;
    // The place of an expert among those of a row, from 1 on; 0 where the row does not use it.
    YGG_SHARED(u32[YGG_MOST_WIDTH][EXPERTS / 4], places);
    YGG_SHARED(u32[YGG_ROW_THREADS], pieces_of);
    YGG_SHARED(u32[WARPS], pieces_of_warp);
    const u32 used = p.routes.columns / 2, rows = p.routes.rows;
    for (u32 i = threadIdx.x; i < rows * (EXPERTS / 4); i += YGG_ROW_THREADS) places[index(i) / (EXPERTS / 4)][i % (EXPERTS / 4)] = 0;
    barrier();
    for (u32 part = threadIdx.x; part < rows * used; part += YGG_ROW_THREADS) {
        const u32 expert = static_cast<u32>(row_of(p.routes, part / used)[index(part) % used]);
        reinterpret_cast<u8*>(places[part / used])[expert] = static_cast<u8>(1 + part % used);
    }
    barrier();
    auto place_of = [&](u32 w, u32 expert) -> u32 { return reinterpret_cast<const u8*>(places[index(w)])[expert]; };
    u32 rows_of[EACH], pieces = 0;
#pragma unroll
    for (u32 i = 0; i < EACH; ++i) {
        const u32 expert = threadIdx.x * EACH + i;
        rows_of[i] = 0;
        for (u32 w = 0; w < rows; ++w) rows_of[i] += place_of(w, expert) != 0;
        pieces += ceil_div(rows_of[i], YGG_TILE_W);
    }
    // Those of experts before this thread's.
    pieces_of[threadIdx.x] = pieces;
    warp_barrier();
    u32 first = 0;
    for (u32 i = 0; i < lane(); ++i) first += pieces_of[warp() * WARP + index(i)];
    if (lane() == WARP - 1) pieces_of_warp[warp()] = first + pieces;
    barrier();
    for (u32 i = 0; i < warp(); ++i) first += pieces_of_warp[index(i)];
    if (threadIdx.x == YGG_ROW_THREADS - 1) *p.count = first + pieces;
#pragma unroll
    for (u32 i = 0; i < EACH; ++i) {
        const u32 expert = threadIdx.x * EACH + i;
        u32 row = 0;
        for (u32 w = 0; w < rows; ++w)
            if (const u32 place = place_of(w, expert)) {
                YggPiece& piece = p.pieces[index(first + row / YGG_TILE_W)];
                piece.expert = expert;
                piece.parts[row++ % YGG_TILE_W] = w * used + place - 1;
            }
        for (; row % YGG_TILE_W != 0; ++row) p.pieces[first + row / YGG_TILE_W].parts[index(row) % YGG_TILE_W] = YGG_NO_PART;
        first += row / YGG_TILE_W;
    }
}

// Matrices of f32. grid: outputs / 8, pieces at most
YGG_KERNEL(ygg_routed_f32, YggRouted, YGG_LINEAR_THREADS) {
    using namespace ygg;
    wait_for_kernels_before();
    let_next_kernel_begin();
    const YggLinear& linear = p.linear;
    if (is_skipped(linear.step) || blockIdx.y >= *p.count) return;
    const Routed work{p, linear};
    const u32 output = blockIdx.x * SPLIT_K + warp();
    if (output >= linear.out.columns) return;
    const Routed::Piece piece{0, blockIdx.y * work.tiles(), p.pieces[blockIdx.y].expert, 0};
    auto product = [&](const float* x, bool is_up) {
        const float* row = static_cast<const float*>(work.codes(piece, is_up)) + static_cast<u64>(output) * linear.columns;
        return work.biased(piece, is_up, output, dot_f32(x, row, linear.columns));
    };
    for (u32 w = 0; w < YGG_TILE_W; ++w) {
        const u32 part = work.row(piece, w);
        if (part == YGG_NO_PART) return;
        const float* x = static_cast<const float*>(linear.fragments) + static_cast<u64>(part / p.sharing) * linear.columns;
        float total = product(x, false);
        if (p.ups != 0) total = combined(linear.function, total, product(x, true));
        if (lane() == 0) work.out(part)[index(output)] = total;
    }
}

// grid: rows
YGG_KERNEL(ygg_routed_join, YggRoutedJoin, YGG_ROW_THREADS) {
    wait_for_kernels_before();
    let_next_kernel_begin();
    if (ygg::is_skipped(p.step)) return;
    const u32 w = blockIdx.x, used = p.routes.columns / 2;
    const float* weights = ygg::row_of(p.routes, w) + used;
    const float* parts = p.products + static_cast<u64>(w) * used * p.out.columns;
    for (u32 i = threadIdx.x; i < p.out.columns; i += blockDim.x) {
        float sum = 0.0f;
        for (u32 place = 0; place < used; ++place) sum = fma_rn(weights[index(place)], parts[static_cast<u64>(place) * p.out.columns + i], sum);
        ygg::row_of(p.out, w)[i] = sum;
    }
}

// grid: blocks that share the pieces. So many blocks, or of gated pairs, are to fit a multiprocessor.
#define YGG_ROUTED(name, Format, blocks, gated_blocks) \
    YGG_KERNEL_OF_BLOCKS(ygg_routed_##name, YggRouted, YGG_LINEAR_THREADS, blocks) { ygg::linear<Format, 1, false>(ygg::Routed{p, p.linear}); } \
    YGG_KERNEL_OF_BLOCKS(ygg_routed_gated_##name, YggRouted, YGG_LINEAR_THREADS, gated_blocks) { ygg::linear<Format, 1, true>(ygg::Routed{p, p.linear}); }
