// Skinny products: W token rows, 1 to 64, by a matrix that is read once.
//
// The floor is reading the weights. So they lie in memory as tensor cores take them (`ygg_kernels::cuda::packing`): a lane's part
// of a tile is 16 bytes that are next to its neighbours', no shared memory is passed through, and dequantisation happens in
// registers. Weights are the left operand (16 outputs), token rows the right one (8 at a time).
//
// Up to 16 rows, a block has a tile of outputs, or two of a gated pair, and its warps a part of the inputs each (`linear`). Of more rows every
// block would read more activations than weights: there (`wide_linear`) a block has 8 tiles of outputs and two parts of the inputs at a
// time, whose activations it copies to shared memory once. Either way a block takes one piece of work after the other, and asks for the weights
// of the next while it still has results to leave: beginning and ending a block takes as long as reading a good part of what it multiplies.
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

// What blocks of a product take, one piece after the other: of one matrix, its tiles of outputs. Those of experts: `Routed`.
template <u32 NT> struct Dense {
    // The first of its tiles of outputs: none, past the last.
    struct Piece {
        u32 tile;
    };
    // Whether pieces are known while kernels before still run.
    static constexpr bool IS_KNOWN_EARLY = true;
    const YggLinear& p;

    YGG_DEVICE Piece at(u32 number) const { return {number}; }
    // The block's one after a piece.
    YGG_DEVICE Piece after(const Piece& piece) const { return {piece.tile + gridDim.x}; }
    YGG_DEVICE const void* codes(const Piece&, bool is_up) const { return is_up ? p.up_codes : p.codes; }
    YGG_DEVICE const void* scales(const Piece&, bool is_up) const { return is_up ? p.up_scales : p.scales; }
    // The sum of an output, plus its bias.
    YGG_DEVICE float biased(const Piece&, bool is_up, u32 output, float sum) const { return is_up || p.bias == nullptr ? sum : add_rn(sum, p.bias[index(output)]); }
    // A lane's part of the token rows and the first tile of inputs; that of the next tile is so much further on.
    YGG_DEVICE const Words4* rows(const Piece&) const { return static_cast<const Words4*>(p.fragments) + lane(); }
    YGG_DEVICE u32 row_words() const { return NT * 2 * WARP; }
    // Whether the lane has a row in a tile of them.
    YGG_DEVICE bool has_row(const Piece&, u32 n) const { return n * YGG_TILE_W + lane() / 4 < p.out.rows; }
    // Number of a row of the piece, whether it is there, and where its outputs go.
    YGG_DEVICE u32 row(const Piece&, u32 w) const { return w; }
    YGG_DEVICE bool is_there(u32 row) const { return row < p.out.rows; }
    YGG_DEVICE float* out(u32 row) const { return row_of(p.out, row); }
};

// Where the weights of a tile of inputs are: of `TILES` consecutive tiles of outputs, or of those of gate and up. Those of later tiles of
// inputs are further on.
template <class Format, u32 TILES, bool GATED> struct WeightsAt {
    typename Format::Source sources[TILES];
    u32 t, outputs; // the tile of inputs, and how many of the tiles of outputs are there
    const u32 tiles_k;

    template <class Work> YGG_DEVICE WeightsAt(const Work& work, const typename Work::Piece& piece, u32 t) : t(t), tiles_k(work.p.tiles_k) {
        const u32 row_tiles = ceil_div(work.p.out.columns, YGG_TILE_N), tile = piece.tile;
        outputs = tile >= row_tiles ? 0 : GATED ? 2 : row_tiles - tile;
#pragma unroll
        for (u32 m = 0; m < TILES; ++m) {
            const bool is_up = GATED && m == 1;
            const u64 number = index(static_cast<u64>(GATED ? tile : tile + m) * tiles_k + t);
            sources[m] = Format::source(work.codes(piece, is_up), work.scales(piece, is_up), number);
        }
    }
    // Loads those of the tile `ahead` tiles further on. What is not there stays as it is.
    YGG_DEVICE void load(typename Format::Loaded (&to)[TILES], u32 ahead) const {
        if (t + ahead >= tiles_k) return;
#pragma unroll
        for (u32 m = 0; m < TILES; ++m)
            if (m < outputs) Format::load(to[m], sources[m], ahead);
    }
    // Those of this tile of inputs and the next ones of its part.
    template <u32 AHEAD> YGG_DEVICE void load_all(typename Format::Loaded (&to)[AHEAD][TILES]) const {
#pragma unroll
        for (u32 i = 0; i < AHEAD; ++i) load(to[i], i * SPLIT_K);
    }
};

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

// What multiplies 32 inputs of one tile of outputs: fragments, and what makes weights of their sums.
template <class Format> struct Multiplier {
    // Fragments whose products are scaled together.
    static constexpr u32 TOGETHER = Format::SCALED == 0 ? 1 : Format::SCALED, GROUPS = 2 / TOGETHER;
    u32 a[2][4];
    Scale scales[GROUPS][2];

    YGG_DEVICE Multiplier(const typename Format::Loaded& from, u32 half) {
#pragma unroll
        for (u32 k = 0; k < 2; ++k) Format::fragment(a[k], from, index(2 * half + k) % 4);
#pragma unroll
        for (u32 group = 0; group < GROUPS; ++group)
#pragma unroll
            for (u32 i = 0; i < 2; ++i) scales[group][i] = Format::scale(from, half * GROUPS + group, index(i) % 2);
    }
    YGG_DEVICE static void add(float (&to)[4], const u32 (&of)[4], const Words4& b, u32 k, bool is_first) {
        const u32 b0 = k == 0 ? b.x : b.z, b1 = k == 0 ? b.y : b.w;
        if (Format::IS_HALF)
            mma_f16(to, of, b0, b1);
        else if (is_first)
            mma_bf16_first(to, of, b0, b1);
        else
            mma_bf16(to, of, b0, b1);
    }
    // Sums of the inputs of a tile of token rows: products with ones.
    struct Inputs {
        float sums[GROUPS][4];
        YGG_DEVICE explicit Inputs(const Words4& b) {
            const u32 ones[4] = {0x3F803F80u, 0x3F803F80u, 0x3F803F80u, 0x3F803F80u};
            if (Format::HAS_OFFSET)
#pragma unroll
                for (u32 group = 0; group < GROUPS; ++group)
#pragma unroll
                    for (u32 k = 0; k < TOGETHER; ++k) add(sums[group], ones, b, group * TOGETHER + k, k == 0);
        }
    };
    YGG_DEVICE void add_to(float (&sums)[4], const Words4& b, const Inputs& inputs) const {
        if constexpr (Format::SCALED == 0) {
#pragma unroll
            for (u32 k = 0; k < 2; ++k) add(sums, a[k], b, k, false);
        } else {
#pragma unroll
            for (u32 group = 0; group < GROUPS; ++group) {
                float part[4];
#pragma unroll
                for (u32 k = 0; k < TOGETHER; ++k) add(part, a[group * TOGETHER + k], b, group * TOGETHER + k, k == 0);
#pragma unroll
                for (u32 e = 0; e < 4; ++e) {
                    const Scale& scale = scales[group][e / 2];
                    sums[e] = fma_rn(part[e], scale.scale, sums[e]);
                    if (Format::HAS_OFFSET) sums[e] = fma_rn(inputs.sums[group][e % 2], scale.offset, sums[e]);
                }
            }
        }
    }
};

// Adds the products of 32 inputs: the first or the second half of loaded tiles with what `inputs_of` has of every tile of token rows. `then` is
// run when nobody needs the loaded tiles: as soon as that is, where no others are on their way (`IS_EARLY`).
template <class Format, u32 NT, u32 TILES, bool IS_EARLY, class Inputs, class Then>
YGG_DEVICE void multiply_half(float (&sums)[TILES][NT][4], const typename Format::Loaded (&parts)[TILES], u32 half, Inputs inputs_of, Then then) {
    using By = Multiplier<Format>;
    if constexpr (NT <= 2 && !IS_EARLY) {
        // Few rows: those of a tile stay in registers, and tiles of outputs come one after the other.
        Words4 b[NT];
#pragma unroll
        for (u32 n = 0; n < NT; ++n) b[n] = inputs_of(n);
#pragma unroll
        for (u32 m = 0; m < TILES; ++m) {
            const By by(parts[m], half);
#pragma unroll
            for (u32 n = 0; n < NT; ++n) by.add_to(sums[m][n], b[n], typename By::Inputs(b[n]));
        }
        then();
    } else {
        static_assert(TILES == 2, "a warp of many rows has two tiles of outputs");
        const By by[2] = {By(parts[0], half), By(parts[1], half)};
        if (IS_EARLY) then();
#pragma unroll
        for (u32 n = 0; n < NT; ++n) {
            const Words4 b = inputs_of(n);
            const typename By::Inputs inputs(b);
#pragma unroll
            for (u32 m = 0; m < 2; ++m) by[m].add_to(sums[m][n], b, inputs);
        }
        if (!IS_EARLY) then();
    }
}

// Adds the products of 64 inputs, as above. `inputs_of(half, n)`.
template <class Format, u32 NT, u32 TILES, bool IS_EARLY, class Inputs, class Then>
YGG_DEVICE void multiply(float (&sums)[TILES][NT][4], const typename Format::Loaded (&parts)[TILES], Inputs inputs_of, Then then) {
    multiply_half<Format, NT, TILES, IS_EARLY>(sums, parts, 0, [&](u32 n) { return inputs_of(0, n); }, [] {});
    multiply_half<Format, NT, TILES, IS_EARLY>(sums, parts, 1, [&](u32 n) { return inputs_of(1, n); }, then);
}

// Leaves what a block has of `tiles` tiles of outputs of a piece, or of so many of gate and up, and token rows from `first_row` on.
// `product(m, row, w)` is the sum of output `row` of the block's tile m: of a gated pair, gates have the even ones.
template <bool GATED, class Work, class Product>
YGG_DEVICE void leave_outputs(const Work& work, const typename Work::Piece& piece, u32 tiles, u32 first_row, u32 rows, Product product) {
    const YggLinear& p = work.p;
    const u32 outputs = tiles * YGG_TILE_N;
    for (u32 element = threadIdx.x; element < outputs * rows; element += YGG_LINEAR_THREADS) {
        const u32 m = element % outputs / YGG_TILE_N, row = element % YGG_TILE_N, in_block = element / outputs;
        const u32 w = work.row(piece, first_row + in_block), tile = piece.tile + m, output = tile * YGG_TILE_N + row;
        if (!work.is_there(w) || output >= p.out.columns) continue;
        auto biased = [&](bool is_up, u32 row) { return work.biased(piece, is_up, tile * YGG_TILE_N + row, product(GATED ? 2 * m + is_up : m, row, in_block)); };
        if constexpr (!GATED && Work::IS_KNOWN_EARLY)
            if (p.projection.positions != nullptr) {
                leave_projection(p, w, tile, row, [&](u32 row) { return biased(false, row); });
                continue;
            }
        float total = biased(false, row);
        float* out = work.out(w) + index(output);
        if (GATED)
            total = combined(p.function, total, biased(true, row));
        else if (p.residual)
            total = add_rn(*out, total);
        *out = total;
        store_fragment(p.next, w, output, total);
    }
}

// Where an output and a token row of a tile are in the results of a warp: the lane, and which of its 4 numbers.
YGG_DEVICE u32 lane_of(u32 row, u32 w) { return row % 8 * 4 + w % 8 / 2; }
YGG_DEVICE u32 number_of(u32 row, u32 w) { return row / 8 * 2 + w % 2; }

// Few token rows: `NT` tiles of 8. A block goes from one tile of outputs to the next of its own, and asks for the weights of that one before it has left
// the results of the last.
template <class Format, u32 NT, bool GATED, class Work> YGG_DEVICE void linear(const Work& work) {
    const YggLinear& p = work.p;
    constexpr u32 TILES = GATED ? 2 : 1, AHEAD = Format::ahead(NT, GATED);
    // Inputs are asked for one tile ahead, of which two are in turn, where registers have room for that.
    constexpr bool IS_ASKED_AHEAD = NT == 1 || (!Format::HAS_OFFSET && Format::SCALED != 1);
    // Where several tiles are asked for ahead, those past the last are products of zeros: around a branch every tile would wait for all that is
    // under way. With few it waits anyway, and three blocks of 16 rows on a multiprocessor leave no registers for it.
    constexpr bool IS_BRANCHED = GATED || AHEAD == 1 || (NT == 2 && Format::BLOCKS_OF_16 > 2);
    constexpr u32 TRIP = AHEAD < 2 ? 2 : AHEAD;
    static_assert(TRIP % AHEAD == 0 && TRIP % 2 == 0, "a trip begins as the one before it did");
    using Weights = WeightsAt<Format, TILES, GATED>;
    // No kernel writes weights or the mask: the first tiles are on their way while the kernels before still run.
    const bool is_left_out = is_skipped(p.step);
    const u32 part = of_warp(warp()), row_tiles = ceil_div(p.out.columns, YGG_TILE_N), steps = ceil_div(p.tiles_k, SPLIT_K * TRIP) * TRIP;
    typename Format::Loaded loaded[AHEAD][TILES] = {};
    if constexpr (Work::IS_KNOWN_EARLY) {
        const Weights first(work, work.at(blockIdx.x), part);
        if (!is_left_out) first.load_all(loaded);
    }
    wait_for_kernels_before();
    let_next_kernel_begin();
    if (is_left_out) return;
    typename Work::Piece here = work.at(blockIdx.x);
    if constexpr (!Work::IS_KNOWN_EARLY) Weights(work, here, part).load_all(loaded);
    Words4 inputs[2][NT][2] = {};
    auto ask = [&](Words4 (&to)[NT][2], const typename Work::Piece& piece, const Words4* from, bool is_there) {
#pragma unroll
        for (u32 n = 0; n < NT; ++n)
#pragma unroll
            for (u32 half = 0; half < 2; ++half)
                if (is_there && work.has_row(piece, n))
                    to[n][half] = load_words(from + (n * 2 + index(half)) * WARP);
                else if (!IS_BRANCHED)
                    to[n][half] = {};
    };
    const u32 of_tile = work.row_words();
    constexpr u32 OF_TRIP = TRIP * SPLIT_K;
    const Words4* first_rows = work.rows(here) + part * of_tile;
    if (IS_ASKED_AHEAD) ask(inputs[0], here, first_rows, part < p.tiles_k);
    // Of this tile and the one before: nobody writes what others still read.
    YGG_SHARED(float[2][SPLIT_K][TILES][NT][4][WARP], both_parts);
    u32 turn = 0;
    for (; here.tile < row_tiles; turn ^= 1) {
        // Fetched early where it must be fetched; else made where it is used, which keeps a register.
        typename Work::Piece fetched = {};
        if constexpr (!Work::IS_KNOWN_EARLY) fetched = work.after(here);
        auto following = [&] {
            if constexpr (Work::IS_KNOWN_EARLY) return work.after(here);
            else return fetched;
        };
        float sums[TILES][NT][4] = {};
        // Dense pieces have the same rows.
        const Words4* rows_of_trip = first_rows;
        if constexpr (!Work::IS_KNOWN_EARLY) first_rows = work.rows(fetched) + part * of_tile;
        for (u32 t = part; t < part + steps * SPLIT_K; t += OF_TRIP) {
            // After a trip comes the next one, or the first of the next piece.
            const bool is_last = t + OF_TRIP >= steps * SPLIT_K;
            const u32 next_t = is_last ? part : index(t) + OF_TRIP;
            typename Work::Piece piece_of_next = here;
            if (is_last) piece_of_next = following();
            const Words4* rows_of_next = is_last ? first_rows : rows_of_trip + OF_TRIP * of_tile;
            const Weights next(work, piece_of_next, next_t);
#pragma unroll
            for (u32 i = 0; i < TRIP; ++i) {
                const u32 ahead = (i + 1) * SPLIT_K;
                if (!IS_ASKED_AHEAD)
                    ask(inputs[i % 2], here, rows_of_trip + i * SPLIT_K * of_tile, t + i * SPLIT_K < p.tiles_k);
                else if (i + 1 < TRIP)
                    ask(inputs[(i + 1) % 2], here, rows_of_trip + ahead * of_tile, t + ahead < p.tiles_k);
                else
                    ask(inputs[0], piece_of_next, rows_of_next, next_t < p.tiles_k);
                if (!IS_BRANCHED || t + i * SPLIT_K < p.tiles_k)
                    multiply<Format, NT, TILES, false>(sums, loaded[i % AHEAD], [&](u32 half, u32 n) { return inputs[i % 2][n][half]; }, [] {});
                if (AHEAD < TRIP && i + AHEAD < TRIP)
                    Weights(work, here, t).load(loaded[i % AHEAD], (i + AHEAD) * SPLIT_K);
                else
                    next.load(loaded[i % AHEAD], (i + AHEAD - TRIP) * SPLIT_K);
            }
            rows_of_trip = rows_of_next;
        }
        auto& parts = both_parts[turn];
#pragma unroll
        for (u32 m = 0; m < TILES; ++m)
#pragma unroll
            for (u32 n = 0; n < NT; ++n)
#pragma unroll
                for (u32 e = 0; e < 4; ++e) parts[warp()][m][n][e][lane()] = sums[m][n][e];
        barrier();
        leave_outputs<GATED>(work, here, 1, 0, NT * YGG_TILE_W, [&](u32 m, u32 row, u32 w) {
            auto of_part = [&](u32 part) { return parts[part][m][w / YGG_TILE_W][number_of(row, w)][index(lane_of(row, w)) % WARP]; };
            float total = add_rn(of_part(0), of_part(1));
            for (u32 part = 2; part < SPLIT_K; part += 2) total = add_rn(total, add_rn(of_part(part), of_part(part + 1)));
            return total;
        });
        here = following();
    }
}

// Of a product of many rows, what a block multiplies without a break: its tiles of outputs by a pair of the inputs' parts.
struct Stretch {
    u32 block_tile, pair;
    bool is_there;
};

// The stretches of a block, one after the other: those of every so manieth tile of blocks, or, where there are few of these, every so manieth
// of all.
struct Stretches {
    u32 block_tiles;
    bool is_whole;
    YGG_DEVICE Stretch operator[](u32 i) const {
        if (is_whole) {
            const u32 block_tile = blockIdx.x + i / PAIRS * gridDim.x;
            return {block_tile, i % PAIRS, block_tile < block_tiles};
        }
        const u32 of_all = blockIdx.x + i * gridDim.x;
        return {of_all / PAIRS, of_all % PAIRS, of_all < block_tiles * PAIRS};
    }
};

// `NT` tiles of 8 token rows. Where a block does not have all inputs of its outputs, it leaves what a pair of parts gives for the join of them.
template <class Format, u32 NT, bool GATED> YGG_DEVICE void wide_linear(const YggLinear& p) {
    constexpr u32 AHEAD = Format::ahead(NT, GATED), OF_TILE = NT * 2 * WARP, OF_RESULT = TILES_N * NT * WARP;
    // A stretch has at least as many steps as are copied ahead.
    constexpr u32 TRIP = AHEAD < STAGES - 1 ? STAGES - 1 : AHEAD;
    const bool is_left_out = is_skipped(p.step);
    const u32 group = of_warp(warp() / COLUMNS), column = of_warp(warp() % COLUMNS), tiles = GATED ? COLUMNS : TILES_N;
    const u32 block_tiles = ceil_div(ceil_div(p.out.columns, YGG_TILE_N), tiles), steps = ceil_div(p.tiles_k, SPLIT_K * TRIP) * TRIP;
    const Stretches stretches{block_tiles, p.parts == nullptr};
    u32 turn = 0;
    typename Format::Loaded loaded[AHEAD][2] = {};
    // What a step is of, or one past the last, and its tile of inputs.
    auto stretch_of = [&](u32 step) { return stretches[step < steps ? turn : turn + 1]; };
    auto tile_of = [&](u32 step) { return 2 * stretch_of(step).pair + group + (step < steps ? step : step - steps) * SPLIT_K; };
    // The weights of a trip of steps.
    using Weights = WeightsAt<Format, 2, GATED>;
    const Dense<NT> work{p};
    auto weights_of = [&](u32 step) { return Weights(work, work.at(stretch_of(step).block_tile * tiles + column * (tiles / COLUMNS)), tile_of(step)); };
    {
        const Weights first = weights_of(0);
        if (!is_left_out) first.load_all(loaded);
    }
    wait_for_kernels_before();
    let_next_kernel_begin();
    if (is_left_out) return;

    YGG_DYNAMIC_SHARED(Words4, shared);
    Words4* results = shared + STAGES * 2 * OF_TILE; // [TILES_N][NT][lanes]
    Words4* given = results + OF_RESULT; // [TILES_N][NT / 2][lanes]
    const Words4* rows = static_cast<const Words4*>(p.fragments);
    // [STAGES][2 parts][NT][2 halves][lanes]
    auto stage_of = [&](u32 number) { return shared + (number % STAGES * 2 + group) * OF_TILE; };
    u32 number = 0;
    auto copy = [&](u32 step, u32 by) {
        // Inputs past the last are zeros.
        const u32 t = tile_of(step + by), first = column * WARP + lane();
        const bool is_there = t < p.tiles_k;
        Words4* to = stage_of(number + by) + first;
        const Words4* from = rows + static_cast<u64>(is_there ? index(t) : 0) * OF_TILE + first;
        if (stretch_of(step + by).is_there)
#pragma unroll
            for (u32 i = 0; i < OF_TILE; i += COLUMNS * WARP) copy_async(to + i, from + i, is_there);
        commit_copies();
    };
    for (u32 i = 0; i + 1 < STAGES; ++i) copy(0, i);

    // A warp ends with one of its two tiles of outputs.
    const u32 mine = (2 * column + group) * NT * WARP + lane();
    for (; stretches[turn].is_there; ++turn) {
        float sums[2][NT][4] = {};
        for (u32 first = 0; first < steps; first += AHEAD) {
            const Weights next = weights_of(first + AHEAD);
#pragma unroll
            for (u32 k = 0; k < AHEAD; ++k, ++number) {
                const u32 step = first + k;
                wait_for_copies<STAGES - 2>();
                barrier();
                copy(step, STAGES - 1);
                const Words4* stage = stage_of(number) + lane();
                auto inputs_of = [&](u32 half, u32 n) { return stage[(n * 2 + index(half)) * WARP]; };
                auto then = [&] { next.load(loaded[k], k * SPLIT_K); };
                if (tile_of(step) < p.tiles_k)
                    multiply<Format, NT, 2, AHEAD == 1>(sums, loaded[k], inputs_of, then);
                else
                    then();
            }
        }
        const Stretch here = stretches[turn];
        Words4* left = stretches.is_whole ? results : reinterpret_cast<Words4*>(p.parts) + (static_cast<u64>(here.block_tile) * PAIRS + here.pair) * index(OF_RESULT);
        const bool is_first = !stretches.is_whole || here.pair == 0;
        // Those of the two parts give each other one, half of its token rows at a time, and join it.
        constexpr u32 HALF = NT / 2;
#pragma unroll
        for (u32 first = 0; first < NT; first += HALF) {
            const u32 to = (2 * column + 1 - group) * HALF * WARP + lane(), from = (2 * column + group) * HALF * WARP + lane();
#pragma unroll
            for (u32 n = 0; n < HALF; ++n) {
                auto bits = [&](u32 e) { return float_to_bits(group == 0 ? sums[1][first + n][e] : sums[0][first + n][e]); };
                given[to + index(n) * WARP] = Words4{bits(0), bits(1), bits(2), bits(3)};
            }
            barrier();
#pragma unroll
            for (u32 in_half = 0; in_half < HALF; ++in_half) {
                const u32 n = first + in_half, place = mine + n * WARP;
                const Words4 received = given[from + in_half * WARP];
                auto bits = [&](u32 e) {
                    const float of_pair = add_rn(group == 0 ? sums[0][n][e] : sums[1][n][e], bits_to_float(word_of(received, e)));
                    return float_to_bits(is_first ? of_pair : add_rn(bits_to_float(word_of(results[place], e)), of_pair));
                };
                left[place] = Words4{bits(0), bits(1), bits(2), bits(3)};
            }
            barrier();
        }
        if (stretches.is_whole && here.pair == PAIRS - 1)
            leave_outputs<GATED>(work, work.at(here.block_tile * tiles), tiles, 0, NT * YGG_TILE_W, [&](u32 m, u32 row, u32 w) {
                return bits_to_float(word_of(results[(m * NT + w / 8) * WARP + index(lane_of(row, w))], number_of(row, w)));
            });
    }
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
    const Dense<1> work{p};
    leave_outputs<GATED>(work, work.at(blockIdx.x * tiles), tiles, blockIdx.y * index<u32>(YGG_TILE_W), YGG_TILE_W,
                         [&](u32 m, u32 row, u32 w) { return joined[m][number_of(row, w)][index(lane_of(row, w)) % WARP]; });
}

// Matrices of f32, for models that are stored so: a warp for each output, rows one after the other.
YGG_DEVICE float dot_f32(const float* x, const float* row, u32 columns) {
    float sum = 0.0f;
    for (u32 i = lane(); i < columns; i += WARP) sum = fma_rn(x[i], row[index(i)], sum);
    return warp_sum(sum);
}

} // namespace ygg

// grid: parts of token rows, padding included
YGG_KERNEL(ygg_prepare, YggPrepare, YGG_ROW_THREADS) {
    const u32 w = blockIdx.x;
    const u32 columns = w < p.x.rows * p.parts ? p.x.columns : 0;
    const bool is_normed = columns > 0 && p.gain != nullptr;
    // Weights, which no kernel writes.
    const ygg::BlockRow gain(p.gain, is_normed ? columns : 0);
    wait_for_kernels_before();
    let_next_kernel_begin();
    if (ygg::is_skipped(p.step)) return;
    const ygg::BlockRow row(ygg::row_of(p.x, w / p.parts) + w % p.parts * p.x.columns, columns);
    const float factor = is_normed ? row.rms_factor(p.eps) : 1.0f;
    auto prepared = [&](const ygg::Quad& quad, const ygg::Quad& of_gain) { return is_normed ? ygg::BlockRow::normed(quad, factor, of_gain) : quad; };
    if (p.out.format == YGG_FRAGMENT_F32) {
        float* out = static_cast<float*>(p.out.data) + static_cast<u64>(w) * columns;
        row.each_beside(gain, columns, [&](u32 i, const ygg::Quad& quad, const ygg::Quad& of_gain) { ygg::store_quad(out, i, columns, prepared(quad, of_gain)); });
        return;
    }
    u32* out = static_cast<u32*>(p.out.data);
    row.each_beside(gain, ygg::ceil_div(p.x.columns, YGG_TILE_K) * YGG_TILE_K, [&](u32 i, const ygg::Quad& quad, const ygg::Quad& of_gain) {
        const ygg::Quad four = prepared(quad, of_gain);
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
        const float up_product = p.up_codes ? ygg::dot_f32(x, up, p.columns) : 0.0f;
        float* out = ygg::row_of(p.out, w) + output;
        if (ygg::lane() == 0) {
            if (p.up_codes)
                *out = ygg::combined(p.function, product, up_product);
            else
                *out = p.residual ? add_rn(*out, product) : product;
        }
    }
}

namespace ygg {

// Up to 16 rows, as a few of them where registers have room for what a gated pair needs: not with offsets, nor with a scale for each fragment
// where a lane loads more than eight words of a tile.
template <class Format, bool GATED> YGG_DEVICE void linear_of_16(const YggLinear& p) {
    if constexpr (GATED && (Format::HAS_OFFSET || (Format::SCALED == 1 && sizeof(typename Format::Loaded) > 32)))
        wide_linear<Format, 2, GATED>(p);
    else
        linear<Format, 2, GATED>(Dense<2>{p});
}

} // namespace ygg

// grid: blocks that share the tiles of outputs, or of gate and up; of wide products, blocks that share the stretches
#define YGG_LINEARS(name, Format) \
    YGG_KERNEL_OF_BLOCKS(ygg_linear_##name##_w8, YggLinear, YGG_LINEAR_THREADS, Format::BLOCKS) { ygg::linear<Format, 1, false>(ygg::Dense<1>{p}); } \
    YGG_KERNEL_OF_BLOCKS(ygg_linear_##name##_w16, YggLinear, YGG_LINEAR_THREADS, Format::BLOCKS_OF_16) { ygg::linear_of_16<Format, false>(p); } \
    YGG_KERNEL_OF_BLOCKS(ygg_linear_##name##_w32, YggLinear, YGG_LINEAR_THREADS, Format::BLOCKS_OF_32) { ygg::wide_linear<Format, 4, false>(p); } \
    YGG_KERNEL(ygg_linear_##name##_w64, YggLinear, YGG_LINEAR_THREADS) { ygg::wide_linear<Format, 8, false>(p); } \
    YGG_KERNEL_OF_BLOCKS(ygg_gated_##name##_w8, YggLinear, YGG_LINEAR_THREADS, Format::GATED_BLOCKS) { ygg::linear<Format, 1, true>(ygg::Dense<1>{p}); } \
    YGG_KERNEL_OF_BLOCKS(ygg_gated_##name##_w16, YggLinear, YGG_LINEAR_THREADS, 2) { ygg::linear_of_16<Format, true>(p); } \
    YGG_KERNEL_OF_BLOCKS(ygg_gated_##name##_w32, YggLinear, YGG_LINEAR_THREADS, Format::BLOCKS_OF_32) { ygg::wide_linear<Format, 4, true>(p); } \
    YGG_KERNEL(ygg_gated_##name##_w64, YggLinear, YGG_LINEAR_THREADS) { ygg::wide_linear<Format, 8, true>(p); }

// After a wide product of several blocks along its inputs. grid: as it; tiles of 8 token rows
YGG_KERNEL(ygg_linear_join, YggLinear, YGG_LINEAR_THREADS) { ygg::join_linear<false>(p); }
YGG_KERNEL(ygg_gated_join, YggLinear, YGG_LINEAR_THREADS) { ygg::join_linear<true>(p); }
