// Formats of packed weights, and how their codes become what tensor cores multiply.
#pragma once

#include "common.cuh"

namespace ygg {

// A format of packed weights: `Loaded` is a lane's part of a tile of 16 outputs and 64 inputs as it lies in memory, `Source` where that of a
// tile is, with those of later tiles so many elements further on; `fragment` the left operand of the multiplication with inputs 16 k .. 16 k + 16 of it. Tile t of row tile n is number n * tiles_k + t.
//
// Where weights have scales, fragments are codes, with a constant added that saves their conversion: exact as bf16, so that nothing
// of a weight is rounded. The products of SCALED fragments are summed, and a sum is made one of weights in f32: `scale * sum + offset * sum
// of inputs`. Sums of inputs are products with ones.
//
// So many blocks are to fit a multiprocessor, which bounds registers: BLOCKS of up to 8 rows, BLOCKS_OF_16, BLOCKS_OF_32, and GATED_BLOCKS of a
// gated pair and up to 8. `ahead` says how many tiles of inputs are on their way, of so many tiles of 8 token rows: what registers then have
// room for.

// What makes weights of codes, of one output.
struct Scale {
    float scale, offset;
};

template <bool HALF> struct Sixteen {
    static constexpr bool IS_HALF = HALF;
    static constexpr u32 SCALED = 0;
    static constexpr u32 BLOCKS = 3, BLOCKS_OF_16 = 2, BLOCKS_OF_32 = 2, GATED_BLOCKS = 2;
    static constexpr bool HAS_OFFSET = false;
    YGG_DEVICE static constexpr u32 ahead(u32 rows, bool) { return rows == 4 ? 1 : 2; }
    struct Loaded {
        Words4 words[4];
    };
    struct Source {
        const Words4* codes;
    };
    YGG_DEVICE static Source source(const void* codes, const void*, u64 tile) { return {static_cast<const Words4*>(codes) + tile * (4 * WARP) + lane()}; }
    YGG_DEVICE static void load(Loaded& to, const Source& from, u32 ahead) {
        for (u32 k = 0; k < 4; ++k) to.words[k] = load_streamed(from.codes + (4 * ahead + k) * WARP);
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
// The sums of two words' bf16, which are exact here: by a product with 1, as compute capability 8.0 has no addition of bf16.
YGG_DEVICE u32 exact_sum(u32 a, u32 b) { return fma_bf16(a, 0x3F803F80u, b); }
// Signed bytes in the low bytes of two halves, as bf16: the low 7 bits in the mantissa of 128, less 128, or less 256 where the sign is set.
YGG_DEVICE u32 signed_bytes(u32 bytes) { return exact_sum(masked_xor(bytes, 0x007F007Fu, 0x43004300u), masked_xor(bytes, 0x00800080u, 0xC300C300u)); }
// value = code * d + m, where a fragment has 128 + code.
YGG_DEVICE Scale nibble_scale(float d, float m) { return {d, fma_rn(-128.0f, d, m)}; }
// The same of the lower or the upper half of 64 inputs, whose scales and minima are f32 in turn.
YGG_DEVICE Scale wide_scale(const Words4& scales, u32 i) {
    return nibble_scale(bits_to_float(i == 0 ? scales.x : scales.z), bits_to_float(i == 0 ? scales.y : scales.w));
}

// A lane's codes of a tile, then what makes weights of them, which four lanes share.
template <class Codes, class Scales> struct CodesAndScales {
    struct Loaded {
        Codes codes;
        Scales scales;
    };
    struct Source {
        const Codes* codes;
        const Scales* scales;
    };
    YGG_DEVICE static Source source(const void* codes, const void* scales, u64 tile) {
        return {static_cast<const Codes*>(codes) + tile * WARP + lane(), static_cast<const Scales*>(scales) + tile * (WARP / 4) + lane() / 4};
    }
    YGG_DEVICE static void load(Loaded& to, const Source& from, u32 ahead) {
        to.codes = load_streamed(from.codes + ahead * WARP);
        to.scales = load_streamed(from.scales + ahead * (WARP / 4));
    }
};

// Nibbles with a scale per output and 32 inputs, as a half: value = (code - 8) * scale. A lane's 32 nibbles are 4 words, one for each 16
// inputs. Scales are of outputs g and g + 8: of inputs below 32 in the low half, of the others in the high one.
struct Centred : CodesAndScales<Words4, Words2> {
    static constexpr bool IS_HALF = false;
    static constexpr u32 SCALED = 2;
    static constexpr u32 BLOCKS = 4, BLOCKS_OF_16 = 3, BLOCKS_OF_32 = 2, GATED_BLOCKS = 3;
    static constexpr bool HAS_OFFSET = false;
    YGG_DEVICE static constexpr u32 ahead(u32 rows, bool is_gated) { return rows == 1 ? (is_gated ? 2 : 4) : rows == 2 && !is_gated ? 2 : 1; }
    YGG_DEVICE static void fragment(u32 (&a)[4], const Loaded& from, u32 k) {
        nibble_fragment(a, word_of(from.codes, k));
#pragma unroll
        for (u32 r = 0; r < 4; ++r) a[r] = exact_sum(a[r], 0xC308C308u); // -136: from 128 + code to code - 8
    }
    // Of inputs 32 i .. 32 i + 32 and output g + 8 half.
    YGG_DEVICE static Scale scale(const Loaded& from, u32 i, u32 half) {
        return {half_to_float(static_cast<u16>((half == 0 ? from.scales.x : from.scales.y) >> (i * 16))), 0.0f};
    }
};

// Nibbles with four words of scales: of outputs g and g + 8, of each those of inputs below 32, then of the others.
using NibblesAndWords = CodesAndScales<Words4, Words4>;

// The same with scale and minimum: value = code * scale + minimum.
struct Nibbles : NibblesAndWords {
    static constexpr bool IS_HALF = false;
    static constexpr u32 SCALED = 2;
    static constexpr u32 BLOCKS = 2, BLOCKS_OF_16 = 2, BLOCKS_OF_32 = 1, GATED_BLOCKS = 3;
    static constexpr bool HAS_OFFSET = true;
    YGG_DEVICE static constexpr u32 ahead(u32 rows, bool is_gated) { return is_gated && rows <= 2 ? 1 : rows == 1 ? 4 : 2; }
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
    static constexpr u32 BLOCKS = 2, BLOCKS_OF_16 = 2, BLOCKS_OF_32 = 1, GATED_BLOCKS = 2;
    static constexpr bool HAS_OFFSET = true;
    YGG_DEVICE static constexpr u32 ahead(u32 rows, bool is_gated) { return rows == 8 || (is_gated && rows == 2) ? 1 : 2; }
    struct Loaded {
        Words4 codes;
        Words4 scales[2]; // of outputs g and g + 8: scale and minimum of inputs below 32, then of the others
    };
    struct Source {
        const Words4 *codes, *scales;
    };
    YGG_DEVICE static Source source(const void* codes, const void* scales, u64 tile) {
        return {static_cast<const Words4*>(codes) + tile * WARP + lane(), static_cast<const Words4*>(scales) + tile * (WARP / 2) + lane() / 4 * 2};
    }
    YGG_DEVICE static void load(Loaded& to, const Source& from, u32 ahead) {
        to.codes = load_streamed(from.codes + ahead * WARP);
        to.scales[0] = load_streamed(from.scales + ahead * (WARP / 2));
        to.scales[1] = load_streamed(from.scales + ahead * (WARP / 2) + 1);
    }
    YGG_DEVICE static void fragment(u32 (&a)[4], const Loaded& from, u32 k) { nibble_fragment(a, word_of(from.codes, k)); }
    YGG_DEVICE static Scale scale(const Loaded& from, u32 i, u32 half) { return wide_scale(from.scales[half], i); }
};

// The same with codes of 5 bits: a tile's nibbles, then a word for each lane, of which bit 4 k + r + 16 i is the fifth of element i of register
// r in fragment k.
struct FivesWide {
    static constexpr bool IS_HALF = false;
    static constexpr u32 SCALED = 2;
    static constexpr u32 BLOCKS = 2, BLOCKS_OF_16 = 2, BLOCKS_OF_32 = 1, GATED_BLOCKS = 2;
    static constexpr bool HAS_OFFSET = true;
    YGG_DEVICE static constexpr u32 ahead(u32 rows, bool is_gated) { return rows == 8 || (is_gated && rows == 2) ? 1 : 2; }
    static constexpr u32 TILE = WARP + WARP / 4; // of four words
    struct Loaded {
        Words4 codes;
        Words4 scales[2]; // of outputs g and g + 8: scale and minimum of inputs below 32, then of the others
        u32 fifths;
    };
    struct Source {
        const Words4* codes;
        const u32* fifths;
        const Words4* scales;
    };
    YGG_DEVICE static Source source(const void* codes, const void* scales, u64 tile) {
        const Words4* of_tile = static_cast<const Words4*>(codes) + tile * TILE;
        return {of_tile + lane(), reinterpret_cast<const u32*>(of_tile + WARP) + lane(), static_cast<const Words4*>(scales) + tile * (WARP / 2) + lane() / 4 * 2};
    }
    YGG_DEVICE static void load(Loaded& to, const Source& from, u32 ahead) {
        to.codes = load_streamed(from.codes + ahead * TILE);
        to.fifths = load_streamed(from.fifths + ahead * (4 * TILE));
        to.scales[0] = load_streamed(from.scales + ahead * (WARP / 2));
        to.scales[1] = load_streamed(from.scales + ahead * (WARP / 2) + 1);
    }
    YGG_DEVICE static void fragment(u32 (&a)[4], const Loaded& from, u32 k) {
        nibble_fragment(a, word_of(from.codes, k));
#pragma unroll
        for (u32 r = 0; r < 4; ++r) {
            const u32 at = 4 * k + r;
            a[r] = masked_xor(at < 4 ? from.fifths << (4 - at) : from.fifths >> (at - 4), 0x00100010u, a[r]);
        }
    }
    YGG_DEVICE static Scale scale(const Loaded& from, u32 i, u32 half) { return wide_scale(from.scales[half], i); }
};

// Nibbles that choose among 16 numbers, with a scale for SCALED_TOGETHER fragments of an output.
template <u32 SCALED_TOGETHER> struct Chosen : NibblesAndWords {
    static constexpr bool IS_HALF = false;
    static constexpr u32 SCALED = SCALED_TOGETHER;
    static constexpr u32 BLOCKS = 3, BLOCKS_OF_16 = 2, BLOCKS_OF_32 = 1, GATED_BLOCKS = 2;
    static constexpr bool HAS_OFFSET = false;
    YGG_DEVICE static constexpr u32 ahead(u32 rows, bool is_gated) { return rows == 1 ? (is_gated ? 2 : 4) : rows == 2 && !is_gated ? 2 : 1; }
};

// Floats of 4 bits, a sign, two bits of exponent and one of mantissa, counted in halves, with a scale per output and 16 inputs, as bf16: of
// outputs g and g + 8 two words each, the first inputs in the low half.
struct Floats : Chosen<1> {
    // The same bits in a bf16 are a number so many times less.
    YGG_DEVICE static void fragment(u32 (&a)[4], const Loaded& from, u32 k) {
        const u32 word = word_of(from.codes, k);
#pragma unroll
        for (u32 r = 0; r < 4; ++r) {
            const u32 magnitude = masked_xor(r == 0 ? word << 6 : r == 1 ? word << 2 : word >> (4 * r - 6), 0x01C001C0u, 0);
            const u32 small = masked_xor(word << (12 - 4 * r), 0x80008000u, magnitude);
            a[r] = fma_bf16(small, 0x7F007F00u, 0x80008000u); // 2^127; and -0, which changes nothing
        }
    }
    YGG_DEVICE static Scale scale(const Loaded& from, u32 i, u32 half) {
        const u32 two = word_of(from.scales, 2 * half + i / 2);
        return {bits_to_float(i % 2 == 0 ? two << 16 : two & 0xFFFF0000u), 0.0f};
    }
};

// Nibbles that choose among the uneven steps of IQ4_NL and IQ4_XS, signed bytes, with a scale per output and 32 inputs, as f32.
struct Steps : Chosen<2> {
    YGG_DEVICE static void fragment(u32 (&a)[4], const Loaded& from, u32 k) {
        const u32 word = word_of(from.codes, k);
        // Bytes r of the first and of the second: the steps of nibbles r and r + 4.
        const u32 first = steps(word), second = steps(word >> 16);
#pragma unroll
        for (u32 r = 0; r < 4; ++r) a[r] = signed_bytes(select_bytes(first, second, 0x0400u + r * 0x0101u));
    }
    // Those of four nibbles: of either half of the table, by three bits, and then by the fourth.
    YGG_DEVICE static u32 steps(u32 nibbles) {
        const u32 by = nibbles & 0x7777u;
        const u32 low = select_bytes(0xBFAD9881u, 0xF6EADDCFu, by), high = select_bytes(0x26190D01u, 0x71594535u, by);
        return masked_xor(low ^ high, select_bytes(0, 0xFFFFFFFFu, nibbles >> 1 & 0x4444u), low);
    }
    YGG_DEVICE static Scale scale(const Loaded& from, u32 i, u32 half) { return {bits_to_float(word_of(from.scales, 2 * half + i)), 0.0f}; }
};

// Signed bytes with a scale per output and 32 inputs, as halves. A lane's 32 bytes are 8 words, two for each 16 inputs: registers 0
// and 1, then 2 and 3.
struct Bytes {
    static constexpr bool IS_HALF = false;
    static constexpr u32 SCALED = 2;
    static constexpr u32 BLOCKS = 3, BLOCKS_OF_16 = 2, BLOCKS_OF_32 = 1, GATED_BLOCKS = 3;
    static constexpr bool HAS_OFFSET = false;
    YGG_DEVICE static constexpr u32 ahead(u32 rows, bool is_gated) { return rows == 4 || (is_gated && rows <= 2) ? 1 : 2; }
    struct Loaded {
        Words4 codes[2];
        u32 scales[2]; // of outputs g and g + 8: inputs below 32 in the low half, the others in the high one
    };
    struct Source {
        const Words4* codes;
        const Words2* scales;
    };
    YGG_DEVICE static Source source(const void* codes, const void* scales, u64 tile) {
        return {static_cast<const Words4*>(codes) + tile * (2 * WARP) + lane(), static_cast<const Words2*>(scales) + tile * (WARP / 4) + lane() / 4};
    }
    YGG_DEVICE static void load(Loaded& to, const Source& from, u32 ahead) {
        to.codes[0] = load_streamed(from.codes + 2 * ahead * WARP);
        to.codes[1] = load_streamed(from.codes + (2 * ahead + 1) * WARP);
        const Words2 both = load_streamed(from.scales + ahead * (WARP / 4));
        to.scales[0] = both.x;
        to.scales[1] = both.y;
    }
    YGG_DEVICE static void fragment(u32 (&a)[4], const Loaded& from, u32 k) {
#pragma unroll
        for (u32 r = 0; r < 4; ++r) a[r] = signed_bytes(spread_bytes(word_of(from.codes[k / 2], k % 2 * 2 + r / 2), r % 2 * 2));
    }
    YGG_DEVICE static Scale scale(const Loaded& from, u32 i, u32 half) {
        return {half_to_float(static_cast<u16>(from.scales[half] >> (i * 16))), 0.0f};
    }
};

// Codes of 2 bits, with a scale and a minimum of 4 bits each per output and 16 inputs, and factors of both for 256 inputs as halves, which
// every tile has: value = code * scale * d - minimum * dmin. A lane's 32 codes are two words: bit pair 2 (4 (k % 2) + r) + 16 i of word k / 2 is
// element i of register r in fragment k. Scales are a byte for each 16 inputs of output g, and of g + 8, scales in the low bits; then their
// factors, d in the low half.
struct Twos : CodesAndScales<Words2, Words4> {
    static constexpr bool IS_HALF = false;
    static constexpr u32 SCALED = 1;
    static constexpr u32 BLOCKS = 2, BLOCKS_OF_16 = 2, BLOCKS_OF_32 = 1, GATED_BLOCKS = 2;
    static constexpr bool HAS_OFFSET = true;
    YGG_DEVICE static constexpr u32 ahead(u32 rows, bool) { return rows == 8 || rows == 2 ? 1 : 2; }
    YGG_DEVICE static void fragment(u32 (&a)[4], const Loaded& from, u32 k) {
        const u32 word = k < 2 ? from.codes.x : from.codes.y;
#pragma unroll
        for (u32 r = 0; r < 4; ++r) a[r] = masked_xor(word >> (8 * (k % 2) + 2 * r), 0x00030003u, 0x43004300u);
    }
    YGG_DEVICE static Scale scale(const Loaded& from, u32 i, u32 half) {
        const u32 both = word_of(from.scales, half) >> (8 * i), factors = word_of(from.scales, 2 + half);
        const float scale = mul_rn(half_to_float(static_cast<u16>(factors)), static_cast<float>(both & 15u));
        const float minimum = mul_rn(half_to_float(static_cast<u16>(factors >> 16)), static_cast<float>(both >> 4 & 15u));
        return nibble_scale(scale, -minimum);
    }
};

// Signed bytes of 6 bits with a scale per output and 16 inputs, as f32.
struct BytesWide {
    static constexpr bool IS_HALF = false;
    static constexpr u32 SCALED = 1;
    static constexpr u32 BLOCKS = 4, BLOCKS_OF_16 = 2, BLOCKS_OF_32 = 1, GATED_BLOCKS = 3;
    static constexpr bool HAS_OFFSET = false;
    YGG_DEVICE static constexpr u32 ahead(u32 rows, bool) { return rows == 4 ? 2 : 1; }
    struct Loaded {
        Words4 codes[2];
        Words4 scales[2]; // of outputs g and g + 8: one for each 16 inputs
    };
    struct Source {
        const Words4 *codes, *scales;
    };
    YGG_DEVICE static Source source(const void* codes, const void* scales, u64 tile) {
        return {static_cast<const Words4*>(codes) + tile * (2 * WARP) + lane(), static_cast<const Words4*>(scales) + tile * (WARP / 2) + lane() / 4 * 2};
    }
    YGG_DEVICE static void load(Loaded& to, const Source& from, u32 ahead) {
        to.codes[0] = load_streamed(from.codes + 2 * ahead * WARP);
        to.codes[1] = load_streamed(from.codes + (2 * ahead + 1) * WARP);
        to.scales[0] = load_streamed(from.scales + ahead * (WARP / 2));
        to.scales[1] = load_streamed(from.scales + ahead * (WARP / 2) + 1);
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

} // namespace ygg
